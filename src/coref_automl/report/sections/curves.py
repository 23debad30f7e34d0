"""Learning curves. In: a Subject. Out: one chart per metric, with lines of runs or methods and their base models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coref_automl.comparison.arms import Arm
from coref_automl.comparison.judging import means
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report import charts
from coref_automl.report.page import Charts, Section, Text, in_percent
from coref_automl.report.subject import Subject

_CURVES = ("real1", "real5", "lambada_top1", "score", "real_word", "gold_word")
Bases = Mapping[str, Entry | None]
"""The base of each line; None if it was not evaluated or there is none."""


def draw(study: Subject) -> Section | None:
    if not any(len(entries) > 1 for entries in study.runs().values()):
        return None
    say = study.say
    out, axis = [], token_axis(study)
    grouped = [arm for arm in map(Arm.with_curve, study.arms) if arm.seeds > 1]
    first = (
        {arm.name: next(iter(arm.runs.values()))[0] for arm in grouped}
        if grouped
        else {run: entries[0] for run, entries in _curved(study).items()}
    )
    bases: Bases = {line: study.own_base(entry) for line, entry in first.items()}
    drawn = list(dict.fromkeys(base for base in bases.values() if base is not None))
    named = bool(drawn) and (
        drawn != [study.base] or None in bases.values()
    )  # a single line is the study's base and needs no label
    for metric in dict.fromkeys([study.metric, *study.metrics(_CURVES)]):
        rows = _by_arm(study, grouped, metric) if grouped else _by_run(study, metric)
        if named:
            rows = [{**row, "base": base.name if (base := bases[row["run"]]) else "–"} for row in rows]
        lines = [
            (base.name if named else "", 100 * found.value)
            for base in drawn
            if (found := base.evaluation.estimates.get(metric)) is not None
        ]
        target = study.target.get(metric)
        spec = charts.learning_curve(rows, say, axis=axis, bases=lines, target=100 * target if target else None, color="#8a94a6")
        out.append((METRICS[metric].label, spec))
    bands = say(
        f"띠(선이 {charts.MOST_BANDS}개 이하일 때)는 95% 구간입니다.",
        f"bands, with up to {charts.MOST_BANDS} lines, are 95% intervals.",
    )
    lost = {line: first[line] for line, base in bases.items() if base is None} if drawn else {}
    note = f"{_dashed(study, bases, named=named)}{bands}"
    if grouped:
        note += say(" 시드가 둘 이상인 방법의 평균입니다.", " Means of methods with two or more seeds.")
    missing = study.explain_missing_bases(lost, "파선이 없습니다.", "it has no line.")
    return Section(
        "curves",
        say("학습 곡선", "Learning curves"),
        (
            Charts(tuple(out)),
            Text(f"{note[0].upper()}{note[1:]}{missing}", "quiet"),
        ),
    )


def token_axis(study: Subject) -> str:
    """What is on the horizontal axis: tokens where every run recorded them, else steps."""
    by_tokens = all(entry.evaluation.provenance for entry in study.entries if entry.trained)
    return study.say("학습 토큰", "training tokens") if by_tokens else study.say("스텝", "steps")


def _dashed(study: Subject, bases: Bases, *, named: bool) -> str:
    """What the dashed lines are, and which runs start from which."""
    say = study.say
    lines: dict[str, list[str]] = {}
    for line, base in bases.items():
        if base is not None:
            lines.setdefault(base.name, []).append(line)
    if not named:
        return say("파선은 원래 모델입니다. ", "The dashed line is the base model; ") if lines else ""
    listed = "; ".join(f"{base} ({', '.join(of)})" for base, of in lines.items())
    return say(
        f"파선은 원래 모델이며 괄호는 거기서 시작한 선입니다: {listed}. ",
        f"Each dashed line is a base model, beside it in brackets the lines that began from it: {listed}; ",
    )


def _curved(study: Subject) -> dict[str, list[Entry]]:
    runs = study.runs()
    return {run: entries for run, entries in runs.items() if len(entries) > 1} or runs


def _by_run(study: Subject, metric: str) -> list[dict[str, Any]]:
    return [
        {"run": run, "x": entry.tokens, "name": entry.name, **in_percent(estimate)}
        for run, entries in _curved(study).items()
        for entry in entries
        if (estimate := entry.evaluation.estimates.get(metric)) is not None
    ]


def _by_arm(study: Subject, grouped: Sequence[Arm], metric: str) -> list[dict[str, Any]]:
    """One line per arm: means over its seeds."""
    steps = [(arm, list(step.values())) for arm in grouped for step in arm.steps()]
    values = means(study, [entries for _, entries in steps], metric)
    return [
        {"run": arm.name, "x": entries[0].tokens, "name": entries[0].name, **in_percent(value)}
        for (arm, entries), value in zip(steps, values, strict=True)
        if value is not None
    ]
