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


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides of a group, with its study where there is one, and the language to write in."""

    group: Group
    study: Study | None
    a: Side
    b: Side
    say: Say

    @property
    def of_checkpoints(self) -> bool:
        return self.a.arm is None and self.b.arm is None

    def of_entries(self, metric: str, half: Half | None, among: Mask | None = None) -> Claim:
        """The claim about two checkpoints."""
        seed = self.study.seed if self.study else 0
        return of_checkpoints(self.group, self.a.entries[0], self.b.entries[0], metric, half, among, seed=seed)


def compare_pair(pair: Pair, wanted: str, claimed: Sequence[Claim], *, colors: tuple[str, str]) -> Compared:
    """The claim about a pair and its picture, on the wanted metric or the usual one; `claimed` are those of the answer on every
    outcome. A pair that cannot be compared gets its reason instead."""
    a, b, say = pair.a, pair.b, pair.say
    both = replace(pair.group, entries=(*b.entries, *a.entries))
    metrics = tuple(both.metrics())
    try:
        metric, text = choose_metric(both, wanted or None)
        claim = next((one for one in claimed if one.outcome == metric), None) or claim_of(pair.group, pair.study, a, b, metric)
    except CorefError as error:
        return Compared(str(error), "bad", (), metrics, wanted)
    values = claim.values or [side.entries[0].evaluation.estimates[metric].value for side in (a, b)]
    lines = [f"A {a.name} {100 * values[0]:.1f}% · B {b.name} {100 * values[1]:.1f}%", basis(claim, say), *text]
    lines += [*_chosen(pair), expected_gain(claim, say)]
    lengths = sorted({entry.evaluation.seq_len for entry in both.entries})
    if len(lengths) > 1:
        listed = ", ".join(f"{length:,}" for length in lengths)
        lines.append(say(f"창의 길이가 다릅니다: {listed} 토큰.", f"Window lengths differ: {listed} tokens."))
    sections = [_outcomes(pair, claimed or [claim], metrics), _by_facet(pair, claim), _curves(pair, metric, colors)]
    drawn = tuple(section for section in sections if section is not None)
    sentence = f"A - B: {outcome(claim, say)} {change(claim, say)}, {verdict(claim, say)}."
    tone = TONES.get(claim.verdict, "")
    return Compared(sentence, tone, tuple(filter(None, lines)), metrics, metric, drawn, _counts(pair, metric))


def _chosen(pair: Pair) -> Iterator[str]:
    """Which side is a checkpoint that was picked because it was highest."""
    study = pair.study
    if study is None or study.answer.candidates < 2:
        return
    for letter, side in zip("AB", (pair.a, pair.b), strict=True):
        if side.arm is None and (side.entries[0] is study.chosen or side.entries[0] is study.choice.best):
            yield note("came out highest", pair.say, name=f"{letter} {side.name}", candidates=study.answer.candidates)


def _outcomes(pair: Pair, claims: Sequence[Claim], metrics: Sequence[str]) -> Section | None:
    """Every outcome of the pair at once: what the answer claims; of checkpoints, each task by itself."""
    rows, known = list(claims), {claim.outcome for claim in claims}
    if pair.of_checkpoints:
        first = [name for name in metrics if METRICS[name].at == 1 and not METRICS[name].parts]
        plain = [name for name in first if METRICS[name].rule != "lenient" and name not in known]
        rows += [pair.of_entries(name, pair.group.judging) for name in plain]
    if len(rows) < 2:
        return None
    table = claims_table(rows, pair.say)  # without the names of both sides, which stand above
    numeric = frozenset(column - 2 for column in table.numeric)
    table = replace(table, head=table.head[2:], rows=tuple(line[2:] for line in table.rows), numeric=numeric)
    return Section("outcomes", pair.say("모든 과제", "Every task"), (table,))


def _by_facet(pair: Pair, claim: Claim) -> Section | None:
    """The difference by source, distance and tag: where it comes from, each bar by itself."""
    drawn, say, half = [], pair.say, None if claim.documents == "all" else "confirm"
    for title, names in _facets(pair.group, say):
        rows = []
        for name in sorted(set(names.tolist()), key=in_order):
            part = _part(pair, claim.outcome, half, np.asarray(names == name))  # type: ignore[arg-type]
            if part is not None and part.difference.n >= _FEWEST:
                text = f"{name} ({part.difference.n:,})"
                rows.append(forest_row(text, text, part))
        if len(rows) > 1:
            drawn.append((title, charts.forest(rows, say)))
    if not drawn:
        return None
    caption = say(
        f"A - B, 개별 95% 신뢰구간(보정 없음), 괄호는 문항 수({_FEWEST}개 이상).",
        f"A - B; 95% intervals one by one, not corrected; in brackets the items ({_FEWEST} or more).",
    )
    title = say("차이는 어디서 오는가", "Where the difference comes from")
    return Section("facets", title, (Charts(tuple(drawn)), Text(caption, "quiet")))


def _part(pair: Pair, metric: str, half: Half | None, among: Mask) -> Claim | None:
    """The difference on some items; None where sides are of two kinds, or too few of the items were run."""
    if pair.study is not None and pair.a.arm is not None:
        return of_methods(pair.group, pair.a, pair.b, metric, among)
    if not pair.of_checkpoints or METRICS[metric].parts:
        return None
    entries = (pair.a.entries[0], pair.b.entries[0])
    enough = pair.group.columns(metric, half=half, entries=entries, among=among).items >= _FEWEST
    return pair.of_entries(metric, half, among) if enough else None


def _facets(group: Group, say: Say) -> Iterator[tuple[str, NDArray[Any]]]:
    facts = group.items.facts
    yield say("데이터 소스별", "by source"), facts["source"]
    yield say("거리별 (토큰)", "by distance (tokens)"), np.array([bucket(int(value)) for value in facts["distance"]])
    yield say("품사별", "by part of speech"), facts["tag"]


def in_order(name: str) -> tuple[int, str]:
    """Buckets by their lower end."""
    digits = name.split("-")[0].rstrip("+")
    return (int(digits), "") if digits.isdecimal() else (1 << 30, name)


def _curves(pair: Pair, metric: str, drawn: tuple[str, str]) -> Section | None:
    """The learning curves of both sides, with bands; runs are named with their window lengths where these differ."""
    say, entries = pair.say, (*pair.a.entries, *pair.b.entries)
    several = pair.a.entries[0].evaluation.seq_len != pair.b.entries[0].evaluation.seq_len
    lines = [_line(pair.group, side, several) for side in (pair.a, pair.b)]
    rows = curve_points(pair.study, {name: steps for name, steps in lines if steps}, metric)
    colors = {name: color for (name, steps), color in reversed(list(zip(lines, drawn, strict=True))) if steps}
    if len({row["x"] for row in rows}) < 2:
        return None  # a point is no curve
    untrained = [entry.evaluation.estimates for entry in entries if not entry.trained]
    bases = [("", 100 * estimates[metric].value) for estimates in untrained if metric in estimates]
    spec = charts.learning_curve(rows, say, axis=token_axis(entries, say), bases=bases)
    for layer in spec["layer"]:
        if layer["encoding"].get("color", {}).get("field") == "run":
            scale = {"domain": list(colors), "range": list(colors.values())}
            layer["encoding"]["color"] = {**layer["encoding"]["color"], "scale": scale}
    caption = say("띠는 값의 95% 구간", "Bands are 95% intervals of the values; the verdict is about the paired difference")
    caption += say(", 파선은 학습하지 않은 모델입니다.", "; dashed: an untrained model.") if bases else say("입니다.", ".")
    chart = Charts(((METRICS[metric].label, spec),), wide=True)
    return Section("curves", say("학습 곡선", "Learning curves"), (chart, Text(caption, "quiet")))


def _line(group: Group, side: Side, lengths: bool) -> tuple[str, list[list[Entry]]]:
    """The name and the points of a side's curve: of a method, the checkpoints of all seeds; of a checkpoint, those of its run."""
    if side.arm is not None:
        return side.name, [list(step.values()) for step in side.arm.steps()]
    one, length = side.entries[0], side.entries[0].evaluation.seq_len
    same = [e for e in group.entries if one.trained and e.trained and e.run == one.run and e.evaluation.seq_len == length]
    return f"{one.run} @{length}" if lengths else one.run, [[entry] for entry in sorted(same, key=lambda entry: entry.tokens)]


