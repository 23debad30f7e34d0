"""Training methods side by side. In: evaluations. Out: arms: a method at a length from a base, with its runs by seed.

    run                     its training record                      its arm
    mlm-512-s0, mlm-512-s1  mlm at 512, seeds 0 and 1                "mlm 512", two seeds
    entity-512-s0           scored in windows of 512 and of 2,048    "entity 512" and "entity 512 @2,048", one seed each
    big-s0, old-s0          entity at 512, seed 0 both               "big 512" and "old 512": one seed twice is two methods
    far-s0                  mlm at 512, from start/checkpoint-9      "mlm 512 (start)": not the base of the study
    copied                  none                                     in `methods_of` alone, as an arm without a name

Names are unique, because claims identify a method by its name (`names` says how they are made).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from coref_automl.base.records import OBJECTIVES, Provenance, grouped
from coref_automl.comparison.names import arm_label, base_names, method_candidates, method_name, stem
from coref_automl.comparison.scores import Entry, model_label, runs_of

EQUAL = 0.05
"""Training counts as equal if tokens differ by at most this share of the largest count."""


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One method at one length from one base: its runs by seed, checkpoints in training order.

    `base` is the base's label; `origin` identifies it by its bytes, or by the label if an older record has none. `length` is the
    window of the evaluations. Without a training record there is no `name`: nothing is claimed about such an arm.
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
        """The training tokens of its longest run."""
        return max(entry.tokens for entry in self.ends)

    @property
    def ends(self) -> list[Entry]:
        """The last checkpoint of each run."""
        return [entries[-1] for entries in self.runs.values()]

    @property
    def provenance(self) -> Provenance | None:
        """The training record of its first run."""
        return self.ends[0].evaluation.provenance

    @property
    def trained_at(self) -> int | None:
        """Sequence length in training; the scoring windows may differ."""
        return self.provenance.seq_len if self.provenance else None

    def same_setting_as(self, other: Arm) -> bool:
        """Same base, training length and window length: two such arms differ in method alone."""
        return (self.origin, self.trained_at, self.length) == (other.origin, other.trained_at, other.length)

    def equally_trained_as(self, other: Arm) -> bool:
        """Did every run of both arms see an equal number of tokens?"""
        return is_equal_training(*(entry.tokens for entry in (*self.ends, *other.ends)))

    def matched_checkpoints(self) -> list[dict[int, Entry]]:
        """The points of its mean curve: at each, one checkpoint of every run, by seed.

        Matched by epoch, because rows differ in tokens and seeds shuffle rows. If every run stopped at a point of its own
        (a time limit, a flat curve), the last checkpoints are matched too.
        """
        by_epoch = {seed: {_epoch(entry): entry for entry in entries} for seed, entries in self.runs.items()}
        shared = set.intersection(*(set(entries) for entries in by_epoch.values())) if by_epoch else set()
        points = [{seed: entries[epoch] for seed, entries in by_epoch.items()} for epoch in sorted(shared)]
        ends = dict(zip(self.runs, self.ends, strict=True))
        return [*points, ends] if ends and all(_epoch(end) not in shared for end in ends.values()) else points

    def matched_entries(self) -> list[Entry]:
        """The checkpoints of all points of its mean curve."""
        return [entry for point in self.matched_checkpoints() for entry in point.values()]

    def ending_at(self, point: dict[int, Entry]) -> Arm:
        """The arm as if its runs had ended at this point."""
        return replace(self, runs={seed: [entry] for seed, entry in point.items()})

    def with_curve(self) -> Arm:
        """The arm with only those runs that have more than one evaluated checkpoint."""
        return replace(self, runs={seed: entries for seed, entries in self.runs.items() if len(entries) > 1})


class _RecordedRun(NamedTuple):
    """A run with a training record, scored in windows of one length."""

    provenance: Provenance
    entries: list[Entry]

    @property
    def setting(self) -> tuple[str, int, int]:
        """What the seeds of one method have in common: the base's bytes or label, the window length, the training length."""
        origin = self.provenance.base_bytes or model_label(self.provenance.base)
        return origin, self.entries[-1].evaluation.seq_len, self.provenance.seq_len


