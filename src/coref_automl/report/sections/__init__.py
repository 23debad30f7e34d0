"""The questions a report answers, in the order in which one asks them. In: a Subject. Out: those that its data can answer."""

from __future__ import annotations

from collections.abc import Callable

from coref_automl.report.question import Question
from coref_automl.report.sections import lengths, objectives, over_fitting, recommendation, relation, transfer
from coref_automl.report.subject import Subject

QUESTIONS: tuple[Callable[[Subject], Question | None], ...] = (
    objectives.entity_or_mlm,
    objectives.mix,
    lengths.length,
    over_fitting.over_fitting,
    transfer.carry_over,
    relation.relation,
    recommendation.recommended,
)


def answered(study: Subject) -> list[Question]:
    """The questions that the data can answer; a single checkpoint raises none but what became of it."""
    asked = (relation.relation,) if study.alone else QUESTIONS
    return [question for ask in asked if (question := ask(study)) is not None]
