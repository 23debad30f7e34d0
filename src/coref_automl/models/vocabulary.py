"""What a vocabulary's entries mean. In: a fast tokenizer and texts. Out: words for entries, and pieces with character offsets.

Two ways of telling the start of a word from its continuation are in use, and both are read here: a mark on continuations (`##`:
WordPiece, BPE with a prefix), or a mark on starts (`Ġ`: byte-level BPE; `▁`: unigram and BPE over metaspaces).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.models.entries import Entries, read_entries

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_IS_BLANK = np.array([chr(code).isspace() for code in range(0x3001)] + [False])
"""For every code up to the ideographic space, the last blank there is; one more place stands for all codes beyond."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Token ids with the characters they stand for: piece i is `text[starts[i]:ends[i]]`, without the blanks around it.

    Offsets never decrease. Pieces that share one character's bytes overlap. A piece of blanks is empty: a lone `▁` stands
    where its word begins and belongs to that word, other blanks (a line break) stand where they are.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def cover(self, start: int, end: int) -> tuple[int, int]:
        """The pieces `low:high` that touch the characters `start:end`; after `split_at`, exactly those of the span."""
        low = int(np.searchsorted(self.ends, start, "right"))
        while low > 0 and self.starts[low - 1] == self.ends[low - 1] == start:
            low -= 1
        return low, max(low, int(np.searchsorted(self.starts, end, "left")))


def entry_words(tokenizer: PreTrainedTokenizerFast) -> list[str | None]:
    """For every id: the word it stands for at the start of a word; None for continuations, specials and parts of characters."""
    return list(read_entries(tokenizer).words)


def word_starts(tokenizer: PreTrainedTokenizerFast) -> NDArray[np.bool_]:
    """For every id: does this entry begin a word? Special entries do, so that no word runs across one."""
    return read_entries(tokenizer).starts.copy()


def word_ids(tokenizer: PreTrainedTokenizerFast, word: str) -> list[int]:
    """The pieces of a word that follows a blank."""
    lead = " " if read_entries(tokenizer).start_mark else ""
    return [int(entry) for entry in tokenize(tokenizer, lead + word).ids]


def tokenize(tokenizer: PreTrainedTokenizerFast, text: str) -> Pieces:
    """The pieces of a text, without special entries. A literal `[MASK]` in the text is read as characters."""
    return tokenize_all(tokenizer, [text])[0]


def tokenize_all(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[Pieces]:
    """The same for many texts at once: the tokenizer reads them side by side, on all cores."""
    entries = read_entries(tokenizer)
    if not texts:
        return []
    # This call lifts a cut-off that an earlier one left on the tokenizer. `verbose` would warn about the length.
    read = tokenizer(
        list(texts),
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        split_special_tokens=True,
        verbose=False,
    )
    return [_pieces(entries, *one) for one in zip(texts, read["input_ids"], read["offset_mapping"], strict=True)]


def _pieces(entries: Entries, text: str, read: list[int], offsets: list[tuple[int, int]]) -> Pieces:
    ids = np.array(read, np.int32)
    if entries.unknown is not None:  # a unigram model finds `[MASK]` among its own entries all the same
        ids[np.isin(ids, entries.reserved)] = entries.unknown
    starts, ends = np.array(offsets, np.int32).reshape(-1, 2).T
    first, last = _letters(text)
    trimmed, cut = first[starts], last[ends]
    lone = ids == entries.lone_mark
    blank = (trimmed >= ends) | lone
    # The mark before a text's first word is the tokenizer's own: no blank stands for it, and it claims the first character.
    place = np.where(lone & (trimmed > starts), starts + 1, starts)
    return Pieces(ids, _rising(np.where(blank, place, trimmed)), _rising(np.where(blank, place, cut)))


def split_at(tokenizer: PreTrainedTokenizerFast, text: str, pieces: Pieces, spans: Iterable[Sequence[int]]) -> Pieces:
    """The same text in pieces that never straddle an edge of a span, so that whole pieces cover each span.

    Only straddling pieces are read again: what stands at the start of a word stays a start, what follows an edge inside a word
    becomes a continuation (`한국은` around `한국` becomes `한국`, `##은`).
    """
    edges = np.unique(np.array([(int(span[0]), int(span[1])) for span in spans], np.int32).reshape(-1))
    groups = _straddling(pieces, edges)
    if not groups:
        return pieces
    entries = read_entries(tokenizer)
    parts: list[Pieces] = []
    done = 0
    for low, high in groups:
        start, end = int(pieces.starts[low]), int(pieces.ends[low:high].max())
        inner = edges[np.searchsorted(edges, start, "right") : np.searchsorted(edges, end, "left")].tolist()
        initial = entries.begins_word(int(pieces.ids[low]), text, start)
        parts += [Pieces(pieces.ids[done:low], pieces.starts[done:low], pieces.ends[done:low])]
        for a, b in zip([start, *inner], [*inner, end], strict=True):
            at = a + len(text[a:b]) - len(text[a:b].lstrip())
            table = np.array(entries.read_part(text[a:b].strip(), initial=initial and a == start), np.int32).reshape(-1, 3)
            parts.append(Pieces(table[:, 0], table[:, 1] + np.int32(at), table[:, 2] + np.int32(at)))
        done = high
    parts.append(Pieces(pieces.ids[done:], pieces.starts[done:], pieces.ends[done:]))
    return Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "starts", "ends")))


def _straddling(pieces: Pieces, edges: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Groups of neighbouring pieces to read again: a straddling piece, and those that share a character with it."""
    before = np.searchsorted(pieces.starts, edges, "left") - 1
    hit = before >= 0
    hit[hit] = pieces.ends[before[hit]] > edges[hit]
    groups: list[tuple[int, int]] = []
    for at in before[hit].tolist():
        low, high = at, at + 1
        while low > 0 and pieces.ends[low - 1] > pieces.starts[low]:
            low -= 1
        while high < len(pieces) and pieces.starts[high] < pieces.ends[high - 1]:
            high += 1
        if not groups or groups[-1] != (low, high):
            groups.append((low, high))
    return groups


def _rising(offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.minimum.accumulate(offsets[::-1])[::-1].astype(np.int32)


def _letters(text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each place of a text, and the one past its end: the first letter from there, and the end of the last before it."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    blank, size = _IS_BLANK[np.minimum(codes, len(_IS_BLANK) - 1)], len(codes)
    first = np.append(np.where(blank, size, np.arange(size)), size)
    last = np.append(0, np.where(blank, 0, np.arange(1, size + 1)))
    return _rising(first), np.maximum.accumulate(last).astype(np.int32)
