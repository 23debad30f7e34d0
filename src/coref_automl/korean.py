"""Korean morphology. In: texts. Out: character spans of nouns and pronouns, and sentence ends. The one place that knows Kiwi."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import tempfile
import unicodedata
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import InputError, StorageError
from coref_automl.machine import usable_cores

if TYPE_CHECKING:
    from kiwipiepy import Kiwi, Token

KINDS = ("NNG", "NNP", "NP")
"""Tags that are kept: common noun, proper noun, pronoun. The low bits of `Tags.surroundings` are indices into this tuple."""

PRONOUN = KINDS.index("NP")
VERBAL, GLUED, JOINED, COPULA, CLAUSE = 4, 8, 16, 32, 64
"""What surrounds a noun. Behind it: a suffix or verb that makes it one (지정한다), letters of a longer word (국제적), `and` (와),
the copula (이다). Before it: the end of a clause that describes it (새로 지은 건물)."""
KIND = 3
"""The bits of a kind."""
_HARMLESS = frozenset({"들", "님", "씨"})
"""Suffixes that leave a noun the word it is."""
_LIGHT_VERBS = frozenset({"하", "되", "시키", "당하"})
_BATCH_CHARACTERS = 400_000
_PIECE = 100_000
"""Characters that Kiwi reads at once: the memory and the time of a longer text grow faster than the text."""
_BREAKS = ("\n", ". ", " ")


@dataclass(frozen=True, slots=True, eq=False)
class Tags:
    """What the tagger says of one text. Spans are code points, sorted; every noun's span equals its form in the text.

    `surroundings` holds one byte per span: its kind, and flags for what stands around it.
    """

    spans: NDArray[np.int32]
    surroundings: NDArray[np.uint8]
    sentence_ends: NDArray[np.int32]

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """Indices into `KINDS`."""
        return self.surroundings & np.uint8(KIND)

    def pack(self) -> bytes:
        head = np.array([len(self.surroundings), len(self.sentence_ends)], np.int32)
        held = self.surroundings.astype(np.uint8)
        parts = (head, self.spans.astype(np.int32), held, self.sentence_ends.astype(np.int32))
        return zlib.compress(b"".join(part.tobytes() for part in parts), 1)

    @classmethod
    def unpack(cls, blob: bytes) -> Tags:
        raw = zlib.decompress(blob)
        words, sentences = np.frombuffer(raw, np.int32, 2)
        kinds_at, sentences_at = 8 + 8 * int(words), 8 + 9 * int(words)
        return cls(
            np.frombuffer(raw, np.int32, 2 * int(words), 8).reshape(-1, 2),
            np.frombuffer(raw, np.uint8, int(words), kinds_at),
            np.frombuffer(raw[sentences_at:], np.int32, int(sentences)),
        )


def kiwi_version() -> str:
    """The version that decides what a tag is: code and model together."""
    require_kiwi()
    return f"kiwi{version('kiwipiepy')}-{version('kiwipiepy_model')}"


def require_kiwi() -> None:
    """Say in one sentence that the tagger is not there; ask before the work begins."""
    if find_spec("kiwipiepy") is None:
        raise InputError("Finding nouns needs Kiwi, which is not installed here. Run: pip install kiwipiepy")


def default_cache() -> Path:
    """Where tags are cached: COREF_AUTOML_CACHE, or coref-automl in the user's cache folder, or, without one, in /tmp."""
    if chosen := os.environ.get("COREF_AUTOML_CACHE"):
        return Path(chosen)
    with suppress(RuntimeError):  # nobody knows this user's home
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "coref-automl"
        above = next(path for path in (folder, *folder.parents) if path.exists())
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.gettempdir()) / f"coref-automl-{os.getuid()}"


