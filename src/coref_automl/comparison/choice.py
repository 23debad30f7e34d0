"""What came out highest, and what to do next. In: evaluated checkpoints. Out: a Choice, a NextTime, a NextStep.

Chosen on the `select` half by posterior means: the method that is highest over its seeds, then the highest of its checkpoints.
Nothing is judged here. What the answer then shows decides the one next step and its command: more seeds after one, more tokens
where the last step gains, relation extraction from what is kept, a plan of documents and seeds where methods are tied or nothing
is shown, and training again where weights are gone.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.comparison.arms import Arm, methods_of
from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.claims import Answer, NextStep, NextTime
from coref_automl.comparison.names import method_name
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Columns, Entry, Group, has_room
from coref_automl.config import read_yaml
from coref_automl.errors import ComparisonError, CorefError
from coref_automl.evaluation.results import where_now
from coref_automl.records import Estimate
from coref_automl.statistics.intervals import composite, simultaneous_bounds
from coref_automl.statistics.resampling import Part
from coref_automl.statistics.shrinkage import accepted_loss, covariance, posterior_means

if TYPE_CHECKING:
    from coref_automl.comparison.study import Study
MARGIN = 0.02
POINTS = 100 * MARGIN
"""The margin as it is given and written: in points."""
_FEWEST_POINTS = 0.1
_EQUAL = 1e-9
BUNDLED_ROWS = {"train": "bundled:relations", "dev": "bundled:relations-dev"}
"""Rows that everyone has, where no run names others: a printed command runs as it is printed."""
_READ = {"model": "config.json", "dataset": "manifest.json", "eval_set": "manifest.json", "train": "", "dev": ""}
"""What runs read by path, and the file that such a folder holds."""
_RELATION = "runs/re"
_LONGER = 2


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
        return min((entry for entry in entries if self.candidates[entry].believed > top - _EQUAL), key=lambda entry: entry.tokens)

    def tied_with(self, chosen: Entry) -> list[Entry]:
        """Other checkpoints of its method that are as high."""
        mine, steps = self.candidates[chosen].believed, self.arm(chosen).steps()
        every = [one for step in steps for one in step.values() if one is not chosen]
        return [one for one in every if abs(self.candidates[one].believed - mine) < _EQUAL]

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
    means = _believed(columns, eligible, arms)
    found = {
        entry: Candidate(value, float(bound), float(mean))
        for entry, value, bound, mean in zip(eligible, values, bounds.upper, means, strict=True)
    }
    best = max(eligible, key=lambda entry: (found[entry].value.value, -entry.tokens))
    choice = Choice(found, arms, best, best, None, halved)
    replicated = [arm for arm in arms if arm.seeds > 1] or arms  # one run may be lucky as a whole
    method = max(replicated, key=lambda arm: max(np.mean([found[one].believed for one in step.values()]) for step in arm.steps()))
    chosen = choice.highest([one for step in method.steps() for one in step.values()])
    return replace(choice, chosen=chosen, base=_base_for(group, chosen))


def _choosing(group: Group, metric: str, entries: Sequence[Entry]) -> tuple[Columns, bool]:
    """The documents that choose: the `select` half, or all if there is none."""
    select = group.columns(metric, half="select", entries=entries)
    return (select, True) if select.items else (group.columns(metric, entries=entries), False)


def _believed(columns: Columns, eligible: Sequence[Entry], arms: Sequence[Arm]) -> Sequence[float]:
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
    """From the runs of a method that have a curve; None without one. `gain` is the shown one; `rising`: its last step is."""
    mine = arm.with_curve()
    steps = [list(step.values()) for step in mine.steps()] if mine.runs else []
    if len(steps) < 2:
        return None
    entries = [entry for step in steps for entry in step]
    columns, _ = _choosing(group, metric, entries)
    seeds = len(steps[0])
    by_step = [np.asarray(part.values).reshape(-1, len(steps), seeds).mean(axis=2) for part in columns.parts]
    parts = [Part(values, part.clusters) for values, part in zip(by_step, columns.parts, strict=True)]
    bounds = simultaneous_bounds(parts, seed=seed)
    loss = accepted_loss(margin, gain)
    highest = int(np.argmax(bounds.gaps[:, 0]))  # how far every point leads the first
    within = next((number for number in range(len(steps)) if bounds.upper[number] <= loss), None)
    point = min(within, highest) if within is not None else None
    trained = [round(np.mean([entry.tokens for entry in step])) for step in steps]
    recorded = all(entry.recorded_tokens is not None for entry in entries)
    run = next((run for run in mine.runs.values() if chosen in run), None)
    step = steps[point] if point is not None else []
    reached = next((entry for entry in step if run and entry in run), step[0] if step else None)
    less = point is not None and point < len(steps) - 1
    return NextTime(
        how="less" if less else "longer" if rising else "as long",
        loss=loss,
        points=len(steps),
        seeds=seeds,
        tokens=trained[point] if recorded and point is not None else None,
        share=trained[point] / trained[-1] if point is not None else None,
        checkpoint=reached.evaluation.path if reached else "",
        name=reached.name if reached else "",
    )


def next_step(study: Study, it: Answer, top: Entry, *, replicated: bool, unequal: tuple[Entry, int] | None) -> NextStep | None:
    """`unequal`: the last checkpoint of a method that has had less training than one beside it, and the tokens of that one."""
    made, keep, relation = top.evaluation.provenance, it.keep, it.question("relation")
    largest = it.power.largest if it.power else None
    another = _step("add seeds", train_command(top, seed=made.seed + 1) if made else "")
    if it.action == "use checkpoint":
        return another
    rising = it.next_time is not None and it.next_time.how == "longer"
    if rising and made and (longer := train_command(top, tokens=_LONGER * study.choice.arm(top).tokens)):
        return _step("train longer", longer)
    if unequal is not None:
        return _step("train equally", train_command(unequal[0], tokens=unequal[1]))
    if keep is not None and keep.there and not (relation and relation.tested):
        return _step("carry over", relation_command(study, keep.path))
    if any((one := it.beside(name)) and one.verdict == "not shown" for name in it.unbeaten):
        half = largest / 2 if largest else study.margin
        return _step("tell apart", _power_command(study, top, min(study.margin, half), replicated=replicated))
    if keep is not None:
        publish = f"coref-automl publish {shlex.quote(keep.path)} --repo OWNER/NAME --dry-run"
        return _step("publish", publish) if keep.there else _step("make again", keep.again)
    if it.action == "keep base":  # the largest gain, or the margin where nothing gained
        gain = largest if it.power and it.power.needed and largest else study.margin
        return _step("plan", f"{_power_command(study, top, gain, replicated=replicated)} --against-base")
    if made and it.action == "no base" and (base := where_now(made.base, top.folder, _READ["model"], made.base_bytes)):
        lacking = [top, *(one for one in study.entries if one.trained and study.own_base(one) is None)]
        lengths = dict.fromkeys(one.evaluation.seq_len for one in lacking)
        return _step(
            "evaluate base", " && ".join(f"coref-automl evaluate {shlex.quote(base)} --seq-len {one}" for one in lengths)
        )
    return another if has_room(study.group, it.metric) else None


def _step(do: str, command: str) -> NextStep | None:
    return NextStep(do, command) if command else None  # type: ignore[arg-type]


def train_command(entry: Entry, *, seed: int | None = None, tokens: int | None = None) -> str:
    """Training that makes a checkpoint again, with another seed or until so many tokens: from its run's recipe, or from what its
    record says."""
    run, made = Path(entry.evaluation.path).parent, entry.evaluation.provenance
    out = shlex.quote(f"{run}-{'longer' if tokens else 'again' if seed is None else f'seed{seed}'}")
    other = f" --seed {seed}" if seed is not None else ""
    if made is not None and tokens:
        other += f" --epochs {math.ceil(tokens / max(1, made.tokens) * made.epoch)} --max-tokens {tokens}"
    if (recipe := run / "recipe.yaml").is_file():
        known = {"model": made.base_bytes, "dataset": made.dataset_bytes} if made else {}
        known["eval_set"] = entry.evaluation.fingerprints.get("items", "")
        moved = ((name.replace("_", "-"), now) for name, (was, now) in _named_by(recipe, known).items() if now != was)
        told = "".join(f" --{name} {shlex.quote(now)}" for name, now in moved)
        return f"coref-automl train --recipe {shlex.quote(str(recipe))}{told}{other} --out {out}"
    if made is None:
        return ""
    seed = made.seed if seed is None else seed
    if method_name(made) not in ("", made.objective):  # its settings are in the recipe of its study, not in its record
        told = f"--method {shlex.quote(method_name(made))} --length {made.seq_len} --first-seed {seed} --seeds 1"
        again = f"coref-automl study --recipe STUDY.yaml {told} --only train --out {shlex.quote(f'{run}-study')}"
        return again if tokens is None else ""  # how long a study trains stands in its recipe
    told = (
        f"--objective {shlex.quote(made.objective)} --seq-len {made.seq_len} --seed {seed} --max-tokens {tokens or made.tokens}"
    )
    base = where_now(made.base, entry.folder, _READ["model"], made.base_bytes)
    data = where_now(made.dataset, entry.folder, _READ["dataset"], made.dataset_bytes)
    return f"coref-automl train --model {shlex.quote(base)} --dataset {shlex.quote(data or 'DATASET')} {told} --out {out}"


def relation_command(study: Study, model: str) -> str:
    """Relation extraction from a checkpoint, on the rows of a run that was read, in a folder of its own."""
    runs = study.checks.get("relation", ())
    held = next((rows for run in runs if (rows := _rows_of(run))), BUNDLED_ROWS)
    data = "".join(f" --{name} {shlex.quote(path)}" for name, path in held.items())
    names = [_RELATION, f"{_RELATION}-{Path(model).name}"]
    names += [f"{names[1]}-{number}" for number in range(2, len(runs) + 3)]
    read = {run.folder for run in runs}
    out = next((name for name in names if not Path(name).exists() and Path(name).resolve() not in read), names[-1])
    return f"coref-automl re train --model {shlex.quote(model)}{data} --out {shlex.quote(out)} --seeds 3"


def _rows_of(run: TaskRun) -> dict[str, str]:
    """The files of rows that a run names in its recipe; none in an archive."""
    named = _named_by(run.folder / "recipe.yaml", {}) if run.folder else {}
    return {name: named[name][1] for name in ("train", "dev") if name in named} if "train" in named else {}


def _named_by(recipe: Path, known: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What the recipe of a run names by path: as it was stored, and where it lies now. Of some the fingerprint is `known`."""
    try:
        told = read_yaml(recipe) if recipe.is_file() else {}
    except CorefError:
        return {}
    held = {name: told[name] for name in _READ if isinstance(told.get(name), str)}
    return {name: (path, where_now(path, recipe, _READ[name], known.get(name, ""))) for name, path in held.items()}


def _power_command(study: Study, top: Entry, gain: float, *, replicated: bool) -> str:
    """What it takes to show such a difference; by these runs' spreads if they have seeds."""
    runs = Path(top.evaluation.path).parent.parent
    where = f" {shlex.quote(str(runs))}" if replicated and runs.is_dir() else ""
    return f"coref-automl power{where} --difference {max(0.1, 100 * gain):.1f} --metric {study.metric}"
