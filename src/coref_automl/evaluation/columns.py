"""The items of a finished evaluation as arrays. In: its folder. Out: columns, from items.jsonl or from an archive.

Arrays, not records: a hundred checkpoints of 11,000 items are a million rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.arrays import read_arrays
from coref_automl.errors import InputError
from coref_automl.records import ItemScore
from coref_automl.store import NOT_JSON, read_jsonl

ITEMS, RANKS = "items.jsonl", "ranks.npz"
FACTS = ("task", "cluster", "source", "tag", "distance")
OWN = ("pieces", "own_distance")
"""What a tokenizer makes of an item: an archive keeps it once, and again only where an evaluation differs."""
FLAGS = ("out_of_reach", "pronoun_between")
RULES = ("strict_rank", "lenient_rank", "word_rank")
NOT_RUN = -1
_NO_TEXT: dict[str, Any] = {"answer": "", "top": ()}

_HINTS = ItemScore.__annotations__
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "Task": (str,), "int": (int,), "bool": (bool,), "int | None": (int, type(None)), "tuple[str, ...]": (list,),
}  # fmt: skip
_LARGEST = 2**31 - 1
"""What a row may hold under a field's name: ranks and distances become arrays of 32 bits."""


def holds_text(folder: Path) -> bool:
    """Items with answers and words, as `evaluate` writes them; an archive has neither."""
    return (folder / ITEMS).is_file()


def has_items(folder: Path) -> bool:
    return holds_text(folder) or (folder / RANKS).is_file()


def read_columns(folder: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Fields of ItemScore as lists in the file's order, `item` first among them; a row of another version is an error."""
    if not holds_text(folder):
        try:
            held = _archived(folder)
            return {name: held[name].tolist() for name in ("item", *names)}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"{folder / RANKS} is damaged ({error}); make the archive again.") from error
    path = folder / ITEMS
    try:
        found = _rows(path)
        columns = {name: [row[name] for row in found] for name in ("item", *names)}
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} lacks {error} in a row; it was written by another version: evaluate again.") from error
    if not found:
        raise InputError(f"{path} holds no whole row; evaluate again.")
    for name, column in columns.items():
        if any(type(value) not in _KINDS[_HINTS[name]] or (type(value) is int and abs(value) > _LARGEST) for value in column):
            raise InputError(f"{path} has a {name} that is none in a row; it is damaged: evaluate again.")
    return columns


def read_scores(folder: Path) -> list[ItemScore]:
    """The same as records. Those of an archive have no answer and no words, and a number for a document's name."""
    if holds_text(folder):
        return [ItemScore.from_json(row) for row in read_jsonl(folder / ITEMS)]
    names = ("item", *FACTS, *FLAGS, *OWN, *RULES)
    columns = read_columns(folder, names[1:])
    rows = (dict(zip(names, values, strict=True)) for values in zip(*(columns[name] for name in names), strict=True))
    return [
        ItemScore(**{**row, "word_rank": None if row["word_rank"] == NOT_RUN else row["word_rank"]}, **_NO_TEXT) for row in rows
    ]


def whole_numbers(ranks: Sequence[int | None]) -> NDArray[np.int32]:
    """Ranks as an array; NOT_RUN for what was not run."""
    found = np.array(ranks, np.float64)
    return np.where(np.isnan(found), NOT_RUN, found).astype(np.int32)


def _archived(folder: Path) -> dict[str, NDArray[Any]]:
    """One evaluation of an archive: what its set shares, on its own rows, and what it adds."""
    own = _load(folder / RANKS)
    shared = _shared(_items_file(folder, str(own.pop("set"))))
    rows = own.pop("rows", np.arange(len(shared["item"])))
    return {name: column[rows] for name, column in shared.items()} | own


def items_name(fingerprint: str) -> str:
    """The file of an archive that holds the items of a set."""
    return f"items-{fingerprint}.npz"


def _items_file(folder: Path, fingerprint: str) -> Path:
    for above in folder.resolve().parents:
        if (found := above / items_name(fingerprint)).is_file():
            return found
    raise InputError(f"{folder} belongs to an archive whose {items_name(fingerprint)} is gone; make the archive again.")


@lru_cache(maxsize=4)
def _shared(path: Path) -> dict[str, NDArray[Any]]:
    return _load(path)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_arrays(path)
    except InputError as error:
        raise InputError(f"{path} cannot be read ({error}); make the archive again.") from error


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, parsed at once: three times as fast as line by line, which is left to say what is wrong with a line."""
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1].rstrip(b"\n")
    try:
        return list(json.loads(b"[" + whole.replace(b"\n", b",") + b"]"))
    except NOT_JSON:
        return list(read_jsonl(path))
