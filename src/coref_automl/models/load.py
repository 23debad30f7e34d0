"""Load a model and its tokenizer, or say in one sentence why not. In: a hub id, a folder, or `bundled:` name. Out: LoadedModel.

Every weight that the model needs must be in the file, with the right shape; what the file holds beyond that is listed. Code from
a model's repository is never run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.errors import ModelError, WorkError
from coref_automl.fingerprints import fingerprint
from coref_automl.machine import is_out_of_memory, pick_device, without_panics
from coref_automl.models import checks, model_files
from coref_automl.models.families import family, length_of, too_long
from coref_automl.models.tokenizer_files import check_tokenizer_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A masked language model ready to run. `notes` are sentences a person should read: what was decided, what was left out."""

    model: Any
    tokenizer: Any
    family: str
    seq_len: int
    notes: tuple[str, ...]


def load_tokenizer(model: str, folder: Path | None = None) -> PreTrainedTokenizerFast:
    """`folder`: where the model lies, if that is known."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = folder or model_files.folder_of(model, weights=False)
    check_tokenizer_files(model, folder)
    try:
        with quiet_library(), without_panics():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
            tokenizer("한국어")  # a wrong value in its config shows in use alone
    except Exception as error:  # the library raises many kinds for a damaged or foreign tokenizer
        raise ModelError(
            f"The tokenizer of {model} cannot be read ({_first_line(error)}); copy it again from the base model."
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"{model} has a tokenizer without character offsets; save it as tokenizer.json first.")
    if (unknown := tokenizer.unk_token) is not None and tokenizer.backend_tokenizer.token_to_id(unknown) is None:
        raise ModelError(f"{folder / 'tokenizer_config.json'}: unk_token {unknown!r} is not in the vocabulary; name one that is.")
    return tokenizer


def load_masked_lm(
    model: str, *, seq_len: int | None = None, device: str = "cpu", new_head: bool | None = None, attention: str = "auto"
) -> LoadedModel:
    """A model with its mask head, lengthened when `seq_len` asks for more than it reads.

    `device`: cpu, cuda, cuda:N, or auto. `attention`: auto, sdpa, eager, fused. `new_head` allows a mask head that starts from
    random weights; None where no command offers that.
    """
    from transformers import AutoModelForMaskedLM

    from coref_automl.models.context import bucket_fault, lengthen
    from coref_automl.models.execution import use_attention

    if seq_len is not None and seq_len < 1:
        raise ModelError(f"A model cannot read {seq_len} tokens; pass --seq-len 512 or another length above 0.")
    if seq_len is not None and (why := too_long(seq_len)):
        raise ModelError(f"A model's length {why}.")
    files = _files(model)
    checks.check_head(model, files.tokenizer, files.shapes, new_head=new_head)
    loaded, notes = _loaded(AutoModelForMaskedLM, model, files, device, new_head)
    notes += bucket_fault(loaded.config)
    longest = length_of(loaded.config)
    if seq_len is not None and seq_len > longest:
        notes += lengthen(loaded, seq_len)
    elif seq_len is None:
        seq_len = model_files.trained_length(files.folder, longest)
    notes += use_attention(loaded, attention)
    loaded.eval()
    return LoadedModel(loaded, files.tokenizer, loaded.config.model_type, seq_len, tuple(notes))


def load_encoder(model: str, *, device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The encoder alone, without pooler or head; an ELECTRA discriminator will do."""
    from transformers import AutoModel

    from coref_automl.models.execution import use_attention

    files = _files(model)
    options = {"add_pooling_layer": False} if family(files.config.model_type).pooler else {}
    loaded, _ = _loaded(AutoModel, model, files, device, False, **options)
    use_attention(loaded, "auto")
    loaded.eval()
    return loaded, files.tokenizer


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A short name of a vocabulary and of the rules that cut text into it; padding, truncation and templates do not count."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    added = sorted([entry["id"], entry["content"]] for entry in rules.get("added_tokens", ()))
    return fingerprint([rules.get("normalizer"), rules.get("pre_tokenizer"), rules["model"], added])


Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Files:
    """What a model's folder holds, and fits together."""

    folder: Path
    shapes: Shapes
    safetensors: bool
    config: Any
    tokenizer: PreTrainedTokenizerFast


def _files(model: str) -> _Files:
    folder = model_files.folder_of(model)
    is_safe, shapes = model_files.weight_files(folder)[0].suffix == ".safetensors", model_files.weight_shapes(folder)
    config, tokenizer = _config(folder, shapes), load_tokenizer(model, folder)
    checks.check_tokenizer(model, tokenizer, config)
    return _Files(folder, shapes, is_safe, config, tokenizer)


def _config(folder: Path, shapes: Shapes) -> Any:
    """The config, with what the weights themselves say about its head."""
    from transformers import AutoConfig

    written = model_files.config_of(folder)
    family(written["model_type"], str(folder))
    checks.check_layers(folder, written, shapes)
    try:
        with quiet_library():
            config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the library's own checks of a config raise many kinds
        raise ModelError(f"{folder / 'config.json'} cannot be read ({_first_line(error)}); copy the checkpoint again.") from error
    if config.model_type == "deberta-v2":
        new_head = any(name.startswith("lm_predictions.") for name in shapes) and "cls.predictions.bias" not in shapes
        if new_head and "legacy" not in written:
            config.legacy = False
        if not config.legacy:
            # this head multiplies by the word embeddings itself, and the library fails on a reload that ties what is not there
            config.tie_word_embeddings = False
    return config


def _loaded(kind: Any, name: str, files: _Files, device: str, new_head: bool | None, **options: Any) -> tuple[Any, list[str]]:
    """The model, and what a person should know of its weights."""
    import torch

    device, folder, config = pick_device(device), files.folder, files.config
    try:
        with quiet_library(), torch.random.fork_rng(devices=[]):
            checks.check_size(folder, kind, config, files.shapes, **options)
            torch.manual_seed(0)  # a new head starts the same way in every process
            loaded, info = kind.from_pretrained(
                str(folder),
                config=config,
                dtype=torch.float32,
                use_safetensors=files.safetensors,
                weights_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # reported below with every name, instead of the first table the library prints
                output_loading_info=True,
                **options,
            )
            info["missing_keys"] = _without_twins(loaded, info["missing_keys"])
            return loaded.to(device), checks.judge(name, loaded, info, new_head=new_head)
    except ModelError:
        raise
    except Exception as error:  # the library raises many kinds; what was asked for and the reason are what a user needs
        if is_out_of_memory(error):
            raise WorkError(f"{folder} does not fit in the memory of {device}; free some, or pass another device.") from error
        raise ModelError(
            f"{folder} cannot be loaded as {config.model_type} ({_first_line(error)}); pass another checkpoint."
        ) from error


def _without_twins(model: Any, missing: Iterable[str]) -> list[str]:
    """Missing weights, less the bias of an untied decoder: in files of earlier versions the head's own bias is that too."""
    import torch

    held, left = dict(model.named_parameters()), []
    for key in missing:
        twin = f"{key.removesuffix('decoder.bias')}bias"
        if key.endswith(".decoder.bias") and key in held and twin in held and twin not in missing:
            with torch.no_grad():
                held[key].copy_(held[twin])
        else:
            left.append(key)
    return left


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].strip().rstrip('.')[:200]}" if text else type(error).__name__


@contextmanager
def quiet_library(*, errors: bool = False) -> Iterator[None]:
    """No tables and bars of transformers: what matters of them is in our notes, errors and events."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.ERROR if errors else logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
