"""Korean morphology. In: texts. Out: character spans of nouns and pronouns, and sentence ends. The only module that uses Kiwi."""

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

from coref_automl.base.errors import InputError, StorageError
from coref_automl.base.machine import usable_cores

if TYPE_CHECKING:
    from kiwipiepy import Kiwi, Token

KINDS = ("NNG", "NNP", "NP")
"""Tags that are kept: common noun, proper noun, pronoun. `Tags.kinds` indexes this tuple."""

PRONOUN = KINDS.index("NP")
_BATCH_CHARACTERS = 400_000
_PIECE = 100_000
"""Characters that Kiwi analyses at once: its memory and time grow faster than the length of a text."""
_BREAKS = ("\n", ". ", " ")


@dataclass(frozen=True, slots=True, eq=False)
class Tags:
    """The nouns and sentence ends of a text. Spans count code points and are sorted; each spans exactly its noun in the text.

    `kinds` has one index into `KINDS` per span.
    """

    spans: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    sentence_ends: NDArray[np.int32]

    def pack(self) -> bytes:
        head = np.array([len(self.kinds), len(self.sentence_ends)], np.int32)
        parts = (head, self.spans.astype(np.int32), self.kinds.astype(np.uint8), self.sentence_ends.astype(np.int32))
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
    """The versions of Kiwi's code and model, which decide the tags."""
    require_kiwi()
    return f"kiwi{version('kiwipiepy')}-{version('kiwipiepy_model')}"


def require_kiwi() -> None:
    """Raise an error of one sentence if Kiwi is not installed; call it before long work."""
    if find_spec("kiwipiepy") is None:
        raise InputError("Finding nouns needs Kiwi, which is not installed here. Run: pip install kiwipiepy")


def default_cache() -> Path:
    """The cache folder: COREF_AUTOML_CACHE, else coref-automl in the user's cache folder, else in the temporary folder."""
    if chosen := os.environ.get("COREF_AUTOML_CACHE"):
        return Path(chosen)
    with suppress(RuntimeError):  # the user has no home
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "coref-automl"
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.gettempdir()) / f"coref-automl-{os.getuid()}"


class Tagger:
    """Tags texts in order, on Kiwi's threads, with a cache on disk.

    The cache is keyed by the bytes of the text and Kiwi's version; `cache=None` turns it off.
    """

    def __init__(self, cache: Path | None = None, threads: int | None = None) -> None:
        self._threads = threads or usable_cores()
        self._store = _TagStore(cache / f"tags3-{kiwi_version()}.sqlite") if cache else None

    def tag(self, texts: Iterable[str]) -> Iterator[Tags]:
        """Yield one `Tags` per text, in order."""
        for batch in _batches(texts):
            keys, cached, new = self._look_up(batch)
            yield from (new[key] if key in new else Tags.unpack(cached[key]) for key in keys)

    def fill_cache(self, texts: Iterable[str]) -> Iterator[int]:
        """Tag the texts that are not in the cache, for other processes to read; yield the characters of every batch."""
        if self._store is None:
            raise ValueError("a tagger without a cache has none to fill")
        for batch in _batches(texts):
            self._look_up(batch)
            yield sum(map(len, batch))

    def are_nouns(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """For each word: is it, alone, a noun or a compound of nouns of two or more syllables?"""
        composed_words = [unicodedata.normalize("NFC", word) for word in words]
        candidates = [word for word in composed_words if len(word) >= 2 and is_hangul(word)]
        nouns = {
            word
            for word, tokens in zip(candidates, self._tokenize(candidates), strict=True)
            if all(token.tag in KINDS[:PRONOUN] for token in tokens) and "".join(token.form for token in tokens) == word
        }
        return np.array([word in nouns for word in composed_words], dtype=np.bool_)

    def _look_up(self, texts: list[str]) -> tuple[list[bytes], dict[bytes, bytes], dict[bytes, Tags]]:
        """The keys of texts, the packed tags of those in the cache, and the tags of the others, which are cached now."""
        keys = [_key(text) for text in texts]
        cached = self._store.get(keys) if self._store else {}
        return keys, cached, self._tag_new({key: text for key, text in zip(keys, texts, strict=True) if key not in cached})

    def _tag_new(self, texts: dict[bytes, str]) -> dict[bytes, Tags]:
        """Tag texts that are not cached, and cache them."""
        pieces = [piece for text in texts.values() for piece in _pieces(text)]
        tags = map(_read_tokens, pieces, self._tokenize(pieces))
        new = {key: _joined([(piece, next(tags)) for piece in _pieces(text)]) for key, text in texts.items()}
        if self._store and new:
            self._store.put(new)
        return new

    def _tokenize(self, texts: list[str]) -> Iterable[list[Token]]:
        if not texts:
            return ()
        tokens: Iterable[list[Token]] = _kiwi(self._threads).tokenize(texts)
        return tokens


@lru_cache(maxsize=1)
def _kiwi(threads: int) -> Kiwi:
    """One per process: it takes seconds to load, and hundreds of megabytes."""
    require_kiwi()
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=threads, load_multi_dict=False)


