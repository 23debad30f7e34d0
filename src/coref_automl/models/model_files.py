"""A model as files. In: a hub id, a folder, or `bundled:` name. Out: the folder, its config, its weights' shapes, fingerprints.

torch is only imported for weights in the old `.bin` format.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from coref_automl.base.errors import InputError, ModelError
from coref_automl.base.fingerprints import fingerprint, fingerprint_files
from coref_automl.base.folders import State, expand_home, is_folder, is_there, natural_order, state_of
from coref_automl.base.guard import LINE, TooLarge, check_packed, refuse_special
from coref_automl.base.store import read_json
from coref_automl.models.families import family, length_of
from coref_automl.models.tokenizer_files import TOKENIZER_FILES, has_tokenizer, require_tokenizer

BUNDLED = {"bundled:ko-mini": "ko-mini"}
SETTINGS = "settings"
PARTS = {
    "weights": ("가중치", "weights"),
    "tokenizer_files": ("토크나이저", "tokenizer files"),
    SETTINGS: ("설정", "config or tokenizer settings"),
}
"""The parts of `model_fingerprints`, in words."""
_TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_NEUTRAL = {"_name_or_path", "name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "_commit_hash"}
"""Settings without effect on scores."""
_ASSETS = Path(__file__).parent.parent / "assets" / "models"
_HUB_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.))\w([\w.-]*\w)?(/\w([\w.-]*\w)?)?", re.ASCII)
_SMALL = ["config.json", "training.json", "tokenizer*", *_TOKENIZER_SETTINGS[1:], "vocab*", "merges.txt", "*.model"]
_SAFE, _OLD = ["model*.safetensors", "model.safetensors.index.json"], ["pytorch_model*.bin", "pytorch_model.bin.index.json"]


def resolve(model: str) -> str:
    """Return what `from_pretrained` takes: an existing folder, or a hub id."""
    if model in BUNDLED:
        folder = _ASSETS / BUNDLED[model]
        if not (folder / "config.json").is_file():
            raise ModelError(f"{model} is not part of this installation; reinstall it, or pass --model with a folder or hub id.")
        return str(folder)
    path = expand_home(model)
    if model and path.is_dir():
        refuse_adapter(path)
        return str(path)
    if path.is_file():
        raise ModelError(f"{model} is a file; pass the folder that holds config.json and the weights.")
    if model.startswith("bundled:"):
        raise ModelError(f"Unknown model {model}; bundled models: {', '.join(BUNDLED)}.")
    if not _HUB_ID.fullmatch(model):
        raise ModelError(f"{model} is neither a folder nor a hub id; check the path.")
    return model


def full_name(model: str) -> str:
    """Return a name that does not depend on the current folder: the absolute path of a folder, or the name unchanged."""
    return str(expand_home(model).resolve()) if model and is_folder(expand_home(model)) else model


def is_local(model: str) -> bool:
    """Tell whether a model can be opened without a download: a folder, a bundled model, or one in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    if is_folder(expand_home(model)) or model in BUNDLED:
        return True
    return bool(_HUB_ID.fullmatch(model)) and isinstance(try_to_load_from_cache(model, "config.json"), str)


def model_state(model: str) -> State:
    """The state of a model's folder, for caches; empty for a hub id, whose files do not change."""
    name = resolve(model)
    return state_of(Path(name)) if is_folder(name) else ()


def folder_of(model: str, *, weights: bool = True) -> Path:
    """Return the folder of a model; a hub id is downloaded (without `weights` only the small files) or found in the cache."""
    name = resolve(model)
    folder = Path(name) if Path(name).is_dir() else _from_hub(name, _SMALL)
    try:
        for path in folder.iterdir():
            if not path.is_dir():
                refuse_special(path)  # the library would open a pipe by its name, and wait for ever
    except PermissionError as error:
        raise ModelError(f"{folder} cannot be read ({error.strerror}); make it readable, or pass another checkpoint.") from error
    if not (folder / "config.json").is_file() and not (not weights and has_tokenizer(folder)):
        refuse_sentence_transformer(folder)
        inside = sorted((path.name for path in folder.glob("checkpoint-*") if path.is_dir()), key=natural_order)
        hint = f"pass a checkpoint, such as {folder / inside[-1]}" if inside else "pass a folder that save_pretrained wrote"
        raise ModelError(f"{folder} is not a checkpoint (it has no config.json); {hint}.")
    if weights and folder != Path(name):
        folder = _from_hub(name, _SMALL + _SAFE)
        if not any(folder.glob("*.safetensors")):
            folder = _from_hub(name, _SMALL + _OLD)
    return folder


