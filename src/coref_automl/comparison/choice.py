"""What came out highest. In: evaluated checkpoints. Out: a Choice, and how long to train next time.

Chosen on the `select` half by posterior means: the method that is highest over its seeds, then the highest of its checkpoints.
Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coref_automl.comparison.arms import Arm, methods_of
from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.claims import NextTime, Training
from coref_automl.comparison.scores import Columns, Entry, Group
from coref_automl.errors import ComparisonError
from coref_automl.records import Estimate
from coref_automl.statistics.intervals import composite, simultaneous_bounds
from coref_automl.statistics.resampling import Part
from coref_automl.statistics.shrinkage import accepted_loss, covariance, posterior_means

MARGIN = 0.02
"""The loss that is acceptable to save training, as a fraction: everything computes with it."""
POINTS = 100 * MARGIN
"""The same in points, as people give and read it."""
_FEWEST_POINTS = 0.1
_AS_HIGH = 1e-9
"""Posterior means closer than this are equal."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint on the `select` half. `bound` is its largest distance to the best (95% simultaneous confidence); `believed`
    its posterior mean: what its neighbours and the other seeds leave of its value."""

    value: Estimate
    bound: float
    believed: float


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The candidates on the documents that choose, the arms they belong to, and the base of what came out highest.

    `best` has the highest value, `chosen` the highest posterior mean. `halved`: was there a half to choose on? Without one all
    documents chose.
    """

    candidates: dict[Entry, Candidate]
    arms: list[Arm]
    chosen: Entry
    best: Entry
    base: Entry | None
    halved: bool

    def highest(self, entries: Sequence[Entry]) -> Entry:
        """Of highest posterior mean; of equals the earliest."""
        top = max(self.candidates[entry].believed for entry in entries)
        as_high = [entry for entry in entries if self.candidates[entry].believed > top - _AS_HIGH]
        return min(as_high, key=lambda entry: entry.tokens)

    def tied_with(self, chosen: Entry) -> list[Entry]:
        """Other checkpoints of its method that are as high."""
        height = self.candidates[chosen].believed
        others = [entry for entry in self.arm(chosen).step_entries() if entry is not chosen]
        return [entry for entry in others if abs(self.candidates[entry].believed - height) < _AS_HIGH]

    def arm(self, entry: Entry) -> Arm:
        return next(arm for arm in self.arms if any(entry in run for run in arm.runs.values()))

    def peak(self, entries: Sequence[Entry]) -> Entry:
        """The best value on the select half; the earliest of equals."""
        return max(entries, key=lambda entry: (self.candidates[entry].value.value, -entry.tokens))


def checked_margin(points: float) -> float:
    """A margin in points, as everyone gives it, as the fraction that is computed with. A fraction, as it once was, is refused."""
    if 0 < points < _FEWEST_POINTS:
        raise ComparisonError(f"A margin is a number of points, and {points:g} is a fraction of 1; write {100 * points:g}.")
    if not 0 < points < 100:
        raise ComparisonError(f"A margin of {points:g} points cannot be; give a number of points such as 2.")
    return points / 100


def choose(group: Group, metric: str, *, seed: int = 0) -> Choice:
    """Among the trained checkpoints, by training tokens; among all evaluations if nothing was trained."""
    trained = [entry for entry in group.entries if entry.trained] or list(group.entries)
    eligible = sorted(trained, key=lambda entry: entry.tokens)
    columns, halved = _choosing(group, metric, eligible)
    arms = methods_of(eligible, None)
    bounds, values = simultaneous_bounds(columns.parts, seed=seed), composite(columns.parts, seed=seed)
    means = _posterior_means(columns, eligible, arms)
    candidates = {
        entry: Candidate(value, float(bound), float(mean))
        for entry, value, bound, mean in zip(eligible, values, bounds.upper, means, strict=True)
    }
    choice = Choice(candidates, arms, chosen=eligible[0], best=eligible[0], base=None, halved=halved)

    def height(arm: Arm) -> float:
        return max(float(np.mean([candidates[entry].believed for entry in step.values()])) for step in arm.steps())

    replicated = [arm for arm in arms if arm.seeds > 1]
    method = max(replicated or arms, key=height)  # a single run may be lucky as a whole
    chosen = choice.highest(method.step_entries())
    return replace(choice, chosen=chosen, best=choice.peak(eligible), base=_base_for(group, chosen))


