"""Every trial as a line. In: studies of one storage. Out: trials.csv; the tuner and random search stand in the same table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.store import write_text
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import REPORTS
from coref_automl.tuning.storage import counts

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One study in the table: how many trials ended how, what they cost, and the best of them on select."""

    name: str
    states: dict[str, int]
    tokens: int
    seconds: float
    best: float | None
    best_number: int | None


def arm_of(study: Any) -> Arm:
    trials = shown(study)
    ended = [STATES[trial.state.name] for trial in trials]
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    top = max(done, key=lambda trial: (trial.value, -trial.number), default=None)
    return Arm(
        study.study_name,
        {name: ended.count(name) for name in STATES.values()},
        int(sum(trial.user_attrs.get("tokens", 0) for trial in trials)),
        float(sum(trial.user_attrs.get("wall", 0) for trial in trials)),
        top.value if top else None,
        top.number if top else None,
    )


def shown(study: Any) -> list[Any]:
    """The trials that were asked for and have begun."""
    return [trial for trial in study.get_trials(deepcopy=False) if counts(trial) and trial.state.name in STATES]


def write_table(studies: Sequence[Any], problem: Problem, path: Path) -> None:
    head = ["study", "trial", "state", problem.metric, "origin", *problem.space.names, "tokens", "wall", "reason", "log"]
    head += [f"at {step}/{REPORTS}" for step in range(1, REPORTS + 1)]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(head)
    for study in studies:
        for trial in shown(study):
            known = trial.user_attrs
            value = trial.value if trial.state.name == "COMPLETE" else ""
            line = [study.study_name, trial.number, STATES[trial.state.name], value, known.get("origin", "drawn")]
            line += [trial.params.get(name, "") for name in problem.space.names]
            line += [known.get(name, "") for name in ("tokens", "wall", "reason", "log")]
            line += [trial.intermediate_values.get(step, "") for step in range(1, REPORTS + 1)]
            rows.writerow(line)
    write_text(path, text.getvalue())