def refuse_adapter(folder: Path) -> None:
    """Refuse an adapter, even beside a whole model: with peft, transformers would load both, and without it, the model alone."""
    if is_there(folder / "adapter_config.json"):
        raise ModelError(
            f"{folder} has a LoRA adapter (adapter_config.json); merge it into its base (merge_and_unload), save the result "
            "into a folder of its own (save_pretrained), and pass that."
        )


def refuse_sentence_transformer(folder: Path) -> None:
    """Refuse a folder of sentence-transformers whose encoder lies in a folder below."""
    if (folder / "modules.json").is_file():
        raise ModelError(f"{folder} is a sentence-transformers model; pass {folder / '0_Transformer'}, its encoder.")


def config_of(folder: Path) -> dict[str, Any]:
    config = _json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelError(f"{folder / 'config.json'} has no model_type; pass a folder written by save_pretrained.")
    return config


def weight_files(folder: Path) -> list[Path]:
    """List the files of the weights, safetensors if there are any; a folder without weights is an error."""
    for single in ("model.safetensors", "pytorch_model.bin"):
        if (folder / single).is_file():
            return [folder / single]
        index = folder / f"{single}.index.json"
        if index.is_file():
            content = _json(index)
            if not isinstance(content, dict) or not isinstance(content.get("weight_map"), dict):
                raise ModelError(f"{index} names no weights; copy the checkpoint again.")
            names = sorted({str(name) for name in content["weight_map"].values()})
            if outside := [name for name in names if PurePath(name).is_absolute() or ".." in PurePath(name).parts]:
                raise ModelError(
                    f"{index} names {outside[0]}, which lies outside its folder, and is not followed; copy the checkpoint again."
                )
            if lost := [name for name in names if not (folder / name).is_file()]:
                raise ModelError(f"{folder} lacks {lost[0]}, which its index names; copy the checkpoint again.")
            return [folder / name for name in names]
    raise ModelError(f"{folder} has no weights (model.safetensors or pytorch_model.bin); copy it again or pass another.")


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by name, without reading the weights. A damaged or truncated file is an error."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        shapes |= _safetensors_shapes(path) if path.suffix == ".safetensors" else _pickled_shapes(path)
    return shapes


def detect_seq_len(model: str) -> int:
    """Return the length a model reads: the one it was trained at if training.json has it, else the config's."""
    folder = folder_of(model, weights=False)
    config = config_of(folder)
    family(config["model_type"], model)
    return trained_length(folder, length_of(config))


def trained_length(folder: Path, longest: int) -> int:
    """Return the length in training.json if there is one and the model reads as much, else `longest`."""
    if (folder / "training.json").is_file():
        content = _json(folder / "training.json")
        trained = content.get("seq_len") if isinstance(content, dict) else None
        if isinstance(trained, int) and 0 < trained <= longest:
            return trained
    return longest


def weights_fingerprint(model: str) -> str:
    """Fingerprint the bytes of the weights, which link a checkpoint to its base wherever both are."""
    return model_fingerprints(model)["weights"]


def published_files(folder: Path) -> list[Path]:
    """List the files of a model that others can load: config, weights with their index, tokenizer."""
    config_of(folder)
    weight_shapes(folder)
    require_tokenizer(folder)
    indices = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
    small = ("config.json", *TOKENIZER_FILES, "merges.txt", *_TOKENIZER_SETTINGS, *indices)
    return [*(folder / name for name in small if (folder / name).is_file()), *weight_files(folder)]


