"""Far items. In: a parsed document. Out: hidden mentions whose nearest other occurrence is far, in buckets of reference tokens.

Every occurrence of the answer's characters counts, tagged or not, before or after: an encoder reads both ways, and a longer word
gives the answer away too. The antecedent is the nearest mention of the answer as a whole word, in the same bucket. Only these
items can distinguish a 2,048-token model from a 1,536-token one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.task import Choices, ClozeTask, Found, Limit, ParsedDocument, Span, draw_lot, occurrences
from coref_automl.records import ClozeItem, grouped

VERSION = 3

BUCKETS: tuple[tuple[int, int], ...] = ((0, 128), (128, 512), (512, 1024), (1024, 1536), (1536, 2000))
"""Distances in reference tokens, half open."""

PER_BUCKET = 5
"""The most names, and the most common nouns, of one document in one bucket."""


def bucket_of(distance: int) -> tuple[int, int] | None:
    """The bucket of a distance; None beyond the last one, or without an antecedent."""
    return next((bucket for bucket in BUCKETS if bucket[0] <= distance < bucket[1]), None)


def far_items(doc: ParsedDocument, choices: Choices) -> Found:
    eligible, seed = eligible_of(doc, choices), choices.seed
    drops: Counter[str] = Counter()
    pairs: dict[tuple[int, int], dict[str, list[tuple[NounMention, NounMention]]]] = {bucket: {} for bucket in BUCKETS}
    words = grouped(eligible.words, attrgetter("form"))
    for form, mentions in grouped(doc.mentions, attrgetter("form")).items():
        positions = occurrences(doc.text, form)
        for mention in mentions:
            result = _antecedent(eligible, mention, positions, words.get(form, ()))
            if isinstance(result, str):
                drops[result] += 1
            else:
                pairs[result[1]].setdefault(form, []).append((mention, result[0]))
    items: list[ClozeItem] = []
    for bucket, by_noun in pairs.items():
        for tag in ("NNP", "NNG"):
            forms = [form for form, of_noun in by_noun.items() if of_noun[0][0].tag == tag]
            chosen = sorted(forms, key=lambda form: draw_lot(seed, doc.identity, bucket[0], form))[:PER_BUCKET]
            drops[f"over {PER_BUCKET} nouns of its document in one bucket"] += len(forms) - len(chosen)
            for form in chosen:
                hidden, antecedent = min(by_noun[form], key=lambda pair: draw_lot(seed, doc.identity, pair[0].start))
                earlier = (word.span for word in words[form] if word.start < hidden.start)
                before = any(doc.distance(span, hidden.span) < BUCKETS[-1][1] for span in earlier)
                items.append(eligible.item("real-far", VERSION, hidden, antecedent.span, seed=seed, before=before))
    return Found(sorted(items, key=lambda item: item.start), +drops)


def _antecedent(
    eligible: Eligible, mention: NounMention, positions: list[int], words: Sequence[NounMention]
) -> tuple[NounMention, tuple[int, int]] | str:
    """The nearest mention of the same word and its bucket, which the nearest occurrence must share; or why there is none."""
    doc = eligible.doc
    if reason := eligible.reason_against_word(mention, far=True):
        return reason
    nearest = nearest_occurrence(doc, mention.span, positions)
    bucket = bucket_of(nearest[1]) if nearest else None
    if nearest is None:
        return "occurs once"
    if bucket is None:
        return f"{BUCKETS[-1][1]} tokens away or more"
    measured = [(doc.distance(word.span, mention.span), word.start > mention.start, word) for word in words if word != mention]
    distance, _, antecedent = min(measured, default=(-1, False, mention))
    if bucket_of(distance) != bucket:
        return "nearest occurrence inside a longer word"
    reason = eligible.reason_against_antecedent(antecedent) or eligible.reason_against(mention, distance, far=True)
    return reason or (antecedent, bucket)


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
    version=VERSION,
    find=lambda doc, _, choices: far_items(doc, choices),
    limit=Limit("per_bucket", lambda item: (item.source, item.tag, bucket_of(item.distance)), "the limit of its bucket"),
)
