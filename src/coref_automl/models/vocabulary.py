"""What a vocabulary's entries mean. In: a fast tokenizer and texts. Out: words for entries, and pieces with character offsets.

Two ways of telling the start of a word from its continuation are in use, and both are read here: a mark on continuations (`##`:
WordPiece, BPE with a prefix), or a mark on starts (`Ġ`: byte-level BPE; `▁`: unigram and BPE over metaspaces).
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

from coref_automl.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FastTokenizer: TypeAlias = "PreTrainedTokenizerFast"
"""A tokenizer as transformers has it; the library is not imported for its name."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_AT_ONCE = re.compile(rf"(?s:.{{{1 << 20}}}(?:[^ ]{{,50000}}(?= |\Z)|[^ \n]*)|.+|^$)")
"""What the tokenizer reads at a time, as it takes half a kilobyte per token: to a blank, or a line break where none is near."""


def _byte_letters() -> dict[int, str]:
    """GPT-2's alphabet: a printable character for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + place) for place, byte in enumerate(rest)}}


_LETTER = _byte_letters()
_BYTE_OF = {letter: byte for byte, letter in _LETTER.items()}


@dataclass(slots=True)
class Entries:
    """One vocabulary, read once. `inner_mark` opens continuations, `start_mark` opens starts; exactly one of the two is set."""

    vocabulary: dict[str, int]
    model: Any
    normaliser: Any
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
            opens = entry.startswith(self.start_mark) if self.start_mark else not entry.startswith(self.inner_mark)
            self.starts[number] = number in self.special or opens
            if number not in self.special:
                held, mark = (self.words, self.start_mark) if self.starts[number] else (self.inner_words, self.inner_mark)
                held[number] = self._word(entry.removeprefix(mark))

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
        # An unknown piece carries no mark. It is a start unless letters run on into it.
        return not self.start_mark and not (start > 0 and text[start - 1].isalnum() and text[start].isalnum())

    def read_part(self, part: str, *, initial: bool) -> list[tuple[int, int, int]]:
        """A part of a word as rows (id, start, end): the start of a word, or the continuation of one."""
        found = self.parts.get((part, initial))
        if found is None:
            found = self.parts[part, initial] = self._read(part, initial)
        return found

    def lacking(self, part: str, *, initial: bool) -> list[str]:
        """The characters of an unknown part that no entry can write there, longest entries first."""
        plain = str(self.normaliser.normalize_str(part)) if self.normaliser else part
        plain, found, at = "".join(plain.split()), [], 0
        while at < len(plain):
            lead = "" if initial and at == 0 else self.inner_mark
            ends = range(min(len(plain), at + self.longest), at, -1)
            known = next((end for end in ends if lead + plain[at:end] in self.vocabulary), at)
            if known == at:
                found.append(plain[at])
            at = max(known, at + 1)
        return found

    def _read(self, part: str, initial: bool) -> list[tuple[int, int, int]]:
        """Ids, each with the characters of the part it stands for."""
        if not part:
            return []
        plain = str(self.normaliser.normalize_str(part)) if self.normaliser else part
        plain = plain.strip(" " + self.start_mark)
        found = self._by_model(plain, initial) if self.start_mark or initial else self._longest_first(plain)
        if not found:
            return [(self._unknown(), 0, len(part))]
        if len(plain) == len(part):
            return found
        # The tokenizer writes these characters as more or fewer of its own: every piece stands for all of them.
        return [(number, 0, len(part)) for number, _, _ in found]

    def _by_model(self, plain: str, initial: bool) -> list[tuple[int, int, int]]:
        """As the tokenizer's own model reads a word, or the rest of one where starts carry the mark."""
        lead = self.start_mark if initial else ""
        if self.byte_level:
            letters = "".join(_LETTER[byte] for byte in plain.encode("utf-8", "surrogatepass"))
            sizes = [len(character.encode("utf-8", "surrogatepass")) for character in plain]
        else:
            letters = plain.replace(" ", self.start_mark) if self.start_mark else plain
            sizes = [1] * len(plain)
        # The model counts UTF-8 bytes of the letters it is given; `owner` leads each of them back to a character of the part.
        per_letter = [place for place, size in enumerate(sizes) for _ in range(size)]
        widths = [len(letter.encode("utf-8", "surrogatepass")) for letter in letters]
        owner = [-1] * len(lead.encode()) + [p for p, width in zip(per_letter, widths, strict=True) for _ in range(width)]
        found = []
        for token in self.model.tokenize(lead + letters):
            low, high = token.offsets
            held = [place for place in owner[low:high] if place >= 0]
            found.append((int(token.id), held[0], held[-1] + 1) if held else (int(token.id), 0, 0))
        return found

    def _longest_first(self, plain: str) -> list[tuple[int, int, int]]:
        """WordPiece's own rule, from the middle of a word. Byte pairs take it too: their merges are only defined from a start."""
        found, at = [], 0
        while at < len(plain):
            for end in range(min(len(plain), at + self.longest), at, -1):
                if (number := self.vocabulary.get(self.inner_mark + plain[at:end])) is not None:
                    found.append((number, at, end))
                    at = end
                    break
            else:
                if type(self.model).__name__ == "WordPiece":
                    return []
                found.append((self._unknown(), at, at + 1))
                at += 1
        return found

    def _unknown(self) -> int:
        if self.unknown is None:
            raise ModelError("The tokenizer has no unknown entry for a character it does not know; give it an unk_token.")
        return self.unknown


