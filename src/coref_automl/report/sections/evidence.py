"""The evidence on one screen. In: a Subject. Out: the leading claims about the method to use, gains, targets, learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coref_automl.comparison.arms import Arm, base_of
from coref_automl.comparison.judging import half_of_pairs, judge_pairs, means
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report import charts
from coref_automl.report.page import Cell, Charts, Section, Table, Text, in_percent, interval, is_same, note, row
from coref_automl.report.subject import Subject
from coref_automl.report.wording import about, forest_row, outcome, which_documents
from coref_automl.say import Say

_MOST = 4
"""Lines of a chart; more would cover each other."""
_TASKS = ("base", "method", "far", "lambada")
Chart = tuple[str, str, dict[str, Any]]
"""Title, note, specification."""
_CURVES = ("real1", "real5", "lambada_top1", "score", "real_word", "gold_word")


def draw(study: Subject) -> Section | None:
    """A forest plot of claims and a learning curve, as far as the data allow."""
    found = [chart for chart in (_forest(study), _curve(study)) if chart is not None]
    if not found:
        return None
    drawn, told = Charts(tuple((title, spec) for title, _, spec in found)), " ".join(note for _, note, _ in found)
    return Section("evidence", study.say("근거", "The evidence"), (drawn, Text(told, "quiet")), part="evidence")


def _forest(study: Subject) -> Chart | None:
    """Of every question its leading claim, and the same method's others on all items, those it is tied with first."""
    say, rows = study.say, []
    for question in study.answer.questions:
        if question.id not in (*_TASKS, *CHECKS) or not question.tested:
            continue
        lead = question.lead
        own = [
            one if one.a == lead.a else one.reversed()
            for one in question.others
            if lead.a in (one.a, one.b) and one.outcome == lead.outcome and not one.part and "unequal training" not in one.against
        ]
        tied = study.answer.ties
        for one in (lead, *sorted(own, key=lambda one: one.b not in tied)[: _MOST - 1]):
            rows.append(forest_row(outcome(one, say), about(one, say), one))
    title = say("과제별 차이 (점)", "Differences by task (points)")
    return (title, note("forest", say), charts.forest(rows, say)) if rows else None


def _curve(study: Subject) -> Chart | None:
    """Gains over the base checkpoint by checkpoint: the method to use first, then others at its length."""
    say, shown = study.say, _curved(study)
    steps = [(arm, base, list(step.values())) for arm, base in shown for step in arm.steps()]
    if not steps:
        return None
    half = half_of_pairs([(arm, base) for arm, base in shown])
    asked = []
    for arm, base, step in steps:  # the arm as if it had ended at this step
        asked.append((replace(arm, runs={seed: [entry] for seed, entry in zip(arm.runs, step, strict=True)}), base))
    found = judge_pairs(study, "training", asked, study.metric, half=half)
    if all(one is None or is_same(one.claim.difference) for one in found):  # nothing has moved: the answer says so
        return None
    rows = [
        {"run": arm.name, "x": step[0].tokens, **in_percent(one.claim.difference)}
        for (arm, _, step), one in zip(steps, found, strict=True)
        if one is not None
    ]
    label, which = METRICS[study.metric].label, which_documents(half, say)
    fewest = min(arm.seeds for arm, _ in shown)
    note = say(
        f"상승: 베이스 모델(0)보다 오른 정도, 짝지은 95% 신뢰구간(점마다 따로), {which}, 시드 {fewest}개.",
        f"Gains over the base (0): paired 95% intervals, point by point, {which}, {fewest} seed{'s' * (fewest > 1)}.",
    )
    title = say(f"학습에 따른 {label} 상승 (점)", f"{label} gained over training (points)")
    return title, note, charts.gains(rows, say, axis=token_axis(study.entries, study.say))


def _curved(study: Subject) -> list[tuple[Arm, Entry]]:
    """The lines of the chart with their bases: the method to use and others beside it, mlm before the rest."""
    found = [(arm.with_curve(), base) for arm in study.arms if (base := base_of(study.group.entries, arm)) is not None]
    found = [(arm, base) for arm, base in found if len(arm.steps()) > 1]
    first = next((arm for arm, _ in found if arm.name == study.answer.method), None)
    if first is None and found:
        first = max((arm for arm, _ in found), key=lambda arm: arm.seeds)
    beside = [(arm, base) for arm, base in found if first is not None and arm.same_setting_as(first)]
    return sorted(beside, key=lambda one: (one[0] is not first, one[0].objective != "mlm"))[:_MOST]


