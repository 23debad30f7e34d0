"""Methods of one objective that only the names of their runs tell apart. In: a Subject. Out: verdicts between them."""

from __future__ import annotations

from itertools import combinations

from coref_automl.comparison.arms import arms
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.method_pairs import judged_pairs
from coref_automl.report.page import Block, Section, Table, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import counted, difference_cell, rule, shown_on, verdict_cell


def draw(study: Subject) -> Section | None:
    """Compare methods that share an objective."""
    say = study.say
    same = [(a, b) for a, b in combinations(arms(study), 2) if a.objective == b.objective != "combined"]
    judged = judged_pairs(study, [(b, a) for a, b in same if a.alike(b)])
    if not judged:
        return None
    blocks: list[Block] = [
        Table(
            (say("방법", "methods"), say("시드", "seeds"), say("차이", "difference"), say("판정", "verdict")),
            tuple(
                row(f"{one.a} - {one.b}", str(one.seeds), difference_cell(one.answer.interval), verdict_cell(one, say))
                for _, one in judged
            ),
            frozenset({1, 2}),
            f"{METRICS[study.metric].label}, {counted([one for _, one in judged], say)}",
            shown_on([one for _, one in judged]),
        ),
        rule([one for _, one in judged], say),
    ]
    return Section("methods", say("같은 목표의 방법들", "Methods of one objective"), tuple(blocks))
