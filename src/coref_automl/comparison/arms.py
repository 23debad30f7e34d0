"""Training methods side by side. In: evaluations. Out: arms: a method at a length from a base, its runs by seed.

    run                     its training record                      its arm
    mlm-512-s0, mlm-512-s1  mlm at 512, seeds 0 and 1                "mlm 512", two seeds
    entity-512-s0           scored in windows of 512 and of 2,048    "entity 512" and "entity 512 @2,048", one seed each
    big-s0, old-s0          entity at 512, seed 0 both               "big 512" and "old 512": one seed twice is two methods
    far-s0                  mlm at 512, from start/checkpoint-9      "mlm 512 (start)": not the base of the study
    copied                  none                                     in `methods_of` alone, as an arm without a name

Names are unique, because claims know a method by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath
from typing import NamedTuple

from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.names import method_name, stem
from coref_automl.comparison.scores import Entry, is_equal_training, model_label, runs_of
from coref_automl.records import OBJECTIVES, Provenance, grouped


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One method at one length from one base: its runs by seed, checkpoints in training order.

    `base` is the base's label; `origin` identifies it by its bytes, or by the label if an older record has none. Without a
    training record there is no `name`: nothing is claimed about such an arm.
    """

    method: str
    objective: str
    base: str
    length: int
    runs: dict[int, list[Entry]]
    name: str = ""
    origin: str = ""

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def tokens(self) -> int:
        return max(entry.tokens for entry in self.ends)

    @property
    def ends(self) -> list[Entry]:
        """The last checkpoint of each run."""
        return [entries[-1] for entries in self.runs.values()]

    @property
    def made(self) -> Provenance | None:
        """How its first run was trained."""
        return self.ends[0].evaluation.provenance

    @property
    def trained_at(self) -> int | None:
        """Sequence length in training; the scoring windows may differ."""
        return self.made.seq_len if self.made else None

    def same_setting_as(self, other: Arm) -> bool:
        """Same base, training length and window length: two such arms differ in method alone."""
        return (self.origin, self.trained_at, self.length) == (other.origin, other.trained_at, other.length)

    def steps(self) -> list[dict[int, Entry]]:
        """Checkpoints in order, across seeds: those evaluated in every run.

        Matched by epoch, because rows differ in tokens and seeds shuffle rows. If every run stopped at a point of its own
        (a time limit, a flat curve), the last checkpoints are matched too.
        """
        by_epoch = {seed: {_epoch(entry): entry for entry in entries} for seed, entries in self.runs.items()}
        shared = set.intersection(*(set(entries) for entries in by_epoch.values())) if by_epoch else set()
        steps = [{seed: entries[epoch] for seed, entries in by_epoch.items()} for epoch in sorted(shared)]
        ends = dict(zip(self.runs, self.ends, strict=True))
        return [*steps, ends] if ends and all(_epoch(end) not in shared for end in ends.values()) else steps

    def ending_at(self, step: dict[int, Entry]) -> Arm:
        """The arm as if its runs had ended at this step."""
        return replace(self, runs={seed: [entry] for seed, entry in step.items()})

    def step_entries(self) -> list[Entry]:
        """The checkpoints of all steps."""
        return [entry for step in self.steps() for entry in step.values()]

    def with_curve(self) -> Arm:
        """The arm with only those runs that have more than one evaluated checkpoint."""
        return replace(self, runs={seed: entries for seed, entries in self.runs.items() if len(entries) > 1})


class _Run(NamedTuple):
    """A run with a training record, scored in windows of one length."""

    made: Provenance
    entries: list[Entry]

    @property
    def setting(self) -> tuple[str, int, int]:
        """What runs must have in common to be seeds of one method: the base, the window length, the training length."""
        return self.made.base_bytes or model_label(self.made.base), self.entries[-1].evaluation.seq_len, self.made.seq_len


