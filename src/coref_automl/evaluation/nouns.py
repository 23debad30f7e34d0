"""Noun tables. In: a tokenizer. Out: for every id of its vocabulary, is it a noun of two or more syllables that may answer?

Scoring reads the table and needs no Kiwi. A table is stored with the evaluation set under the fingerprint of its tokenizer.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl import store
from coref_automl.arrays import read_array
from coref_automl.errors import EvalSetError, InputError, StorageError
from coref_automl.models.vocabulary import entry_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from coref_automl.korean import Tagger


def build_table(tokenizer: PreTrainedTokenizerFast, tagger: Tagger) -> NDArray[np.bool_]:
    """True where an entry opens a word and Kiwi calls that word, alone, a noun of two or more syllables."""
    words = entry_words(tokenizer)
    return tagger.are_nouns([word or "" for word in words])


def answers(tokenizer: PreTrainedTokenizerFast, tagger: Tagger) -> frozenset[str]:
    """The words that one entry can answer: those of the table."""
    words = entry_words(tokenizer)
    return frozenset(words[entry] or "" for entry in np.flatnonzero(build_table(tokenizer, tagger)).tolist())


def table_path(folder: Path, fingerprint: str) -> Path:
    return folder / f"nouns-{fingerprint}.npy"


def save_table(folder: Path, fingerprint: str, table: NDArray[np.bool_]) -> None:
    store.sweep(folder, deep=False)
    with store.written_whole(table_path(folder, fingerprint), "wb") as handle:
        np.save(handle, table)


def table_for(
    tokenizer: PreTrainedTokenizerFast, folder: Path, kept: dict[str, NDArray[np.bool_]], tagger: Tagger | None = None
) -> NDArray[np.bool_]:
    """The table of this tokenizer: from memory, from the folder, or built now and put into the folder if it can be written."""
    from coref_automl.models.load import tokenizer_fingerprint

    fingerprint = tokenizer_fingerprint(tokenizer)
    if fingerprint not in kept:
        kept[fingerprint] = _read_or_build(tokenizer, folder, fingerprint, tagger)
    return kept[fingerprint]


def _read_or_build(
    tokenizer: PreTrainedTokenizerFast, folder: Path, fingerprint: str, tagger: Tagger | None
) -> NDArray[np.bool_]:
    path = table_path(folder, fingerprint)
    if path.is_file():
        table, size = read_table(path), len(entry_words(tokenizer))
        if table.shape != (size,):
            raise EvalSetError(f"{path} is not a noun table of {size} entries; delete it, and it is built again.")
        return table
    try:
        import kiwipiepy  # noqa: F401 - asked for before any work, because scoring machines may lack it
    except ImportError as error:
        raise EvalSetError(
            f"{folder} has no noun table for this tokenizer ({fingerprint}) and Kiwi is not installed to build one; where it is, "
            f"run: coref-automl prepare eval --model MODEL --out {folder}"
        ) from error
    from coref_automl.korean import Tagger

    table = build_table(tokenizer, tagger or Tagger())
    with suppress(StorageError):  # a set in a folder that cannot be written still serves; the next call builds the table again
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