def _choosing(group: Group, metric: str, entries: Sequence[Entry]) -> tuple[Columns, bool]:
    """The documents that choose: the `select` half, or all if there is none."""
    select = group.columns(metric, half="select", entries=entries)
    return (select, True) if select.items else (group.columns(metric, entries=entries), False)


def _posterior_means(columns: Columns, eligible: Sequence[Entry], arms: Sequence[Arm]) -> Sequence[float]:
    """Of each checkpoint, smoothed along its run and shrunk towards the other seeds of its method."""
    place = {entry: (number, seed) for number, arm in enumerate(arms) for seed, run in arm.runs.items() for entry in run}
    values = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in columns.parts))
    means = posterior_means(
        values,
        covariance(columns.parts),
        methods=[place[entry][0] for entry in eligible],
        runs=[place[entry] for entry in eligible],
        training=[entry.tokens for entry in eligible],
    )
    return list(map(float, means))


def _base_for(group: Group, chosen: Entry) -> Entry | None:
    """The base of a checkpoint, preferably in windows of the same length; any untrained model if the base is not recorded."""
    made, others = chosen.evaluation.provenance, [entry for entry in group.entries if entry is not chosen]
    bases = bases_of(others, made) if made else [entry for entry in others if not entry.trained]
    found = min(bases, key=lambda entry: entry.evaluation.seq_len != chosen.evaluation.seq_len, default=None)
    return found if any(entry.trained for entry in group.entries) else None


def next_time_of(
    group: Group,
    metric: str,
    arm: Arm,
    chosen: Entry,
    *,
    margin: float,
    seed: int,
    gain: float | None = None,
    rising: bool = False,
) -> NextTime | None:
    """How long to train, by the runs of a method that have a curve; None without one. `gain` is the shown gain over the base;
    `rising`: the last step of the curve is shown to gain, too."""
    with_curve = arm.with_curve()
    steps = [list(step.values()) for step in with_curve.steps()] if with_curve.runs else []
    if len(steps) < 2:
        return None
    entries = [entry for step in steps for entry in step]
    columns, _ = _choosing(group, metric, entries)
    seeds = len(steps[0])
    by_step = [np.asarray(part.values).reshape(-1, len(steps), seeds).mean(axis=2) for part in columns.parts]
    parts = [Part(values, part.clusters) for values, part in zip(by_step, columns.parts, strict=True)]
    bounds = simultaneous_bounds(parts, seed=seed)
    loss = accepted_loss(margin, gain)
    highest = int(np.argmax(bounds.gaps[:, 0]))  # gaps are differences to the first point, so the largest marks the highest
    within = next((number for number in range(len(steps)) if bounds.upper[number] <= loss), None)
    earliest = min(within, highest) if within is not None else None  # never after the highest
    trained = [round(np.mean([entry.tokens for entry in step])) for step in steps]
    recorded = all(entry.recorded_tokens is not None for entry in entries)
    how: Training = "less" if earliest is not None and earliest < len(steps) - 1 else "longer" if rising else "as long"
    ahead = NextTime(how=how, loss=loss, points=len(steps), seeds=seeds, tokens=None, share=None, checkpoint="", name="")
    if earliest is None:
        return ahead
    chosen_run = next((run for run in with_curve.runs.values() if chosen in run), [])
    reached = next((entry for entry in steps[earliest] if entry in chosen_run), steps[earliest][0])
    return replace(
        ahead,
        tokens=trained[earliest] if recorded else None,
        share=trained[earliest] / trained[-1],
        checkpoint=reached.evaluation.path,
        name=reached.name,
    )
