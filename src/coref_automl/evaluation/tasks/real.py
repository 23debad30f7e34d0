"""Real items. In: a read document. Out: mentions of its nouns, hidden, with an earlier mention in reach.

Hidden are the first mentions of a noun, from the second on, that nothing speaks against (`eligible`). The nearest earlier mention
that names the same thing is its antecedent: at most 400 reference tokens away, so that a 512-token model sees it, and with no
pronoun between. At most eight names and eight common nouns per document by default: names are the harder kind and need numbers of
their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from coref_automl.corpus.chains import NounMention, chains
from coref_automl.evaluation.ngrams import Neighbours
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.task import ClozeTask, Found, Limit, ReadDocument, draw_lot
from coref_automl.records import ClozeItem

VERSION = 2
REACH = 400
PER_DOCUMENT = 8
PER_NOUN = 2
"""Gaps of one noun, in different sentences; a first of every noun is drawn before a second of any."""


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
    fit: list[tuple[int, NounMention, NounMention]] = []
    for chain in chains(eligible.words, cap=None):
        reasons, gaps = list[str](), list[tuple[NounMention, NounMention]]()
        for at, hidden in enumerate(chain[1:], 1):
            first = _antecedent(eligible, chain[:at], hidden, answers)
            if isinstance(first, str):
                reasons.append(first)
            elif not gaps or read.sentence_at(hidden.start) != read.sentence_at(gaps[-1][1].start):
                gaps.append((first, hidden))
            if len(gaps) == PER_NOUN:
                break
        fit += [(order, *gap) for order, gap in enumerate(gaps)]
        if not gaps:
            drops[reasons[0]] += 1
    items: list[ClozeItem] = []
    for tag in ("NNP", "NNG"):
        of_tag = [gap for gap in fit if gap[2].tag == tag]
        drawn = sorted(of_tag, key=lambda gap: (gap[0], draw_lot(seed, read.identity, gap[2].form)))[:per_document]
        drops[f"over {per_document} gaps of its document"] += len(of_tag) - len(drawn)
        items += [eligible.item("real", VERSION, hidden, first.span, seed=seed, before=True) for _, first, hidden in drawn]
    return Found(sorted(items, key=lambda item: item.start), +drops)


def _antecedent(
    eligible: Eligible, earlier: Sequence[NounMention], hidden: NounMention, answers: Collection[str] | None
) -> NounMention | str:
    """The nearest earlier mention that names what a gap asks for; or why the gap is not asked."""
    read = eligible.read
    if reason := eligible.meaning(hidden):
        return reason
    near = [mention for mention in earlier if read.distance(mention.span, hidden.span) <= REACH]
    if not near:
        return f"earlier mention over {REACH} tokens away"
    first = next((mention for mention in reversed(near) if eligible.unfit_antecedent(mention) is None), near[-1])
    if read.pronoun_between(first.span, hidden.span):
        return "a pronoun between the two mentions"
    if reason := eligible.unfit_antecedent(first) or eligible.unfit(hidden):
        return reason
    return first if answers is None or hidden.form in answers else "not one vocabulary entry"


TASK = ClozeTask(
    name="real",
    label="Real",
    version=VERSION,
    find=lambda read, _, choices: real_items(
        read, seed=choices.seed, per_document=choices.per_document, answers=choices.answers, usual=choices.usual(read.document)
    ),
    limit=Limit("per_source", lambda item: (item.source, item.tag), "the limit of its source"),
)
