"""Real items. In: a read document. Out: mentions of its nouns, hidden, with an earlier mention in reach.

Hidden is the first mention of a noun, from the second on, that nothing speaks against (`eligible`). The mention before it, a
whole word too, is its antecedent: at most 400 reference tokens away, so that a 512-token model sees it, and with no pronoun
between. At most three names and three common nouns per document by default: names are the harder kind and need numbers of
their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from coref_automl.corpus.chains import NounMention, chains
from coref_automl.evaluation.ngrams import Neighbours
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.task import ClozeTask, Found, Limit, ReadDocument, choose_candidates, draw_lot
from coref_automl.records import ClozeItem

VERSION = 2
REACH = 400
PER_DOCUMENT = 3


def real_items(
    read: ReadDocument,
    *,
    seed: int,
    per_document: int = PER_DOCUMENT,
    answers: Collection[str] | None = None,
    usual: Neighbours | None = None,
) -> Found:
    """The items of one document. `answers`: hide only these words."""
    eligible = eligible_of(read, usual)
    drops: Counter[str] = Counter()
    fit: list[tuple[NounMention, NounMention]] = []
    for chain in chains(eligible.words, cap=None):
        pairs = [(reason_of(eligible, *pair, answers), pair) for pair in pairwise(chain)]
        chosen = next((pair for reason, pair in pairs if reason is None), None)
        if chosen:
            fit.append(chosen)
        else:
            drops[pairs[0][0] or ""] += 1
    items: list[ClozeItem] = []
    for tag in ("NNP", "NNG"):
        of_tag = [pair for pair in fit if pair[1].tag == tag]
        drawn = sorted(of_tag, key=lambda pair: draw_lot(seed, read.identity, pair[1].form))[:per_document]
        drops[f"over {per_document} nouns of its document"] += len(of_tag) - len(drawn)
        items += [_item(eligible, first, hidden, seed) for first, hidden in drawn]
    return Found(sorted(items, key=lambda item: item.start), +drops)


def reason_of(eligible: Eligible, first: NounMention, hidden: NounMention, answers: Collection[str] | None) -> str | None:
    """Why the second of two neighbouring mentions is not hidden."""
    read = eligible.read
    if read.distance(first.span, hidden.span) > REACH:
        return f"earlier mention over {REACH} tokens away"
    if read.pronoun_between(first.span, hidden.span):
        return "a pronoun between the two mentions"
    if reason := eligible.unfit_antecedent(first) or eligible.unfit(hidden):
        return reason
    return None if answers is None or hidden.form in answers else "not one vocabulary entry"


def _item(eligible: Eligible, first: NounMention, hidden: NounMention, seed: int) -> ClozeItem:
    read = eligible.read
    return ClozeItem(
        id=read.item_id("real", VERSION, hidden.span),
        task="real",
        document=read.document.id,
        cluster=read.document.id,
        source=read.document.source,
        start=hidden.start,
        end=hidden.end,
        answer=hidden.form,
        tag=hidden.tag,
        candidates=choose_candidates(hidden.form, eligible.forms, draw=(seed, read.identity, hidden.form)),
        antecedent=first.span,
        distance=read.distance(first.span, hidden.span),
        before=True,
        copyable=eligible.copyable(hidden),
    )


TASK = ClozeTask(
    name="real",
    label="Real",
    version=VERSION,
    find=lambda read, _, choices: real_items(
        read, seed=choices.seed, per_document=choices.per_document, answers=choices.answers, usual=choices.usual(read.document)
    ),
    limit=Limit("per_source", lambda item: (item.source, item.tag), "the limit of its source"),
)
