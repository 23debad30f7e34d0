"""Tokenizers side by side. In: tokenizers and annotated texts. Out: for each, what its tokens make of words and of entities.

No weights are loaded. Numbers about entities are over all spans, and by what they are (a type, a kind of mention, a task).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.segmentation import AnnotatedText, Bools, Span, SpanFacts, span_facts, unknown_characters
from coref_automl.models.vocabulary import Entries, Pieces, entry_words, read_entries, tokenize_all
from coref_automl.records import Record

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WINDOWS = (512, 2048)
"""Tokens of the windows whose characters are counted."""
_CAUSES = 30
_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class EntityFacts(Record):
    """Entities of one kind. `pieces` is a mean; the others are shares of the entities, `unknown` a count.

    `one_entry` are those whose word, by itself, is one vocabulary entry: the ceiling of strict.
    """

    kind: str
    entities: int
    pieces: float
    one_piece: float
    on_edges: float
    glued: float
    broken: float
    one_entry: float
    unknown: int


@dataclass(frozen=True, slots=True)
class TokenizerFacts(Record):
    """One tokenizer on some texts. `held` are the characters that windows of WINDOWS tokens hold, special tokens aside.

    `causes` are the characters behind unknown tokens, most frequent first; `entities` is None where nothing is annotated.
    """

    model: str
    kind: str
    entries: int
    fingerprint: str
    words: int
    characters: int
    tokens: int
    tokens_per_word: float
    tokens_per_1000: float
    held: dict[str, int]
    unknown_tokens: int
    unknown_texts: int
    causes: dict[str, int]
    entities: EntityFacts | None
    by_kind: tuple[EntityFacts, ...]


@dataclass(frozen=True, slots=True)
class Example(Record):
    """A word with an entity as each tokenizer cuts it: `서울|은`; `뷁×3` is a character in three tokens, `[뷁]` unknown."""

    word: str
    cuts: dict[str, str]


def vocabulary_kind(entries: Entries) -> str:
    """WordPiece, BPE, byte-level BPE or Unigram, and what it does with a character it lacks."""
    name = type(entries.model).__name__
    if entries.byte_level:
        return f"byte-level {name}"
    return f"{name} with bytes" if {"<0x00>", "<0xFF>"} <= entries.vocabulary.keys() else name


def facts_of(model: str, tokenizer: PreTrainedTokenizerFast, texts: Sequence[AnnotatedText]) -> TokenizerFacts:
    """All facts about one tokenizer."""
    entries, words = read_entries(tokenizer), {word for word in entry_words(tokenizer) if word}
    parts: list[SpanFacts] = []
    causes: Counter[str] = Counter()
    tokens = unknown_tokens = unknown_texts = 0
    for low in range(0, len(texts), _AT_ONCE):
        some = texts[low : low + _AT_ONCE]
        for text, pieces in zip(some, tokenize_all(tokenizer, [one.text for one in some]), strict=True):
            tokens += len(pieces)
            if lost := int((pieces.ids == entries.unknown).sum()) if entries.unknown is not None else 0:
                unknown_tokens += lost
                unknown_texts += 1
                causes += unknown_characters(tokenizer, text.text, pieces)
            parts.append(span_facts(text.text, pieces, [(span.start, span.end) for span in text.spans], entries.unknown))
    held = SpanFacts.joined(parts)
    kinds = np.array([span.kind for text in texts for span in text.spans])
    alone = np.array([text.text[span.start : span.end].strip() in words for text in texts for span in text.spans], np.bool_)
    characters, count = sum(len(text.text) for text in texts), sum(len(text.text.split()) for text in texts)
    room = int(tokenizer.num_special_tokens_to_add())
    return TokenizerFacts(
        model=model,
        kind=vocabulary_kind(entries),
        entries=len(tokenizer),
        fingerprint=tokenizer_fingerprint(tokenizer),
        words=count,
        characters=characters,
        tokens=tokens,
        tokens_per_word=tokens / max(1, count),
        tokens_per_1000=1000 * tokens / max(1, characters),
        held={str(window): round((window - room) * characters / max(1, tokens)) for window in WINDOWS},
        unknown_tokens=unknown_tokens,
        unknown_texts=unknown_texts,
        causes=dict(causes.most_common(_CAUSES)),
        entities=_summary("", held, alone, np.ones(len(held), np.bool_)) if len(held) else None,
        by_kind=tuple(_summary(str(kind), held, alone, kinds == kind) for kind in dict.fromkeys(sorted(kinds.tolist()))),
    )


def _summary(kind: str, facts: SpanFacts, one_entry: Bools, among: Bools) -> EntityFacts:
    return EntityFacts(
        kind=kind,
        entities=int(among.sum()),
        pieces=float(facts.pieces[among].mean()),
        one_piece=float(facts.whole[among].mean()),
        on_edges=float(facts.on_edges[among].mean()),
        glued=float(facts.glued[among].mean()),
        broken=float(facts.broken[among].mean()),
        one_entry=float(one_entry[among].mean()),
        unknown=int(facts.unknown[among].sum()),
    )


def examples(
    tokenizers: dict[str, PreTrainedTokenizerFast], texts: Sequence[AnnotatedText], *, count: int = 12
) -> tuple[Example, ...]:
    """Words with entities on which the tokenizers differ most (one alone: those that it cuts smallest), each once."""
    words = list(dict.fromkeys(_around(text.text, span) for text in texts[:_AT_ONCE] for span in text.spans))
    read = {name: zip(words, tokenize_all(tokenizer, words), strict=True) for name, tokenizer in tokenizers.items()}
    cuts = {name: [_cut(*one, tokenizers[name].unk_token_id) for one in some] for name, some in read.items()}
    sizes = np.array([[len(cut) for cut in some] for some in cuts.values()]).reshape(len(cuts), len(words))
    worth = np.ptp(sizes, axis=0) if len(cuts) > 1 else sizes[0]
    chosen = np.argsort(-worth, kind="stable")[:count].tolist()
    return tuple(Example(words[at], {name: "|".join(some[at]) for name, some in cuts.items()}) for at in chosen)


def _around(text: str, span: Span) -> str:
    """The span with what is written on to it, up to the next blanks."""
    before, after = text[: span.start].split(), text[span.end :].split()
    joined = bool(before) and not text[span.start - 1].isspace()
    follows = bool(after) and not text[span.end].isspace()
    return (before[-1] if joined else "") + text[span.start : span.end].strip() + (after[0] if follows else "")


def _cut(word: str, pieces: Pieces, unknown: int | None) -> list[str]:
    """The tokens of a word; those that share a character are one part with their number."""
    parts: list[tuple[int, int, int, bool]] = []
    for number, start, end in zip(pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist(), strict=True):
        if parts and start < parts[-1][1]:
            first, last, count, lost = parts[-1]
            parts[-1] = first, max(last, end), count + 1, lost or number == unknown
        elif start < end:
            parts.append((start, end, 1, number == unknown))
    forms = ((word[start:end], count, lost) for start, end, count, lost in parts)
    return [f"[{form}]" if lost else f"{form}×{count}" if count > 1 else form for form, count, lost in forms]
