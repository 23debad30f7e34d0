"""The second pass of preparation. In: a shard of cleaned documents. Out: token ids cut at sentence ends, mentions of noun chains.

A shard becomes `NAME.tokens` (raw ids), `NAME.npz` (pieces, documents), `NAME.mentions.npy`, `NAME.jsonl` (which documents train)
and, last, `NAME.json`.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.config import from_mapping
from coref_automl.base.decoder import read_stored_rows
from coref_automl.base.errors import ModelError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.korean import Tagger, Tags
from coref_automl.base.records import Document
from coref_automl.base.store import atomic_write, read_json, write_json, write_jsonl, write_text
from coref_automl.corpus.chains import NounMention, chains, mentions
from coref_automl.corpus.choice import WORDS, among, grams
from coref_automl.corpus.dataset import smallest_type
from coref_automl.corpus.recipe import Mode
from coref_automl.corpus.work import mark_started
from coref_automl.models.vocabulary import Pieces, ids_end, split_at, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SENTENCE_END = re.compile(r"""(?<=[가-힣\])」』”’"'])[.!?…]+["'”’」』)\]]*(?=\s)|\n""")
REASONS = ("", "no noun chain", "no tokens", "reads as a special token", "could not be encoded")
_KEPT, _NO_CHAIN, _NO_TOKENS, _SPECIAL, _FAILED = range(5)
FACTS = ("characters", "tokens", "unknown", "reason")
CHARACTERS, TOKENS, UNKNOWN, REASON = range(4)
"""Columns of what encoding counts in a document; the last one is a position in REASONS."""


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    tokenizer: Path
    mode: Mode
    seq_len: int
    only_names: bool
    chain_cap: int | None
    cache: Path | None
    grams: Path | None = None


@dataclass(frozen=True, slots=True)
class Special:
    """The ids of special tokens; `unk` is -1 if there is none, and `ids` are all others, which no text may contain."""

    cls: int
    sep: int
    pad: int
    mask: int
    unk: int
    ids: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StoredTokenizer:
    """A tokenizer that workers load without transformers: they start sooner, and each is 70 MB smaller."""

    backend_tokenizer: Any
    special: Special

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def get_vocab(self) -> dict[str, int]:
        return dict(self.backend_tokenizer.get_vocab())

    @property
    def unk_token_id(self) -> int | None:
        return None if self.special.unk < 0 else self.special.unk

    @property
    def all_special_ids(self) -> list[int]:
        return [*self.special.ids, *({self.special.unk} - {-1})]


def store_tokenizer(model: str, path: Path) -> Path:
    tokenizer = tokenizer_of(model)
    stored = json.dumps({"rules": tokenizer.backend_tokenizer.to_str(), "special": asdict(special_of(tokenizer, model))})
    path = path.with_stem(f"{path.stem}-{fingerprint(stored)}")  # workers keep what they have read of a path
    write_text(path, stored)
    return path


@lru_cache(maxsize=1)
def stored_tokenizer(path: Path) -> StoredTokenizer:
    from tokenizers import Tokenizer

    stored = read_json(path)
    return StoredTokenizer(Tokenizer.from_str(stored["rules"]), from_mapping(Special, stored["special"], "special entries"))


@lru_cache(maxsize=2)
def tokenizer_of(model: str) -> PreTrainedTokenizerFast:
    from coref_automl.models.load import load_tokenizer

    return load_tokenizer(model)


def special_of(tokenizer: PreTrainedTokenizerFast, model: str) -> Special:
    """The ids of a tokenizer's special tokens; one that cannot serve a masked language model is refused."""
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad", "mask")}
    if missing := [name for name, entry in ids.items() if entry is None]:
        raise ModelError(f"The tokenizer of {model} has no {missing[0]} token, so it cannot serve a masked language model.")
    unk = tokenizer.unk_token_id
    others = {entry for entry in tokenizer.all_special_ids if entry != unk}
    return Special(**ids, unk=-1 if unk is None else unk, ids=tuple(sorted(others)))


