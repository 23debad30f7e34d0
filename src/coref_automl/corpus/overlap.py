"""Overlap with evaluation. In: evaluation sets and training texts. Out: which evaluation text is found again, word for word."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.decoder import read_stored, read_stored_rows
from coref_automl.errors import EvalSetError
from coref_automl.folders import MANIFEST
from coref_automl.records import Document, Record
from coref_automl.store import atomic_write

WORDS = 13
"""Words in a row that two texts hardly share by chance; shorter texts count as one run."""

_BASE = np.uint64(0x100000001B3)
Grams = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class OverlapExample(Record):
    evaluation_document: str
    training_source: str
    training_document: str
    words: str


@dataclass(frozen=True, slots=True)
class Overlap(Record):
    """How much of the evaluation documents is in the training text, after the documents themselves were removed."""

    documents: int
    documents_touched: int
    runs: int
    runs_found: int
    examples: tuple[OverlapExample, ...]


class _Frozen(TypedDict, total=False):
    """What is read of the manifest of an evaluation set, or of a dataset."""

    fingerprint: str


class _FrozenDocument(TypedDict, total=False):
    """A document of an evaluation set. A dataset lists its documents under the same name, without their texts."""

    id: str
    text: str
    source: str
    title: str


def evaluation_documents(folders: Sequence[Path]) -> list[Document]:
    """The documents of evaluation sets, as their folders hold them."""
    found = []
    for folder in folders:
        if not (folder / "documents.jsonl").is_file():
            raise EvalSetError(
                f"{folder} is not an evaluation set (no documents.jsonl). Make one with: coref-automl prepare eval"
            )
        for row in read_stored_rows(folder / "documents.jsonl", _FrozenDocument, error=EvalSetError):
            if "id" not in row or "text" not in row:
                raise EvalSetError(
                    f"{folder} is not an evaluation set: its documents have no text. Make one with: coref-automl prepare eval"
                )
            found.append(Document(row["id"], row.get("source", ""), row["text"], row.get("title", "")))
    return found


def frozen_fingerprint(folder: Path) -> str:
    return read_stored(folder / MANIFEST, _Frozen, error=EvalSetError).get("fingerprint", "")


def grams(text: str) -> Grams:
    """A number for every run of thirteen words, in order."""
    words = np.fromiter((_word(word) for word in text.split()), np.uint64)
    size = min(WORDS, len(words))
    if not size:
        return np.empty(0, np.uint64)
    runs = np.zeros(len(words) - size + 1, np.uint64)
    for step in range(size):
        runs = runs * _BASE + words[step : step + len(runs)]
        runs ^= runs >> np.uint64(31)
    return runs


@lru_cache(maxsize=1 << 16)
def _word(word: str) -> int:
    raw = word.encode("utf-8", "surrogatepass")
    return zlib.crc32(raw) << 32 | zlib.adler32(raw)


def write_grams(documents: Sequence[Document], path: Path) -> None:
    """Every run of the evaluation documents, sorted, once."""
    runs = [grams(document.text) for document in documents]
    with atomic_write(path, "wb") as handle:
        np.save(handle, np.unique(np.concatenate(runs)) if runs else np.empty(0, np.uint64))


def among(known: Grams, runs: Grams) -> NDArray[np.bool_]:
    """Which runs are in a sorted table; the table, which may be large, is not sorted again for every text."""
    if not len(known):
        return np.zeros(len(runs), np.bool_)
    found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, runs), len(known) - 1)] == runs
    return found


def report(documents: Sequence[Document], found: Grams, seen: Sequence[tuple[int, str, str, str]], *, most: int = 10) -> Overlap:
    """From all runs found, sorted, and (run, source, id, words) of some of them: the figures and examples."""
    touched, total = 0, 0
    owner: dict[int, str] = {}
    wanted = {run for run, *_ in seen}
    for document in documents:
        runs = np.unique(grams(document.text))
        total += len(runs)
        hits = among(found, runs)
        touched += bool(hits.any())
        owner.update({run: document.id for run in runs[hits].tolist() if run in wanted and run not in owner})
    examples = [OverlapExample(owner[run], source, identity, words) for run, source, identity, words in seen if run in owner]
    return Overlap(len(documents), touched, total, len(found), tuple(examples[:most]))
