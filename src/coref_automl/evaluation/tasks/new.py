"""New items, the mirror of Real. In: a parsed document. Out: nouns that stand nowhere else in it, hidden.

A noun has two or more Hangul syllables, begins a word, and its string occurs once in the
document. At most 12 of a document, by lot. Copying never finds such a noun.
"""

from __future__ import annotations

from coref_automl.evaluation.tasks.task import Choices, ClozeTask, Found, Limit, ParsedDocument, by_lot, occurrences


def new_items(doc: ParsedDocument, choices: Choices) -> Found:
    found = Found()
    for mention in doc.mentions:
        if len(occurrences(doc.text, mention.form)) > 1:
            found.drops["occurs again"] += 1
        elif not doc.begins_word(mention.start):
            found.drops["begins inside a word"] += 1
        elif reason := choices.against(doc, mention.span):
            found.drops[reason] += 1
        else:
            found.items.append(doc.item("new", mention.span))
    return by_lot(doc, found, choices)


TASK = ClozeTask(
    name="new",
    label="New",
    find=lambda doc, _, choices: new_items(doc, choices),
    limit=Limit("per_source", lambda item: item.source, "the limit of its source"),
)
