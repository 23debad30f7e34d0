"""Verdicts of the admission test. In: OUT/scores.npz. Out: OUT/admission.json, and the lines of the table.

The thresholds below were written before the test first ran. A test is `pass`, `fail`, or `undecided` where its 90% interval, over
documents and seeds, holds the threshold; `-` where it says nothing about a metric. A metric is admitted if nothing fails and
nothing is undecided; otherwise it is shown as description, without a verdict.

    format     whole words - tokens of `mlm`: the interval lies within FORMAT points of 0
    nouns      `nouns` - `mlm`: hiding nouns without anything to copy gains at most GAIN points. New nouns are what it hides, so
               that a gain is no artefact there; the test speaks about metrics that can be copied
    cheat      the best bonus on the base's visible nouns gains at most CHEAT points
    grades     means fall with every grade: of noise, of attention, and after the rate that ruins
    context    hiding the other mentions of the answer costs the base something: the interval lies above 0
    moves      the base is neither under FLOOR nor over CEILING percent
    noise      the standard deviation of the means of all contenders is SIGNAL times that of seeds
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.store import write_json
from coref_automl.evaluation.metrics import COPY_BONUSES, METRICS, Metric
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict

FORMAT = 1.0
GAIN = 1.0
CHEAT = 1.0
FLOOR, CEILING = 5.0, 95.0
SIGNAL = 3.0
LEVEL = 0.90

BASE, RUIN = "base", "rate"
MLM, WORDS, NOUNS, ENTITY = "mlm", "words", "nouns", "entity"
CONTEXT_FREE = ("new",)
"""Tasks whose answers stand nowhere else."""


def noise_group(share: float) -> str:
    return f"noise {100 * share:g}%"


def attention_group(tokens: int) -> str:
    return f"attention {tokens}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A test of a metric: its value in points, its interval, what it says."""

    value: float
    low: float
    high: float
    says: str


@dataclass(slots=True)
class Row:
    """All that is known of a metric."""

    metric: str
    label: str
    items: int
    documents: int
    counted: float
    counted_names: float | None
    values: dict[str, list[float]]
    cheat_bonus: float | None = None
    signal_all: float = math.nan
    signal_methods: float = math.nan
    tests: dict[str, Verdict] = field(default_factory=dict)
    admitted: str = ""


class Scores:
    """The arrays of scores.npz: facts of items, and of every group of contenders one row per seed or draw."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as found:
            arrays = {name: found[name] for name in found.files}
        self.items = {name.partition("/")[2]: values for name, values in arrays.items() if name.startswith("item/")}
        names = sorted({name.partition("/")[0] for name in arrays} - {"item"})
        order = sorted(names, key=lambda name: int(arrays[f"{name}/number"]))
        self.groups: dict[str, dict[str, NDArray[Any]]] = {}
        for group in dict.fromkeys(str(arrays[f"{name}/group"]) for name in order):
            of_group = [name for name in order if str(arrays[f"{name}/group"]) == group]
            kinds = ("rank", "bonus", "has_bonus", *(["hidden"] if group == BASE else []))
            self.groups[group] = {kind: np.stack([arrays[f"{name}/{kind}"] for name in of_group]) for kind in kinds}

        if BASE not in self.groups:
            raise SystemExit(f"{path} lacks the base, with which all verdicts begin; run the same command again.")

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Contenders share one tokenizer, so the base counts the items of all."""
        mask: NDArray[np.bool_] = self.groups[BASE]["rank"][0] > 0
        return mask


@dataclass(frozen=True, slots=True)
class Weighted:
    """The items of a metric: their places, the hits' `at`, and weights with which the mean over them is the metric, in points."""

    places: NDArray[np.int64]
    at: NDArray[np.int64]
    weights: NDArray[np.float64]
    clusters: NDArray[Any]

    @classmethod
    def of(cls, metric: Metric, scores: Scores) -> Weighted | None:
        parts = metric.parts or ((metric.name, 1.0),)
        chosen = []
        for name, weight in parts:
            places = np.flatnonzero((scores.items["task"] == METRICS[name].task) & scores.counted)
            if not len(places):
                return None
            chosen.append((places, weight, METRICS[name].at))
        total = sum(len(places) for places, _, _ in chosen)
        return cls(
            np.concatenate([places for places, _, _ in chosen]),
            np.concatenate([np.full(len(places), at) for places, _, at in chosen]),
            np.concatenate([np.full(len(places), 100 * weight * total / len(places)) for places, weight, _ in chosen]),
            scores.items["cluster"][np.concatenate([places for places, _, _ in chosen])],
        )

    def of_ranks(self, ranks: NDArray[Any]) -> NDArray[np.float64]:
        """One row per run: weighted hits."""
        chosen = ranks[:, self.places]
        return np.asarray(((chosen > 0) & (chosen <= self.at)) * self.weights)


