"""Far items. In: a read document. Out: hidden mentions whose nearest other occurrence is far, in buckets of reference tokens.

Every occurrence of the answer's characters counts, tagged or not and on either side: an encoder reads both ways, and a word
inside a longer one gives the answer away. The antecedent is the nearest mention of the answer as a whole word, in the same
bucket. Only these items can tell a 2,048-token model from a 1,536-token one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from coref_automl.corpus.chains import NounMention, by_form
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.task import Choices, ClozeTask, Found, Limit, ReadDocument, Span, draw_lot, occurrences
from coref_automl.records import ClozeItem

VERSION = 3

BUCKETS: tuple[tuple[int, int], ...] = ((0, 128), (128, 512), (512, 1024), (1024, 1536), (1536, 2000))
"""Distances in reference tokens, half open."""

PER_BUCKET = 5
"""The most nouns of one document in one bucket."""


def bucket_of(distance: int) -> tuple[int, int] | None:
    """The bucket of a distance; None beyond the last, or without an antecedent."""
    return next((bucket for bucket in BUCKETS if bucket[0] <= distance < bucket[1]), None)


def far_items(read: ReadDocument, choices: Choices) -> Found:
    eligible, seed = eligible_of(read, choices), choices.seed
    drops: Counter[str] = Counter()
    fit: dict[tuple[int, int], dict[str, list[tuple[NounMention, NounMention]]]] = {bucket: {} for bucket in BUCKETS}
    whole = by_form(eligible.words)
    for form, hidden in by_form(read.mentions).items():
        places = occurrences(read.text, form)
        for mention in hidden:
            found = _antecedent(eligible, mention, places, whole.get(form, ()))
            if isinstance(found, str):
                drops[found] += 1
            else:
                fit[found[1]].setdefault(form, []).append((mention, found[0]))
    items: list[ClozeItem] = []
    for bucket, nouns in fit.items():
        for tag in ("NNP", "NNG"):
            of_tag = [form for form, pairs in nouns.items() if pairs[0][0].tag == tag]
            chosen = sorted(of_tag, key=lambda form: draw_lot(seed, read.identity, bucket[0], form))[:PER_BUCKET]
            drops[f"over {PER_BUCKET} nouns of its document in one bucket"] += len(of_tag) - len(chosen)
            for form in chosen:
                mention, other = min(nouns[form], key=lambda pair: draw_lot(seed, read.identity, pair[0].start))
                earlier = (word.span for word in whole[form] if word.start < mention.start)
                before = any(read.distance(span, mention.span) < BUCKETS[-1][1] for span in earlier)
                items.append(eligible.item("real-far", VERSION, mention, other.span, seed=seed, before=before))
    return Found(sorted(items, key=lambda item: item.start), +drops)


def _antecedent(
    eligible: Eligible, mention: NounMention, places: list[int], whole: Sequence[NounMention]
) -> tuple[NounMention, tuple[int, int]] | str:
    """The nearest mention of the same word and its bucket, in which the nearest occurrence is too; or why there is none."""
    read = eligible.read
    if reason := eligible.unfit_word(mention, far=True):
        return reason
    nearest = nearest_occurrence(read, mention.span, places)
    bucket = bucket_of(nearest[1]) if nearest else None
    if nearest is None:
        return "occurs once"
    if bucket is None:
        return f"{BUCKETS[-1][1]} tokens away or more"
    measured = [(read.distance(word.span, mention.span), word.start > mention.start, word) for word in whole if word != mention]
    distance, _, other = min(measured, default=(-1, False, mention))
    if bucket_of(distance) != bucket:
        return "nearest occurrence inside a longer word"
    return eligible.unfit_antecedent(other) or eligible.unfit(mention, distance, far=True) or (other, bucket)


def nearest_occurrence(read: ReadDocument, gap: Span, places: list[int]) -> tuple[Span, int] | None:
    """The nearest occurrence that shares no character with the gap; on a tie the one before it."""
    size = gap[1] - gap[0]
    before = bisect_left(places, gap[0] - size + 1) - 1
    after = bisect_left(places, gap[1])
    near = [(places[at], places[at] + size) for at in (before, after) if 0 <= at < len(places)]
    measured = [(span, read.distance(span, gap)) for span in near]
    return min(measured, key=lambda entry: entry[1]) if measured else None


TASK = ClozeTask(
    name="real-far",
    label="Real-far",
    version=VERSION,
    find=lambda read, _, choices: far_items(read, choices),
    limit=Limit("per_bucket", lambda item: (item.source, item.tag, bucket_of(item.distance)), "the limit of its bucket"),
)
