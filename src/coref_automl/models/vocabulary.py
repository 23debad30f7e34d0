"""A vocabulary's entries as words. In: a fast tokenizer and texts. Out: a word for each entry, pieces with character offsets.

Vocabularies distinguish starts of words from continuations in two ways, and both are supported: a mark on continuations (`##`:
WordPiece, BPE with a prefix) or a mark on starts (`Ġ`: byte-level BPE; `▁`: unigram and BPE over metaspaces).
"""

from __future__ import annotations

import json
import re
import unicodedata
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FastTokenizer: TypeAlias = "PreTrainedTokenizerFast"
"""transformers' fast tokenizer, as a name that does not import the library."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_PORTION = re.compile(rf"(?s:.{{{1 << 20}}}(?:[^ ]{{,50000}}(?= |\Z)|[^ \n]*)|.+|^$)")
"""Text per call of the tokenizer, which needs half a kilobyte per token: to the next blank, or a line break if none is near."""


def _byte_letters() -> dict[int, str]:
    """Return GPT-2's alphabet: a printable character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + number) for number, byte in enumerate(others)}}


_LETTER = _byte_letters()
_BYTE_OF = {letter: byte for byte, letter in _LETTER.items()}


@dataclass(slots=True)
class Entries:
    """One vocabulary, read once. `inner_mark` begins continuations, `start_mark` begins starts; exactly one of the two is set."""

    vocabulary: dict[str, int]
    model: Any
    normalizer: Any
    inner_mark: str
    start_mark: str
    byte_level: bool
    unknown: int | None
    special: frozenset[int]
    words: list[str | None] = field(init=False)
    inner_words: list[str | None] = field(init=False)
    starts: NDArray[np.bool_] = field(init=False)
    longest: int = field(init=False)
    lone_mark: int = field(init=False)
    reserved: list[int] = field(init=False)
    parts: dict[tuple[str, bool], list[tuple[int, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.longest = max(map(len, self.vocabulary), default=0)
        self.lone_mark = self.vocabulary.get(self.start_mark, -1) if self.start_mark else -1
        self.reserved = sorted(self.special - {self.unknown})
        self.words = [None] * (1 + max(self.vocabulary.values(), default=-1))
        self.inner_words = list(self.words)
        self.starts = np.zeros(len(self.words), np.bool_)
        for entry, number in self.vocabulary.items():
            is_start = entry.startswith(self.start_mark) if self.start_mark else not entry.startswith(self.inner_mark)
            self.starts[number] = number in self.special or is_start
            if number not in self.special:
                words, mark = (self.words, self.start_mark) if is_start else (self.inner_words, self.inner_mark)
                words[number] = self._word(entry.removeprefix(mark))

    def _word(self, word: str) -> str | None:
        if self.byte_level:
            try:
                word = bytes(_BYTE_OF[letter] for letter in word).decode("utf-8")
            except (KeyError, UnicodeDecodeError):
                return None
        if _BYTE.fullmatch(word):
            return None
        return unicodedata.normalize("NFC", word) or None

    def begins_word(self, number: int, text: str, start: int) -> bool:
        if number != self.unknown:
            return bool(self.starts[number])
        # an unknown piece has no mark: it is a start unless a letter stands directly before it
        return not self.start_mark and not (start > 0 and text[start - 1].isalnum() and text[start].isalnum())

    def read_part(self, part: str, *, initial: bool) -> list[tuple[int, int, int]]:
        """Tokenize the start of a word (`initial`) or the continuation of one, as rows (id, start, end)."""
        rows = self.parts.get((part, initial))
        if rows is None:
            rows = self.parts[part, initial] = self._read(part, initial)
        return rows

    def missing_characters(self, part: str, *, initial: bool) -> list[str]:
        """List the characters of an unknown part that no entry has there, matching the longest entries first."""
        normalized = str(self.normalizer.normalize_str(part)) if self.normalizer else part
        normalized, missing, start = "".join(normalized.split()), [], 0
        while start < len(normalized):
            mark = "" if initial and start == 0 else self.inner_mark
            ends = range(min(len(normalized), start + self.longest), start, -1)
            match = next((end for end in ends if mark + normalized[start:end] in self.vocabulary), start)
            if match == start:
                missing.append(normalized[start])
            start = max(match, start + 1)
        return missing

    def _read(self, part: str, initial: bool) -> list[tuple[int, int, int]]:
        """Return the ids of a part, each with the span of its characters."""
        if not part:
            return []
        normalized = str(self.normalizer.normalize_str(part)) if self.normalizer else part
        normalized = normalized.strip(" " + self.start_mark)
        rows = self._by_model(normalized, initial) if self.start_mark or initial else self._longest_first(normalized)
        if not rows:
            return [(self._unknown(), 0, len(part))]
        if len(normalized) == len(part):
            return rows
        # normalization changed the number of characters: every piece gets the span of the whole part
        return [(number, 0, len(part)) for number, _, _ in rows]

    def _by_model(self, normalized: str, initial: bool) -> list[tuple[int, int, int]]:
        """Apply the tokenizer's own model to the start of a word, or to a continuation if starts have the mark."""
        mark = self.start_mark if initial else ""
        if self.byte_level:
            letters = "".join(_LETTER[byte] for byte in normalized.encode("utf-8", "surrogatepass"))
            sizes = [len(character.encode("utf-8", "surrogatepass")) for character in normalized]
        else:
            letters = normalized.replace(" ", self.start_mark) if self.start_mark else normalized
            sizes = [1] * len(normalized)
        # the model's offsets are UTF-8 bytes of these letters; `owner` has each byte's character of the part, -1 for the mark
        per_letter = [index for index, size in enumerate(sizes) for _ in range(size)]
        widths = [len(letter.encode("utf-8", "surrogatepass")) for letter in letters]
        owner = [-1] * len(mark.encode()) + [i for i, width in zip(per_letter, widths, strict=True) for _ in range(width)]
        rows = []
        for token in self.model.tokenize(mark + letters):
            low, high = token.offsets
            characters = [index for index in owner[low:high] if index >= 0]
            rows.append((int(token.id), characters[0], characters[-1] + 1) if characters else (int(token.id), 0, 0))
        return rows

    def _longest_first(self, normalized: str) -> list[tuple[int, int, int]]:
        """Match the longest entries from inside a word, as WordPiece does; BPE as well, whose merges begin at a word's start."""
        rows, start = [], 0
        while start < len(normalized):
            for end in range(min(len(normalized), start + self.longest), start, -1):
                if (number := self.vocabulary.get(self.inner_mark + normalized[start:end])) is not None:
                    rows.append((number, start, end))
                    start = end
                    break
            else:
                if type(self.model).__name__ == "WordPiece":
                    return []
                rows.append((self._unknown(), start, start + 1))
                start += 1
        return rows

    def _unknown(self) -> int:
        if self.unknown is None:
            raise ModelError("The tokenizer has no unknown entry for a character it does not know; give it an unk_token.")
        return self.unknown


_READ: weakref.WeakKeyDictionary[Any, Entries] = weakref.WeakKeyDictionary()


def read_entries(tokenizer: FastTokenizer) -> Entries:
    """Return the entries of a tokenizer, cached for its lifetime; entries that are added later are noticed."""
    entries = _READ.get(tokenizer)
    if entries is None or len(entries.words) < len(tokenizer):
        entries = _READ[tokenizer] = _read_vocabulary(tokenizer)
    return entries


def _read_vocabulary(tokenizer: FastTokenizer) -> Entries:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{type(tokenizer).__name__} has no fast version, which offsets need; convert it to tokenizer.json.")
    model = backend.model
    stages = [json.dumps(json.loads(stage.__getstate__())) for stage in (backend.pre_tokenizer, backend.normalizer) if stage]
    byte_level = any('"ByteLevel"' in stage for stage in stages)
    inner_mark = getattr(model, "continuing_subword_prefix", None) or ""
    metaspace = any('"Metaspace"' in stage or "\\u2581" in stage for stage in stages)
    start_mark = "" if inner_mark else "Ġ" if byte_level else "▁" if metaspace else ""
    if not inner_mark and not start_mark:
        if type(model).__name__ != "WordLevel":
            raise ModelError(
                f"The tokenizer ({type(model).__name__}) marks neither the starts of words nor their continuations, so its "
                "entries cannot be read as words; use one with ##, Ġ or ▁."
            )
        inner_mark = "##"
    return Entries(
        vocabulary=tokenizer.get_vocab(),
        model=model,
        normalizer=backend.normalizer,
        inner_mark=inner_mark,
        start_mark=start_mark,
        byte_level=byte_level and bool(start_mark),
        unknown=tokenizer.unk_token_id,
        special=frozenset(tokenizer.all_special_ids),
    )


_IS_BLANK = np.array([chr(code).isspace() for code in range(0x3001)] + [False])
"""For every code point up to the ideographic space, which is the last blank; the last element is for all beyond."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Token ids with their spans of characters: piece i is `text[starts[i]:ends[i]]`, without blanks around it.

    Offsets never decrease. Pieces that share one character's bytes overlap. A piece of blanks is empty: a lone `▁` is at the
    start of its word and belongs to that word, other blanks (a line break) are where they are in the text.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def cover(self, start: int, end: int) -> tuple[int, int]:
        """Return the range `low, high` of the pieces that overlap the characters `start:end`; after `split_at`, exactly these."""
        low = int(np.searchsorted(self.ends, start, "right"))
        while low > 0 and self.starts[low - 1] == self.ends[low - 1] == start:
            low -= 1
        return low, max(low, int(np.searchsorted(self.starts, end, "left")))


def ids_end(tokenizer: FastTokenizer) -> int:
    """One more than the highest token id; more than the number of entries where ids have gaps."""
    return int(max(tokenizer.get_vocab().values())) + 1


def entry_words(tokenizer: FastTokenizer, *, initial: bool = True) -> list[str | None]:
    """Return, for every id, the word it stands for at a word's start, or (`initial=False`) directly after other characters; None
    for entries of the other form, special entries and parts of characters."""
    entries = read_entries(tokenizer)
    return list(entries.words if initial else entries.inner_words)


def word_starts(tokenizer: FastTokenizer) -> NDArray[np.bool_]:
    """Return, for every id, whether it starts a word. Special entries do, so that no word extends across one."""
    return read_entries(tokenizer).starts.copy()


def word_ids(tokenizer: FastTokenizer, word: str, *, initial: bool = True) -> list[int]:
    """Return the ids of a word that follows a blank, or (`initial=False`) that directly follows other characters."""
    if not initial:
        return [number for number, _, _ in read_entries(tokenizer).read_part(word, initial=False)]
    entries, ids = read_entries(tokenizer), tokenize(tokenizer, word).ids
    if entries.start_mark and not entries.starts[ids[:1]].all():  # the mark is added only behind a blank
        ids = tokenize(tokenizer, f" {word}").ids
    return [int(number) for number in ids]


def tokenize(tokenizer: FastTokenizer, text: str) -> Pieces:
    """Tokenize a text, without special entries. A literal `[MASK]` in the text is read as characters."""
    portions = [(match.start(), tokenize_all(tokenizer, [match[0]])[0]) for match in _PORTION.finditer(text)]
    shifted = [(pieces.ids, pieces.starts + np.int32(start), pieces.ends + np.int32(start)) for start, pieces in portions]
    return Pieces(*map(np.concatenate, zip(*shifted, strict=True)))


def tokenize_all(tokenizer: FastTokenizer, texts: Sequence[str]) -> list[Pieces]:
    """Tokenize many texts in parallel, on all cores."""
    entries = read_entries(tokenizer)
    if not texts:
        return []
    backend = tokenizer.backend_tokenizer
    if backend.truncation:  # set by an earlier call, or by its file
        backend.no_truncation()
    if backend.padding:
        backend.no_padding()
    if not backend.encode_special_tokens:
        backend.encode_special_tokens = True
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    return [_pieces(entries, text, encoding.ids, encoding.offsets) for text, encoding in zip(texts, encodings, strict=True)]


def _pieces(entries: Entries, text: str, encoded: list[int], offsets: list[tuple[int, int]]) -> Pieces:
    ids = np.array(encoded, np.int32)
    if entries.unknown is not None:  # a unigram model finds `[MASK]` among its own entries all the same
        ids[np.isin(ids, entries.reserved)] = entries.unknown
    starts, ends = np.array(offsets, np.int32).reshape(-1, 2).T
    next_letter, last_end = _letter_bounds(text)
    trimmed_starts, trimmed_ends = next_letter[starts], last_end[ends]
    is_lone_mark = ids == entries.lone_mark
    is_blank = (trimmed_starts >= ends) | is_lone_mark
    # the tokenizer itself adds the mark before a text's first word; without a blank, its offsets are those of the first character
    position = np.where(is_lone_mark & (trimmed_starts > starts), starts + 1, starts)
    piece_starts, piece_ends = (np.where(is_blank, position, trimmed) for trimmed in (trimmed_starts, trimmed_ends))
    return Pieces(ids, _non_decreasing(piece_starts), _non_decreasing(piece_ends))


def split_at(tokenizer: FastTokenizer, text: str, pieces: Pieces, spans: Iterable[Sequence[int]]) -> Pieces:
    """Split pieces at the edges of spans, so that every span is covered by whole pieces.

    Only pieces across an edge are tokenized again: the start of a word remains a start, and the text after an edge inside a word
    becomes a continuation (`한국은` with the span `한국` becomes `한국`, `##은`).
    """
    edges = np.unique(np.array([(int(span[0]), int(span[1])) for span in spans], np.int32).reshape(-1))
    groups = _across(pieces, edges)
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
            shift = np.int32(a + len(text[a:b]) - len(text[a:b].lstrip()))
            rows = np.array(entries.read_part(text[a:b].strip(), initial=initial and a == start), np.int32).reshape(-1, 3)
            parts.append(Pieces(rows[:, 0], rows[:, 1] + shift, rows[:, 2] + shift))
        done = high
    parts.append(Pieces(pieces.ids[done:], pieces.starts[done:], pieces.ends[done:]))
    return Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "starts", "ends")))


def _across(pieces: Pieces, edges: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Group the pieces to tokenize again: each piece across an edge, with those that share a character with it."""
    before = np.searchsorted(pieces.starts, edges, "left") - 1
    across = before >= 0
    across[across] = pieces.ends[before[across]] > edges[across]
    groups: list[tuple[int, int]] = []
    for index in before[across].tolist():
        low, high = index, index + 1
        while low > 0 and pieces.ends[low - 1] > pieces.starts[low]:
            low -= 1
        while high < len(pieces) and pieces.starts[high] < pieces.ends[high - 1]:
            high += 1
        if not groups or groups[-1] != (low, high):
            groups.append((low, high))
    return groups


def _non_decreasing(offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.minimum.accumulate(offsets[::-1])[::-1].astype(np.int32)


def _letter_bounds(text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return, for each position and the end of a text, the first non-blank from there and the end of the last one before it."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    blank, size = _IS_BLANK[np.minimum(codes, len(_IS_BLANK) - 1)], len(codes)
    first = np.append(np.where(blank, size, np.arange(size)), size)
    last = np.append(0, np.where(blank, 0, np.arange(1, size + 1)))
    return _non_decreasing(first), np.maximum.accumulate(last).astype(np.int32)
