"""A pair compared. In: two sides of a group and a metric. Out: the claims about them, and where the difference comes from.

Claims come from `comparison/study`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.claims import Claim
from coref_automl.comparison.scores import Entry, Group, choose_metric
from coref_automl.comparison.study import Side, Study, claim_of, of_checkpoints, of_methods
from coref_automl.errors import CorefError
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS, bucket
from coref_automl.records import Half
from coref_automl.report import charts
from coref_automl.report.page import Charts, Section, Text, Tone, note
from coref_automl.report.sections.evidence import curve_points, token_axis
from coref_automl.report.wording import TONES, basis, change, claims_table, expected_gain, forest_row, outcome, verdict
from coref_automl.say import Say

_FEWEST = 20
"""Items that a bar of the picture needs."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Compared:
    """All that the page shows of a pair: the verdict in a sentence, lines under it, the picture, the items by who is right."""

    sentence: str
    tone: Tone
    notes: tuple[str, ...]
    metrics: tuple[str, ...]
    metric: str
    sections: tuple[Section, ...] = ()
    counts: tuple[tuple[str, str, int], ...] = ()


def compare_pair(
    group: Group,
    study: Study | None,
    a: Side,
    b: Side,
    wanted: str,
    claimed: Sequence[Claim],
    say: Say,
    *,
    colors: tuple[str, str],
) -> Compared:
    """The claim about a pair and its picture, on the wanted metric or the usual one; `claimed` are those of the answer on every
    outcome. A pair that cannot be compared gets its reason instead."""
    pair = replace(group, entries=(*b.entries, *a.entries))
    metrics = tuple(pair.metrics())
    try:
        metric, text = choose_metric(pair, wanted or None)
        claim = next((one for one in claimed if one.outcome == metric), None) or claim_of(group, study, a, b, metric)
    except CorefError as error:
        return Compared(str(error), "bad", (), metrics, wanted)
    values = claim.values or [side.entries[0].evaluation.estimates[metric].value for side in (a, b)]
    lines = [f"A {a.name} {100 * values[0]:.1f}% · B {b.name} {100 * values[1]:.1f}%", basis(claim, say), *text]
    lines += [*_chosen(study, (a, b), say), expected_gain(claim, say)]
    lengths = sorted({entry.evaluation.seq_len for entry in pair.entries})
    if len(lengths) > 1:
        listed = ", ".join(f"{length:,}" for length in lengths)
        lines.append(say(f"창의 길이가 다릅니다: {listed} 토큰.", f"Window lengths differ: {listed} tokens."))
    sections = [
        _outcomes(group, study, a, b, claimed or [claim], metrics, say),
        _by_facet(group, study, a, b, claim, say),
        _curves(group, study, a, b, metric, say, colors),
    ]
    drawn = tuple(section for section in sections if section is not None)
    sentence = f"A - B: {outcome(claim, say)} {change(claim, say)}, {verdict(claim, say)}."
    tone = TONES.get(claim.verdict, "")
    return Compared(sentence, tone, tuple(filter(None, lines)), metrics, metric, drawn, _counts(group, a, b, metric, say))


def _chosen(study: Study | None, sides: tuple[Side, Side], say: Say) -> Iterator[str]:
    """Which side is a checkpoint that was picked because it was highest."""
    if study is None or study.answer.candidates < 2:
        return
    for letter, side in zip("AB", sides, strict=True):
        if side.arm is None and (side.entries[0] is study.chosen or side.entries[0] is study.choice.best):
            yield note("came out highest", say, name=f"{letter} {side.name}", candidates=study.answer.candidates)


def _outcomes(
    group: Group, study: Study | None, a: Side, b: Side, claims: Sequence[Claim], metrics: Sequence[str], say: Say
) -> Section | None:
    """Every outcome of the pair at once: what the answer claims; of checkpoints, each task by itself."""
    rows = list(claims)
    if a.arm is None and b.arm is None:
        plain = [
            name for name in metrics if METRICS[name].at == 1 and not METRICS[name].parts and METRICS[name].rule != "lenient"
        ]
        for name in plain:
            if all(one.outcome != name for one in rows):
                rows.append(of_checkpoints(group, study, a.entries[0], b.entries[0], name, group.judging))
    if len(rows) < 2:
        return None
    table = claims_table(rows, say)  # without the names of both sides, which stand above
    numeric = frozenset(column - 2 for column in table.numeric)
    table = replace(table, head=table.head[2:], rows=tuple(line[2:] for line in table.rows), numeric=numeric)
    return Section("outcomes", say("모든 과제", "Every task"), (table,))


def _by_facet(group: Group, study: Study | None, a: Side, b: Side, claim: Claim, say: Say) -> Section | None:
    """The difference by source, distance and tag: where it comes from, each bar by itself."""
    drawn = []
    metric, half = claim.outcome, None if claim.documents == "all" else "confirm"
    for title, names in _facets(group, say):
        rows = []
        for name in sorted(set(names.tolist()), key=in_order):
            found = _part(group, study, a, b, metric, half, np.asarray(names == name))  # type: ignore[arg-type]
            if found is not None and found.difference.n >= _FEWEST:
                text = f"{name} ({found.difference.n:,})"
                rows.append(forest_row(text, text, found))
        if len(rows) > 1:
            drawn.append((title, charts.forest(rows, say)))
    if not drawn:
        return None
    note = say(
        f"A - B, 개별 95% 신뢰구간(보정 없음), 괄호는 문항 수({_FEWEST}개 이상).",
        f"A - B; 95% intervals one by one, not corrected; in brackets the items ({_FEWEST} or more).",
    )
    title = say("차이는 어디서 오는가", "Where the difference comes from")
    return Section("facets", title, (Charts(tuple(drawn)), Text(note, "quiet")))