@dataclass(slots=True)
class _EncodedShard:
    """Collects what encoding writes of a shard. `row` is a document's row in it.

    `pieces` are (row, tokens, chains), `mentions` (piece, start, end, chain), `facts` (row, *FACTS); `grams` are the n-grams that
    are `known` from evaluation documents, and `examples` the first of each document, spelled out.
    """

    known: NDArray[np.uint64] | None = None
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    mentions: list[NDArray[np.int32]] = field(default_factory=list)
    facts: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    trained: list[dict[str, str]] = field(default_factory=list)
    grams: list[NDArray[np.uint64]] = field(default_factory=list)
    examples: list[tuple[int, int, str, str, str]] = field(default_factory=list)

    def look_up(self, document: Document, row: int) -> None:
        """Collect the n-grams that a document shares with evaluation documents."""
        if self.known is None:
            return
        hashes = grams(document.text)
        positions = np.flatnonzero(among(self.known, hashes))
        if not len(positions):
            return
        shared, first = hashes[positions], int(positions[0])
        self.grams.append(np.unique(shared))
        words = " ".join(document.text.split()[first : first + WORDS])
        self.examples.append((row, int(shared[0]), document.source, document.id, words))

    def write(self, stem: Path) -> None:
        with atomic_write(stem.with_suffix(".npz"), "wb") as handle:
            np.savez(
                handle,
                pieces=np.array(self.pieces, np.int32).reshape(-1, 3),
                documents=np.array(self.facts, np.int64).reshape(-1, 1 + len(FACTS)),
                runs=np.concatenate(self.grams) if self.grams else np.empty(0, np.uint64),
            )
        with atomic_write(stem.with_suffix(".mentions.npy"), "wb") as handle:
            np.save(handle, np.concatenate(self.mentions) if self.mentions else np.empty((0, 4), np.int32))
        write_jsonl(stem.with_suffix(".jsonl"), self.trained)
        write_json(stem.with_suffix(".json"), {"documents": len(self.facts), "overlap": self.examples})


def encode_shard(texts: Path, keep: NDArray[np.bool_], stem: Path, settings: EncodeSettings) -> int:
    """Encode the kept documents of a shard, unless that is done; returns their characters."""
    rows = [(row, document) for row, document in enumerate(read_stored_rows(texts, Document)) if keep[row]]
    characters = sum(len(document.text) for _, document in rows)
    if stem.with_suffix(".json").is_file():
        return characters
    tokenizer = stored_tokenizer(settings.tokenizer)
    special, dtype = tokenizer.special, smallest_type(ids_end(tokenizer))
    shard = _EncodedShard(np.load(settings.grams) if settings.grams else None)
    with atomic_write(stem.with_suffix(".tokens"), "wb") as handle:
        for (row, document), tags in zip(rows, _tags(rows, settings), strict=True):
            pieces, reason = _encode(document.text, tags, tokenizer, special, settings)
            tokens = sum(len(ids) for ids, _ in pieces)
            unknown = sum(int(np.count_nonzero(ids == special.unk)) for ids, _ in pieces)
            shard.facts.append((row, len(document.text), tokens, unknown, reason))
            for ids, spans in pieces:
                framed = np.concatenate([[special.cls], ids, [special.sep]])
                handle.write(framed.astype(dtype).tobytes())
                if len(spans):
                    shard.mentions.append(np.column_stack([np.full(len(spans), len(shard.pieces), np.int32), spans]))
                shard.pieces.append((row, len(framed), int(spans[:, 2].max()) + 1 if len(spans) else 0))
            if reason == _KEPT:
                shard.trained.append({"source": document.source, "id": document.id, "title": document.title})
                shard.look_up(document, row)
    shard.write(stem)
    return characters


def skip_shard(keep: NDArray[np.bool_], stem: Path) -> None:
    """Give up a shard that no worker survives: none of its documents trains."""
    shard = _EncodedShard(facts=[(row, 0, 0, 0, _FAILED) for row in np.flatnonzero(keep).tolist()])
    with atomic_write(stem.with_suffix(".tokens"), "wb"):
        shard.write(stem)


def encode_job(*, texts: str, kept: str, first: int, stem: str, settings: dict[str, Any]) -> int:
    """Run `encode_shard` in a worker process; the file `kept` has a flag per document, those of this shard from `first` on."""
    mark_started(Path(stem))
    keep = np.asarray(np.load(kept, mmap_mode="r"))[first:]
    return encode_shard(Path(texts), keep, Path(stem), from_mapping(EncodeSettings, settings, "settings of encoding"))


def _tags(rows: list[tuple[int, Document]], settings: EncodeSettings) -> Any:
    """The tags of every document, from the cache that the tagging stage has filled; None for masked language modelling."""
    if settings.mode == "mlm":
        return [None] * len(rows)
    return Tagger(settings.cache, threads=1).tag(document.text for _, document in rows)