_READ: weakref.WeakKeyDictionary[Any, Entries] = weakref.WeakKeyDictionary()


def read_entries(tokenizer: FastTokenizer) -> Entries:
    """The entries of a tokenizer, read once for as long as it lives; entries added later are noticed."""
    entries = _READ.get(tokenizer)
    if entries is None or len(entries.words) < len(tokenizer):
        entries = _READ[tokenizer] = _read_vocabulary(tokenizer)
    return entries


def _read_vocabulary(tokenizer: FastTokenizer) -> Entries:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"{type(tokenizer).__name__} has no fast version, and character offsets need one; convert it to tokenizer.json."
        )
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
        normaliser=backend.normalizer,
        inner_mark=inner_mark,
        start_mark=start_mark,
        byte_level=byte_level and bool(start_mark),
        unknown=tokenizer.unk_token_id,
        special=frozenset(tokenizer.all_special_ids),
    )


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


def entry_words(tokenizer: FastTokenizer, *, initial: bool = True) -> list[str | None]:
    """For every id: the word it stands for at the start of a word, or (`initial=False`) directly behind a sign or other letters;
    None for entries of the other form, specials and parts of characters."""
    entries = read_entries(tokenizer)
    return list(entries.words if initial else entries.inner_words)


def word_starts(tokenizer: FastTokenizer) -> NDArray[np.bool_]:
    """For every id: does this entry begin a word? Special entries do, so that no word runs across one."""
    return read_entries(tokenizer).starts.copy()


def word_ids(tokenizer: FastTokenizer, word: str, *, initial: bool = True) -> list[int]:
    """The pieces of a word that follows a blank, or that runs on from what stands before it."""
    if not initial:
        return [number for number, _, _ in read_entries(tokenizer).read_part(word, initial=False)]
    lead = " " if read_entries(tokenizer).start_mark else ""
    return [int(entry) for entry in tokenize(tokenizer, lead + word).ids]


def tokenize(tokenizer: FastTokenizer, text: str) -> Pieces:
    """The pieces of a text, without special entries. A literal `[MASK]` in the text is read as characters."""
    read = [(part.start(), tokenize_all(tokenizer, [part[0]])[0]) for part in _AT_ONCE.finditer(text)]
    parts = [(one.ids, one.starts + np.int32(at), one.ends + np.int32(at)) for at, one in read]
    return Pieces(*map(np.concatenate, zip(*parts, strict=True)))


def tokenize_all(tokenizer: FastTokenizer, texts: Sequence[str]) -> list[Pieces]:
    """The same for many texts at once: the tokenizer reads them side by side, on all cores."""
    entries = read_entries(tokenizer)
    if not texts:
        return []
    backend = tokenizer.backend_tokenizer
    if backend.truncation:  # left there by an earlier call, or by its file
        backend.no_truncation()
    if backend.padding:
        backend.no_padding()
    if not backend.encode_special_tokens:
        backend.encode_special_tokens = True
    read = backend.encode_batch(list(texts), add_special_tokens=False)
    return [_pieces(entries, text, one.ids, one.offsets) for text, one in zip(texts, read, strict=True)]


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


def split_at(tokenizer: FastTokenizer, text: str, pieces: Pieces, spans: Iterable[Sequence[int]]) -> Pieces:
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