def _part(group: Group, study: Study | None, a: Side, b: Side, metric: str, half: Half | None, among: Mask) -> Claim | None:
    if study is not None and a.arm is not None:
        return of_methods(study, a, b, metric, among)
    if a.arm is not None or b.arm is not None or METRICS[metric].parts:
        return None
    if group.columns(metric, half=half, entries=(a.entries[0], b.entries[0]), among=among).items < _FEWEST:
        return None
    return of_checkpoints(group, study, a.entries[0], b.entries[0], metric, half, among)


def _facets(group: Group, say: Say) -> Iterator[tuple[str, NDArray[Any]]]:
    facts = group.items.facts
    yield say("데이터 소스별", "by source"), facts["source"]
    yield say("거리별 (토큰)", "by distance (tokens)"), np.array([bucket(int(value)) for value in facts["distance"]])
    yield say("품사별", "by part of speech"), facts["tag"]


def in_order(name: str) -> tuple[int, str]:
    """Buckets by their lower end."""
    digits = name.split("-")[0].rstrip("+")
    return (int(digits), "") if digits.isdecimal() else (1 << 30, name)


def _curves(group: Group, study: Study | None, a: Side, b: Side, metric: str, say: Say, drawn: tuple[str, str]) -> Section | None:
    """The learning curves of both sides, with bands; runs are named with their window lengths where these differ."""
    several = a.entries[0].evaluation.seq_len != b.entries[0].evaluation.seq_len
    found = [_line(group, side, several) for side in (a, b)]
    rows = curve_points(study, {name: steps for name, steps in found if steps}, metric)
    colors = {name: color for (name, steps), color in reversed(list(zip(found, drawn, strict=True))) if steps}
    if len({row["x"] for row in rows}) < 2:
        return None  # a point is no curve
    axis = token_axis([*a.entries, *b.entries], say)
    bases = [
        ("", 100 * entry.evaluation.estimates[metric].value)
        for side in (a, b)
        for entry in side.entries
        if not entry.trained and metric in entry.evaluation.estimates
    ]
    spec = charts.learning_curve(rows, say, axis=axis, bases=bases)
    for layer in spec["layer"]:
        if layer["encoding"].get("color", {}).get("field") == "run":
            scale = {"domain": list(colors), "range": list(colors.values())}
            layer["encoding"]["color"] = {**layer["encoding"]["color"], "scale": scale}
    note = say("띠는 값의 95% 구간", "Bands are 95% intervals of the values; the verdict is about the paired difference")
    note += say(", 파선은 학습하지 않은 모델입니다.", "; dashed: an untrained model.") if bases else say("입니다.", ".")
    label = METRICS[metric].label
    return Section("curves", say("학습 곡선", "Learning curves"), (Charts(((label, spec),), wide=True), Text(note, "quiet")))


def _line(group: Group, side: Side, lengths: bool) -> tuple[str, list[list[Entry]]]:
    """The name and the points of a side's curve: of a method, the checkpoints of all seeds; of a checkpoint, those of its run."""
    if side.arm is not None:
        return side.name, [list(step.values()) for step in side.arm.steps()]
    one, length = side.entries[0], side.entries[0].evaluation.seq_len
    same = [e for e in group.entries if one.trained and e.trained and e.run == one.run and e.evaluation.seq_len == length]
    return f"{one.run} @{length}" if lengths else one.run, [[entry] for entry in sorted(same, key=lambda entry: entry.tokens)]


def _counts(group: Group, a: Side, b: Side, metric: str, say: Say) -> tuple[tuple[str, str, int], ...]:
    """How many items only A, only B, both and neither get right: the name of the filter, its words, the count."""
    part = METRICS[metric]
    if part.parts or part.at != 1:
        return ()
    rows = group.items.facts["task"] == part.task
    one, other = (right_items(side.entries, part.rule)[rows] for side in (a, b))
    told = {
        "a-not-b": say("A만 맞음", "only A right"),
        "b-not-a": say("B만 맞음", "only B right"),
        "both-right": say("둘 다 맞음", "both right"),
        "both-wrong": say("둘 다 틀림", "both wrong"),
    }
    return tuple((name, told[name], int(found.sum())) for name, found in by_who_is_right(one, other).items())


def right_items(entries: Sequence[Entry], rule: str) -> NDArray[np.int8]:
    """1 for an item that most of the entries answer right, 0 for another, -1 where one of them was not asked."""
    ranks = np.stack([entry.ranks[rule] for entry in entries])
    most = 2 * (ranks == 1).sum(axis=0) > len(entries)
    return np.where((ranks == NOT_RUN).any(axis=0), -1, most).astype(np.int8)


def by_who_is_right(one: NDArray[np.int8], other: NDArray[np.int8]) -> dict[str, Mask]:
    wanted = {"a-not-b": (1, 0), "b-not-a": (0, 1), "both-right": (1, 1), "both-wrong": (0, 0)}
    return {name: np.asarray((one == a) & (other == b)) for name, (a, b) in wanted.items()}
