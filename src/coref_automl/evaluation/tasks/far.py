"""Far items. In: a read document. Out: hidden mentions whose nearest other occurrence is far, in buckets of reference tokens.

Every occurrence of the answer's characters counts, tagged or not and on either side: an encoder reads both ways, and a word
inside a longer one gives the answer away. The nearest must itself mention the answer as a whole word, or there is no item.
Only these items can tell a 2,048-token model from a 1,536-token one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.ngrams import Neighbours
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.task import ClozeTask, Found, Limit, ReadDocument, Span, choose_candidates, draw_lot
from coref_automl.records import ClozeItem

VERSION = 2

BUCKETS: tuple[tuple[int, int], ...] = ((0, 128), (128, 512), (512, 1024), (1024, 1536), (1536, 2000))
"""Distances in reference tokens, half open."""

PER_BUCKET = 3
"""The most nouns of one document in one bucket."""


def bucket_of(distance: int) -> tuple[int, int] | None:
    """The bucket of a distance; None beyond the last, or without an antecedent."""
    return next((bucket for bucket in BUCKETS if bucket[0] <= distance < bucket[1]), None)


def far_items(read: ReadDocument, *, seed: int, per_bucket: int = PER_BUCKET, usual: Neighbours | None = None) -> Found:
    eligible = eligible_of(read, usual)
    drops: Counter[str] = Counter()
    fit: dict[tuple[int, int], dict[str, list[tuple[NounMention, Span, int]]]] = {bucket: {} for bucket in BUCKETS}
    by_form: dict[str, list[NounMention]] = {}
    for mention in read.mentions:
        by_form.setdefault(mention.form, []).append(mention)
    whole = {mention.span: mention for mention in eligible.words}
    for form, hidden in by_form.items():
        places = occurrences(read.text, form)
        for mention in hidden:
            nearest = nearest_occurrence(read, mention.span, places)
            bucket = bucket_of(nearest[1]) if nearest else None
            if nearest is None:
                drops["occurs once"] += 1
            elif bucket is None:
                drops[f"{BUCKETS[-1][1]} tokens away or more"] += 1
            elif nearest[0] not in whole:
                drops["nearest occurrence inside a longer word"] += 1
            elif reason := eligible.unfit_antecedent(whole[nearest[0]]) or eligible.unfit(mention, far=True):
                drops[reason] += 1
            else:
                fit[bucket].setdefault(form, []).append((mention, *nearest))
    items: list[ClozeItem] = []
    for bucket, nouns in fit.items():
        for tag in ("NNP", "NNG"):
            of_tag = [form for form, found in nouns.items() if found[0][0].tag == tag]
            chosen = sorted(of_tag, key=lambda form: draw_lot(seed, read.identity, bucket[0], form))[:per_bucket]
            drops[f"over {per_bucket} nouns of its document in one bucket"] += len(of_tag) - len(chosen)
            for form in chosen:
                drawn = min(nouns[form], key=lambda entry: draw_lot(seed, read.identity, entry[0].start))
                items.append(_item(eligible, *drawn, seed))
    return Found(sorted(items, key=lambda item: item.start), +drops)


def occurrences(text: str, word: str) -> list[int]:
    """Every place where the characters of a word occur, overlaps included."""
    places, at = [], text.find(word)
    while at >= 0:
        places.append(at)
        at = text.find(word, at + 1)
    return places


def nearest_occurrence(read: ReadDocument, gap: Span, places: list[int]) -> tuple[Span, int] | None:
    """The nearest occurrence that shares no character with the gap; on a tie the one before it."""
    size = gap[1] - gap[0]
    before = bisect_left(places, gap[0] - size + 1) - 1
    after = bisect_left(places, gap[1])
    near = [(places[at], places[at] + size) for at in (before, after) if 0 <= at < len(places)]
    measured = [(span, read.distance(span, gap)) for span in near]
    return min(measured, key=lambda entry: entry[1]) if measured else None


def _item(eligible: Eligible, mention: NounMention, antecedent: Span, distance: int, seed: int) -> ClozeItem:
    read, form = eligible.read, mention.form
    earlier = (other.span for other in eligible.words if other.form == form and other.start < mention.start)
    return ClozeItem(
        id=read.item_id("real-far", VERSION, mention.span),
        task="real-far",
        document=read.document.id,
        cluster=read.document.id,
        source=read.document.source,
        start=mention.start,
        end=mention.end,
        answer=form,
        tag=mention.tag,
        candidates=choose_candidates(form, eligible.forms, draw=(seed, read.identity, form)),
        antecedent=antecedent,
        distance=distance,
        pronoun_between=read.pronoun_between(antecedent, mention.span),
        before=any(read.distance(span, mention.span) < BUCKETS[-1][1] for span in earlier),
        copyable=eligible.copyable(mention),
    )


TASK = ClozeTask(
    name="real-far",
    label="Real-far",
    version=VERSION,
    find=lambda read, _, choices: far_items(read, seed=choices.seed, usual=choices.usual(read.document)),
    limit=Limit("per_bucket", lambda item: (item.source, item.tag, bucket_of(item.distance)), "the limit of its bucket"),
)
