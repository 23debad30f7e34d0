"""The sections of a report, in order. In: a Subject. Out: those that its data can fill.

Adding one: a module here with `draw(study)`, which returns a Section, None or a list, and its place in SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable

from coref_automl.report.page import Section
from coref_automl.report.sections import (
    checkpoints,
    curves,
    datasets,
    differences,
    evidence,
    methods,
    next_steps,
    other_sets,
    questions,
    rating,
    reading,
)
from coref_automl.report.subject import Subject

Draw = Callable[[Subject], Section | list[Section] | None]
SECTIONS: tuple[Draw, ...] = (
    # the second screen, and what follows from it
    evidence.draw,
    next_steps.draw,
    # questions, folded; their answers are on the first screen
    questions.draw,
    # the appendix, folded
    methods.draw,
    curves.draw,
    differences.draw,
    rating.draw,
    checkpoints.draw,
    datasets.draw,
    other_sets.draw,
    reading.draw,
)


def draw_sections(study: Subject) -> list[Section]:
    found = [draw(study) for draw in SECTIONS]
    return [section for one in found if one is not None for section in (one if isinstance(one, list) else [one])]
