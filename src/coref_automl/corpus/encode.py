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

from coref_automl.config import from_mapping
from coref_automl.corpus.chains import NounMention, chains, mentions
from coref_automl.corpus.dataset import smallest_type
from coref_automl.corpus.overlap import WORDS, among, grams
from coref_automl.corpus.recipe import Mode
from coref_automl.corpus.shards import started
from coref_automl.decoder import read_stored_rows
from coref_automl.errors import ModelError
from coref_automl.korean import Tagger, Tags
from coref_automl.models.vocabulary import Pieces, split_at, tokenize
from coref_automl.records import Document
from coref_automl.store import atomic_write, read_json, write_json, write_jsonl, write_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SENTENCE_END = re.compile(r"""(?<=[가-힣\])」』”’"'])[.!?…]+["'”’」』)\]]*(?=\s)|\n""")
REASONS = ("", "no noun chain", "no tokens", "reads as a special token", "could not be encoded")


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
    cls: int
    sep: int
    pad: int
    mask: int
    unk: int
    ids: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StoredTokenizer:
    """A tokenizer as workers read it, without transformers: they start sooner, and each is 70 MB smaller."""

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
    special = asdict(special_of(tokenizer, model))
    write_text(path, json.dumps({"rules": tokenizer.backend_tokenizer.to_str(), "special": special}))
    stored_tokenizer.cache_clear()
    return path


@lru_cache(maxsize=1)
def stored_tokenizer(path: Path) -> StoredTokenizer:
    from tokenizers import Tokenizer

    held = read_json(path)
    return StoredTokenizer(Tokenizer.from_str(held["rules"]), from_mapping(Special, held["special"], "special entries"))


@lru_cache(maxsize=2)
def tokenizer_of(model: str) -> PreTrainedTokenizerFast:
    from coref_automl.models.load import load_tokenizer

    return load_tokenizer(model)


def warm_up(path: Path) -> None:
    """Load a tokenizer in this process."""
    stored_tokenizer(path)


def special_of(tokenizer: PreTrainedTokenizerFast, model: str) -> Special:
    found = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad", "mask")}
    if missing := [name for name, entry in found.items() if entry is None]:
        raise ModelError(f"The tokenizer of {model} has no {missing[0]} token, so it cannot serve a masked language model.")
    unk = tokenizer.unk_token_id
    others = {entry for entry in tokenizer.all_special_ids if entry != unk}
    return Special(**found, unk=-1 if unk is None else unk, ids=tuple(sorted(others)))


def encode_shard(texts: Path, keep: NDArray[np.bool_], stem: Path, settings: EncodeSettings) -> int:
    """Encode the documents of a shard that are kept; returns the characters of the shard. A finished shard is passed over."""
    rows = [(place, one) for place, one in enumerate(read_stored_rows(texts, Document)) if keep[place]]
    size = sum(len(document.text) for _, document in rows)
    if stem.with_suffix(".json").is_file():
        return size
    tokenizer = stored_tokenizer(settings.tokenizer)
    special = tokenizer.special
    known: NDArray[np.uint64] | None = np.load(settings.grams) if settings.grams else None
    pieces: list[tuple[int, int, int]] = []
    marks: list[NDArray[np.int32]] = []
    facts: list[tuple[int, int, int, int, int]] = []
    trained: list[dict[str, str]] = []
    hits = _Hits(known)
    with atomic_write(stem.with_suffix(".tokens"), "wb") as handle:
        for (place, document), tags in zip(rows, _tags(rows, settings), strict=True):
            encoded, reason = _encode(document.text, tags, tokenizer, special, settings)
            count = sum(len(ids) for ids, _ in encoded)
            unknown = sum(int(np.count_nonzero(ids == special.unk)) for ids, _ in encoded)
            facts.append((place, len(document.text), count, unknown, reason))
            for ids, found in encoded:
                whole = np.concatenate([[special.cls], ids, [special.sep]])
                handle.write(whole.astype(smallest_type(len(tokenizer))).tobytes())
                if len(found):
                    marks.append(np.column_stack([np.full(len(found), len(pieces), np.int32), found]))
                pieces.append((place, len(whole), int(found[:, 2].max()) + 1 if len(found) else 0))
            if not reason:
                trained.append({"source": document.source, "id": document.id, "title": document.title})
                hits.look_into(document, place)
    _write(stem, pieces, marks, facts, trained, hits)
    return size


def set_shard_aside(keep: list[int], stem: Path) -> None:
    """Give up a shard that no worker survives: none of its documents trains."""
    with atomic_write(stem.with_suffix(".tokens"), "wb"):
        _write(stem, [], [], [(place, 0, 0, 0, len(REASONS) - 1) for place in keep], [], _Hits(None))


def _write(
    stem: Path,
    pieces: list[tuple[int, int, int]],
    marks: list[NDArray[np.int32]],
    facts: list[tuple[int, int, int, int, int]],
    trained: list[dict[str, str]],
    hits: _Hits,
) -> None:
    with atomic_write(stem.with_suffix(".npz"), "wb") as handle:
        np.savez(
            handle,
            pieces=np.array(pieces, np.int32).reshape(-1, 3),
            documents=np.array(facts, np.int64).reshape(-1, 5),
            runs=np.concatenate(hits.runs) if hits.runs else np.empty(0, np.uint64),
        )
    with atomic_write(stem.with_suffix(".mentions.npy"), "wb") as handle:
        np.save(handle, np.concatenate(marks) if marks else np.empty((0, 4), np.int32))
    write_jsonl(stem.with_suffix(".jsonl"), trained)
    write_json(stem.with_suffix(".json"), {"documents": len(facts), "overlap": hits.examples})


