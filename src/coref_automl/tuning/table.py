"""Every trial as a line. In: studies of one storage. Out: trials.csv; the tuner and random search stand in the same table.

The storage and the table keep the English words of states and reasons; for study.html they are told in its reader's language.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.comparison.page import Say
from coref_automl.store import write_text
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import REPORTS
from coref_automl.tuning.storage import counts

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
_KOREAN = {"complete": "끝까지", "pruned": "중단", "failed": "실패", "running": "진행 중"}

_REASONS = (
    (
        r"worse than trial (\d+) at (\d+)/(\d+) of the budget: ([\d.]+) points, p ([\d.]+) \(paired test on select\)",
        r"예산의 \2/\3에서 시도 \1보다 \4점 낮음, p \5 (select의 짝지은 검정)",
    ),
    (
        r"not in the better half at (\d+)/(\d+) of the budget \(successive halving\)",
        r"예산의 \1/\2에서 나은 절반에 들지 못함 (연속 절반 줄이기)",
    ),
    (r"its process was killed \(signal (\d+)\)", r"프로세스가 강제로 끝남 (신호 \1)"),
    (r"its process ended twice without a word", "프로세스가 두 번 말없이 끝남"),
    (r"its process ended with status (\d+)", r"프로세스가 상태 \1로 끝남"),
    (r"^(프로세스가 .*) twice", r"\1 (두 번)"),
    (r"it ended without a score", "점수 없이 끝남"),
    (r"Trial (\d+) is left out of the end: ", r"마지막 비교에서 빠진 시도 \1: "),
    (r"\(log: ", "(기록: "),
)
"""What the engine itself says; the words of an error in training stay as they are."""


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


def state_word(state: str, say: Say) -> str:
    return say(_KOREAN[state], state)


def reason_words(reason: str, say: Say) -> str:
    """Why a trial was cut, failed or was left out."""
    if say.lang == "ko":
        for english, korean in _REASONS:
            reason = re.sub(english, korean, reason)
    return reason
