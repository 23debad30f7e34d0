"""Learning curves. In: a Subject. Out: one chart per metric, a line per method (mean over seeds) or per run, and base models."""

from __future__ import annotations

from coref_automl.comparison.arms import Arm
from coref_automl.comparison.judging import means
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report import charts
from coref_automl.report.page import Charts, Section, Text, in_percent
from coref_automl.report.subject import Subject

_CURVES = ("real1", "real5", "lambada_top1", "score", "real_word", "gold_word")


def draw(study: Subject) -> Section | None:
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
            axis=token_axis(study),
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


def token_axis(study: Subject) -> str:
    """What is on the horizontal axis: tokens where every run recorded them, else steps."""
    by_tokens = all(entry.evaluation.provenance for entry in study.entries if entry.trained)
    return study.say("학습 토큰", "training tokens") if by_tokens else study.say("스텝", "steps")


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
