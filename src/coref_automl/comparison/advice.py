"""What to use now, and how long to train next time. In: checkpoints of one or more methods. Out: Use and NextTime, in numbers.

Chosen on the `select` half by posterior means: the method (objective, length, base) that is highest over its seeds, then the
highest of its checkpoints. Judged on the `confirm` half, runs crossed with documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from coref_automl.comparison.arms import Arm, arms_of
from coref_automl.comparison.differences import ALPHA, finding
from coref_automl.comparison.scores import Columns, Entry, Group
from coref_automl.records import Comparison, Estimate, Record
from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.crossed import CrossedVerdict, composite_crossed
from coref_automl.statistics.intervals import composite, difference_intervals, simultaneous_bounds
from coref_automl.statistics.resampling import Floats, Part
from coref_automl.statistics.shrinkage import accepted_loss, covariance, posterior_means, times_as_many

Status = Literal["shown", "in part", "open", "not better than the base"]
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Use(Record):
    """The method to use, and the checkpoint of it.

    `method` names the objective and the length it was trained at; one seed says nothing about a method, and the advice is then
    about its checkpoint alone. `checkpoint` is a folder and `name` its label; `tokens` are what it was trained on, None if that
    was not recorded. `value` is the mean over the method's `seeds` at that training and `over_base` its gain over the base (None
    if that was not evaluated), both with 95% intervals, on the documents of `judged_on`. Any method could have been the chosen
    one, so that what is shown of it is corrected for their number. `better_than` names the methods it is shown to beat at their
    best, `open_against` the others. Methods of one seed are `unjudged` where this one has several: nothing can be shown of them.
    `tied` are other checkpoints of the method that did as well on the documents that chose.

    `status`: not shown to beat its base; or else shown to beat every other method, some ("in part"), or none ("open"). Without
    another method the base alone decides.
    """

    method: str
    objective: str
    length: int
    tokens: int | None
    seeds: int
    checkpoint: str
    name: str
    value: Estimate
    over_base: Estimate | None
    status: Status
    better_than: tuple[str, ...]
    open_against: tuple[str, ...]
    judged_on: Literal["all", "confirm", "select"]
    unjudged: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextTime(Record):
    """How long to train next time: the earliest point of the method's mean curve within `loss` of its highest.

    That is at 95% confidence on the `select` half. `loss` is the margin, or a quarter of the shown gain over the base if that is
    less. `share` is that of the training of the curve's last point, None if the documents are too few to place any point; then
    training as long as now is what is known to do. `checkpoint` is the point in the run that is used (a folder), `name` its
    label, `tokens` what it was trained on. With `more_documents` more in the select half the `promising` tokens would do with 80%
    power; None if nothing earlier is to be gained. Tokens are None also if the runs did not record them.
    """

    loss: float
    points: int
    seeds: int
    tokens: int | None
    share: float | None
    checkpoint: str
    name: str
    more_documents: int | None
    promising: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """The posterior mean of every candidate, and the arms that they belong to."""

    means: dict[Entry, float]
    arms: list[Arm]

    def chosen(self) -> Entry:
        """The highest checkpoint of the method that is highest over its seeds.

        Methods of one seed are left aside where others have several: one run may be lucky as a whole. Of equals the earliest.
        """
        firm = [arm for arm in self.arms if arm.seeds > 1] or self.arms
        best = max(firm, key=lambda arm: self._over_seeds(self.peak(arm)))
        entries = [entry for step in _steps(best) for entry in step]
        top = max(self.means[entry] for entry in entries)
        return min((entry for entry in entries if self.means[entry] > top - _EQUAL), key=lambda entry: entry.tokens)

    def tied_with(self, chosen: Entry) -> list[Entry]:
        """Other checkpoints of its method that are as high."""
        mine = next(arm for arm in self.arms if any(chosen in run for run in arm.runs.values()))
        entries = [entry for step in _steps(mine) for entry in step if entry is not chosen]
        return [entry for entry in entries if abs(self.means[entry] - self.means[chosen]) < _EQUAL]

    def peak(self, arm: Arm) -> list[Entry]:
        """The runs of an arm at the training where their mean is highest."""
        return max(_steps(arm), key=self._over_seeds)

    def _over_seeds(self, step: Sequence[Entry]) -> float:
        return float(np.mean([self.means[entry] for entry in step]))


def beliefs(columns: Columns, eligible: Sequence[Entry]) -> Beliefs:
    """From the candidates' columns on the documents that choose."""
    arms = methods_of(eligible, None)
    place = {entry: (number, seed) for number, arm in enumerate(arms) for seed, run in arm.runs.items() for entry in run}
    values = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in columns.parts))
    means = posterior_means(
        values,
        covariance(columns.parts),
        methods=[place[entry][0] for entry in eligible],
        runs=[place[entry] for entry in eligible],
        training=[entry.tokens for entry in eligible],
    )
    return Beliefs(dict(zip(eligible, map(float, means), strict=True)), arms)