def model_fingerprints(model: str, *, weights: bool = True) -> dict[str, str]:
    """Identify a model by fingerprints of its weights, its tokenizer's files and the settings of both.

    Code that finishes, resumes or reuses work on a model compares these. Without `weights`, only its tokenizer and settings.
    """
    folder = folder_of(model, weights=weights)
    names = TOKENIZER_FILES if (folder / "tokenizer.json").is_file() else (*TOKENIZER_FILES, "merges.txt")
    files = {"weights": weight_files(folder)} if weights else {}
    files |= {"tokenizer_files": [folder / name for name in names if (folder / name).is_file()]}
    try:
        fingerprints = {name: fingerprint_files(paths) for name, paths in files.items()}
    except OSError as error:
        raise ModelError(f"{error.filename or folder} cannot be read ({error.strerror}); make it readable.") from error
    return {**fingerprints, SETTINGS: _settings_fingerprint(folder)}


def models_fingerprint(models: Iterable[str]) -> str:
    """Fingerprint the configs and tokenizers of several models, in any order and by any name, without their weights."""
    fingerprints = (model_fingerprints(model, weights=False) for model in models)
    return fingerprint(sorted(sorted(parts.items()) for parts in fingerprints))


def folder_fingerprint(folder: Path) -> str:
    """Fingerprint the folder of a fine-tuned model: all of its files. Empty if there are none."""
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    return fingerprint(sorted(path.name for path in files), fingerprint_files(files)) if files else ""


def _settings_fingerprint(folder: Path) -> str:
    """Fingerprint a model's config and its tokenizer's settings, without neutral ones such as a path or a version."""
    settings = {}
    for name in ("config.json", *_TOKENIZER_SETTINGS):
        if (folder / name).is_file():
            content = _json(folder / name)
            settings[name] = {key: content[key] for key in content.keys() - _NEUTRAL} if isinstance(content, dict) else content
    return fingerprint(settings)


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except InputError as error:
        raise ModelError(f"{str(error).rstrip('.')}; copy the checkpoint again or pass another.") from error


def _from_hub(name: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns))
    except GatedRepoError as error:
        raise ModelError(f"{name} is gated: accept its terms on the hub, run `hf auth login`, and try again.") from error
    except RepositoryNotFoundError as error:
        raise ModelError(f"{name} is neither a folder here nor a model on the hub; check the name.") from error
    except Exception as error:  # the network raises many types; --debug prints the traceback
        why = "cannot be reached" if isinstance(error, LocalEntryNotFoundError) else f"did not give it ({type(error).__name__})"
        raise ModelError(
            f"{name} is not a folder here, and the hub {why}; check the name, or download it where there is network and pass its "
            f"folder, or use bundled:ko-mini."
        ) from error
    if not folder.is_dir():  # no file matched, so nothing was written
        raise ModelError(f"{name} on the hub has no model (it has no config.json); check the name.")
    refuse_adapter(folder)
    return folder


def read_head(path: Path) -> dict[str, Any]:
    """Read the tensors of a fine-tuned head, which is stored beside its encoder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    refuse_special(path)
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} is missing or damaged ({error}); train that seed again.") from error


def _safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes from the header; safetensors checks it, and that the file has exactly the length it says."""
    from safetensors import SafetensorError, safe_open

    with path.open("rb") as handle:
        if LINE < (header := int.from_bytes(handle.read(8), "little")) < path.stat().st_size:
            raise TooLarge(f"{path} has a header of {header:,} bytes; it is damaged, copy the checkpoint again.")
    try:
        with safe_open(path, framework="np") as weights:
            return {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise ModelError(f"{path} is damaged ({error}); copy the checkpoint again, or pass an earlier one.") from error


def _pickled_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    import torch

    check_packed(path)
    try:
        state = torch.load(path, map_location="meta", weights_only=True)
        return {name: tuple(value.shape) for name, value in state.items()}
    except Exception as error:  # torch raises many types for a damaged file, and for a pickle with more than weights
        raise ModelError(f"{path} is not plain weights ({type(error).__name__}); convert it to safetensors.") from error
