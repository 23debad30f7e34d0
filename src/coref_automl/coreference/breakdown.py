"""Where a model is right. In: a document and chains for it. Out: the share of each gold mention's chain it recovers, by group.

A mention's share is its B-cubed recall: of the mentions of its entity, those that stand with it in the predicted chain. Groups
are kinds of mention (name, noun, pronoun), and how far back, in characters, the entity was last mentioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from coref_automl.coreference.data import CorefDocument
from coref_automl.evaluation.tasks.gold import PRONOUNS
from coref_automl.korean import KINDS, Tagger
from coref_automl.records import Record

Span = tuple[int, int]
DISTANCES = (50, 200, 1_000)
"""Where a distance in characters counts as longer."""
NOMINAL = "name or noun"


@dataclass(frozen=True, slots=True)
class Group(Record):
    """How many gold mentions, how many of them were found, and the mean share of their chains."""

    mentions: int
    found: float
    recovered: float


def by_group(
    documents: Sequence[CorefDocument], chains: Sequence[Iterable[Iterable[Span]]], kinds: Sequence[Sequence[str]]
) -> dict[str, Group]:
    """Groups under `kind ...` and `last mentioned ...`."""
    rows: dict[str, list[tuple[bool, float]]] = {}
    for document, given, named in zip(documents, chains, kinds, strict=True):
        owner = {span: number for number, chain in enumerate(given) for span in chain}
        entities: dict[str, list[Span]] = {}
        for mention in document.mentions:
            entities.setdefault(mention.entity, []).append(mention.span)
        last: dict[str, int] = {}
        for mention, kind in zip(document.mentions, named, strict=True):
            own, place = entities[mention.entity], owner.get(mention.span)
            share = sum(owner.get(span) == place for span in own) / len(own) if place is not None else 0.0
            for group in (f"kind: {kind}", f"last mentioned: {_distance(last.get(mention.entity), mention.start)}"):
                rows.setdefault(group, []).append((place is not None, share))
            last[mention.entity] = mention.end
    return {
        name: Group(len(group), sum(found for found, _ in group) / len(group), sum(share for _, share in group) / len(group))
        for name, group in sorted(rows.items())
    }


def kinds_of(document: CorefDocument) -> tuple[str, ...]:
    """What the data say; else a closed list of pronouns, and the tagger's word for the rest where it is installed."""
    if all(mention.kind for mention in document.mentions):
        return tuple(mention.kind for mention in document.mentions)
    tags = _tags(document.text)
    return tuple(
        mention.kind or _kind(document.text[mention.start : mention.end], tags, mention.span) for mention in document.mentions
    )


def _kind(form: str, tags: tuple[tuple[int, int, str], ...] | None, span: Span) -> str:
    if form.split() and all(word in PRONOUNS for word in form.split()):
        return "pronoun"
    if tags is None:
        return NOMINAL
    inside = [tag for start, end, tag in tags if span[0] <= start and end <= span[1]]
    return {"NNP": "name", "NNG": "noun", "NP": "pronoun"}.get(inside[-1] if inside else "", NOMINAL)


@cache
def _tags(text: str) -> tuple[tuple[int, int, str], ...] | None:
    if find_spec("kiwipiepy") is None:
        return None
    found = next(iter(Tagger().tag([text])))
    return tuple((int(a), int(b), KINDS[int(k)]) for (a, b), k in zip(found.spans, found.kinds, strict=True))


def _distance(before: int | None, start: int) -> str:
    if before is None:
        return "never"
    for edge in DISTANCES:
        if start - before < edge:
            return f"under {edge:,} characters before"
    return f"{DISTANCES[-1]:,} characters before or more"