def methods_of(eligible: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of all candidates. A run without a training record, or a model outside runs, is an arm of its own."""
    found = arms_of(eligible, base)
    held = {entry for arm in found for run in arm.runs.values() for entry in run}
    rest: dict[tuple[str, int], list[Entry]] = {}
    for entry in eligible:
        if entry not in held:
            rest.setdefault((entry.run, entry.evaluation.seq_len), []).append(entry)
    return [*found, *(Arm(run, "", "", length, {0: entries}, name=run) for (run, length), entries in rest.items())]


def use_of(
    group: Group,
    metric: str,
    believed: Beliefs,
    chosen: Entry,
    base: Entry | None,
    over_base: Comparison | None,
    *,
    seed: int,
) -> Use:
    """The chosen checkpoint and its method. `over_base` is the checkpoint's own comparison: one seed has no other."""
    arms = methods_of(list(believed.means), base)
    mine = next(arm for arm in arms if any(chosen in run for run in arm.runs.values()))
    side = next((step for step in _steps(mine) if chosen in step), [chosen])
    rest = [arm for arm in arms if arm is not mine]
    others = [arm for arm in rest if arm.seeds > 1 or len(side) < 2]
    unjudged = tuple(arm.name for arm in rest if arm not in others)
    unchosen = not others and len(believed.means) == len(side) and group.judging is None
    half: Literal["confirm"] | None = None if unchosen else "confirm"
    rivals = [believed.peak(arm) for arm in others]
    entries = list(dict.fromkeys([*side, *([base] if base else []), *(entry for step in rivals for entry in step)]))
    columns = group.columns(metric, half=half, entries=entries)
    judged_on: Literal["all", "confirm", "select"] = "all" if half is None else "confirm"
    if not columns.items:
        columns, judged_on, rivals, base = group.columns(metric, entries=entries), "select", [], None
    at = {entry: number for number, entry in enumerate(entries)}
    own = [at[entry] for entry in side]
    gain, beaten = (over_base.difference, finding(over_base) == "better") if over_base else (None, None)
    if base is not None and len(side) > 1:
        verdict = _crossed(columns, own, [at[base]], model=True)
        gain, beaten = verdict.interval, verdict.difference > 0 and (1 + len(others)) * verdict.p < ALPHA
    elif base is not None and over_base:
        gain = _difference(columns, own[0], at[base], seed)
    won = _won(columns, [own, *([at[entry] for entry in step] for step in rivals)])
    won += [False] * (len(others) - len(won))
    made = chosen.evaluation.provenance
    return Use(
        method=mine.name,
        objective=mine.objective,
        length=made.seq_len if made else chosen.evaluation.seq_len,
        tokens=chosen.recorded_tokens,
        seeds=len(side),
        checkpoint=chosen.evaluation.path,
        name=chosen.name,
        value=_mean_over_seeds(columns.only(own), seed),
        over_base=gain,
        status=_status(beaten, [*won, *(False for _ in unjudged)]),
        better_than=tuple(arm.name for arm, shown in zip(others, won, strict=True) if shown),
        open_against=tuple(arm.name for arm, shown in zip(others, won, strict=True) if not shown),
        judged_on=judged_on,
        unjudged=unjudged,
        tied=tuple(entry.name for entry in believed.tied_with(chosen)),
    )


def next_time_of(
    group: Group, metric: str, believed: Beliefs, chosen: Entry, *, margin: float, gain: float | None, seed: int
) -> NextTime | None:
    """From the runs of the chosen checkpoint's method that have a curve; None without one. `gain` is the shown one."""
    mine = next(arm for arm in believed.arms if any(chosen in run for run in arm.runs.values())).with_curve()
    steps = _steps(mine) if mine.runs else []
    if len(steps) < 2:
        return None
    entries = [entry for step in steps for entry in step]
    columns = group.columns(metric, half="select", entries=entries)
    if not columns.items:
        columns = group.columns(metric, entries=entries)
    seeds = len(steps[0])
    bounds = simultaneous_bounds([_by_step(part, len(steps), seeds) for part in columns.parts], seed=seed)
    loss = accepted_loss(margin, gain)
    values = bounds.gaps[:, 0]  # how far every point leads the first
    highest = int(np.argmax(values))
    within = next((number for number in range(len(steps)) if bounds.upper[number] <= loss), None)
    point = min(within, highest) if within is not None else None
    trained = [round(np.mean([entry.tokens for entry in step])) for step in steps]
    recorded = all(entry.recorded_tokens is not None for entry in entries)
    before = range(point if point is not None else highest + 1)
    plans = [(factor, number) for number in before if (factor := times_as_many(bounds, number, loss)) is not None]
    factor, promising = min(plans, default=(None, None))
    run = next((run for run in mine.runs.values() if chosen in run), None)
    step = steps[point] if point is not None else []
    reached = next((entry for entry in step if run and entry in run), step[0] if step else None)
    return NextTime(
        loss=loss,
        points=len(steps),
        seeds=seeds,
        tokens=trained[point] if recorded and point is not None else None,
        share=trained[point] / trained[-1] if point is not None else None,
        checkpoint=reached.evaluation.path if reached else "",
        name=reached.name if reached else "",
        more_documents=math.ceil((factor - 1) * bounds.documents) if factor is not None else None,
        promising=trained[promising] if recorded and promising is not None else None,
    )


def _steps(arm: Arm) -> list[list[Entry]]:
    return [list(step.values()) for step in arm.steps()]


def _by_step(part: Part, steps: int, seeds: int) -> Part:
    values = np.asarray(part.values)
    return replace(part, values=values.reshape(len(values), steps, seeds).mean(axis=2))


def _rows(columns: Columns, numbers: Sequence[int]) -> list[Floats]:
    return [np.asarray(part.values, np.float64)[:, numbers].T for part in columns.parts]


def _crossed(columns: Columns, a: Sequence[int], b: Sequence[int], *, model: bool = False) -> CrossedVerdict:
    clusters = [part.clusters for part in columns.parts]
    return composite_crossed([(_rows(columns, a), _rows(columns, b))], clusters, against_model=model)[0]


def _won(columns: Columns, sides: Sequence[Sequence[int]]) -> list[bool]:
    """Is the first side shown to beat each of the others? Any of them could have been chosen: Holm over all pairs."""
    pairs = list(combinations(range(len(sides)), 2))
    answers = [_crossed(columns, sides[a], sides[b]) for a, b in pairs]
    adjusted = holm([answer.p for answer in answers])
    return [answer.difference > 0 and p < ALPHA for (a, _), answer, p in zip(pairs, answers, adjusted, strict=True) if a == 0]


def _difference(columns: Columns, a: int, b: int, seed: int) -> Estimate:
    rows = [np.asarray(part.values, np.float64) for part in columns.parts]
    parts = [Part(values[:, a] - values[:, b], part.clusters) for values, part in zip(rows, columns.parts, strict=True)]
    return difference_intervals(parts, seed=seed)[0]


def _mean_over_seeds(columns: Columns, seed: int) -> Estimate:
    """The mean of all columns; where they are several, with the interval of runs crossed with documents."""
    runs = _rows(columns, range(np.asarray(columns.parts[0].values).shape[1]))
    found = composite([Part(row.mean(axis=0), part.clusters) for row, part in zip(runs, columns.parts, strict=True)], seed=seed)[
        0
    ]
    if len(runs[0]) < 2:
        return found
    nothing = [np.zeros_like(row[:1]) for row in runs]
    verdict = composite_crossed([(runs, nothing)], [part.clusters for part in columns.parts], against_model=True)[0]
    if verdict.reason or not 0 < found.value < 1:  # copies say nothing about seeds; no hit, or only hits: Wilson's interval
        return found
    return replace(found, low=max(0.0, verdict.interval.low), high=min(1.0, verdict.interval.high))


def _status(beaten: bool | None, won: Sequence[bool]) -> Status:
    if beaten is False:
        return "not better than the base"
    if not won:
        return "shown" if beaten else "open"
    return "shown" if all(won) else "in part" if any(won) else "open"