def _counts(pair: Pair, metric: str) -> tuple[tuple[str, str, int], ...]:
    """How many items only A, only B, both and neither get right: the name of the filter, its words, the count."""
    part, say = METRICS[metric], pair.say
    if part.parts or part.at != 1:
        return ()
    rows = pair.group.items.facts["task"] == part.task
    right = [right_items(side.entries, part.rule)[rows] for side in (pair.a, pair.b)]
    words = {
        "a-not-b": say("A만 맞음", "only A right"),
        "b-not-a": say("B만 맞음", "only B right"),
        "both-right": say("둘 다 맞음", "both right"),
        "both-wrong": say("둘 다 틀림", "both wrong"),
    }
    return tuple((name, words[name], int(found.sum())) for name, found in by_who_is_right(*right).items())


def right_items(entries: Sequence[Entry], rule: str) -> NDArray[np.int8]:
    """1 for an item that most of the entries answer right, 0 for another, -1 where one of them was not asked."""
    ranks = np.stack([entry.ranks[rule] for entry in entries])
    most = 2 * (ranks == 1).sum(axis=0) > len(entries)
    return np.where((ranks == NOT_RUN).any(axis=0), -1, most).astype(np.int8)


def by_who_is_right(one: NDArray[np.int8], other: NDArray[np.int8]) -> dict[str, Mask]:
    wanted = {"a-not-b": (1, 0), "b-not-a": (0, 1), "both-right": (1, 1), "both-wrong": (0, 0)}
    return {name: np.asarray((one == a) & (other == b)) for name, (a, b) in wanted.items()}