def rows_of(scores: Scores) -> list[Row]:
    rows = []
    for metric in METRICS.values():
        weighted = Weighted.of(metric, scores)
        if weighted is not None:
            rows.append(_row(metric, weighted, scores))
    return rows


def _row(metric: Metric, items: Weighted, scores: Scores) -> Row:
    values = {group: items.of_ranks(arrays["rank"]) for group, arrays in scores.groups.items()}
    tasks = {str(METRICS[name].task) for name, _ in metric.parts or ((metric.name, 1.0),)}
    of_tasks = np.isin(scores.items["task"], list(tasks))
    names = of_tasks & (scores.items["tag"] == "NNP")
    row = Row(
        metric.name,
        metric.label,
        items=len(items.places),
        documents=len(np.unique(items.clusters)),
        counted=float(scores.counted[of_tasks].mean()),
        counted_names=float(scores.counted[names].mean()) if names.any() else None,
        values={group: [round(float(mean), 3) for mean in runs.mean(axis=1)] for group, runs in values.items()},
    )
    means = {group: float(np.mean(runs)) for group, runs in row.values.items()}
    row.tests["moves"] = Verdict(means[BASE], math.nan, math.nan, _said(FLOOR <= means[BASE] <= CEILING))
    if MLM in values and WORDS in values:
        row.tests["format"] = _within(_difference(values[WORDS], values[MLM], items), FORMAT)
    if MLM in values and NOUNS in values:
        gain = _at_most(_difference(values[NOUNS], values[MLM], items), GAIN)
        row.tests["nouns"] = gain if tasks - set(CONTEXT_FREE) else Verdict(gain.value, gain.low, gain.high, "-")
    row.tests["cheat"], row.cheat_bonus = _cheat(items, scores)
    row.tests["grades"] = _grades(means)
    hidden = _difference(values[BASE], items.of_ranks(scores.groups[BASE]["hidden"]), items)
    says = "-" if not tasks - set(CONTEXT_FREE) else _said(hidden.low > 0)
    row.tests["context"] = Verdict(hidden.value, hidden.low, hidden.high, says)
    _signal(row, means)
    said = [test.says for test in row.tests.values()]
    row.admitted = "fail" if "fail" in said else "undecided" if "undecided" in said else "pass"
    return row


def _difference(a: NDArray[np.float64], b: NDArray[np.float64], items: Weighted) -> Verdict:
    found: CrossedVerdict = crossed_verdict(a, b, items.clusters)
    interval = found.interval_at(LEVEL)
    return Verdict(found.difference, interval.low, interval.high, "-")


def _within(found: Verdict, bound: float) -> Verdict:
    inside = -bound <= found.low and found.high <= bound
    outside = found.low > bound or found.high < -bound
    return Verdict(found.value, found.low, found.high, "pass" if inside else "fail" if outside else "undecided")


def _at_most(found: Verdict, bound: float) -> Verdict:
    says = "pass" if found.high <= bound else "fail" if found.low > bound else "undecided"
    return Verdict(found.value, found.low, found.high, says)


def _said(passed: bool) -> str:
    return "pass" if passed else "fail"


def _cheat(items: Weighted, scores: Scores) -> tuple[Verdict, float | None]:
    """The best gain of a bonus on the base, and that bonus. Bonuses have hits at 1 alone; without them nothing is decided."""
    base = scores.groups[BASE]
    if (items.at != 1).any() or not base["has_bonus"][0, items.places].all():
        return Verdict(math.nan, math.nan, math.nan, "undecided"), None
    plain = items.of_ranks(base["rank"])
    hits = [(base["bonus"][0][items.places, column] * items.weights)[None] for column in range(len(COPY_BONUSES))]
    gains = [_difference(hit, plain, items) for hit in hits]
    best = max(range(len(gains)), key=lambda column: gains[column].value)
    return _at_most(gains[best], CHEAT), COPY_BONUSES[best]


def ladders(groups: Sequence[str]) -> list[list[str]]:
    """Groups from sound to damaged: every one should be worse than the one before it."""

    def grade(group: str) -> float:
        return float(group.split()[1].rstrip("%"))

    noise = sorted((group for group in groups if group.startswith("noise ")), key=grade)
    attention = sorted((group for group in groups if group.startswith("attention ")), key=grade, reverse=True)
    found = [[BASE, *noise], [BASE, *attention]]
    if RUIN in groups and MLM in groups:
        found.append([MLM, RUIN])
    return [ladder for ladder in found if len(ladder) > 1]


