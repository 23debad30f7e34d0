"""A pair compared. In: two sides of a group and a metric. Out: the claims about them, and where the difference comes from.

The claims are those of `comparison/study`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import CorefError
from coref_automl.base.records import Half
from coref_automl.base.say import Say
from coref_automl.comparison.claims import Claim
from coref_automl.comparison.scores import Entry, Group, ItemMask, choose_metric
from coref_automl.comparison.study import Side, Study, claim_of, of_checkpoints, of_methods
from coref_automl.evaluation.metrics import METRICS, bucket, tasks_of
from coref_automl.extras.pages import charts
from coref_automl.extras.pages.sections.evidence import curve_points, token_axis
from coref_automl.extras.pages.sections.questions import claims_table
from coref_automl.report.page import Charts, Section, Text, Tone, note
from coref_automl.report.wording import TONES, ClaimText, forest_row

_FEWEST = 20
"""The items that a bar of the chart needs."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A pair as its page shows it: the verdict in a sentence, lines under it, sections, and counts of items by who is right."""

    sentence: str
    tone: Tone
    notes: tuple[str, ...]
    metrics: tuple[str, ...]
    metric: str
    sections: tuple[Section, ...] = ()
    counts: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides of a group, with its study if there is one, and the language to write in."""

    group: Group
    study: Study | None
    a: Side
    b: Side
    say: Say

    @property
    def of_checkpoints(self) -> bool:
        return self.a.arm is None and self.b.arm is None

    def checkpoint_claim(self, metric: str, half: Half | None, mask: ItemMask = None) -> Claim:
        """The claim about two checkpoints."""
        seed = self.study.seed if self.study else 0
        return of_checkpoints(self.group, self.a.entries[0], self.b.entries[0], metric, half, mask, seed=seed)


def compare_pair(pair: Pair, requested: str, claimed: Sequence[Claim], *, colors: tuple[str, str]) -> Compared:
    """Compare a pair on the requested metric, or on the usual one (""); if that is impossible, the sentence says why.

    `claimed` are the answer's claims about the pair, on every outcome.
    """
    a, b, say = pair.a, pair.b, pair.say
    both = replace(pair.group, entries=(*b.entries, *a.entries))
    metrics = tuple(both.metrics())
    try:
        metric = choose_metric(both, requested or None)
        known = next((claim for claim in claimed if claim.outcome == metric), None)
        claim = known or claim_of(pair.group, pair.study, a, b, metric)
    except CorefError as error:
        return Compared(str(error), "bad", (), metrics, requested)
    text = ClaimText(claim, say)
    values = claim.values or [side.entries[0].evaluation.estimates[metric].value for side in (a, b)]
    lines = [f"A {a.name} {100 * values[0]:.1f}% · B {b.name} {100 * values[1]:.1f}%", text.basis()]
    lines += [*_selected(pair), text.expected_gain()]
    lengths = sorted({entry.evaluation.seq_len for entry in both.entries})
    if len(lengths) > 1:
        listed = ", ".join(f"{length:,}" for length in lengths)
        lines.append(say(f"창의 길이가 다릅니다: {listed} 토큰.", f"Window lengths differ: {listed} tokens."))
    sections = [_outcomes(pair, claimed or [claim], metrics), _by_facet(pair, claim), _curves(pair, metric, colors)]
    filled = tuple(section for section in sections if section is not None)
    sentence = f"A - B: {text.outcome()} {text.change()}, {text.verdict()}."
    tone = TONES.get(claim.verdict, "")
    return Compared(sentence, tone, tuple(filter(None, lines)), metrics, metric, filled, _counts(pair, metric))


def _selected(pair: Pair) -> Iterator[str]:
    """A note on each side that is a checkpoint selected for being the highest."""
    study = pair.study
    if study is None or study.answer.candidates < 2:
        return
    for letter, side in zip("AB", (pair.a, pair.b), strict=True):
        if side.arm is None and (side.entries[0] is study.chosen or side.entries[0] is study.choice.best):
            yield note("came out highest", pair.say, name=f"{letter} {side.name}", candidates=study.answer.candidates)


def _outcomes(pair: Pair, claims: Sequence[Claim], metrics: Sequence[str]) -> Section | None:
    """Every outcome of the pair at once: the answer's claims; for checkpoints, one more per task."""
    every, known = list(claims), {claim.outcome for claim in claims}
    if pair.of_checkpoints:
        others = [name for name in metrics if name != "score" and name not in known]
        every += [pair.checkpoint_claim(name, pair.group.verdict_half) for name in others]
    if len(every) < 2:
        return None
    table = claims_table(every, pair.say)  # without the names of both sides, which are above
    numeric = frozenset(column - 2 for column in table.numeric)
    table = replace(table, head=table.head[2:], rows=tuple(line[2:] for line in table.rows), numeric=numeric)
    return Section("outcomes", pair.say("모든 과제", "Every task"), (table,))


