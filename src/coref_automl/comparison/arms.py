"""Training methods side by side. In: evaluations. Out: arms: a method at a length from a base, its runs by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath

from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.names import method_name, stem
from coref_automl.comparison.scores import Entry, grouped, is_equal_training, model_label, runs_of
from coref_automl.records import OBJECTIVES, Provenance


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One method at one length from one base: its runs by seed, checkpoints in training order.

    `base` is the base's label; `origin` identifies it by its bytes, or by the label if an older record has none.
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

    def differs_in_method_from(self, other: Arm) -> bool:
        """Do they differ in method alone (same base, training length and window length)?"""
        return (self.origin, self.trained_at, self.length) == (other.origin, other.trained_at, other.length)

    def steps(self) -> list[dict[int, Entry]]:
        """Checkpoints in order, across seeds: those evaluated in every run.

        Matched by epoch, because rows differ in tokens and seeds shuffle rows. If every run stopped at a point of its own
        (a time limit, a flat curve), the last checkpoints are matched too.
        """
        found = {seed: {_epoch(entry): entry for entry in entries} for seed, entries in self.runs.items()}
        shared = set.intersection(*(set(entries) for entries in found.values())) if found else set()
        steps = [{seed: entries[epoch] for seed, entries in found.items()} for epoch in sorted(shared)]
        ends = dict(zip(self.runs, self.ends, strict=True))
        return [*steps, ends] if ends and all(_epoch(end) not in shared for end in ends.values()) else steps

    def with_curve(self) -> Arm:
        """The arm with only those runs that have more than one evaluated checkpoint."""
        return replace(self, runs={seed: entries for seed, entries in self.runs.items() if len(entries) > 1})


def methods_of(eligible: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of all candidates. A run without a training record, or a model outside runs, is an arm of its own."""
    found = arms_of(eligible, base)
    known = {entry for arm in found for run in arm.runs.values() for entry in run}
    rest = grouped((entry for entry in eligible if entry not in known), lambda entry: (entry.run, entry.evaluation.seq_len))
    return [*found, *(Arm(run, "", "", length, {0: entries}, name=run) for (run, length), entries in rest.items())]


def arms_of(evaluated: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of evaluations, by base (that of the study first), length and objective; runs without a training record belong to
    none."""
    runs = runs_of(evaluated).values()
    recorded = [(made, entries) for entries in runs if (made := entries[-1].evaluation.provenance) is not None]
    ambiguous = _ambiguous([run for run in recorded if not method_name(run[0])])
    arms: dict[tuple[str, int, int, str], Arm] = {}
    for made, entries in recorded:
        length, label = entries[-1].evaluation.seq_len, model_label(made.base)
        usual = method_name(made) or (stem(made) if made.objective in ambiguous else made.objective)
        place = (made.base_bytes or made.base, length, made.seq_len)
        method = next(name for name in _names(made, usual) if _takes(arms.get((*place, name)), made))
        new = Arm(method, made.objective, label, length, {}, origin=made.base_bytes or label)
        arms.setdefault((*place, method), new).runs[made.seed] = entries
    ordered = sorted(arms.items(), key=lambda one: (_order(base, one[1]), one[0][1], objective_rank(one[1].objective), one[0][3]))
    several = base is not None or len({key[0] for key in arms}) > 1  # a single base that was never scored is not named
    return [_named(arm, key[2], several and _order(base, arm) > 0) for key, arm in ordered]


def objective_rank(objective: str) -> int:
    """Its place in tables; names that are no objective come last."""
    return OBJECTIVES.index(objective) if objective in OBJECTIVES else len(OBJECTIVES)


def base_of(entries: Sequence[Entry], arm: Arm) -> Entry | None:
    """The arm's base model, evaluated in windows of the arm's length."""
    found = bases_of(entries, arm.made) if arm.made else []
    return next((entry for entry in found if not entry.trained and entry.evaluation.seq_len == arm.length), None)


def equally_trained(a: Arm, b: Arm) -> bool:
    """Did every run of either see an equal number of tokens?"""
    seen = [entry.tokens for entry in (*a.ends, *b.ends)]
    return is_equal_training(min(seen), max(seen))


def _epoch(entry: Entry) -> float:
    made = entry.evaluation.provenance
    return round(made.epoch, 3) if made else float(entry.tokens)


def _ambiguous(found: Sequence[tuple[Provenance, list[Entry]]]) -> set[str]:
    """Objectives whose runs need names to be told apart: same base and length, and the same seed or different data."""
    seen = grouped(
        found, lambda one: (one[0].objective, one[0].base_bytes or one[0].base, one[0].seq_len, one[1][-1].evaluation.seq_len)
    )
    return {
        objective
        for (objective, *_), runs in seen.items()
        if len({made.seed for made, _ in runs}) < len(runs) or len({made.data for made, _ in runs}) > 1
    }


def _names(made: Provenance, usual: str) -> Iterator[str]:
    """What a run's method may be called: as usual, with its data, by the run; a new name always fits."""
    run = PurePath(made.run).name
    yield from (usual, f"{usual} ({PurePath(made.dataset).name or made.data[:8]})", run)
    yield from (f"{run} ({number})" for number in count(2))


def _takes(arm: Arm | None, made: Provenance) -> bool:
    """May a run join the arm of its name? Seeds on other data are a method of their own; so is a second run of that seed."""
    if arm is None or arm.made is None:
        return True
    return made.seed not in arm.runs and (arm.made.data, arm.objective) == (made.data, made.objective)


def _order(base: Entry | None, arm: Arm) -> int:
    """Arms of the study's own base first."""
    made = arm.made
    return 0 if base is not None and made is not None and base.is_of(made.base, made.base_bytes) else 1


def _named(arm: Arm, trained: int, other_base: bool) -> Arm:
    name = f"{arm.method} {trained:,}" + (f" @{arm.length:,}" if trained != arm.length else "")
    name += f" ({arm.base.split('/')[0]})" if other_base else ""
    return replace(arm, runs=dict(sorted(arm.runs.items())), name=name)
