"""Which vocabulary entries may answer an item, and which of them match. In: a tokenizer. Out: noun tables and match tables.

A noun table says for every entry whether it is a noun of two or more syllables. It is stored with the evaluation set (for a
bundled one, in the cache) under the fingerprint of its tokenizer, so that scoring needs no Kiwi. Strict match: equal. Lenient
match: equal, or one contains the other, the contained one of two or more characters (a single syllable occurs in half of all
words).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import EvalSetError, InputError, StorageError
from coref_automl.evaluation.tasks.task import occurrences
from coref_automl.fingerprints import fingerprint
from coref_automl.guard import read_array
from coref_automl.korean import Tagger, default_cache
from coref_automl.models.vocabulary import FastTokenizer, entry_words
from coref_automl.records import ClozeItem
from coref_automl.store import atomic_write, sweep

LEAST_CONTAINED = 2
_BETWEEN = "\n"


def build_table(tokenizer: FastTokenizer, tagger: Tagger) -> NDArray[np.bool_]:
    """True where an entry starts a word that Kiwi, given the word alone, tags as a noun of two or more syllables."""
    words = entry_words(tokenizer)
    return tagger.are_nouns([word or "" for word in words])


def answers(tokenizer: FastTokenizer, tagger: Tagger) -> frozenset[str]:
    """The words that a single entry can answer."""
    words = entry_words(tokenizer)
    return frozenset(words[entry] or "" for entry in np.flatnonzero(build_table(tokenizer, tagger)).tolist())


def reachable(tokenizer: FastTokenizer, items: Sequence[ClozeItem]) -> float:
    """The share of answers that are one vocabulary entry, before any model has scored them."""
    words = set(entry_words(tokenizer))
    return sum(item.answer in words for item in items) / max(1, len(items))


def answerable(
    tokenizer: FastTokenizer, nouns: NDArray[np.bool_], *, initial: bool
) -> tuple[list[str | None], NDArray[np.bool_]]:
    """What every entry says in a gap that starts a word, or runs on from a sign; and whether it is a noun of the table there."""
    words = entry_words(tokenizer, initial=initial)
    starts = entry_words(tokenizer)
    known = {starts[entry] for entry in np.flatnonzero(nouns).tolist()} - {None}
    return words, np.array([word in known for word in words], np.bool_)


def table_path(folder: Path, fingerprint: str) -> Path:
    """Where a table lies: with its set; for a set of the installed package, which is not written to, in the user's cache."""
    name = f"nouns-{fingerprint}.npy"
    packaged = Path(__file__).parents[1] in folder.resolve().parents and not (folder / name).is_file()
    return (default_cache() / "nouns" if packaged else folder) / name


def save_table(folder: Path, fingerprint: str, table: NDArray[np.bool_]) -> None:
    path = table_path(folder, fingerprint)
    sweep(path.parent, deep=False)
    with atomic_write(path, "wb") as handle:
        np.save(handle, table)


def table_for(
    tokenizer: FastTokenizer, folder: Path, kept: dict[str, NDArray[np.bool_]], tagger: Tagger | None = None
) -> NDArray[np.bool_]:
    """The table of this tokenizer: from memory, from the folder, or built now and saved there if the folder is writable."""
    from coref_automl.models.load import tokenizer_fingerprint

    fingerprint = tokenizer_fingerprint(tokenizer)
    if fingerprint in kept:
        return kept[fingerprint]
    path = table_path(folder, fingerprint)
    if path.is_file():
        table, size = read_table(path), len(entry_words(tokenizer))
        if table.shape != (size,):
            raise EvalSetError(f"{path} is not a noun table of {size} entries; delete it, and it is built again.")
        return kept.setdefault(fingerprint, table)
    try:
        import kiwipiepy  # noqa: F401 - checked first, because scoring machines may lack it
    except ImportError as error:
        raise EvalSetError(
            f"{folder} has no noun table for this tokenizer ({fingerprint}) and Kiwi is not installed to build one; where it is, "
            f"run: coref-automl prepare eval --model MODEL --out {folder}"
        ) from error
    table = kept.setdefault(fingerprint, build_table(tokenizer, tagger or Tagger()))
    with suppress(StorageError):  # a read-only set can still be used; the next call builds the table again
        save_table(folder, fingerprint, table)
    return table


def read_table(path: Path) -> NDArray[np.bool_]:
    """A stored table, whatever tokenizer it belongs to."""
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
    """Finds matching entries without a loop over the vocabulary: substrings are looked up, superstrings searched in one text."""

    def __init__(self, words: Sequence[str | None], allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.words = words
        self._ids: dict[str, list[int]] = {}
        for entry in np.flatnonzero(allowed).tolist():
            word = words[entry]
            if word and _BETWEEN not in word:
                self._ids.setdefault(word, []).append(entry)
        distinct = list(self._ids)
        self._distinct = distinct
        self._starts = np.cumsum([1] + [len(word) + 1 for word in distinct])[:-1]
        self._text = _BETWEEN + _BETWEEN.join(distinct) + _BETWEEN
        self._known: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def of(self, answer: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of the strict and of the lenient matches among the allowed entries."""
        if answer not in self._known:
            strict = self._ids.get(answer, [])
            found = {answer} | self._inside(answer) | self._around(answer)
            lenient = sorted(entry for word in found for entry in self._ids.get(word, ()))
            self._known[answer] = np.array(strict, np.int64), np.array(lenient, np.int64)
        return self._known[answer]

    def _inside(self, answer: str) -> set[str]:
        size = len(answer)
        return {answer[low:high] for low in range(size) for high in range(low + LEAST_CONTAINED, size + 1)} & self._ids.keys()

    def _around(self, answer: str) -> set[str]:
        if len(answer) < LEAST_CONTAINED or _BETWEEN in answer:
            return set()
        owners = np.searchsorted(self._starts, np.array(occurrences(self._text, answer), np.int64), side="right") - 1
        return {self._distinct[owner] for owner in owners}