def methods_of(candidates: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of all candidates. A run without a training record, or a model outside runs, is an arm of its own."""
    arms = arms_of(candidates, base)
    in_arms = {entry for arm in arms for run in arm.runs.values() for entry in run}
    others = (entry for entry in candidates if entry not in in_arms)
    unrecorded = grouped(others, lambda entry: (entry.run, entry.evaluation.seq_len))
    return [*arms, *(Arm(run, "", "", length, {0: entries}) for (run, length), entries in unrecorded.items())]


def arms_of(entries: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of evaluations; those from the study's base first, then by length and objective. Runs without a training record
    belong to none."""
    recorded = ((run[-1].evaluation.provenance, run) for run in runs_of(entries).values())
    runs = [_RecordedRun(provenance, run) for provenance, run in recorded if provenance is not None]
    ambiguous = _ambiguous_objectives([run for run in runs if not method_name(run.provenance)])
    arms: dict[tuple[tuple[str, int, int], str], Arm] = {}
    for run in runs:
        provenance, (origin, window, _) = run.provenance, run.setting
        plain = stem(provenance) if provenance.objective in ambiguous else provenance.objective
        candidates = method_candidates(provenance, method_name(provenance) or plain)
        method = next(name for name in candidates if _accepts(arms.get((run.setting, name)), provenance))
        empty = Arm(method, provenance.objective, model_label(provenance.base), window, {}, origin=origin)
        arms.setdefault((run.setting, method), empty).runs[provenance.seed] = run.entries
    in_order = sorted(arms.values(), key=lambda arm: (arm.length, objective_rank(arm.objective), arm.method))
    return _labelled(sorted(in_order, key=lambda arm: not _started_from(arm, base)), base)


def objective_rank(objective: str) -> int:
    """The position of an objective in tables; other names come last."""
    return OBJECTIVES.index(objective) if objective in OBJECTIVES else len(OBJECTIVES)


def is_equal_training(*tokens: int) -> bool:
    """Do these token counts count as equal training?"""
    return max(tokens) - min(tokens) <= EQUAL * max(tokens)


def _epoch(entry: Entry) -> float:
    provenance = entry.evaluation.provenance
    return round(provenance.epoch, 3) if provenance else float(entry.tokens)


def _ambiguous_objectives(runs: Sequence[_RecordedRun]) -> set[str]:
    """Objectives that cannot name a method: two runs of one setting have the same seed, or different data."""
    in_setting = grouped(runs, lambda run: (run.provenance.objective, run.setting))
    return {
        objective
        for (objective, _), alike in in_setting.items()
        if len({run.provenance.seed for run in alike}) < len(alike) or len({run.provenance.data for run in alike}) > 1
    }


def _accepts(arm: Arm | None, provenance: Provenance) -> bool:
    """May a run join the arm of its name? Not with other data or another objective, and not as a second run of its seed."""
    if arm is None or arm.provenance is None:
        return True
    return provenance.seed not in arm.runs and (arm.provenance.data, arm.objective) == (provenance.data, provenance.objective)


def _started_from(arm: Arm, base: Entry | None) -> bool:
    """Did the arm start from the study's base?"""
    provenance = arm.provenance
    return base is not None and provenance is not None and base.is_of(provenance.base, provenance.base_bytes)


def _labelled(arms: Sequence[Arm], base: Entry | None) -> list[Arm]:
    """Arms under their labels, runs in order of seeds. Bases are named if they are not the study's, or tell two arms apart."""
    bases = base_names({arm.origin: arm.base for arm in arms})
    several = base is not None or len(bases) > 1  # a single base that was never scored is not named
    out: dict[str, Arm] = {}
    for arm in arms:
        label = arm_label(arm.method, arm.trained_at or arm.length, arm.length)
        if label in out or (several and not _started_from(arm, base)):
            label += f" ({bases[arm.origin]})"
        out[label] = replace(arm, runs=dict(sorted(arm.runs.items())), name=label)
    return list(out.values())
