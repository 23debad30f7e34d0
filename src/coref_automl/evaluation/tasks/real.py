"""Real items. In: a parsed document. Out: for each of its nouns, the first later mention with an earlier one in reach, hidden.

A noun has two or more Hangul syllables, and its hidden mention begins a word. The antecedent is
the mention of the same string before it, at most 400 reference tokens away with no pronoun
between. At most 12 nouns of a document, by lot. There is no rule about which nouns.
"""

from __future__ import annotations

from itertools import pairwise

from coref_automl.base.records import Task
from coref_automl.corpus.chains import NounMention, chains
from coref_automl.evaluation.tasks.task import Choices, ClozeTask, Found, Limit, ParsedDocument, by_lot

REACH = 400


def repeated(doc: ParsedDocument, choices: Choices, task: Task = "real") -> Found:
    """The items of a document's repeated nouns, at most one per noun."""
    found = Found()
    for chain in chains(doc.mentions, cap=None):
        gaps = [_fault(doc, *pair) or pair for pair in pairwise(chain)]
        pair = next((gap for gap in gaps if not isinstance(gap, str)), None)
        if pair is None:
            found.drops[str(gaps[0])] += 1
        elif reason := choices.against(doc, pair[1].span):
            found.drops[reason] += 1
        else:
            found.items.append(doc.item(task, pair[1].span, pair[0].span))
    return by_lot(doc, found, choices)


def _fault(doc: ParsedDocument, antecedent: NounMention, hidden: NounMention) -> str:
    """Why a mention is not hidden; empty if it may be."""
    if not doc.begins_word(hidden.start):
        return "begins inside a word"
    if doc.distance(antecedent.span, hidden.span) > REACH:
        return f"earlier mention over {REACH} tokens away"
    if doc.pronoun_between(antecedent.span, hidden.span):
        return "a pronoun between the two mentions"
    return ""


TASK = ClozeTask(
    name="real",
    label="Real",
    find=lambda doc, _, choices: repeated(doc, choices),
    limit=Limit("per_source", lambda item: item.source, "the limit of its source"),
)
