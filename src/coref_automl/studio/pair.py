"""A pair compared. In: two sides of a board and a metric. Out: the verdict in a sentence, and where the difference comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm, means, versus
from coref_automl.comparison.differences import Finding, compare_group, finding
from coref_automl.comparison.groups import choose_metric
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.study import Study
from coref_automl.errors import ComparisonError, CorefError
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Estimate, Half
from coref_automl.report import charts
from coref_automl.report.language import Say, p_text, percent, points
from coref_automl.report.page import Charts, Section, Text, Tone, in_percent
from coref_automl.report.verdicts import lead, rule, which_documents
from coref_automl.statistics.closed_forms import t_quantile
from coref_automl.statistics.intervals import standard_error
from coref_automl.studio.shelf import Board

_FEWEST = 20
"""Items that a bar of the picture needs."""
_MANY, _NORMAL = 100, 1.96
"""Documents from which Student's quantile is the normal one."""
_GREY = "#8a94a6"
_SAID: dict[Finding, tuple[str, str]] = {
    "better": ("A가 B보다 낫습니다", "A is better than B"),
    "worse": ("A가 B보다 못합니다", "A is worse than B"),
    "same": ("A와 B는 모든 문항에서 같습니다", "A and B are the same on every item"),
    "not shown": ("A와 B의 유의한 차이는 확인되지 않았습니다", "No difference between A and B is shown"),
}
_TONES: dict[Finding, Tone] = {"better": "good", "worse": "bad", "same": "", "not shown": ""}
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A or B: what addresses call it, its name, its evaluations (the last of each seed's for a method), its colour."""

    key: str
    name: str
    entries: tuple[Entry, ...]
    color: str
    arm: Arm | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict in a sentence, the lines under it, and the documents it comes from."""

    sentence: str
    tone: Tone
    notes: tuple[str, ...] = ()
    half: Half | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """All that the page shows of a pair."""

    verdict: Verdict
    metrics: tuple[str, ...]
    metric: str
    sections: tuple[Section, ...] = ()
    counts: tuple[tuple[str, str, int], ...] = ()


def compare(board: Board, study: Study | None, a: Side, b: Side, wanted: str, say: Say) -> Shown:
    """The verdict about a pair and its picture, on the wanted metric or the usual one. A refusal is a verdict too."""
    pair = replace(board.group, entries=(*b.entries, *a.entries))
    metrics = tuple(pair.metrics())
    try:
        metric, _ = choose_metric(pair, wanted or None)
        if a.arm is not None and b.arm is not None and study is not None:
            verdict = _of_methods(study, a.arm, b.arm, metric, say)
        elif a.arm is None and b.arm is None:
            verdict = _of_checkpoints(board.group, a, b, metric, say)
        else:
            told = say("방법은 방법과, 체크포인트는 체크포인트와 비교하세요.", "Compare two methods, or two checkpoints.")
            raise ComparisonError(told)
    except CorefError as error:
        return Shown(Verdict(str(error), "bad"), metrics, wanted)
    sections = [_by_facet(board, study, a, b, metric, verdict, say), _curves(board.group, study, a, b, metric, say)]
    drawn = tuple(section for section in sections if section is not None)
    return Shown(verdict, metrics, metric, drawn, _counts(board.group, a, b, metric, say))


def _of_checkpoints(group: Group, a: Side, b: Side, metric: str, say: Say) -> Verdict:
    pair = replace(group, entries=(b.entries[0], a.entries[0]))
    if a.key == b.key:
        return Verdict(say("A와 B가 같은 체크포인트입니다.", "A and B are the same checkpoint."), "", ())
    table = compare_group(pair, metric, reference=b.entries[0])
    answer = table.rows[1].comparison
    if answer is None:
        raise ComparisonError("These two cannot be compared.")
    found, label = finding(answer), METRICS[metric].label
    change = f"{label} {points(answer.difference)}{say('점', ' points')}, p {p_text(answer.p)}"
    which = which_documents(pair.judging, say)
    lines = [
        f"A {a.name} {percent(table.rows[1].value)} · B {b.name} {percent(table.rows[0].value)}",
        *([_detectable(answer.detectable, say)] if answer.detectable else []),
        say(
            f"문서 {table.documents:,}개의 문항 {table.items:,}개 ({which}). 구간은 문서 단위 부트스트랩 95% "
            "신뢰구간, p는 문서 단위 부호 뒤집기 검정.",
            f"{table.items:,} items of {table.documents:,} documents ({which}). 95% intervals by bootstrap over "
            "documents, p by sign flips over documents.",
        ),
        *_conditions(pair, metric, say),
    ]
    return Verdict(f"{say(*_SAID[found])}: {change}.", _TONES[found], tuple(lines), pair.judging)


def _conditions(pair: Group, metric: str, say: Say) -> list[str]:
    """In what two checkpoints were not scored alike."""
    out = []
    lengths = sorted({entry.evaluation.seq_len for entry in pair.entries})
    if len(lengths) > 1:
        told = ", ".join(f"{length:,}" for length in lengths)
        out.append(say(f"창의 길이가 다릅니다: {told} 토큰.", f"Window lengths differ: {told} tokens."))
    if pair.tokenizers > 1:
        label = METRICS[metric].label
        out.append(say(f"토크나이저가 달라 {label}만 비교합니다.", f"Tokenizers differ, so only {label} is compared."))
    return out


def _of_methods(study: Study, a: Arm, b: Arm, metric: str, say: Say) -> Verdict:
    found = versus(study, [(a, b)], metric)[0]
    if found is None:
        raise ComparisonError(
            f"{METRICS[metric].label} was not run by both methods, or they share no seed, so they cannot be compared."
        )
    word: Finding = "not shown" if not found.shown else "better" if found.answer.difference > 0 else "worse"
    values = f"A {a.name} {100 * found.values[0]:.1f}% · B {b.name} {100 * found.values[1]:.1f}%"
    could = [_detectable(found.answer.detectable, say)] if found.answer.detectable else []
    change = f"{METRICS[metric].label} {points(found.answer.interval)}{say('점', ' points')}"
    sentence = f"{say(*_SAID[word])}: {change}." if found.seeds > 1 else f"{lead([found], say)} A - B: {change}."
    half = found.speaking.half if found.speaking else None
    return Verdict(sentence, _TONES[word], (values, *could, rule([found], say).text), half)


def _detectable(value: float, say: Say) -> str:
    return say(
        f"이 문항으로 검출 가능한 차이는 {100 * value:.1f}점입니다 (검정력 80%).",
        f"Detectable difference with these items: {100 * value:.1f} points (80% power).",
    )


def _by_facet(board: Board, study: Study | None, a: Side, b: Side, metric: str, verdict: Verdict, say: Say) -> Section | None:
    """The difference by source, distance, number of pieces and tag: where it comes from, each bar by itself."""
    drawn = []
    for title, names in _facets(board, a, say):
        rows = []
        for name in sorted(set(names.tolist()), key=in_order):
            found = _difference(board.group, study, a, b, metric, verdict.half, names == name)
            if found is not None and found.n >= _FEWEST:
                shown = "A" if found.low > 0 else "B" if found.high < 0 else "–"
                rows.append({"name": f"{name} ({found.n:,})", "side": shown, **in_percent(found)})
        if len(rows) > 1:
            drawn.append((title, _difference_chart(rows, a.color, b.color, say)))
    if not drawn:
        return None
    note = say(
        f"A - B, 막대는 문서 단위 표준오차로 구한 95% 구간, 괄호는 문항 수({_FEWEST}개 이상). 다중비교 보정은 하지 않았습니다.",
        f"A - B; 95% intervals from standard errors over documents; in brackets the items ({_FEWEST} or more). Not corrected.",
    )
    title = say("차이는 어디서 오는가", "Where the difference comes from")
    return Section(
        "facets", say("차이는 어디서 오는가", "Where the difference comes from"), (Charts(tuple(drawn)), Text(note, "quiet"))
    )


def _facets(board: Board, a: Side, say: Say) -> Iterator[tuple[str, NDArray[Any]]]:
    facts = board.group.items.facts
    yield say("데이터 소스별", "by source"), facts["source"]
    yield say("거리별 (토큰)", "by distance (tokens)"), board.buckets
    key = next((key for key, entry in board.entries.items() if entry is a.entries[0]), "")
    counted = board.words[key].pieces if key else np.zeros(len(board.ids), np.int16)
    yield (
        say("답의 조각 수별", "by pieces of the answer"),
        np.array([f"{min(n, 5)}{'+' if n >= 5 else ''}" for n in counted.tolist()]),
    )
    yield say("품사별", "by tag"), facts["tag"]


def in_order(name: str) -> tuple[int, str]:
    """Buckets by their lower end."""
    digits = name.split("-")[0].rstrip("+")
    return (int(digits), "") if digits.isdecimal() else (1 << 30, name)


def _difference(
    group: Group, study: Study | None, a: Side, b: Side, metric: str, half: Half | None, among: Mask
) -> Estimate | None:
    if a.arm is not None and b.arm is not None and study is not None:
        found = versus(study, [(a.arm, b.arm)], metric, among=among)[0]
        return found.answer.interval if found is not None else None
    columns = group.columns(metric, half=half, entries=(b.entries[0], a.entries[0]), among=among)
    if columns.items < _FEWEST or any(not len(np.asarray(part.values)) for part in columns.parts):
        return None
    parts = columns.differences([1], [0])
    value = sum(float(np.asarray(part.values).mean()) for part in parts)
    documents = columns.documents
    quantile = t_quantile(0.975, max(1, documents - 1)) if documents < _MANY else _NORMAL
    reach = quantile * float(standard_error(parts)[0])
    return Estimate(value, value - reach, value + reach, columns.items)


def _difference_chart(rows: charts.Rows, a: str, b: str, say: Say) -> dict[str, Any]:
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 200}}
    x = {"field": "value", "type": "quantitative", "title": say("A - B (점)", "A - B (points)")}
    color = {"field": "side", "type": "nominal", "legend": None, "scale": {"domain": ["A", "B", "–"], "range": [a, b, _GREY]}}
    tooltip = [
        {"field": "name", "title": " "},
        *({"field": name, "title": name, "format": "+.2f"} for name in ("value", "low", "high")),
    ]
    middle = {"x": x, "y": y, "color": color, "tooltip": tooltip}
    ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
    zero = {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule", "strokeDash": [3, 3]}}
    return {
        "$schema": charts.SCHEMA,
        "width": "container",
        "height": max(60, 26 * len(rows)),
        "data": {"values": rows},
        "layer": [
            {**zero, "encoding": {"x": {"field": "zero", "type": "quantitative"}}},
            {"mark": {"type": "rule", "strokeWidth": 2.5}, "encoding": {**middle, **ends}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1}, "encoding": middle},
        ],
    }


def _curves(group: Group, study: Study | None, a: Side, b: Side, metric: str, say: Say) -> Section | None:
    """The learning curves of both sides, with bands; runs are named with their window lengths where these differ."""
    rows, colors = [], {}
    several = a.entries[0].evaluation.seq_len != b.entries[0].evaluation.seq_len
    for side in (a, b):
        found = _points(group, study, side, metric, several)
        if found and (found[0]["run"] not in colors):
            colors[found[0]["run"]] = side.color
            rows += found
    if not rows:
        return None
    by_tokens = all(entry.recorded_tokens is not None for side in (a, b) for entry in side.entries if entry.trained)
    axis = say("학습 토큰", "training tokens") if by_tokens else say("스텝", "steps")
    bases = [
        ("", 100 * entry.evaluation.estimates[metric].value)
        for side in (a, b)
        for entry in side.entries
        if not entry.trained and metric in entry.evaluation.estimates
    ]
    spec = charts.learning_curve(rows, say, axis=axis, bases=bases, target=None, color=_GREY)
    for layer in spec["layer"]:
        if layer["encoding"].get("color", {}).get("field") == "run":
            layer["encoding"]["color"] = {
                **layer["encoding"]["color"],
                "scale": {"domain": list(colors), "range": list(colors.values())},
            }
    label = METRICS[metric].label
    note = say("띠는 95% 구간", "Bands are 95% intervals")
    note += say(", 파선은 학습하지 않은 모델입니다.", "; dashed: an untrained model.") if bases else say("입니다.", ".")
    return Section("curves", say("학습 곡선", "Learning curves"), (Charts(((label, spec),), wide=True), Text(note, "quiet")))


def _points(group: Group, study: Study | None, side: Side, metric: str, lengths: bool) -> charts.Rows:
    if side.arm is not None and study is not None:
        steps = [list(step.values()) for step in side.arm.steps()]
        values = means(study, steps, metric)
        return [
            {"run": side.name, "x": step[0].tokens, "name": step[0].name, **in_percent(value)}
            for step, value in zip(steps, values, strict=True)
            if value is not None
        ]
    one = side.entries[0]
    if not one.trained:
        return []
    length = one.evaluation.seq_len
    same = [e for e in group.entries if e.trained and e.run == one.run and e.evaluation.seq_len == length]
    name = f"{one.run} @{length}" if lengths else one.run
    return [
        {"run": name, "x": entry.tokens, "name": entry.name, **in_percent(entry.evaluation.estimates[metric])}
        for entry in sorted(same, key=lambda entry: entry.tokens)
        if metric in entry.evaluation.estimates
    ]


def _counts(group: Group, a: Side, b: Side, metric: str, say: Say) -> tuple[tuple[str, str, int], ...]:
    """How many items only A, only B, both and neither get right: the name of the filter, its words, the count."""
    part = METRICS[metric]
    if len(a.entries) != 1 or len(b.entries) != 1 or part.parts or part.at != 1:
        return ()
    rows = group.items.facts["task"] == part.task
    one, other = (side.entries[0].ranks[part.rule][rows] for side in (a, b))
    run = (one != NOT_RUN) & (other != NOT_RUN)
    hit = [ranks[run] == 1 for ranks in (one, other)]
    told = {
        "a-not-b": (say("A만 맞음", "only A right"), hit[0] & ~hit[1]),
        "b-not-a": (say("B만 맞음", "only B right"), ~hit[0] & hit[1]),
        "both-right": (say("둘 다 맞음", "both right"), hit[0] & hit[1]),
        "both-wrong": (say("둘 다 틀림", "both wrong"), ~hit[0] & ~hit[1]),
    }
    return tuple((name, words, int(found.sum())) for name, (words, found) in told.items())
