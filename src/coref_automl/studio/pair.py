"""A pair compared. In: two sides of a board and a metric. Out: the claim about them, and where the difference comes from.

What the study's answer claims of a pair is shown as it stands there; any other pair is judged by itself, by the same tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import BASE, Claim
from coref_automl.comparison.differences import compare_with
from coref_automl.comparison.groups import choose_metric
from coref_automl.comparison.judging import Judged, checkpoint_claim, half_of_pairs, judge_pairs, means, settled
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.study import Study
from coref_automl.errors import ComparisonError, CorefError
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Half
from coref_automl.report import charts
from coref_automl.report.language import Say
from coref_automl.report.page import Charts, Section, Text, Tone, in_percent
from coref_automl.report.wording import TONES, basis, change, outcome, verdict
from coref_automl.studio.shelf import Board

_FEWEST = 20
"""Items that a bar of the picture needs."""
_GREY = "#8a94a6"
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
class Shown:
    """All that the page shows of a pair: the verdict in a sentence, lines under it, the picture, the items by who is right."""

    sentence: str
    tone: Tone
    notes: tuple[str, ...]
    metrics: tuple[str, ...]
    metric: str
    sections: tuple[Section, ...] = ()
    counts: tuple[tuple[str, str, int], ...] = ()


def compare(board: Board, study: Study | None, a: Side, b: Side, wanted: str, say: Say) -> Shown:
    """The claim about a pair and its picture, on the wanted metric or the usual one. A refusal is told as well."""
    pair = replace(board.group, entries=(*b.entries, *a.entries))
    metrics = tuple(pair.metrics())
    try:
        metric, told = choose_metric(pair, wanted or None)
        claim = _claim(board.group, study, a, b, metric)
    except CorefError as error:
        return Shown(str(error), "bad", (), metrics, wanted)
    values = claim.values or _values(a, b, metric)
    lines = [f"A {a.name} {100 * values[0]:.1f}% · B {b.name} {100 * values[1]:.1f}%", basis(claim, say), *told]
    lengths = sorted({entry.evaluation.seq_len for entry in pair.entries})
    if len(lengths) > 1:
        listed = ", ".join(f"{length:,}" for length in lengths)
        lines.append(say(f"창의 길이가 다릅니다: {listed} 토큰.", f"Window lengths differ: {listed} tokens."))
    sections = [_by_facet(board, study, a, b, claim, say), _curves(board.group, study, a, b, metric, say)]
    drawn = tuple(section for section in sections if section is not None)
    sentence = f"A - B: {outcome(claim, say)} {change(claim, say)}, {verdict(claim, say)}."
    tone = TONES.get(claim.verdict, "")
    return Shown(sentence, tone, tuple(lines), metrics, metric, drawn, _counts(board.group, a, b, metric, say))


def _claim(group: Group, study: Study | None, a: Side, b: Side, metric: str) -> Claim:
    if a.key == b.key:
        raise ComparisonError("A and B are the same; choose another.")
    if a.arm is None and b.arm is None:
        held = _of_answer(study, a, b, metric)
        return held or _of_checkpoints(group, study, a.entries[0], b.entries[0], metric, group.judging)
    if study is None or (a.arm is None and a.entries[0].trained) or (b.arm is None and b.entries[0].trained):
        raise ComparisonError("Compare two methods, a method with a base, or two checkpoints.")
    held = study.answer.of_pair(a.name, b.name if b.arm else None, metric) if a.arm else None
    if held is not None:
        return held
    swapped = a.arm is None  # the base stands for itself, and on the right
    found = _of_methods(study, (b, a) if swapped else (a, b), metric, None)
    if found is None:
        raise ComparisonError(f"{METRICS[metric].label} was not run by both, so they cannot be compared.")
    claim = settled([found], "none", study.margin)[0]
    return claim.turned() if swapped else claim


def _of_answer(study: Study | None, a: Side, b: Side, metric: str) -> Claim | None:
    """What the answer claims of a checkpoint and its base, corrected for all checkpoints beside it; None if nothing."""
    first, other = a.entries[0], b.entries[0]
    if study is not None and study.own_base(first) is other:
        return study.answer.of_pair(a.name, None, metric)
    if study is not None and study.own_base(other) is first:
        return study.answer.of_pair(BASE, b.name, metric)
    return None


def _of_methods(study: Study, sides: tuple[Side, Side], metric: str, among: Mask | None) -> Judged | None:
    first, other = sides[0].arm, sides[1].arm or sides[1].entries[0]
    if first is None:
        return None
    half = half_of_pairs([(first, other)])
    return judge_pairs(study, "method", [(first, other)], metric, half=half, among=among)[0]


def _of_checkpoints(group: Group, study: Study | None, a: Entry, b: Entry, metric: str, half: Half | None) -> Claim:
    seed = study.seed if study else 0
    pair = replace(group, entries=(b, a))
    found = compare_with(pair, metric, [a], [b], seed=seed, half=half)[0]
    if found is None:
        raise ComparisonError("These two share no item to be compared on.")
    documents = group.columns(metric, half=half, entries=[a, b]).documents
    return replace(checkpoint_claim(pair, "method", found, a, half=half, documents=documents), b=b.name)


def _values(a: Side, b: Side, metric: str) -> tuple[float, float]:
    first, other = (side.entries[0].evaluation.estimates[metric].value for side in (a, b))
    return first, other


def _by_facet(board: Board, study: Study | None, a: Side, b: Side, claim: Claim, say: Say) -> Section | None:
    """The difference by source, distance, number of pieces and tag: where it comes from, each bar by itself."""
    drawn = []
    metric, half = claim.outcome, None if claim.documents == "all" else "confirm"
    for title, names in _facets(board, a, say):
        rows = []
        for name in sorted(set(names.tolist()), key=in_order):
            found = _part(board.group, study, a, b, metric, half, np.asarray(names == name))  # type: ignore[arg-type]
            if found is not None and found.difference.n >= _FEWEST:
                shown = found.verdict if found.shown else "not shown"
                told = f"{name} ({found.difference.n:,})"
                rows.append({"task": told, "name": told, **in_percent(found.difference), "finding": shown})
        if len(rows) > 1:
            drawn.append((title, charts.forest(rows, say)))
    if not drawn:
        return None
    note = say(
        f"A - B, 구간마다 따로 낸 95% 구간(보정 없음), 괄호는 문항 수({_FEWEST}개 이상).",
        f"A - B; 95% intervals one by one, not corrected; in brackets the items ({_FEWEST} or more).",
    )
    title = say("차이는 어디서 오는가", "Where the difference comes from")
    return Section("facets", title, (Charts(tuple(drawn)), Text(note, "quiet")))


def _part(group: Group, study: Study | None, a: Side, b: Side, metric: str, half: Half | None, among: Mask) -> Claim | None:
    if study is not None and a.arm is not None:
        found = _of_methods(study, (a, b), metric, among)
        return settled([found], "none", study.margin)[0] if found else None
    part = METRICS[metric]
    if a.arm is not None or b.arm is not None or part.parts:
        return None
    rows = group.rows(metric, half=half, entries=(a.entries[0], b.entries[0]), among=among)
    if int(rows.sum()) < _FEWEST:
        return None
    one, other = (_only(side.entries[0], part.rule, among) for side in (a, b))
    return _of_checkpoints(replace(group, entries=(other, one)), study, one, other, metric, half)


def _only(entry: Entry, rule: str, among: Mask) -> Entry:
    """The evaluation as if only these items had been run."""
    return replace(entry, ranks={**entry.ranks, rule: np.where(among, entry.ranks[rule], NOT_RUN).astype(np.int32)})


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
            scale = {"domain": list(colors), "range": list(colors.values())}
            layer["encoding"]["color"] = {**layer["encoding"]["color"], "scale": scale}
    note = say("띠는 값의 95% 구간", "Bands are 95% intervals of the values; the verdict is about the paired difference")
    note += say(", 파선은 학습하지 않은 모델입니다.", "; dashed: an untrained model.") if bases else say("입니다.", ".")
    label = METRICS[metric].label
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
