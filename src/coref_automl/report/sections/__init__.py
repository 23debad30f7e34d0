"""The sections of a report, in order. In: a Subject. Out: those that its data can fill.

Adding one: a module here with `draw(study)`, which returns a Section or None, and its line in SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable

from coref_automl.report.page import Section
from coref_automl.report.sections import (
    actions,
    checkpoints,
    coreference,
    curves,
    datasets,
    differences,
    entity_or_mlm,
    equal_training,
    evidence,
    lengths,
    matrix,
    mixes,
    other_sets,
    over_base,
    over_fitting,
    peaks,
    plan,
    ranks,
    rating,
    reading,
    recommendation,
    relation,
    side_by_side,
    transfer,
    variants,
)
from coref_automl.report.subject import Subject

SECTIONS: dict[str, Callable[[Subject], Section | None]] = {
    # the second screen, and what follows from it
    "evidence": evidence.draw,
    "next": actions.draw,
    "plan": plan.draw,
    # questions, folded; their answers are on the first screen
    "base": over_base.draw,
    "entity-or-mlm": entity_or_mlm.draw,
    "mix": mixes.draw,
    "lengths": lengths.draw,
    "over-fitting": over_fitting.draw,
    "transfer": transfer.draw,
    "ranks": ranks.draw,
    "relation": relation.draw,
    "coreference": coreference.draw,
    "recommended": recommendation.draw,
    # the appendix, folded
    "arms": side_by_side.draw,
    "curves": curves.draw,
    "families": peaks.draw,
    "differences": differences.draw,
    "matrix": matrix.draw,
    "efficiency": equal_training.draw,
    "methods": variants.draw,
    "rating": rating.draw,
    "checkpoints": checkpoints.draw,
    "data": datasets.draw,
    "other-sets": other_sets.draw,
    "reading": reading.draw,
}
"""By the id under which a page links to it."""


def draw_sections(study: Subject) -> list[Section]:
    return [section for draw in SECTIONS.values() if (section := draw(study)) is not None]