def encode_job(*, texts: str, kept: str, first: int, stem: str, settings: dict[str, Any]) -> int:
    """`encode_shard` for a worker process; `kept` is a file with a flag for every document, this shard's from `first` on."""
    started(Path(stem))
    keep = np.asarray(np.load(kept, mmap_mode="r"))[first:]
    return encode_shard(Path(texts), keep, Path(stem), from_mapping(EncodeSettings, settings, "settings of encoding"))


def _tags(rows: list[tuple[int, Document]], settings: EncodeSettings) -> Any:
    """Tags come from the cache that the tagging stage has filled; masked language modelling needs none."""
    if settings.mode == "mlm":
        return [None] * len(rows)
    return Tagger(settings.cache, threads=1).tag(document.text for _, document in rows)


Places = NDArray[np.int64]
Encoded = list[tuple[NDArray[np.int32], NDArray[np.int32]]]
"""For every piece: its ids without [CLS] and [SEP], and its mentions (start, end, chain) counted with [CLS]."""


def _encode(
    text: str, tags: Tags | None, tokenizer: StoredTokenizer | PreTrainedTokenizerFast, special: Special, settings: EncodeSettings
) -> tuple[Encoded, int]:
    pieces = tokenize(tokenizer, text)
    repeated: list[NounMention] = []
    if tags is not None:
        repeated = sorted(
            (m for chain in chains(mentions(text, tags, only_names=settings.only_names), cap=None) for m in chain),
            key=lambda mention: mention.start,
        )
        pieces = split_at(tokenizer, text, pieces, [(mention.start, mention.end) for mention in repeated])
    if not len(pieces):
        return [], 2
    if np.isin(pieces.ids, special.ids).any():
        return [], 3
    edges = cuts(pieces.starts, pieces.ends, sentence_ends(text, tags), settings.seq_len - 2)
    low, high = _covered(pieces, repeated)
    encoded: Encoded = []
    for first, last in pairwise(edges):
        inside = np.flatnonzero((low >= first) & (high <= last) & (high > low))
        encoded.append((pieces.ids[first:last], _chained(inside, low, high, repeated, settings.chain_cap, 1 - first)))
    if settings.mode == "entity" and not any(len(found) for _, found in encoded):
        return [], 1
    return encoded, 0


def _covered(pieces: Pieces, found: list[NounMention]) -> tuple[Places, Places]:
    """The pieces low:high of every mention; as `Pieces.cover`, for all mentions at once."""
    begins = np.array([mention.start for mention in found], np.int32)
    low = np.searchsorted(pieces.ends, begins, "right")
    high = np.searchsorted(pieces.starts, np.array([mention.end for mention in found], np.int32), "left")
    empty = pieces.starts == pieces.ends
    while len(low) and (lone := (low > 0) & empty[low - 1] & (pieces.starts[low - 1] == begins)).any():
        low = low - lone
    return low, high


def _chained(
    inside: Places, low: Places, high: Places, found: list[NounMention], cap: int | None, shift: int
) -> NDArray[np.int32]:
    """Mentions of the chains within one piece: other pieces cannot be seen from here."""
    place = {found[at].start: at for at in inside.tolist()}
    rows = [
        (int(low[place[m.start]]) + shift, int(high[place[m.start]]) + shift, number)
        for number, chain in enumerate(chains([found[at] for at in inside.tolist()], cap=cap))
        for m in chain
    ]
    return np.array(sorted(rows), np.int32).reshape(-1, 3)


@dataclass(slots=True)
class _Hits:
    """Runs of words that evaluation documents hold too, by document; and a few of them spelt out."""

    known: NDArray[np.uint64] | None
    runs: list[NDArray[np.uint64]] = field(default_factory=list)
    examples: list[tuple[int, int, str, str, str]] = field(default_factory=list)

    def look_into(self, document: Document, place: int) -> None:
        if self.known is None:
            return
        every = grams(document.text)
        at = np.flatnonzero(among(self.known, every))
        if not len(at):
            return
        runs = every[at]
        self.runs.append(np.unique(runs))
        words = " ".join(document.text.split()[int(at[0]) : int(at[0]) + WORDS])
        self.examples.append((place, int(runs[0]), document.source, document.id, words))


def sentence_ends(text: str, tags: Tags | None) -> NDArray[np.int32]:
    """Where sentences end: line breaks, and what the tagger says, or final punctuation after Hangul where there is no tagger."""
    if tags is None:
        return np.array([match.end() for match in _SENTENCE_END.finditer(text)], np.int32)
    breaks = [match.end() for match in re.finditer("\n", text)]
    return np.union1d(tags.sentence_ends, np.array(breaks, np.int32)).astype(np.int32)


def cuts(starts: NDArray[np.int32], ends: NDArray[np.int32], sentences: NDArray[np.int32], room: int) -> list[int]:
    """Token indices 0 = c0 < c1 < ... = n such that every part has at most `room` tokens.

    A part is as long as whole sentences allow. A sentence that is longer than a part is cut between words; a word that is longer
    still, anywhere.
    """
    count = len(starts)
    found = [0]
    if count <= room:
        return [0, count] if count else [0]
    at_sentence = np.unique(np.searchsorted(starts, sentences, "left"))
    at_word = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    while count - found[-1] > room:
        low, high = found[-1], found[-1] + room
        found.append(_last_within(at_sentence, low, high) or _last_within(at_word, low, high) or high)
    found.append(count)
    return found


def _last_within(places: Places, low: int, high: int) -> int:
    """The greatest place p with low < p <= high; 0 when there is none."""
    at = int(np.searchsorted(places, high, "right")) - 1
    return int(places[at]) if at >= 0 and places[at] > low else 0
