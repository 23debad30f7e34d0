"""The sections of a report, in order. In: a Subject. Out: those that its data can fill.

Adding one: a function of the study in a module here, which returns a Section, None or a list, and its place in SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable

from coref_automl.report.page import Section
from coref_automl.report.sections import appendix, evidence, questions
from coref_automl.report.subject import Subject

Draw = Callable[[Subject], Section | list[Section] | None]
SECTIONS: tuple[Draw, ...] = (
    # the second screen, and what follows from it
    evidence.draw,
    evidence.targets,
    # questions, folded; their answers are on the first screen
    questions.draw,
    # the appendix, folded
    appendix.methods,
    evidence.learning_curves,
    appendix.rating,
    appendix.checkpoints,
    appendix.datasets,
    appendix.reading,
)


def draw_sections(study: Subject) -> list[Section]:
    found = [draw(study) for draw in SECTIONS]
    return [section for one in found if one is not None for section in (one if isinstance(one, list) else [one])]
