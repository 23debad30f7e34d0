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
_WORST = 10
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
class WorstEntity(Record):
    """An entity that the tokenizer cuts smallest: its text, how it is cut (`뷁×3`: in three tokens), and how often it occurs."""

    text: str
    tokens: tuple[str, ...]
    count: int
    unknown: bool


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
    worst: tuple[WorstEntity, ...]


@dataclass(frozen=True, slots=True)
class Segment(Record):
    """`text[start:end]` as `tokens` tokens: more than one where they share a character's bytes."""

    start: int
    end: int
    tokens: int
    unknown: bool


@dataclass(frozen=True, slots=True)
class Reading(Record):
    """A text as one tokenizer reads it."""

    model: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Example(Record):
    """A text as each tokenizer reads it, with its entities as (start, end, kind)."""

    text: str
    entities: tuple[tuple[int, int, str], ...]
    readings: tuple[Reading, ...]


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
    worst = _Worst()
    for low in range(0, len(texts), _AT_ONCE):
        some = texts[low : low + _AT_ONCE]
        for text, pieces in zip(some, tokenize_all(tokenizer, [one.text for one in some]), strict=True):
            tokens += len(pieces)
            if lost := int((pieces.ids == entries.unknown).sum()) if entries.unknown is not None else 0:
                unknown_tokens += lost
                unknown_texts += 1
                causes += unknown_characters(tokenizer, text.text, pieces)
            facts = span_facts(text.text, pieces, [(span.start, span.end) for span in text.spans], entries.unknown)
            worst.see(text, pieces, facts)
            parts.append(facts)
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
        worst=worst.listed(),
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


class _Worst:
    """Collects entities by their text. Worst is what holds an unknown token, then what has most tokens for its length."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._seen: dict[str, tuple[bool, float, tuple[str, ...]]] = {}

    def see(self, text: AnnotatedText, pieces: Pieces, facts: SpanFacts) -> None:
        for span, count, unknown in zip(text.spans, facts.pieces.tolist(), facts.unknown.tolist(), strict=True):
            form = text.text[span.start : span.end].strip()
            self._counts[form] += 1
            if len(form) > 1 and form not in self._seen:
                low, high = pieces.cover(span.start, span.end)
                inside = Pieces(pieces.ids[low:high], pieces.starts[low:high], pieces.ends[low:high])
                cut = ((text.text[one.start : one.end], one.tokens) for one in _segments(inside, None))
                self._seen[form] = (bool(unknown), count / len(form), tuple(f"{part}×{n}" if n > 1 else part for part, n in cut))

    def listed(self) -> tuple[WorstEntity, ...]:
        order = sorted(self._seen, key=lambda form: (*(-value for value in self._seen[form][:2]), -self._counts[form], form))
        return tuple(WorstEntity(form, self._seen[form][2], self._counts[form], self._seen[form][0]) for form in order[:_WORST])


def examples(
    tokenizers: dict[str, PreTrainedTokenizerFast], texts: Sequence[AnnotatedText], *, count: int = 8, longest: int = 160
) -> tuple[Example, ...]:
    """Texts on whose entities the tokenizers differ most (one alone: that it cuts smallest), each once, in their order."""
    some = [_excerpt(text, longest) for text in texts if text.text.strip()][:_AT_ONCE]
    read = {name: tokenize_all(tokenizer, [text.text for text in some]) for name, tokenizer in tokenizers.items()}
    worth = [_spread(text, [pieces[at] for pieces in read.values()]) for at, text in enumerate(some)]
    firsts = {text.text: at for at, text in reversed(list(enumerate(some)))}
    chosen = sorted(sorted(firsts.values(), key=lambda at: (-worth[at], at))[:count])
    return tuple(
        Example(
            some[at].text,
            tuple((span.start, span.end, span.kind) for span in some[at].spans),
            tuple(
                Reading(name, tuple(_segments(read[name][at], tokenizer.unk_token_id))) for name, tokenizer in tokenizers.items()
            ),
        )
        for at in chosen
    )


def _excerpt(text: AnnotatedText, longest: int) -> AnnotatedText:
    """At most so many characters, around the first span, with the spans that lie in them."""
    if len(text.text) <= longest:
        return text
    low = max(0, text.spans[0].start - longest // 3) if text.spans else 0
    if low and (blank := text.text.find(" ", low, text.spans[0].start)) > 0:
        low = blank + 1
    inside = [span for span in text.spans if low <= span.start and span.end <= low + longest]
    moved = (Span(span.start - low, span.end - low, span.kind) for span in inside)
    return AnnotatedText(text.text[low : low + longest], tuple(moved))


def _spread(text: AnnotatedText, read: Sequence[Pieces]) -> float:
    """How far tokenizers are apart on a text's entities, or on the whole of it where it has none."""
    spans = [(span.start, span.end) for span in text.spans] or [(0, len(text.text))]
    counts = [sum(high - low for low, high in (pieces.cover(*span) for span in spans)) / len(spans) for pieces in read]
    return max(counts) - min(counts) if len(counts) > 1 else counts[0]


def _segments(pieces: Pieces, unknown: int | None) -> list[Segment]:
    found: list[Segment] = []
    for number, start, end in zip(pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist(), strict=True):
        if start == end:
            continue
        if found and start < found[-1].end:
            last = found[-1]
            found[-1] = Segment(last.start, max(end, last.end), last.tokens + 1, last.unknown or number == unknown)
        else:
            found.append(Segment(start, end, 1, number == unknown))
    return found