def targets(study: Subject) -> Section | None:
    """How far it is to the targets; None without any."""
    if not study.target:
        return None
    say = study.say
    lines = []
    for name, goal in study.target.items():
        estimate = study.chosen.evaluation.estimates.get(name)
        if estimate is None:
            told = Cell(say("평가되지 않음", "not run"), "quiet")
        elif estimate.low >= goal:
            told = Cell(say("도달", "reached"), "good")
        elif estimate.high < goal:
            short = f"{100 * (goal - estimate.value):.1f}"
            told = Cell(say(f"{short}점 모자람", f"{short} points short"), "bad")
        else:
            told = Cell(say("구간 안: 아직 알 수 없음", "inside the interval: cannot tell yet"), "quiet")
        lines.append(row(METRICS[name].label, f"{100 * goal:.1f}", interval(estimate), told))
    head = (say("수치", "metric"), say("목표 %", "target %"), study.chosen.name, say("판정", "verdict"))
    table = Table(head, tuple(lines), frozenset({1, 2}), shows="all")
    return Section("target", say("목표까지", "Distance to the targets"), (table,), part="target")


def learning_curves(study: Subject) -> Section | None:
    """One chart per metric, a line per method (mean over seeds) or per run, and base models."""
    if not any(len(entries) > 1 for entries in study.runs().values()):
        return None
    say, out = study.say, []
    methods = [arm for arm in map(Arm.with_curve, study.arms) if arm.seeds > 1]
    lines = _lines(study, methods)
    bases = dict.fromkeys(base for steps in lines.values() if (base := study.own_base(steps[0][0])) is not None)
    for metric in dict.fromkeys([study.metric, *study.metrics(_CURVES)]):
        held = [(base.name, found) for base in bases if (found := base.evaluation.estimates.get(metric))]
        target = study.target.get(metric)
        spec = charts.learning_curve(
            curve_points(study, lines, metric),
            say,
            axis=token_axis(study.entries, study.say),
            bases=[(name if len(held) > 1 else "", 100 * found.value) for name, found in held],
            target=100 * target if target else None,
        )
        out.append((METRICS[metric].label, spec))
    note = say(
        f"띠(선이 {charts.MOST_BANDS}개 이하일 때)는 95% 구간입니다.",
        f"Bands, with up to {charts.MOST_BANDS} lines, are 95% intervals.",
    )
    note += say(" 파선은 베이스 모델입니다.", " Dashed: the base model.") if bases else ""
    note += say(" 시드가 둘 이상인 방법의 평균입니다.", " Means of methods with two or more seeds.") if methods else ""
    return Section("curves", say("학습 곡선", "Learning curves"), (Charts(tuple(out)), Text(note, "quiet")))


def token_axis(entries: Sequence[Entry], say: Say) -> str:
    """What is on the horizontal axis: tokens where every run recorded them, else steps."""
    by_tokens = all(entry.recorded_tokens is not None for entry in entries if entry.trained)
    return say("학습 토큰", "training tokens") if by_tokens else say("스텝", "steps")


def _lines(study: Subject, methods: list[Arm]) -> dict[str, list[list[Entry]]]:
    """The points of each line: the checkpoints that a point is the mean of."""
    if methods:
        return {arm.name: [list(step.values()) for step in arm.steps()] for arm in methods}
    return {run: [[entry] for entry in entries] for run, entries in study.runs().items() if len(entries) > 1}


def curve_points(study: Study | None, lines: dict[str, list[list[Entry]]], metric: str) -> charts.Rows:
    """The rows of a chart: of several checkpoints the mean, which needs their study."""
    points = [(name, step) for name, steps in lines.items() for step in steps]
    if study is None or all(len(step) == 1 for _, step in points):
        values = [step[0].evaluation.estimates.get(metric) for _, step in points]
    else:
        values = means(study, [step for _, step in points], metric)
    return [
        {"run": name, "x": step[0].tokens, "name": step[0].name, **in_percent(value)}
        for (name, step), value in zip(points, values, strict=True)
        if value is not None
    ]
