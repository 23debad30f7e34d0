"""Load a model and its tokenizer, or raise a one-line error. In: a hub id, a folder, or `bundled:` name. Out: LoadedModel.

Every weight that the model needs must be in the file, with the right shape; unused weights are listed in the notes. Code from a
model's repository is never run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.base.errors import ModelError, WorkError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.machine import is_out_of_memory, pick_device, without_panics
from coref_automl.models import checks, model_files
from coref_automl.models.families import family, length_of, too_long
from coref_automl.models.tokenizer_files import check_tokenizer_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A masked language model ready to run. `notes` are for people: what was chosen automatically, which weights are unused."""

    model: Any
    tokenizer: Any
    family: str
    seq_len: int
    notes: tuple[str, ...]


def load_tokenizer(model: str, folder: Path | None = None) -> PreTrainedTokenizerFast:
    """Load a fast tokenizer; `folder` is the model's, if it is known."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = folder or model_files.folder_of(model, weights=False)
    check_tokenizer_files(model, folder)
    try:
        with quiet_library(), without_panics():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
            tokenizer("한국어")  # a wrong value in its config only fails in use
    except Exception as error:  # the library raises many types for a damaged or foreign tokenizer
        raise ModelError(f"The tokenizer of {model} cannot be read ({_first_line(error)}); copy it from the base.") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"{model} has a tokenizer without character offsets; save it as tokenizer.json first.")
    if (unknown := tokenizer.unk_token) is not None and tokenizer.backend_tokenizer.token_to_id(unknown) is None:
        raise ModelError(f"{folder / 'tokenizer_config.json'}: unk_token {unknown!r} is not in the vocabulary; name one that is.")
    return tokenizer


def load_masked_lm(
    model: str, *, seq_len: int | None = None, device: str = "cpu", new_head: bool | None = None, attention: str = "auto"
) -> LoadedModel:
    """Load a model with its mask head, and lengthen it if `seq_len` is more than it reads.

    `device`: cpu, cuda, cuda:N, or auto. `attention`: auto, packed, sdpa, eager, fused. `new_head` allows a new mask head;
    None: the caller has no option for it.
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
    masked_lm, notes = _load(AutoModelForMaskedLM, model, files, device, new_head)
    notes += bucket_fault(masked_lm.config)
    longest = length_of(masked_lm.config)
    if seq_len is not None and seq_len > longest:
        notes += lengthen(masked_lm, seq_len)
    elif seq_len is None:
        seq_len = model_files.trained_length(files.folder, longest)
    notes += use_attention(masked_lm, attention)
    masked_lm.eval()
    return LoadedModel(masked_lm, files.tokenizer, masked_lm.config.model_type, seq_len, tuple(notes))


def load_encoder(model: str, *, device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load the encoder alone, without pooler or head, also of an ELECTRA discriminator."""
    from transformers import AutoModel

    from coref_automl.models.execution import use_attention

    files = _files(model)
    options = {"add_pooling_layer": False} if family(files.config.model_type).pooler else {}
    encoder, _ = _load(AutoModel, model, files, device, False, **options)
    use_attention(encoder, "auto")
    encoder.eval()
    return encoder, files.tokenizer


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Fingerprint a vocabulary and the rules that split text into it; padding, truncation and templates do not count."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    added = sorted([entry["id"], entry["content"]] for entry in rules.get("added_tokens", ()))
    return fingerprint([rules.get("normalizer"), rules.get("pre_tokenizer"), rules["model"], added])


Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Files:
    """The contents of a model's folder, checked against each other."""

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
    """Load the config; for DeBERTa-v2 the weights decide which head it has."""
    from transformers import AutoConfig

    stored = model_files.config_of(folder)
    family(stored["model_type"], str(folder))
    checks.check_layers(folder, stored, shapes)
    try:
        with quiet_library():
            config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the library's own checks of a config raise many types
        raise ModelError(f"{folder / 'config.json'} cannot be read ({_first_line(error)}); copy the checkpoint again.") from error
    if config.model_type == "deberta-v2":
        new_head = any(name.startswith("lm_predictions.") for name in shapes) and "cls.predictions.bias" not in shapes
        if new_head and "legacy" not in stored:
            config.legacy = False
        if not config.legacy:
            # this head multiplies by the word embeddings itself; with tied weights the library would fail to load it again
            config.tie_word_embeddings = False
    return config


def _load(kind: Any, name: str, files: _Files, device: str, new_head: bool | None, **options: Any) -> tuple[Any, list[str]]:
    """Load the model; the notes are about its weights."""
    import torch

    device, folder, config = pick_device(device), files.folder, files.config
    try:
        with quiet_library(), torch.random.fork_rng(devices=[]):
            checks.check_size(folder, kind, config, files.shapes, **options)
            torch.manual_seed(0)  # the same new head in every process
            model, info = kind.from_pretrained(
                str(folder),
                config=config,
                dtype=torch.float32,
                use_safetensors=files.safetensors,
                weights_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # reported below, in place of the library's table
                output_loading_info=True,
                **options,
            )
            info["missing_keys"] = _without_decoder_bias(model, info["missing_keys"])
            return model.to(device), checks.check_loading_report(name, model, info, new_head=new_head)
    except ModelError:
        raise
    except Exception as error:  # the library raises many types; users need the folder and the reason
        if is_out_of_memory(error):
            raise WorkError(f"{folder} does not fit in the memory of {device}; free some, or pass another device.") from error
        raise ModelError(
            f"{folder} cannot be loaded as {config.model_type} ({_first_line(error)}); pass another checkpoint."
        ) from error


def _without_decoder_bias(model: Any, missing: Iterable[str]) -> list[str]:
    """Fill the missing bias of an untied decoder from the head's bias, as in older files; return the other missing weights."""
    import torch

    parameters, others = dict(model.named_parameters()), []
    for key in missing:
        head_bias = f"{key.removesuffix('decoder.bias')}bias"
        if key.endswith(".decoder.bias") and key in parameters and head_bias in parameters and head_bias not in missing:
            with torch.no_grad():
                parameters[key].copy_(parameters[head_bias])
        else:
            others.append(key)
    return others


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].strip().rstrip('.')[:200]}" if text else type(error).__name__


@contextmanager
def quiet_library(*, errors: bool = False) -> Iterator[None]:
    """Silence the tables and progress bars of transformers; our notes, errors and events replace them."""
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