class Tagger:
    """Tags texts in order, with Kiwi's own threads, and never the same text twice: results are kept on disk.

    The cache is keyed by the text's bytes and Kiwi's version. `cache=None` keeps nothing.
    """

    def __init__(self, cache: Path | None = None, threads: int | None = None) -> None:
        self._threads = threads or usable_cores()
        self._store = _TagStore(cache / f"tags2-{kiwi_version()}.sqlite") if cache else None

    def tag(self, texts: Iterable[str]) -> Iterator[Tags]:
        """One `Tags` a text, in the order of the texts."""
        for batch in _batches(texts):
            yield from self._tag_batch(batch)

    def remember(self, texts: Iterable[str]) -> Iterator[int]:
        """Tag what the cache does not hold yet, so that other processes find it there; yields the characters of every batch."""
        for batch in _batches(texts):
            if self._store is None:
                raise ValueError("a tagger without a cache cannot remember")
            keys = [_key(text) for text in batch]
            known = self._store.get(keys)
            missing = {key: text for key, text in zip(keys, batch, strict=True) if key not in known}
            self._fresh(missing)
            yield sum(map(len, batch))

    def are_nouns(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """For each word: is it, alone, a noun or a compound of nouns of two or more syllables?"""
        whole = [unicodedata.normalize("NFC", word) for word in words]
        asked = [word for word in whole if len(word) >= 2 and is_hangul(word)]
        found = {
            word
            for word, tokens in zip(asked, self._tokenize(asked), strict=True)
            if all(token.tag in KINDS[:PRONOUN] for token in tokens) and "".join(t.form for t in tokens) == word
        }
        return np.array([word in found for word in whole], dtype=np.bool_)

    def _tag_batch(self, texts: list[str]) -> Iterator[Tags]:
        keys = [_key(text) for text in texts]
        known = self._store.get(keys) if self._store else {}
        fresh = self._fresh({key: text for key, text in zip(keys, texts, strict=True) if key not in known})
        for key in keys:
            yield fresh[key] if key in fresh else Tags.unpack(known[key])

    def _fresh(self, missing: dict[bytes, str]) -> dict[bytes, Tags]:
        pieces = [piece for text in missing.values() for piece in _pieces(text)]
        tagged = map(_read_tokens, pieces, self._tokenize(pieces))
        fresh = {key: _joined([(piece, next(tagged)) for piece in _pieces(text)]) for key, text in missing.items()}
        if self._store and fresh:
            self._store.put(fresh)
        return fresh

    def _tokenize(self, texts: list[str]) -> Iterable[list[Token]]:
        if not texts:
            return ()
        tagged: Iterable[list[Token]] = _kiwi(self._threads).tokenize(texts)
        return tagged


@lru_cache(maxsize=1)
def _kiwi(threads: int) -> Kiwi:
    """One for a process: it takes seconds to load and hundreds of megabytes to keep."""
    require_kiwi()
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=threads, load_multi_dict=False)


def release_kiwi() -> None:
    """Give the tagger's memory back; the next text that needs it loads it again."""
    _kiwi.cache_clear()


