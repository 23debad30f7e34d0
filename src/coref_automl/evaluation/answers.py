"""What may answer an item. In: a tokenizer. Out: its noun table, and the words of its entries in a gap.

A noun table says for every vocabulary entry whether it is a noun of two or more syllables. It is
stored with the evaluation set (for a bundled one, in the cache) under the fingerprint of its
tokenizer, so that scoring needs no Kiwi.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import EvalSetError, InputError, StorageError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.guard import read_array
from coref_automl.base.korean import Tagger, default_cache
from coref_automl.base.records import ClozeItem
from coref_automl.base.store import atomic_write, sweep
from coref_automl.models.vocabulary import FastTokenizer, entry_words


def build_table(tokenizer: FastTokenizer, tagger: Tagger) -> NDArray[np.bool_]:
    """True where an entry starts a word that Kiwi, given the word alone, tags as a noun of two or more syllables."""
    words = entry_words(tokenizer)
    return tagger.are_nouns([word or "" for word in words])


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


def sample(items: Iterable[ClozeItem], size: int) -> frozenset[str]:
    """The ids of a sample by hash: the same for every model."""
    ids = sorted((item.id for item in items), key=lambda name: hashlib.sha256(name.encode()).digest())
    return frozenset(ids[:size])
