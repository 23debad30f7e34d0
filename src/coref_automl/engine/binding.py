"""What a folder was begun with. In: the binding on disk and this command's. Out: nothing, or a sentence on what differs.

A binding is what decides the numbers of a folder: settings by value, and what they name by its bytes, wherever that lies. It is
stored flat (training, studies) or in groups (relation extraction, coreference, tuning); both are read and compared here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.config import to_yaml
from coref_automl.decoder import read_stored
from coref_automl.errors import InputsChanged
from coref_automl.folders import MANIFEST
from coref_automl.store import write_json, write_text

BYTES = "bytes of the "
SAME = "pass the same settings to resume, or choose another --out"
_GROUPS = {"settings": "", "budget": "", "space": "space ", "fingerprints": BYTES, "bytes": BYTES}
"""What a group's names are preceded by."""
_MODEL = "model "
_WORDS = {
    "train": "training rows", "tokenizer_files": "tokenizer", "settings": "model's config or tokenizer settings",
    "models": "configs or tokenizers", "scorer": "scoring code",
}  # fmt: skip
_UNRECORDED = {f"{BYTES}{name}" for name in ("weights", "tokenizer_files", "settings", "models", "scorer")}
"""Bytes that earlier versions did not write down: where they are missing, nothing is known, and nothing is refused."""
_OFF: tuple[Any, ...] = (None, False, 0, "", "off", [], {})
"""Values that a setting has where it does nothing: a version without that setting does the same."""


class Binding(TypedDict):
    """What relation and coreference runs keep of it in their manifests."""

    settings: dict[str, Any]
    fingerprints: dict[str, str]


class _Begun(TypedDict):
    binding: Binding | None


def begin_run(run: Path, recipe: Any, binding: Binding, manifest: Callable[[], Mapping[str, Any]]) -> None:
    """Write a run's recipe and manifest, or refuse a folder that was begun with something else."""
    path = run / MANIFEST
    if path.is_file():
        check_binding(run, read_stored(path, _Begun)["binding"] or {}, binding)
        return
    write_text(run / "recipe.yaml", to_yaml(recipe))
    write_json(path, {**manifest(), "binding": binding})


def check_binding(place: Path | str, held: Mapping[str, Any], now: Mapping[str, Any], same: str = SAME) -> None:
    """Refuse a folder that was begun with other settings or bytes, and say which."""
    if differs := difference(held, now):
        raise InputsChanged(f"{place} was begun with {differs}; {same}.")


def difference(held: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing in which two bindings differ, in words; empty where they agree."""
    before, after = dict(_flat(held)), dict(_flat(now))
    for key in sorted({*before, *after}):
        if before.get(key) == after.get(key) or (key in _UNRECORDED and key not in before):
            continue
        if (key not in before or key not in after) and (before | after)[key] in _OFF:
            continue
        if key.startswith(BYTES):
            name = key.removeprefix(BYTES)
            return f"other {BYTES}{'model' if name.startswith(_MODEL) else _WORDS.get(name, name)} than this command has"
        return f"{_said(key, before)}, and this command has {_said(key, after)}"
    return ""


def _flat(binding: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, as JSON keeps them. A model is known by its bytes: the same one may be spelled another way."""
    for key, value in json.loads(json.dumps(binding)).items():
        if key in _GROUPS and isinstance(value, dict):
            for name, held in value.items():
                yield _GROUPS[key] + (f"{_MODEL}{held}" if key == "bytes" and name.startswith(_MODEL) else name), held
        else:
            yield key, value


def _said(key: str, values: Mapping[str, Any]) -> str:
    if key not in values:
        return f"no {key}"
    value = values[key]
    return f"{key} {', '.join(map(str, value)) or 'none' if isinstance(value, list) else repr(value)}"
