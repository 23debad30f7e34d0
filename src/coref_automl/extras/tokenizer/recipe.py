"""A tokenizer for a corpus. In: sources. Out: a tokenizer's folder; held-out documents are never read for it.

WordPiece (`models/build`) takes the longest entry from the left; a word with a character outside its alphabet is unknown as a
whole. Unigram chooses by frequency (`그는` becomes `그`, `는`) and can fall back on bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from coref_automl.base.config import Setting, typed
from coref_automl.base.errors import SourceError
from coref_automl.base.folders import MANIFEST, mark_done
from coref_automl.base.korean import Tagger, default_cache
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Document, Record
from coref_automl.base.store import write_json
from coref_automl.corpus.clean import SHARE, Filters, limits, normalise, rank, reason_to_drop
from coref_automl.corpus.sources import inputs_of, read_input
from coref_automl.models.build import SPECIAL, START, as_fast, learn_entries, marked_words, train_tokenizer, word_normalizer
from coref_automl.models.load import tokenizer_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VocabularyKind = Literal["wordpiece", "unigram"]
LEAST_VOCABULARY, MOST_VOCABULARY = 1_000, 1_000_000
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_ROUNDS = 3
_SMOOTHING = 0.5
"""Added to every count, so that an unused entry has a score."""
_BATCH = 512
_NEVER = 1000.0
"""Subtracted from the lowest score for entries that must not be used where others can spell the text."""


@dataclass(frozen=True, slots=True)
class TokenizerRecipe:
    """`nouns` separates nouns from their particles with Kiwi, for learning alone.

    `alphabet` bounds the single characters; Unigram spells others as bytes, WordPiece cannot. `characters` samples that many
    characters of every file, in whole documents, so that one large source does not decide the vocabulary.
    """

    sources: Annotated[tuple[str, ...], Setting("Named source or local:PATH; repeatable.", flags=("--source",))]
    vocab_size: Annotated[int, Setting("Vocabulary size.", LEAST_VOCABULARY, MOST_VOCABULARY)] = 16_000
    nouns: Annotated[bool, Setting("Learn nouns separately from the particles after them.")] = True
    alphabet: Annotated[int, Setting("Maximum number of single characters in the vocabulary.")] = 3_000
    holdout: Annotated[
        float,
        Setting("Share of each source held out for evaluation (at least 300 documents, at most half), never seen here.", 0, 0.5),
    ] = SHARE
    filters: Filters = field(default_factory=Filters)
    kind: Annotated[
        VocabularyKind, Setting("wordpiece, or unigram: bytes spell what the vocabulary lacks, so that no text is unknown.")
    ] = "wordpiece"
    characters: Annotated[
        int | None,
        Setting("Learn from at most this many characters of each file or hub source, drawn by document. Default: all.", 1),
    ] = None

    def __post_init__(self) -> None:
        typed(self)


@dataclass(frozen=True, slots=True)
class TokenizerCard(Record):
    """The provenance of a tokenizer."""

    sources: tuple[str, ...]
    documents: int
    characters: int
    vocab_size: int
    nouns: bool
    fingerprint: str
    kind: VocabularyKind = "wordpiece"


def build_tokenizer(recipe: TokenizerRecipe, out: Path, *, progress: Progress | None = None) -> TokenizerCard:
    """Train a tokenizer on the cleaned documents of the sources that are not held out, and save it."""
    with claimed(out, "tokenizer", fresh=True):
        return _learn(recipe, out, progress or quiet())


def _learn(recipe: TokenizerRecipe, out: Path, progress: Progress) -> TokenizerCard:
    texts = _texts(recipe, progress)
    if not texts:
        advice = "raise --characters" if recipe.characters else "see the reasons with `coref-automl prepare`"
        raise SourceError(f"No document of {', '.join(recipe.sources)} can be used; {advice}.")
    progress.note(
        f"문서 {len(texts):,}개에서 어휘 {recipe.vocab_size:,}개를 학습합니다.",
        f"Learning {recipe.vocab_size:,} entries from {len(texts):,} documents.",
    )
    tagger = Tagger(default_cache()) if recipe.nouns else None
    options: dict[str, Any] = {"vocab_size": recipe.vocab_size, "tagger": tagger, "alphabet": recipe.alphabet}
    tokenizer = (train_tokenizer if recipe.kind == "wordpiece" else train_unigrams)(texts, **options)
    tokenizer.save_pretrained(out)
    card = TokenizerCard(
        sources=tuple(source.rsplit("/", 1)[-1] for source in recipe.sources),
        documents=len(texts),
        characters=sum(map(len, texts)),
        vocab_size=len(tokenizer),
        nouns=recipe.nouns,
        fingerprint=tokenizer_fingerprint(tokenizer),
        kind=recipe.kind,
    )
    write_json(out / MANIFEST, {"kind": "tokenizer", **card.to_json()})
    mark_done(out)
    return card


def _texts(recipe: TokenizerRecipe, progress: Progress) -> list[str]:
    parts: list[list[Document]] = []
    for source in recipe.sources:
        for part in inputs_of(source):
            entries = progress.track(read_input(part), f"read {part.label}", unit="documents")
            parts.append([document for document in entries if isinstance(document, Document)])
    limit_of = limits(((document.source, document.id) for part in parts for document in part), share=recipe.holdout)
    return [
        text
        for part in parts
        for text in _sampled((document for document in part if rank(document.id) > limit_of[document.source]), recipe)
    ]


def _sampled(documents: Iterable[Document], recipe: TokenizerRecipe) -> Iterator[str]:
    """The clean texts of one file, or a sample of `recipe.characters`: documents by rank, whatever their order in the file."""
    left = recipe.characters
    for document in documents if left is None else sorted(documents, key=lambda document: rank(document.id)):
        text = normalise(document.text)
        if reason_to_drop(text, recipe.filters) is not None:
            continue
        if left is not None:
            if len(text) > left:
                continue
            left -= len(text)
        yield text


def train_unigrams(
    texts: Iterable[str], *, vocab_size: int, tagger: Tagger | None = None, alphabet: int = 3000
) -> PreTrainedTokenizerFast:
    """Train a Unigram tokenizer on WordPiece's entries, scored by their frequency in the texts over a few rounds.

    The library's own trainer starts from substrings that several words share, and would lose nouns that are cut out of all their
    words. 256 entries are bytes, which spell characters outside the alphabet.
    """
    from tokenizers.decoders import ByteFallback, Metaspace, Sequence

    lines = list(texts)
    learned = learn_entries(lines, vocab_size - len(_BYTES) - 1, tagger=tagger, alphabet=alphabet)[len(SPECIAL) :]
    entries = [START, *(entry.removeprefix("##") if entry.startswith("##") else f"{START}{entry}" for entry in learned)]
    entries = [*SPECIAL.values(), *dict.fromkeys(entries)]
    scores = [0.0] * len(entries)
    for _ in range(_ROUNDS):
        counts = _usage(_tokenizer(entries, scores), lines)
        total = sum(counts.values()) + _SMOOTHING * len(entries)
        scores = [math.log((counts[entry] + _SMOOTHING) / total) for entry in range(len(entries))]
    low = min(scores) - _NEVER  # text that happens to spell a special or byte entry is not that entry
    scores = [low if entry in SPECIAL.values() else score for entry, score in zip(entries, scores, strict=True)]
    tokenizer = _tokenizer([*entries, *_BYTES], [*scores, *[low] * len(_BYTES)], byte_fallback=True)
    tokenizer.decoder = Sequence([ByteFallback(), Metaspace(replacement=START, prepend_scheme="always")])
    return as_fast(tokenizer)


def _usage(tokenizer: Any, lines: list[str]) -> Counter[int]:
    """How often each entry is used for the texts."""
    counts: Counter[int] = Counter()
    for start in range(0, len(lines), _BATCH):
        for encoding in tokenizer.encode_batch_fast(lines[start : start + _BATCH]):
            counts.update(encoding.ids)
    return counts


def _tokenizer(entries: list[str], scores: list[float], *, byte_fallback: bool = False) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    unknown = entries.index(SPECIAL["unk_token"])
    tokenizer = Tokenizer(Unigram(list(zip(entries, scores, strict=True)), unk_id=unknown, byte_fallback=byte_fallback))
    tokenizer.normalizer, tokenizer.pre_tokenizer = word_normalizer(), marked_words()
    return tokenizer