class _TagStore:
    """A small key-value file. SQLite, because several processes share it and a killed one must not spoil it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=60)
            weakref.finalize(self, self._db.close)  # from Python 3.13 on, one that is left open is warned about
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS tags (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
            self._db.commit()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A full disk, a damaged file or a closed folder, in one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"The cache {self._path} cannot be used ({error}); free some space or remove it, or let COREF_AUTOML_CACHE name "
                f"another folder, and run the same command again."
            ) from error

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        with self._explained():
            for low in range(0, len(keys), 500):
                part = keys[low : low + 500]
                marks = ",".join("?" * len(part))
                found.update(self._db.execute(f"SELECT key, value FROM tags WHERE key IN ({marks})", part))
        return found

    def put(self, fresh: dict[bytes, Tags]) -> None:
        rows = [(key, tags.pack()) for key, tags in fresh.items()]
        with self._explained(), self._db:
            self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", rows)


@lru_cache(maxsize=64)
def word_tails(text: str) -> dict[int, int]:
    """Where each particle, copula and verb ending of a text begins, by where it ends; contracted ones cannot be cut off."""
    found, at = dict[int, int](), 0
    for piece, tokens in zip(_pieces(text), _kiwi(usable_cores()).tokenize(_pieces(text)), strict=True):
        tails = [token for token in tokens if token.tag[0] in "JE" or token.tag.startswith("VCP")]
        found |= {at + t.start + t.len: at + t.start for t in tails if piece[t.start : t.start + t.len] == t.form}
        at += len(piece)
    return found


def is_hangul(text: str) -> bool:
    """True when every character is a composed Hangul syllable."""
    return all("가" <= character <= "힣" for character in text)


_DECOMPOSED = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?")


def composed(text: str) -> tuple[str, list[int]]:
    """The text with decomposed Hangul (NFD) written in whole syllables, and for each place in it, the end included, the place in
    the original."""
    parts, places, done = list[str](), list[int](), 0
    for found in _DECOMPOSED.finditer(text):
        parts += [text[done : found.start()], unicodedata.normalize("NFC", found.group())]
        places += range(done, found.start() + 1)
        done = found.end()
    return "".join([*parts, text[done:]]), [*places, *range(done, len(text) + 1)]


def splits_a_letter(text: str, at: int) -> bool:
    """Would the letters on both sides of a place become one when composed, as a tokenizer may do?"""
    before, after = text[max(0, at - 3) : at], text[at : at + 3]
    whole, *parts = (unicodedata.normalize("NFC", one) for one in (before + after, before, after))
    return whole != "".join(parts)


def ends_in_consonant(word: str) -> bool:
    """True when the last syllable has a final consonant: the fact on which Korean particles turn."""
    last = ord(word[-1]) - 0xAC00
    return 0 <= last < 11172 and last % 28 != 0


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _pieces(text: str) -> list[str]:
    """A long text cut behind a line, a sentence or a word."""
    found, at = list[str](), 0
    while len(text) - at > _PIECE:
        cuts = (text.rfind(sign, at + _PIECE // 2, at + _PIECE) + len(sign) for sign in _BREAKS)
        cut = next((cut for cut in cuts if cut > at + _PIECE // 2), at + _PIECE)
        found.append(text[at:cut])
        at = cut
    return [*found, text[at:]]


def _joined(parts: list[tuple[str, Tags]]) -> Tags:
    """The tags of a text from those of its pieces. A sentence ends behind its last word; the last one, with the text."""
    if len(parts) == 1:
        return parts[0][1]
    spans, ends, at = [], [], 0
    for number, (piece, tags) in enumerate(parts, 1):
        last = len(piece) if number == len(parts) else len(piece.rstrip())
        spans.append(tags.spans + at)
        ends.append(np.minimum(tags.sentence_ends, last) + at)
        at += len(piece)
    around = np.concatenate([tags.surroundings for _, tags in parts])
    return Tags(np.concatenate(spans).astype(np.int32), around, np.concatenate(ends).astype(np.int32))


def _read_tokens(text: str, tokens: list[Token]) -> Tags:
    """Keep nouns whose span equals their form (Kiwi restores contracted forms, and those cannot be hidden) and all pronouns."""
    spans, kinds = [], []
    around = [None, *tokens, None]
    for before, token, after in zip(around, tokens, around[2:], strict=False):
        if token.tag not in KINDS:
            continue
        start, end = token.start, token.start + token.len
        if token.tag != "NP" and text[start:end] != token.form:
            continue
        spans.append((start, end))
        flags = (_follows(end, after) if after else 0) | (CLAUSE if before and before.tag == "ETM" else 0)
        kinds.append(KINDS.index(token.tag) | flags)
    ends = [before.start + before.len for before, after in pairwise(tokens) if after.sent_position != before.sent_position]
    if tokens:
        ends.append(len(text))
    return Tags(np.array(spans, np.int32).reshape(-1, 2), np.array(kinds, np.uint8), np.array(ends, np.int32))


def _follows(end: int, after: Token) -> int:
    """The flag of a noun that ends at `end`, from the token behind it. Nouns that follow directly are part of one compound."""
    tag, gap = after.tag, after.start - end
    if tag in ("XSV", "XSA") or (tag in ("VV", "VV-R", "VV-I") and after.form in _LIGHT_VERBS and gap <= 1):
        return VERBAL
    if tag == "JC":
        return JOINED
    if tag == "VCP":
        return COPULA
    if gap > 0 or tag in KINDS or tag[0] == "J" or (tag == "XSN" and after.form in _HARMLESS):
        return 0
    if tag[0] == "S" and tag not in ("SL", "SH", "SN"):
        return 0
    return VERBAL if tag[0] == "V" else GLUED