Positions = NDArray[np.int64]
EncodedPieces = list[tuple[NDArray[np.int32], NDArray[np.int32]]]
"""For every piece: its ids without [CLS] and [SEP], and its mentions (start, end, chain) in positions that count [CLS]."""


def _encode(
    text: str, tags: Tags | None, tokenizer: StoredTokenizer | PreTrainedTokenizerFast, special: Special, settings: EncodeSettings
) -> tuple[EncodedPieces, int]:
    """A document as pieces of at most `seq_len` tokens, or no pieces and the reason."""
    pieces = tokenize(tokenizer, text)
    repeated: list[NounMention] = []
    if tags is not None:
        repeated = sorted(
            (m for chain in chains(mentions(text, tags, only_names=settings.only_names), cap=None) for m in chain),
            key=lambda mention: mention.start,
        )
        pieces = split_at(tokenizer, text, pieces, [(mention.start, mention.end) for mention in repeated])
    if not len(pieces):
        return [], _NO_TOKENS
    if np.isin(pieces.ids, special.ids).any():
        return [], _SPECIAL
    edges = cuts(pieces.starts, pieces.ends, sentence_ends(text, tags), settings.seq_len - 2)
    low, high = _covered(pieces, repeated)
    encoded: EncodedPieces = []
    for first, last in pairwise(edges):
        inside = np.flatnonzero((low >= first) & (high <= last) & (high > low))
        encoded.append((pieces.ids[first:last], _chained(inside, low, high, repeated, settings.chain_cap, 1 - first)))
    if settings.mode == "entity" and not any(len(spans) for _, spans in encoded):
        return [], _NO_CHAIN
    return encoded, _KEPT


def _covered(pieces: Pieces, mentions: list[NounMention]) -> tuple[Positions, Positions]:
    """The tokens low:high of every mention: `Pieces.cover` for all mentions at once."""
    starts = np.array([mention.start for mention in mentions], np.int32)
    low = np.searchsorted(pieces.ends, starts, "right")
    high = np.searchsorted(pieces.starts, np.array([mention.end for mention in mentions], np.int32), "left")
    empty = pieces.starts == pieces.ends
    while len(low) and (lone := (low > 0) & empty[low - 1] & (pieces.starts[low - 1] == starts)).any():
        low = low - lone
    return low, high


def _chained(
    inside: Positions, low: Positions, high: Positions, mentions: list[NounMention], cap: int | None, shift: int
) -> NDArray[np.int32]:
    """The mentions (start, end, chain) of the chains within one piece: a model sees no other piece of the document."""
    number_of = {mentions[number].start: number for number in inside.tolist()}
    rows = [
        (int(low[number_of[m.start]]) + shift, int(high[number_of[m.start]]) + shift, number)
        for number, chain in enumerate(chains([mentions[number] for number in inside.tolist()], cap=cap))
        for m in chain
    ]
    return np.array(sorted(rows), np.int32).reshape(-1, 3)


def sentence_ends(text: str, tags: Tags | None) -> NDArray[np.int32]:
    """Where sentences end: at line breaks, and where the tagger says; without tags at final punctuation after Hangul."""
    if tags is None:
        return np.array([match.end() for match in _SENTENCE_END.finditer(text)], np.int32)
    breaks = [match.end() for match in re.finditer("\n", text)]
    return np.union1d(tags.sentence_ends, np.array(breaks, np.int32)).astype(np.int32)


def cuts(starts: NDArray[np.int32], ends: NDArray[np.int32], sentences: NDArray[np.int32], capacity: int) -> list[int]:
    """Token indices 0 = c0 < c1 < ... = n such that every part has at most `capacity` tokens.

    Parts are as long as whole sentences allow. A sentence longer than a part is cut between words; a word longer than a part,
    anywhere.
    """
    count = len(starts)
    edges = [0]
    if count <= capacity:
        return [0, count] if count else [0]
    at_sentence = np.unique(np.searchsorted(starts, sentences, "left"))
    at_word = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    while count - edges[-1] > capacity:
        low, high = edges[-1], edges[-1] + capacity
        edges.append(_last_within(at_sentence, low, high) or _last_within(at_word, low, high) or high)
    edges.append(count)
    return edges


def _last_within(positions: Positions, low: int, high: int) -> int:
    """The greatest position p with low < p <= high; 0 when there is none."""
    last = int(np.searchsorted(positions, high, "right")) - 1
    return int(positions[last]) if last >= 0 and positions[last] > low else 0
