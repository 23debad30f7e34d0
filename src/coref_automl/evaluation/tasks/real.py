"""Real items. In: a parsed document. Out: mentions of its nouns, hidden, with an earlier mention in reach.

The first mentions of a noun after its first one that no rule of `eligible` excludes are hidden. The antecedent is the nearest
earlier mention of the same thing, at most 400 reference tokens away, so that a 512-token model sees it, with no pronoun between.
By default at most twelve gaps per document, names first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from coref_automl.corpus.chains import NounMention, chains
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.task import Choices, ClozeTask, Found, Limit, ParsedDocument, draw_lot

VERSION = 3
REACH = 400
PER_DOCUMENT = 12
PER_NOUN = 2
"""Gaps of one noun, in different sentences; one of every noun is taken before a second of any."""


def real_items(doc: ParsedDocument, choices: Choices) -> Found:
    eligible, seed, per_document = eligible_of(doc, choices), choices.seed, choices.per_document
    drops: Counter[str] = Counter()
    fitting: list[tuple[int, NounMention, NounMention]] = []
    for chain in chains(eligible.words, cap=None):
        reasons, gaps = list[str](), list[tuple[NounMention, NounMention]]()
        for number, hidden in enumerate(chain[1:], 1):
            antecedent = _antecedent(eligible, chain[:number], hidden, choices.answers)
            if isinstance(antecedent, str):
                reasons.append(antecedent)
            elif not gaps or doc.sentence_at(hidden.start) != doc.sentence_at(gaps[-1][1].start):
                gaps.append((antecedent, hidden))
            if len(gaps) == PER_NOUN:
                break
        fitting += [(order, *gap) for order, gap in enumerate(gaps)]
        if not gaps:
            drops[reasons[0]] += 1
    ranked = sorted(fitting, key=lambda gap: (gap[2].tag != "NNP", gap[0], draw_lot(seed, doc.identity, gap[2].form)))
    drops[f"over {per_document} gaps of its document"] += max(0, len(fitting) - per_document)
    items = [
        eligible.item("real", VERSION, hidden, antecedent.span, seed=seed, before=True)
        for _, antecedent, hidden in ranked[:per_document]
    ]
    return Found(sorted(items, key=lambda item: item.start), +drops)


def _antecedent(
    eligible: Eligible, earlier: Sequence[NounMention], hidden: NounMention, answers: Collection[str] | None
) -> NounMention | str:
    """The antecedent of a mention among the earlier ones of its noun; or why the mention is not hidden."""
    doc = eligible.doc
    if reason := eligible.reason_against_word(hidden):
        return reason
    near = [mention for mention in earlier if doc.distance(mention.span, hidden.span) <= REACH]
    if not near:
        return f"earlier mention over {REACH} tokens away"
    antecedent = eligible.antecedent(near[::-1])
    if doc.pronoun_between(antecedent.span, hidden.span):
        return "a pronoun between the two mentions"
    if reason := eligible.reason_against_antecedent(antecedent) or eligible.reason_against(hidden):
        return reason
    return antecedent if answers is None or hidden.form in answers else "not one vocabulary entry"


TASK = ClozeTask(
    name="real",
    label="Real",
    version=VERSION,
    find=lambda doc, _, choices: real_items(doc, choices),
    limit=Limit("per_source", lambda item: (item.source, item.tag), "the limit of its source"),
)
