"""The scored items of a finished evaluation as columns. In: its folder. Out: lists and arrays, with text or archived without.

    items.jsonl                              one ItemScore per line, as `evaluate` writes them
    ARCHIVE/items-<fingerprint>.npz          the items of a set, once for all its evaluations
    ARCHIVE/.../ranks.npz                    the ranks of one evaluation

Columns, not records: a hundred checkpoints of 11,000 items are a million rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.decoder import DecodeError, decoder_of, hints_of, read_stored_rows, short_repr
from coref_automl.base.errors import InputError
from coref_automl.base.folders import version_of
from coref_automl.base.guard import parse_json, read_arrays, read_whole
from coref_automl.base.records import ClozeItem, ItemScore
from coref_automl.base.store import NOT_JSON, atomic_write, read_jsonl

ITEMS, RANKS = "items.jsonl", "ranks.npz"
FACTS = ("task", "cluster", "source", "tag", "distance")
OWN = ("pieces", "own_distance")
"""Columns that depend on the tokenizer: an archive stores them once, and again for evaluations where they differ."""
_SHARED = (*FACTS, *OWN)
_NO_TEXT: dict[str, Any] = {"answer": "", "top": (), "ahead": ()}

_REMEDY = "the file was edited: remove its folder, and evaluate again"
_LARGEST = 2**31 - 1
"""Ranks and distances are stored as 32-bit integers."""


def holds_text(folder: Path) -> bool:
    """Whether the items have answers and words; those of an archive have neither."""
    return (folder / ITEMS).is_file()


def has_items(folder: Path) -> bool:
    return holds_text(folder) or (folder / RANKS).is_file()


def read_columns(folder: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """`item` and these fields of ItemScore as lists in the file's order; a row of another version is an error."""
    if not holds_text(folder):
        try:
            columns = _archived(folder)
            return {name: columns[name].tolist() for name in ("item", *names)}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"{folder / RANKS} is damaged ({error}); make the archive again.") from error
    path = folder / ITEMS
    rows = _rows(path)
    if not rows:
        raise InputError(f"{path} holds no whole row; {_REMEDY}.")
    return {name: _column(rows, name, path) for name in ("item", *names)}


def _column(rows: Sequence[dict[str, Any]], name: str, path: Path) -> list[Any]:
    decode = decoder_of(hints_of(ItemScore)[name])
    for number, row in enumerate(rows, 1):
        try:
            value = row[name]
            decode(value)
            if type(value) is int and abs(value) > _LARGEST:
                raise DecodeError(f"should be a whole number of 32 bits, not {short_repr(value)}")
        except (KeyError, TypeError, IndexError):
            raise InputError(f"{path}, line {number}: the key {name!r} is missing; {_REMEDY}.") from None
        except DecodeError as error:
            raise InputError(f"{error.inside(f'.{name}').at(f'{path}, line {number}')}; {_REMEDY}.") from None
    return [row[name] for row in rows]


def read_scores(folder: Path) -> list[ItemScore]:
    """The items as records. Archived ones have no answer and no words, and a number instead of a document's name."""
    if holds_text(folder):
        return read_items(folder / ITEMS)
    names = ("item", *_SHARED, "rank", "out_of_reach", "bonus_hits")
    columns = read_columns(folder, names[1:])
    rows = (dict(zip(names, values, strict=True)) for values in zip(*(columns[name] for name in names), strict=True))
    return [ItemScore(**{**row, "bonus_hits": tuple(row["bonus_hits"])}, **_NO_TEXT) for row in rows]


def read_items(path: Path) -> list[ItemScore]:
    return list(read_stored_rows(path, ItemScore, remedy=_REMEDY))


def lacks(folder: Path, items: Sequence[ClozeItem]) -> bool:
    """Whether a finished evaluation lacks an item."""
    return not {item.id for item in items} <= set(read_columns(folder, ())["item"])


