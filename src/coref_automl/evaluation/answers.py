"""What may answer an item. In: a tokenizer, items. Out: noun tables, matching vocabulary entries, candidates as pieces.

A noun table says for every vocabulary entry whether it is a noun of two or more syllables. It is stored with the evaluation set
(for a bundled one, in the cache) under the fingerprint of its tokenizer, so that scoring needs no Kiwi. An entry matches strictly
if it equals the answer, leniently if one contains the other, which must have two or more characters (a single syllable occurs in
half of all words).

Candidates are whole words, whatever the vocabulary: a word of k pieces is scored with k masks in the gap, by the mean
log-probability of its first `MOST_MASKS` pieces. A word with an unknown piece ranks last.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import EvalSetError, InputError, StorageError
from coref_automl.evaluation.tasks.task import occurrences
from coref_automl.evaluation.windows import MOST_MASKS
from coref_automl.fingerprints import fingerprint
from coref_automl.guard import read_array
from coref_automl.korean import Tagger, default_cache
from coref_automl.models.vocabulary import FastTokenizer, entry_words
from coref_automl.records import ClozeItem, grouped
from coref_automl.store import atomic_write, sweep

LEAST_CONTAINED = 2
_BETWEEN = "\n"


def build_table(tokenizer: FastTokenizer, tagger: Tagger) -> NDArray[np.bool_]:
    """True where an entry starts a word that Kiwi, given the word alone, tags as a noun of two or more syllables."""
    words = entry_words(tokenizer)
    return tagger.are_nouns([word or "" for word in words])


def answers(tokenizer: FastTokenizer, tagger: Tagger) -> frozenset[str]:
    """The words that one vocabulary entry can answer."""
    words = entry_words(tokenizer)
    return frozenset(words[entry] or "" for entry in np.flatnonzero(build_table(tokenizer, tagger)).tolist())


def reachable(tokenizer: FastTokenizer, items: Sequence[ClozeItem]) -> float:
    """The share of answers that are one vocabulary entry; needs no scores."""
    words = set(entry_words(tokenizer))
    return sum(item.answer in words for item in items) / max(1, len(items))


def answerable(
    tokenizer: FastTokenizer, nouns: NDArray[np.bool_], *, initial: bool
) -> tuple[list[str | None], NDArray[np.bool_]]:
    """The word of every entry in a gap, and whether it is a noun of the table; `initial` as in `Window`."""
    words = entry_words(tokenizer, initial=initial)
    initial_words = entry_words(tokenizer)
    known = {initial_words[entry] for entry in np.flatnonzero(nouns).tolist()} - {None}
    return words, np.array([word in known for word in words], np.bool_)


def table_path(folder: Path, fingerprint: str) -> Path:
    """The path of a noun table: in its set's folder; for the bundled set, which is read-only, in the user's cache."""
    name = f"nouns-{fingerprint}.npy"
    packaged = Path(__file__).parents[1] in folder.resolve().parents and not (folder / name).is_file()
    return (default_cache() / "nouns" if packaged else folder) / name


def save_table(folder: Path, fingerprint: str, table: NDArray[np.bool_]) -> None:
    path = table_path(folder, fingerprint)
    sweep(path.parent, deep=False)
    with atomic_write(path, "wb") as handle:
        np.save(handle, table)


def table_for(
    tokenizer: FastTokenizer, folder: Path, cache: dict[str, NDArray[np.bool_]], tagger: Tagger | None = None
) -> NDArray[np.bool_]:
    """A tokenizer's noun table: from the cache, from the folder, or built now and saved there if the folder is writable."""
    from coref_automl.models.load import tokenizer_fingerprint

    fingerprint = tokenizer_fingerprint(tokenizer)
    if fingerprint in cache:
        return cache[fingerprint]
    path = table_path(folder, fingerprint)
    if path.is_file():
        table, size = read_table(path), len(entry_words(tokenizer))
        if table.shape != (size,):
            raise EvalSetError(f"{path} is not a noun table of {size} entries; delete it, and it is built again.")
        return cache.setdefault(fingerprint, table)
    try:
        import kiwipiepy  # noqa: F401 - checked first, because scoring machines may lack it
    except ImportError as error:
        raise EvalSetError(
            f"{folder} has no noun table for this tokenizer ({fingerprint}) and Kiwi is not installed to build one; where it is, "
            f"run: coref-automl prepare eval --model MODEL --out {folder}"
        ) from error
    table = cache.setdefault(fingerprint, build_table(tokenizer, tagger or Tagger()))
    with suppress(StorageError):  # a read-only set can still be used; the next call builds the table again
        save_table(folder, fingerprint, table)
    return table


def read_table(path: Path) -> NDArray[np.bool_]:
    """A stored noun table, of whatever tokenizer."""
    try:
        table = read_array(path)
    except InputError as error:
        raise EvalSetError(f"{path} is damaged ({error}); delete it, and it is built again.") from error
    if table.dtype != np.bool_:
        raise EvalSetError(f"{path} is not a noun table; delete it, and it is built again.")
    return np.asarray(table, np.bool_)


