"""Other evaluation sets under the same paths. In: a Subject. Out: the answer on each, in a table."""

from __future__ import annotations

from coref_automl.comparison.study import study_of
from coref_automl.errors import ComparisonError
from coref_automl.report.page import Section, Table, row
from coref_automl.report.subject import Subject
from coref_automl.report.wording import headline, reasons


def draw(study: Subject) -> Section | None:
    if not study.others:
        return None
    say = study.say
    lines = []
    for group in study.others:
        try:
            found = study_of(group, margin=study.margin, seed=study.seed).answer
            told = " ".join((f"{headline(found, say)}.", *reasons(found, say)))
        except ComparisonError as error:
            told = str(error)
        lines.append(row(group.evalset, group.fingerprint[:12], group.scorer, str(len(group.entries)), told))
    head = (
        say("세트", "set"),
        say("문항 지문", "items"),
        say("채점기", "scorer"),
        say("평가", "evaluations"),
        say("답", "answer"),
    )
    return Section(
        "other-sets", say("다른 평가 세트", "Other evaluation sets"), (Table(head, tuple(lines), frozenset({3}), shows="both"),)
    )
