"""Far items. In: a parsed document. Out: hidden mentions in buckets of the distance to the nearest occurrence of their string.

A mention begins a word and has an earlier mention. Every occurrence of its characters counts,
before or after the gap, because an encoder reads both ways. At most eight nouns of a document and
bucket, by lot. Only these items can distinguish a 2,048-token model from a 1,536-token one.
"""

from __future__ import annotations

from bisect import bisect_left

from coref_automl.corpus.chains import NounMention, chains
from coref_automl.evaluation.tasks.task import (
    Choices,
    ClozeTask,
    Found,
    Limit,
    ParsedDocument,
    Span,
    draw_lot,
    occurrences,
)

BUCKETS: tuple[tuple[int, int], ...] = ((0, 128), (128, 512), (512, 1024), (1024, 1536), (1536, 2000))
"""Distances in reference tokens, half open."""

PER_BUCKET = 8
"""The most nouns of one document in one bucket."""


def bucket_of(distance: int) -> tuple[int, int] | None:
    """The bucket of a distance; None beyond the last one, or without an antecedent."""
    return next((bucket for bucket in BUCKETS if bucket[0] <= distance < bucket[1]), None)


def far_items(doc: ParsedDocument, choices: Choices) -> Found:
    found = Found()
    hidden: dict[tuple[int, int], dict[str, list[tuple[NounMention, Span]]]] = {}
    for chain in chains(doc.mentions, cap=None):
        positions = occurrences(doc.text, chain[0].form)
        for mention in chain[1:]:
            nearest = nearest_occurrence(doc, mention.span, positions)
            bucket = bucket_of(nearest[1]) if nearest else None
            if not doc.begins_word(mention.start):
                found.drops["begins inside a word"] += 1
            elif nearest is None or bucket is None:
                found.drops[f"{BUCKETS[-1][1]} tokens away or more"] += 1
            else:
                by_noun = hidden.setdefault(bucket, {})
                by_noun.setdefault(mention.form, []).append((mention, nearest[0]))
    for bucket, by_noun in hidden.items():
        chosen = sorted(by_noun, key=lambda form: draw_lot(choices.seed, doc.identity, bucket[0], form))
        over = max(0, len(chosen) - PER_BUCKET)
        found.drops[f"over {PER_BUCKET} nouns of its document in one bucket"] += over
        for form in chosen[:PER_BUCKET]:
            mention, nearest_span = min(by_noun[form], key=lambda gap: draw_lot(choices.seed, doc.identity, gap[0].start))
            found.items.append(doc.item("real-far", mention.span, nearest_span))
    return Found(sorted(found.items, key=lambda item: item.start), +found.drops)


def nearest_occurrence(doc: ParsedDocument, gap: Span, positions: list[int]) -> tuple[Span, int] | None:
    """The span and distance of the nearest occurrence that does not overlap the gap; on a tie the one before it."""
    size = gap[1] - gap[0]
    before = bisect_left(positions, gap[0] - size + 1) - 1
    after = bisect_left(positions, gap[1])
    spans = [(positions[number], positions[number] + size) for number in (before, after) if 0 <= number < len(positions)]
    measured = [(span, doc.distance(span, gap)) for span in spans]
    return min(measured, key=lambda entry: entry[1]) if measured else None


TASK = ClozeTask(
    name="real-far",
    label="Real-far",
    find=lambda doc, _, choices: far_items(doc, choices),
    limit=Limit("per_bucket", lambda item: (item.source, bucket_of(item.distance)), "the limit of its bucket"),
    is_far=True,
)
