"""What a folder's results depend on. In: the stored binding and this command's. Out: nothing, or a sentence on what differs.

A binding is what decides the numbers in a folder: settings by value, and what they name by its bytes, wherever that lies. It is
stored flat (training, studies) or in groups (relation extraction, coreference, tuning); both are read and compared here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.base.config import to_yaml
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import InputsChanged
from coref_automl.base.folders import MANIFEST
from coref_automl.base.store import write_json, write_text

BYTES = "bytes of the "
SAME = "pass the same settings to resume, or choose another --out"
_GROUPS = {"settings": "", "budget": "", "space": "space ", "fingerprints": BYTES, "bytes": BYTES}
"""The prefix of the names in a group."""
_MODEL = "model "
_WORDS = {
    "train": "training rows", "tokenizer_files": "tokenizer", "settings": "model's config or tokenizer settings",
    "models": "configs or tokenizers", "scorer": "scoring code",
}  # fmt: skip
_UNRECORDED = {f"{BYTES}{name}" for name in ("weights", "tokenizer_files", "settings", "models", "scorer")}
"""Fingerprints that earlier versions did not store: if they are missing, nothing is refused."""
_NEUTRAL: tuple[Any, ...] = (None, False, 0, "", "off", [], {})
"""Neutral values: a missing setting, of a version without it, equals any of these."""


class Binding(TypedDict):
    """The binding of a relation or coreference run, in its manifest."""

    settings: dict[str, Any]
    fingerprints: dict[str, str]


class _Begun(TypedDict, total=False):
    binding: dict[str, Any] | None


def stored_binding(folder: Path) -> dict[str, Any]:
    """The binding in the manifest of a folder; empty for one that was begun without."""
    return read_stored(folder / MANIFEST, _Begun).get("binding") or {}


def begin_run(run: Path, recipe: Any, binding: Binding, manifest: Callable[[], Mapping[str, Any]]) -> None:
    """Write the recipe and manifest of a new run, or check the binding of an existing one."""
    path = run / MANIFEST
    if path.is_file():
        check_binding(run, stored_binding(run), binding)
        return
    write_text(run / "recipe.yaml", to_yaml(recipe))
    write_json(path, {**manifest(), "binding": binding})


def check_binding(place: Path | str, stored: Mapping[str, Any], current: Mapping[str, Any], advice: str = SAME) -> None:
    """Refuse a folder that was begun with other settings or bytes, and say which."""
    if differs := difference(stored, current):
        raise InputsChanged(f"{place} was begun with {differs}; {advice}.")


def difference(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """The first difference of two bindings, in words; empty if they agree."""
    before, after = dict(_flat(stored)), dict(_flat(current))
    for key in sorted({*before, *after}):
        if before.get(key) == after.get(key) or (key in _UNRECORDED and key not in before):
            continue
        if (key not in before or key not in after) and (before | after)[key] in _NEUTRAL:
            continue
        if key.startswith(BYTES):
            name = key.removeprefix(BYTES)
            return f"other {BYTES}{'model' if name.startswith(_MODEL) else _WORDS.get(name, name)} than this command has"
        return f"{_in_words(key, before)}, and this command has {_in_words(key, after)}"
    return ""


def _flat(binding: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values as JSON stores them. A model's name is its hash: the same model may have another path."""
    for key, value in json.loads(json.dumps(binding)).items():
        if key in _GROUPS and isinstance(value, dict):
            for name, entry in value.items():
                yield _GROUPS[key] + (f"{_MODEL}{entry}" if key == "bytes" and name.startswith(_MODEL) else name), entry
        else:
            yield key, value


def _in_words(key: str, values: Mapping[str, Any]) -> str:
    if key not in values:
        return f"no {key}"
    value = values[key]
    return f"{key} {', '.join(map(str, value)) or 'none' if isinstance(value, list) else repr(value)}"