def _by_facet(pair: Pair, claim: Claim) -> Section | None:
    """The difference by source, distance and tag, uncorrected."""
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


def _part(pair: Pair, metric: str, half: Half | None, mask: ItemMask) -> Claim | None:
    """The difference on some items; None if the sides are of two kinds, or ran too few of the items."""
    if pair.study is not None and pair.a.arm is not None:
        return of_methods(pair.group, pair.a, pair.b, metric, mask)
    if not pair.of_checkpoints:
        return None
    entries = (pair.a.entries[0], pair.b.entries[0])
    enough = pair.group.columns(metric, half=half, entries=entries, mask=mask).items >= _FEWEST
    return pair.checkpoint_claim(metric, half, mask) if enough else None


def _facets(group: Group, say: Say) -> Iterator[tuple[str, NDArray[Any]]]:
    facts = group.items.facts
    yield say("데이터 소스별", "by source"), facts["source"]
    yield say("거리별 (토큰)", "by distance (tokens)"), np.array([bucket(int(value)) for value in facts["distance"]])
    yield say("품사별", "by part of speech"), facts["tag"]


def in_order(name: str) -> tuple[int, str]:
    """A sort key: buckets of numbers by their lower end, then other names."""
    digits = name.split("-")[0].rstrip("+")
    return (int(digits), "") if digits.isdecimal() else (1 << 30, name)


def _curves(pair: Pair, metric: str, side_colors: tuple[str, str]) -> Section | None:
    """The learning curves of both sides, with bands; runs are named with their window lengths if these differ."""
    say, entries = pair.say, (*pair.a.entries, *pair.b.entries)
    several = pair.a.entries[0].evaluation.seq_len != pair.b.entries[0].evaluation.seq_len
    lines = [_line(pair.group, side, several) for side in (pair.a, pair.b)]
    rows = curve_points(pair.study, {name: points for name, points in lines if points}, metric)
    colors = {name: color for (name, points), color in reversed(list(zip(lines, side_colors, strict=True))) if points}
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
    """The name and the points of a side's curve: the checkpoints of all seeds of a method, or those of a checkpoint's run."""
    if side.arm is not None:
        return side.name, [list(point.values()) for point in side.arm.matched_checkpoints()]
    run, length = side.entries[0].run, side.entries[0].evaluation.seq_len
    in_run = [entry for entry in group.entries if entry.trained and entry.run == run and entry.evaluation.seq_len == length]
    points = sorted(in_run if side.entries[0].trained else [], key=lambda entry: entry.tokens)
    return f"{run} @{length}" if lengths else run, [[entry] for entry in points]


def _counts(pair: Pair, metric: str) -> tuple[tuple[str, str, int], ...]:
    """The number of items that only A, only B, both and neither get right, each with the name of its filter and a label."""
    if METRICS[metric].at != 1:
        return ()
    say, rows = pair.say, np.isin(pair.group.items.facts["task"], list(tasks_of(metric)))
    right = [right_items(side.entries)[rows] for side in (pair.a, pair.b)]
    words = {
        "a-not-b": say("A만 맞음", "only A right"),
        "b-not-a": say("B만 맞음", "only B right"),
        "both-right": say("둘 다 맞음", "both right"),
        "both-wrong": say("둘 다 틀림", "both wrong"),
    }
    return tuple((name, words[name], int(mask.sum())) for name, mask in by_who_is_right(*right).items())


def right_items(entries: Sequence[Entry], rows: slice | int = slice(None)) -> NDArray[np.int8]:
    """1 for an item that most of the entries answer right, 0 for another, -1 if one of them does not count it."""
    ranks = np.stack([entry.ranks[rows] for entry in entries])
    most = 2 * (ranks == 1).sum(axis=0) > len(entries)
    return np.where((ranks == 0).any(axis=0), -1, most).astype(np.int8)


def by_who_is_right(a: NDArray[np.int8], b: NDArray[np.int8]) -> dict[str, NDArray[np.bool_]]:
    """The items of each combination of `right_items` of two sides."""
    combinations = {"a-not-b": (1, 0), "b-not-a": (0, 1), "both-right": (1, 1), "both-wrong": (0, 0)}
    return {name: np.asarray((a == of_a) & (b == of_b)) for name, (of_a, of_b) in combinations.items()}