def table_fingerprint(nouns: NDArray[np.bool_]) -> str:
    return fingerprint(nouns.astype(bool).tobytes())


def matches(word: str, answer: str) -> bool:
    """The lenient rule for one pair of words."""
    if word == answer:
        return True
    short, long = sorted((word, answer), key=len)
    return len(short) >= LEAST_CONTAINED and short in long


class MatchTable:
    """Finds the entries that match an answer: its substrings by lookup, its superstrings by a search in all words at once."""

    def __init__(self, words: Sequence[str | None], allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.words = words
        self._ids: dict[str, list[int]] = {}
        for entry in np.flatnonzero(allowed).tolist():
            word = words[entry]
            if word and _BETWEEN not in word:
                self._ids.setdefault(word, []).append(entry)
        self._distinct = list(self._ids)
        self._starts = np.cumsum([1] + [len(word) + 1 for word in self._distinct])[:-1]
        self._text = _BETWEEN + _BETWEEN.join(self._distinct) + _BETWEEN
        self._cache: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def of(self, answer: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of the strict and of the lenient matches among the allowed entries."""
        if answer not in self._cache:
            strict = self._ids.get(answer, [])
            words = {answer} | self._substrings(answer) | self._superstrings(answer)
            lenient = sorted(entry for word in words for entry in self._ids.get(word, ()))
            self._cache[answer] = np.array(strict, np.int64), np.array(lenient, np.int64)
        return self._cache[answer]

    def _substrings(self, answer: str) -> set[str]:
        size = len(answer)
        return {answer[low:high] for low in range(size) for high in range(low + LEAST_CONTAINED, size + 1)} & self._ids.keys()

    def _superstrings(self, answer: str) -> set[str]:
        if len(answer) < LEAST_CONTAINED or _BETWEEN in answer:
            return set()
        owners = np.searchsorted(self._starts, np.array(occurrences(self._text, answer), np.int64), side="right") - 1
        return {self._distinct[owner] for owner in owners}


WordMode = Literal["all", "gold", "sample", "none"]
"""Which items get the rank of their answer among the candidates."""
SAMPLE = 200
"""Items per task in the mode `sample`."""

Targets = tuple[tuple[int, int], ...]
"""At one position of a gap: (piece, slot) pairs; the log-probability of the piece counts for the candidate in that slot."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row to run: the ids in the gap, and the targets at each of their positions."""

    gap_ids: tuple[int, ...]
    targets: tuple[Targets, ...] = ((),)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one item: the pieces of the word in each slot, and the group of each slot. Group 0 is right."""

    words: tuple[tuple[int, ...], ...]
    groups: tuple[int, ...]

    def rank(self, sums: NDArray[np.float64]) -> int:
        """The rank of the right group by its best word, from the summed log-probabilities per slot; ties go against it."""
        best = np.full(max(self.groups) + 1, -math.inf)
        for slot, (pieces, group) in enumerate(zip(self.words, self.groups, strict=True)):
            if pieces:
                best[group] = max(best[group], sums[slot] / len(pieces))
        return 1 + int((best[1:] >= best[0]).sum())


def read_candidates(item: ClozeItem, pieces_of: Callable[[str], Sequence[int]], unknown: int | None) -> Candidates:
    """An item's candidates as pieces; a word with an unknown piece has none."""
    words, groups = [], []
    for group, surfaces in enumerate(item.candidates):
        for surface in surfaces:
            pieces = tuple(pieces_of(surface)[:MOST_MASKS])
            words.append(() if unknown in pieces else pieces)
            groups.append(group)
    return Candidates(tuple(words), tuple(groups))


def masked_rows(candidates: Candidates, mask: int) -> list[Row]:
    """One row per number of pieces among the candidates: that many masks, with all words of that size as targets."""
    by_size = grouped(enumerate(candidates.words), lambda word: len(word[1]))
    return [
        Row((mask,) * size, tuple(tuple((pieces[offset], slot) for slot, pieces in words) for offset in range(size)))
        for size, words in sorted(by_size.items())
        if size
    ]


def sample(items: Iterable[ClozeItem], size: int = SAMPLE) -> frozenset[str]:
    """The ids of a sample by hash: the same for every model."""
    ids = sorted((item.id for item in items), key=lambda name: hashlib.sha256(name.encode()).digest())
    return frozenset(ids[:size])


def wanted_ids(items: Sequence[ClozeItem], mode: WordMode) -> frozenset[str]:
    """The ids of the items whose word rank is wanted; each task is sampled separately."""
    if mode == "none":
        return frozenset()
    with_choice = [item for item in items if len(item.candidates) > 1 and (mode != "gold" or item.task == "gold")]
    if mode != "sample":
        return frozenset(item.id for item in with_choice)
    tasks = {item.task for item in with_choice}
    return frozenset().union(*(sample(item for item in with_choice if item.task == task) for task in tasks))
