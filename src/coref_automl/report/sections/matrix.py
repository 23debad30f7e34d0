"""The best twenty checkpoints against each other. In: a Subject. Out: a matrix of paired differences."""

from __future__ import annotations

from coref_automl.comparison.differences import ALPHA
from coref_automl.report import charts
from coref_automl.report.page import Charts, Section, Text
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import which_documents


def draw(study: Subject) -> Section | None:
    found, say = study.matrix(), study.say
    if found is None:
        return None
    entries, gaps, ps = found
    names = [entry.name for entry in entries]
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    rows = [
        {"row": names[i], "column": names[j], "value": round(100 * float(gaps[i, j]), 3), "p": float(ps[i, j])} for i, j in pairs
    ]
    marked = [
        {**entry, "size": round(100 * abs(float(gaps[i, j])), 3), "shown": bool(ps[i, j] < ALPHA)}
        for entry, (i, j) in zip(rows, pairs, strict=True)
    ]
    known = sum(bool(entry["shown"]) for entry in marked) // 2
    which = which_documents(study.group.judging, say)
    told = say(
        f"선택용 절반에서 앞선 것과 원래 모델, 모두 {len(names)}개의 짝 {len(rows) // 2}개 중 유의한 차이가 확인된 짝은 "
        f"{known}개입니다 (모든 짝에 대한 Holm 보정, {which}). 초록은 행이 높음, 빨강은 낮음, 회색은 미확인입니다.",
        f"Of the {len(rows) // 2} pairs of {len(names)} (the highest on select, and the base), {known} are shown to differ "
        f"(Holm over all pairs, {which}). Green: the row is above the column; red: below; grey: undecided.",
    )
    title = say("짝 비교 행렬", "Pair by pair")
    return Section("matrix", title, (Text(told), Charts(((title, charts.matrix(marked, names, say)),), wide=True)))