def release_kiwi() -> None:
    """Free the tagger's memory; the next text loads it again."""
    _kiwi.cache_clear()


class _TagStore:
    """A key-value file; in SQLite, because processes share it and a killed one must not damage it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._storage_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=60)
            weakref.finalize(self, self._db.close)  # from Python 3.13 on, an open connection causes a warning
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS tags (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
            self._db.commit()

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Turn errors of a full disk, a damaged file or an unwritable folder into one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"The cache {self._path} cannot be used ({error}); free some space or remove it, or let COREF_AUTOML_CACHE name "
                f"another folder, and run the same command again."
            ) from error

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        values: dict[bytes, bytes] = {}
        with self._storage_errors():
            for start in range(0, len(keys), 500):
                part = keys[start : start + 500]
                placeholders = ",".join("?" * len(part))
                values.update(self._db.execute(f"SELECT key, value FROM tags WHERE key IN ({placeholders})", part))
        return values

    def put(self, new: dict[bytes, Tags]) -> None:
        rows = [(key, tags.pack()) for key, tags in new.items()]
        with self._storage_errors(), self._db:
            self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", rows)


@lru_cache(maxsize=64)
def suffix_starts(text: str) -> dict[int, int]:
    """Map the end of each particle, copula and verb ending to its start; contracted ones cannot be cut off."""
    starts, offset = dict[int, int](), 0
    for piece, tokens in zip(_pieces(text), _kiwi(usable_cores()).tokenize(_pieces(text)), strict=True):
        suffixes = [token for token in tokens if token.tag[0] in "JE" or token.tag.startswith("VCP")]
        starts |= {offset + t.start + t.len: offset + t.start for t in suffixes if piece[t.start : t.start + t.len] == t.form}
        offset += len(piece)
    return starts


def is_hangul(text: str) -> bool:
    """True when every character is a composed Hangul syllable."""
    return all("가" <= character <= "힣" for character in text)


_DECOMPOSED = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?")


def composed(text: str) -> tuple[str, list[int]]:
    """Compose decomposed Hangul (NFD) into syllables; also return the original position of each character and of the end."""
    parts, positions, done = list[str](), list[int](), 0
    for match in _DECOMPOSED.finditer(text):
        parts += [text[done : match.start()], unicodedata.normalize("NFC", match.group())]
        positions += range(done, match.start() + 1)
        done = match.end()
    return "".join([*parts, text[done:]]), [*positions, *range(done, len(text) + 1)]


def splits_syllable(text: str, position: int) -> bool:
    """Would the characters around a position be composed into one, as a tokenizer may do?"""
    before, after = text[max(0, position - 3) : position], text[position : position + 3]
    whole, *parts = (unicodedata.normalize("NFC", part) for part in (before + after, before, after))
    return whole != "".join(parts)


def ends_in_consonant(word: str) -> bool:
    """True when the last syllable has a final consonant, on which the form of a Korean particle depends."""
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
    """Split a long text after lines, sentences or words."""
    pieces, start = list[str](), 0
    while len(text) - start > _PIECE:
        cuts = (text.rfind(sign, start + _PIECE // 2, start + _PIECE) + len(sign) for sign in _BREAKS)
        cut = next((cut for cut in cuts if cut > start + _PIECE // 2), start + _PIECE)
        pieces.append(text[start:cut])
        start = cut
    return [*pieces, text[start:]]


def _joined(parts: list[tuple[str, Tags]]) -> Tags:
    """Join the tags of a text's pieces. A sentence ends with its last word, the last sentence with the text."""
    if len(parts) == 1:
        return parts[0][1]
    spans, ends, offset = [], [], 0
    for number, (piece, tags) in enumerate(parts, 1):
        last = len(piece) if number == len(parts) else len(piece.rstrip())
        spans.append(tags.spans + offset)
        ends.append(np.minimum(tags.sentence_ends, last) + offset)
        offset += len(piece)
    kinds = np.concatenate([tags.kinds for _, tags in parts])
    return Tags(np.concatenate(spans).astype(np.int32), kinds, np.concatenate(ends).astype(np.int32))


def _read_tokens(text: str, tokens: list[Token]) -> Tags:
    """Keep pronouns, and nouns whose span is their form: contracted nouns, which Kiwi restores, cannot be masked."""
    spans, kinds = [], []
    for token in tokens:
        if token.tag not in KINDS:
            continue
        start, end = token.start, token.start + token.len
        if token.tag == "NP" or text[start:end] == token.form:
            spans.append((start, end))
            kinds.append(KINDS.index(token.tag))
    ends = [before.start + before.len for before, after in pairwise(tokens) if after.sent_position != before.sent_position]
    if tokens:
        ends.append(len(text))
    return Tags(np.array(spans, np.int32).reshape(-1, 2), np.array(kinds, np.uint8), np.array(ends, np.int32))
