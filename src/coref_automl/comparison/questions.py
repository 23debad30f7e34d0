"""The questions a report answers, in the order in which one asks them. In: a Study. Out: those that its data can answer."""

from __future__ import annotations

from collections.abc import Callable

from coref_automl.comparison.advice import recommended
from coref_automl.comparison.lengths import length
from coref_automl.comparison.objectives import entity_or_mlm, mix
from coref_automl.comparison.overfit import over_fitting
from coref_automl.comparison.question import Question
from coref_automl.comparison.relation import relation
from coref_automl.comparison.study import Study
from coref_automl.comparison.transfer import carry_over

QUESTIONS: tuple[Callable[[Study], Question | None], ...] = (
    entity_or_mlm,
    mix,
    length,
    over_fitting,
    carry_over,
    relation,
    recommended,
)


def answered(study: Study) -> list[Question]:
    """The questions that the data can answer; a single checkpoint raises none but what became of it."""
    asked = QUESTIONS if len(study.recommendation.candidates) > 1 else (relation,)
    return [question for ask in asked if (question := ask(study)) is not None]
