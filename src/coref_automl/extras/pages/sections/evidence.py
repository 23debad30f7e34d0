"""The evidence on one screen. In: a Subject. Out: a forest plot of the leading claims, gains, targets, learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coref_automl.base.say import Say
from coref_automl.comparison.arms import Arm
from coref_automl.comparison.judging import Estimand, judge_pair, means
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS
from coref_automl.comparison.scores import Entry, verdict_half
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages import charts
from coref_automl.extras.pages.sections import Subject
from coref_automl.report.page import Cell, Charts, Section, Table, Text, interval, is_same, note, plotted, row
from coref_automl.report.wording import ClaimText, forest_row, which_documents

_MOST_LINES = 4
"""More lines in one chart would cover each other."""
_TASKS = ("base", "method", *TASKS)
_CURVES = ("noun1", "real1", "new1", "real5", "lambada_top1")


class Chart(NamedTuple):
    title: str
    caption: str
    spec: charts.Spec


def draw(subject: Subject) -> Section | None:
    """A forest plot of claims and a learning curve, as far as the data allow."""
    drawn = [chart for chart in (_forest(subject), _curve(subject)) if chart is not None]
    if not drawn:
        return None
    captions = Text(" ".join(chart.caption for chart in drawn), "quiet")
    blocks = (Charts(tuple((chart.title, chart.spec) for chart in drawn)), captions)
    return Section("evidence", subject.say("근거", "The evidence"), blocks, part="evidence")


def _forest(subject: Subject) -> Chart | None:
    """The leading claim of every question, then the same method's others on all items, ties first."""
    say, ties, rows = subject.say, subject.answer.ties, []
    for question in subject.answer.questions:
        if question.id not in (*_TASKS, *CHECKS) or not question.tested:
            continue
        lead = question.lead
        others = [
            claim.seen_from(lead.a)
            for claim in question.others
            if lead.a in (claim.a, claim.b) and claim.outcome == lead.outcome and not claim.part
        ]
        others = [claim for claim in others if "unequal training" not in claim.against]
        ties_first = sorted(others, key=lambda claim: claim.b not in ties)
        texts = [ClaimText(claim, say) for claim in (lead, *ties_first[: _MOST_LINES - 1])]
        rows += [forest_row(text.outcome(), text.about(), text.claim) for text in texts]
    title = say("과제별 차이 (점)", "Differences by task (points)")
    return Chart(title, note("forest", say), charts.forest(rows, say)) if rows else None


def _curve(subject: Subject) -> Chart | None:
    """Gains over the base point by point: the method to use first, then others at its length."""
    say, lines = subject.say, _methods_with_curves(subject)
    points = [(arm.ending_at(point), base) for arm, base in lines for point in arm.matched_checkpoints()]
    if not points:
        return None
    half = verdict_half(arm.ends for arm, _ in lines)
    estimand = Estimand(group=subject.group, question="training", metric=subject.metric, half=half)
    gains = [(arm, gain.claim.difference) for arm, base in points if (gain := judge_pair(estimand, arm, base)) is not None]
    if all(is_same(difference) for _, difference in gains):  # nothing has moved: the answer says so
        return None
    rows = [{"run": arm.name, "x": arm.ends[0].tokens, **plotted(difference)} for arm, difference in gains]
    label, which = METRICS[subject.metric].label, which_documents(half, say)
    fewest = min(arm.seeds for arm, _ in lines)
    caption = say(
        f"상승: 베이스 모델(0)보다 오른 정도, 짝지은 95% 신뢰구간(점마다 따로), {which}, 시드 {fewest}개.",
        f"Gains over the base (0): paired 95% intervals, point by point, {which}, {fewest} seed{'s' * (fewest > 1)}.",
    )
    title = say(f"학습에 따른 {label} 상승 (점)", f"{label} gained over training (points)")
    return Chart(title, caption, charts.gains(rows, say, axis=token_axis(subject.entries, say)))


def _methods_with_curves(subject: Subject) -> list[tuple[Arm, Entry]]:
    """The lines of the chart with their bases: the method to use and others in its setting, mlm before the rest."""
    curves = [(arm.with_curve(), base) for arm in subject.arms if (base := subject.own_base(arm.ends[0])) is not None]
    curves = [(arm, base) for arm, base in curves if len(arm.matched_checkpoints()) > 1]
    if not curves:
        return []
    recommended = [arm for arm, _ in curves if arm.name == subject.answer.method]
    first = recommended[0] if recommended else max((arm for arm, _ in curves), key=lambda arm: arm.seeds)
    in_setting = [(arm, base) for arm, base in curves if arm.same_setting_as(first)]
    return sorted(in_setting, key=lambda line: (line[0] is not first, line[0].objective != "mlm"))[:_MOST_LINES]


