"""Every trial as a row. In: studies of one storage. Out: an Arm per study, and trials.csv with all of them."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coref_automl.records import Record
from coref_automl.store import write_text
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import REPORTS
from coref_automl.tuning.storage import counts

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
_LEAST = 5
"""Fewer completed trials say nothing about which dimension matters."""


@dataclass(frozen=True, slots=True)
class TrialRow(Record):
    """One trial. `value` is None unless it completed; `reports` holds the metric at each eighth of the budget."""

    number: int
    state: str
    value: float | None
    origin: str
    params: dict[str, Any]
    reports: dict[int, float]
    tokens: int | None
    wall: float | None
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class Arm(Record):
    """One study in the table: its trials, and how important each dimension was (empty if the trials cannot tell)."""

    name: str
    trials: tuple[TrialRow, ...]
    importance: dict[str, float] = field(default_factory=dict)

    @property
    def states(self) -> dict[str, int]:
        """How many trials ended how."""
        ended = [trial.state for trial in self.trials]
        return {name: ended.count(name) for name in STATES.values()}

    @property
    def completed(self) -> list[TrialRow]:
        return [trial for trial in self.trials if trial.state == "complete"]

    @property
    def best(self) -> float | None:
        return max((trial.value for trial in self.completed if trial.value is not None), default=None)


def arm_of(study: Any) -> Arm:
    """The trials that were asked for and have started."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if counts(trial) and trial.state.name in STATES]
    return Arm(study.study_name, tuple(map(_row, trials)), _importance(study, trials))


def _row(trial: Any) -> TrialRow:
    known, state = trial.user_attrs, STATES[trial.state.name]
    return TrialRow(
        number=trial.number,
        state=state,
        value=trial.value if state == "complete" else None,
        origin=str(known.get("origin", "")),
        params=dict(trial.params),
        reports=dict(trial.intermediate_values),
        tokens=known.get("tokens"),
        wall=known.get("wall"),
        reason=str(known.get("reason", "")),
        log=str(known.get("log", "")),
    )


def _importance(study: Any, trials: Sequence[Any]) -> dict[str, float]:
    """PED-ANOVA: how much each dimension separates the best quarter from the rest."""
    import optuna

    values = [trial.value for trial in trials if trial.state.name == "COMPLETE"]
    if len(values) < _LEAST or len(set(values)) < 2:
        return {}  # equal values have no best quarter
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of dimensions that few trials drew; the page shows how few there were
            found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError):
        return {}
    return {name: float(share) for name, share in found.items()}


def write_table(arms: Sequence[Arm], problem: Problem, path: Path) -> None:
    head = ["study", "trial", "state", problem.metric, "origin", *problem.space.names, "tokens", "wall", "reason", "log"]
    head += [f"at {step}/{REPORTS}" for step in range(1, REPORTS + 1)]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(head)
    for arm in arms:
        for trial in arm.trials:
            value = "" if trial.value is None else trial.value
            line = [arm.name, trial.number, trial.state, value, trial.origin or "drawn"]
            line += [trial.params.get(name, "") for name in problem.space.names]
            line += ["" if known is None else known for known in (trial.tokens, trial.wall, trial.reason, trial.log)]
            line += [trial.reports.get(step, "") for step in range(1, REPORTS + 1)]
            rows.writerow(line)
    write_text(path, text.getvalue())
