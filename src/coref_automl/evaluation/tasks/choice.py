"""Real-choice items. In: a parsed document. Out: the mentions that Real hides, as items of their own.

A model counts those whose answer is two or more of its pieces, and chooses left to right among
nouns of the document with as many pieces (`evaluation/choice`). This costs about twenty rows per
item, so the task is built only on request. It is what a domain with long names reads.
"""

from __future__ import annotations

from coref_automl.evaluation.tasks.real import repeated
from coref_automl.evaluation.tasks.task import ClozeTask, Limit

TASK = ClozeTask(
    name="real-choice",
    label="Real-choice",
    find=lambda doc, _, choices: repeated(doc, choices, "real-choice"),
    limit=Limit("per_source", lambda item: item.source, "the limit of its source"),
    on_request=True,
    is_choice=True,
)