def targets(subject: Subject) -> Section | None:
    """The distance to the targets; None without targets."""
    if not subject.target:
        return None
    say, lines = subject.say, []
    for name, goal in subject.target.items():
        estimate = subject.chosen.evaluation.estimates.get(name)
        if estimate is None:
            reached = Cell(say("평가되지 않음", "not run"), "quiet")
        elif estimate.low >= goal:
            reached = Cell(say("도달", "reached"), "good")
        elif estimate.high < goal:
            short = f"{100 * (goal - estimate.value):.1f}"
            reached = Cell(say(f"{short}점 모자람", f"{short} points short"), "bad")
        else:
            reached = Cell(say("구간 안: 아직 알 수 없음", "inside the interval: cannot tell yet"), "quiet")
        lines.append(row(METRICS[name].label, f"{100 * goal:.1f}", interval(estimate), reached))
    head = (say("수치", "metric"), say("목표 %", "target %"), subject.chosen.name, say("판정", "verdict"))
    table = Table(head, tuple(lines), frozenset({1, 2}), shows="all")
    return Section("target", say("목표까지", "Distance to the targets"), (table,), part="target")


def learning_curves(subject: Subject) -> Section | None:
    """One chart per metric, a line per method (mean over seeds) or per run, and base models."""
    if not any(len(entries) > 1 for entries in subject.runs().values()):
        return None
    say, drawn = subject.say, []
    methods = [arm for arm in map(Arm.with_curve, subject.arms) if arm.seeds > 1]
    lines = _lines(subject, methods)
    bases = dict.fromkeys(base for points in lines.values() if (base := subject.own_base(points[0][0])) is not None)
    for metric in dict.fromkeys([subject.metric, *subject.metrics(_CURVES)]):
        heights = [(base.name, estimate) for base in bases if (estimate := base.evaluation.estimates.get(metric))]
        target = subject.target.get(metric)
        spec = charts.learning_curve(
            curve_points(subject, lines, metric),
            say,
            axis=token_axis(subject.entries, say),
            bases=[(name if len(heights) > 1 else "", 100 * estimate.value) for name, estimate in heights],
            target=100 * target if target else None,
        )
        drawn.append((METRICS[metric].label, spec))
    caption = say(
        f"띠(선이 {charts.MOST_BANDS}개 이하일 때)는 95% 구간입니다.",
        f"Bands, with up to {charts.MOST_BANDS} lines, are 95% intervals.",
    )
    caption += say(" 파선은 베이스 모델입니다.", " Dashed: the base model.") if bases else ""
    caption += say(" 시드가 둘 이상인 방법의 평균입니다.", " Means of methods with two or more seeds.") if methods else ""
    return Section("curves", say("학습 곡선", "Learning curves"), (Charts(tuple(drawn)), Text(caption, "quiet")))


def token_axis(entries: Sequence[Entry], say: Say) -> str:
    """The label of the horizontal axis: tokens if every run recorded them, else steps."""
    by_tokens = all(entry.recorded_tokens is not None for entry in entries if entry.trained)
    return say("학습 토큰", "training tokens") if by_tokens else say("스텝", "steps")


def _lines(subject: Subject, methods: list[Arm]) -> dict[str, list[list[Entry]]]:
    """The points of each line, and of each point the checkpoints that it is the mean of."""
    if methods:
        return {arm.name: [list(point.values()) for point in arm.matched_checkpoints()] for arm in methods}
    return {run: [[entry] for entry in entries] for run, entries in subject.runs().items() if len(entries) > 1}


def curve_points(study: Study | None, lines: dict[str, list[list[Entry]]], metric: str) -> charts.Rows:
    """The rows of a chart; a point of several checkpoints is their mean, which needs their study."""
    points = [(name, entries) for name, line in lines.items() for entries in line]
    if study is None or all(len(entries) == 1 for _, entries in points):
        values = [entries[0].evaluation.estimates.get(metric) for _, entries in points]
    else:
        values = means(study.group, [entries for _, entries in points], metric, seed=study.seed)
    return [
        {"run": name, "x": entries[0].tokens, "name": entries[0].name, **plotted(value)}
        for (name, entries), value in zip(points, values, strict=True)
        if value is not None
    ]