def _grades(means: Mapping[str, float]) -> Verdict:
    """The smallest step down on any ladder."""
    steps = [means[a] - means[b] for ladder in ladders(list(means)) for a, b in pairwise(ladder)]
    if not steps:
        return Verdict(math.nan, math.nan, math.nan, "-")
    return Verdict(min(steps), math.nan, math.nan, _said(min(steps) > 0))


def _signal(row: Row, means: Mapping[str, float]) -> None:
    """Spread of the means over the pooled spread of seeds: of all contenders, and of the base and the trained methods alone."""
    trained = [group for group in means if " " not in group and group not in (BASE, RUIN)]
    variances = [float(np.var(row.values[group], ddof=1)) for group in trained if len(row.values[group]) > 1]
    if not variances:
        row.tests["noise"] = Verdict(math.nan, math.nan, math.nan, "-")
        return
    seeds = max(math.sqrt(float(np.mean(variances))), 1e-9)
    row.signal_all = float(np.std(list(means.values()), ddof=1)) / seeds
    row.signal_methods = float(np.std([means[group] for group in (BASE, *trained)], ddof=1)) / seeds
    row.tests["noise"] = Verdict(row.signal_all, math.nan, math.nan, _said(row.signal_all >= SIGNAL))


def curves(scores: Scores) -> dict[str, dict[str, list[float]]]:
    """Real@1 and New@1 of every group at every bonus, 0 included: the copy curve."""
    found: dict[str, dict[str, list[float]]] = {}
    for group, arrays in scores.groups.items():
        lines: dict[str, list[float]] = {"bonus": sorted([0.0, *COPY_BONUSES])}
        for name in ("real1", "new1"):
            items = Weighted.of(METRICS[name], scores)
            if items is None:
                continue
            at = {0.0: float(items.of_ranks(arrays["rank"]).mean())}
            for column, bonus in enumerate(COPY_BONUSES):
                at[bonus] = 100 * float(arrays["bonus"][:, items.places, column].mean())
            lines[name] = [round(at[bonus], 3) for bonus in lines["bonus"]]
        found[group] = lines
    return found


def write(out: Path) -> list[str]:
    """Write admission.json; returns the table's lines."""
    scores = Scores(out / "scores.npz")
    rows = rows_of(scores)
    thresholds = {"format": FORMAT, "nouns": GAIN, "cheat": CHEAT, "moves": [FLOOR, CEILING], "noise": SIGNAL}
    record = {
        "thresholds": thresholds,
        "runs": {group: len(arrays["rank"]) for group, arrays in scores.groups.items()},
        "metrics": [asdict(row) for row in rows],
        "curves": curves(scores),
    }
    write_json(out / "admission.json", _finite(record))
    return table(rows)


def _finite(value: Any) -> Any:
    """NaN is null in JSON."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


MARKS = {"pass": "", "fail": " FAIL", "undecided": " ?", "-": ""}


def table(rows: Sequence[Row]) -> list[str]:
    """One row per metric; a test that fails is marked FAIL, one that is undecided ?."""
    groups = list(rows[0].values) if rows else []
    order = [BASE, *(group for group in groups if " " not in group and group != BASE)]
    order += [group for ladder in ladders(groups) for group in ladder if group not in order]
    tests = ("format", "nouns", "cheat", "grades", "context", "noise")
    lines = ["| metric | items / documents | counted (names) | " + " | ".join([*order, *tests, "verdict"]) + " |"]
    lines.append("|---" * (3 + len(order) + len(tests) + 1) + "|")
    for row in rows:
        names = "" if row.counted_names is None else f" ({100 * row.counted_names:.0f}%)"
        cells = [row.label, f"{row.items:,} / {row.documents:,}", f"{100 * row.counted:.0f}%{names}"]
        cells += [f"{np.mean(row.values[group]):.1f}" for group in order]
        cells += [_cell(row, name) for name in tests]
        lines.append("| " + " | ".join([*cells, row.admitted]) + " |")
    return lines


def _cell(row: Row, name: str) -> str:
    test = row.tests.get(name)
    if test is None or math.isnan(test.value):
        return "-" if test is None else f"-{MARKS[test.says]}"
    sign = "" if name == "noise" else "+"
    interval = "" if math.isnan(test.low) else f" [{test.low:+.1f}, {test.high:+.1f}]"
    bonus = f" at {row.cheat_bonus:+g}" if name == "cheat" and row.cheat_bonus is not None else ""
    return f"{test.value:{sign}.1f}{interval}{bonus}{MARKS[test.says]}"