def _archived(folder: Path) -> dict[str, NDArray[Any]]:
    """The columns of an archived evaluation: those of its set, at its rows, and its own."""
    own = _load(folder / RANKS)
    items = _items_file(folder, str(own.pop("set")))
    shared = _load_shared(items, version_of(items))
    rows = own.pop("rows", np.arange(len(shared["item"])))
    columns = {name: column[rows] for name, column in shared.items()} | own
    columns.setdefault("bonus_hits", np.zeros((len(rows), 0), np.bool_))
    return columns


def items_name(fingerprint: str) -> str:
    """The file of an archive that holds the items of a set."""
    return f"items-{fingerprint}.npz"


def _items_file(folder: Path, fingerprint: str) -> Path:
    for parent in folder.resolve().parents:
        if (path := parent / items_name(fingerprint)).is_file():
            return path
    raise InputError(f"{folder} belongs to an archive whose {items_name(fingerprint)} is gone; make the archive again.")


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_arrays(path)
    except InputError as error:
        raise InputError(f"{path} cannot be read ({error}); make the archive again.") from error


_load_shared = lru_cache(maxsize=4)(lambda path, _changed: _load(path))
"""Cached until the file changes: an archive may be made again while the studio shows it."""


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, parsed at once: three times as fast as line by line, which only serves to name a wrong line."""
    raw = read_whole(path)
    lines = raw[: raw.rfind(b"\n") + 1].rstrip(b"\n")
    try:
        return list(parse_json(b"[" + lines.replace(b"\n", b",") + b"]"))
    except NOT_JSON:
        return list(read_jsonl(path))


def write_ranks(members: Sequence[tuple[Path, Path]], archive: Path, fingerprint: str) -> None:
    """Archive the evaluations of one set, given as pairs of their folder and the new one; what they share is stored once."""
    columns = [read_columns(source, (*_SHARED, "rank", "out_of_reach", "bonus_hits")) for source, _ in members]
    index, shared = _items(columns)
    _write(archive / items_name(fingerprint), {"item": np.array(list(index)), **shared})
    for (_, folder), of_member in zip(members, columns, strict=True):
        _write(folder / RANKS, {"set": np.array(fingerprint), **_own(of_member, index, shared)})


def _items(columns: Sequence[dict[str, list[Any]]]) -> tuple[dict[str, int], dict[str, NDArray[Any]]]:
    """The items of all evaluations: the row of each item, and the shared columns, from the first evaluation that has it."""
    index: dict[str, int] = {}
    shared: dict[str, list[Any]] = {name: [] for name in _SHARED}
    for of_member in columns:
        for row, item in enumerate(of_member["item"]):
            if item not in index:
                index[item] = len(index)
                for name in _SHARED:
                    shared[name].append(of_member[name][row])
    return index, {name: _compact(np.array(values)) for name, values in shared.items()}


def _own(columns: dict[str, list[Any]], index: dict[str, int], shared: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The columns of one evaluation: ranks, reach, its rows if not all, and its tokenizer's columns if they differ."""
    rows = np.array([index[item] for item in columns["item"]])
    own = {"rank": _compact(np.array(columns["rank"], np.int32))}
    own["out_of_reach"] = np.array(columns["out_of_reach"], np.bool_)
    most = max(map(len, columns["bonus_hits"]), default=0)
    if most:
        blank = [False] * most
        own["bonus_hits"] = np.array([list(hits) or blank for hits in columns["bonus_hits"]], np.bool_)
    if not np.array_equal(rows, np.arange(len(index))):
        own["rows"] = _compact(rows)
    for name in OWN:
        values = np.array(columns[name])
        if not np.array_equal(values, shared[name][rows]):
            own[name] = _compact(values)
    return own


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Integers in the smallest type that holds them all."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    return values.astype(np.promote_types(np.min_scalar_type(values.min()), np.min_scalar_type(values.max())))


def _write(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    with atomic_write(path, "wb") as handle:
        np.savez_compressed(handle, **columns)  # type: ignore[arg-type]