def methods_of(eligible: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of all candidates. A run without a training record, or a model outside runs, is an arm of its own."""
    arms = arms_of(eligible, base)
    known = {entry for arm in arms for run in arm.runs.values() for entry in run}
    rest = grouped((entry for entry in eligible if entry not in known), lambda entry: (entry.run, entry.evaluation.seq_len))
    return [*arms, *(Arm(run, "", "", length, {0: entries}) for (run, length), entries in rest.items())]


def arms_of(evaluated: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of evaluations, by base (that of the study first), length and objective; runs without a training record belong to
    none."""
    recorded = ((entries[-1].evaluation.provenance, entries) for entries in runs_of(evaluated).values())
    runs = [_Run(made, entries) for made, entries in recorded if made is not None]
    ambiguous = _ambiguous([run for run in runs if not method_name(run.made)])
    arms: dict[tuple[tuple[str, int, int], str], Arm] = {}
    for run in runs:
        made, (origin, window, _) = run.made, run.setting
        usual = method_name(made) or (stem(made) if made.objective in ambiguous else made.objective)
        method = next(name for name in _names(made, usual) if _takes(arms.get((run.setting, name)), made))
        new = Arm(method, made.objective, model_label(made.base), window, {}, origin=origin)
        arms.setdefault((run.setting, method), new).runs[made.seed] = run.entries
    in_order = sorted(arms.values(), key=lambda arm: (arm.length, objective_rank(arm.objective), arm.method))
    return _named(sorted(in_order, key=lambda arm: not _is_from(arm, base)), base)


def objective_rank(objective: str) -> int:
    """Its place in tables; names that are no objective come last."""
    return OBJECTIVES.index(objective) if objective in OBJECTIVES else len(OBJECTIVES)


def base_of(entries: Sequence[Entry], arm: Arm) -> Entry | None:
    """The arm's base model, evaluated in windows of the arm's length."""
    bases = bases_of(entries, arm.made)
    return next((entry for entry in bases if not entry.trained and entry.evaluation.seq_len == arm.length), None)


def equally_trained(a: Arm, b: Arm) -> bool:
    """Did every run of either see an equal number of tokens?"""
    seen = [entry.tokens for entry in (*a.ends, *b.ends)]
    return is_equal_training(min(seen), max(seen))


def _epoch(entry: Entry) -> float:
    made = entry.evaluation.provenance
    return round(made.epoch, 3) if made else float(entry.tokens)


def _ambiguous(runs: Sequence[_Run]) -> set[str]:
    """Objectives whose runs need names to be told apart: same base and length, and the same seed or different data."""
    beside = grouped(runs, lambda run: (run.made.objective, run.setting))
    return {
        objective
        for (objective, _), some in beside.items()
        if len({run.made.seed for run in some}) < len(some) or len({run.made.data for run in some}) > 1
    }


def _names(made: Provenance, usual: str) -> Iterator[str]:
    """What a run's method may be called: as usual, with its data, by the run; a new name always fits."""
    run, data = PurePath(made.run).name, PurePath(made.dataset).name or made.data[:8]
    yield from (usual, f"{usual} ({data})" if data else run, run)
    yield from (f"{run} ({number})" for number in count(2))


def _takes(arm: Arm | None, made: Provenance) -> bool:
    """May a run join the arm of its name? Seeds on other data are a method of their own; so is a second run of that seed."""
    if arm is None or arm.made is None:
        return True
    return made.seed not in arm.runs and (arm.made.data, arm.objective) == (made.data, made.objective)


def _is_from(arm: Arm, base: Entry | None) -> bool:
    """Did the arm begin from the study's base?"""
    made = arm.made
    return base is not None and made is not None and base.is_of(made.base, made.base_bytes)


def _named(arms: Sequence[Arm], base: Entry | None) -> list[Arm]:
    """Arms under their names, runs in order of seeds. A base is named if it is not the study's, or if it tells two arms apart."""
    bases = _base_names(arms)
    several = base is not None or len(bases) > 1  # a single base that was never scored is not named
    out: dict[str, Arm] = {}
    for arm in arms:
        name = f"{arm.method} {arm.trained_at:,}" + (f" @{arm.length:,}" if arm.length != arm.trained_at else "")
        if name in out or (several and not _is_from(arm, base)):
            name += f" ({bases[arm.origin]})"
        out[name] = replace(arm, runs=dict(sorted(arm.runs.items())), name=name)
    return list(out.values())


def _base_names(arms: Sequence[Arm]) -> dict[str, str]:
    """The shortest name that tells each base from the others, by origin: start, start/checkpoint-9, start/checkpoint-9 3fa92c."""
    labels = {arm.origin: arm.base for arm in arms}
    names = {origin: label.split("/")[0] for origin, label in labels.items()}
    for longer in (labels, {origin: f"{label} {origin[:6]}" for origin, label in labels.items() if origin != label}):
        often = Counter(names.values())
        names |= {origin: longer[origin] for origin in longer if often[names[origin]] > 1}
    return names
