"""Trials that follow a script instead of training: what the engine does with reports, failures and deaths can be seen at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coref_automl.base.folders import EVENTS
from coref_automl.base.job import OUTCOME, Job, Outcome
from coref_automl.base.progress import quiet
from coref_automl.base.records import Estimate, Half
from coref_automl.base.store import write_json
from coref_automl.extras.tune.problem import Problem, Report, Start, job_key, run_folder
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.search import Search
from coref_automl.extras.tune.space import Space, read_space
from coref_automl.extras.tune.storage import open_study
from coref_automl.statistics.planning import Paired

ITEMS = 60
Script = Callable[[Job], list[float | str]]
"""What a trial does: a number is a report of that share of hits, "fail: kind: reason" a failure, "die" a killed process, and
"end 1" one that ends without an outcome."""
_ENDS = {"die": -9, "end 1": 1}


def rate(job: Job) -> float:
    return float(job.recipe["learning_rate"])


@dataclass(eq=False, kw_only=True)
class ScriptedProblem(Problem):
    out: Path
    metric: str = "real1"
    label: str = "Real@1"
    space: Space = field(default_factory=lambda: read_space({"learning_rate": {"low": 0.001, "high": 1.0}}, "mlm"))
    binding: dict[str, Any] = field(
        default_factory=lambda: {"task": "mlm", "space": {"learning_rate": {"low": 0.001, "high": 1.0}}}
    )
    guards: dict[float, float] = field(default_factory=dict)
    outside: float | None = None
    dropped: list[str] = field(default_factory=list)

    def checked(self, ours: list[Job], theirs: list[Job], _train: Any) -> dict[str, Estimate]:
        if self.outside is None:
            return {}
        assert [job.recipe["seed"] for job in ours] == [job.recipe["seed"] for job in theirs]
        return {"relation_f1": Estimate(self.outside, self.outside - 0.01, self.outside + 0.01, ITEMS)}

    def starts(self) -> list[Start]:
        return [Start("default", "mlm", {"learning_rate": 0.5}), Start("recommended", "entity", {"learning_rate": 0.25})]

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        key = job_key("mlm", {**params, "seed": seed}, {})
        folder = self.out / "trials" / key
        more = {"confirm": "confirm"} if confirm else {}
        return Job("mlm", key, str(folder), {**params, "seed": seed, "out": str(folder / "run"), **more})

    def reports(self, _job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        for event in events:
            yield Report(event["step"], event["value"], event["value"])

    def cost(self, _job: Job) -> dict[str, float]:
        return {"tokens": 100.0, "seconds": 1.0}

    def best_recipe(self, params: Mapping[str, Any], out: Path) -> Any:
        raise NotImplementedError

    def weights(self, job: Job) -> Path:
        return run_folder(job)

    def drop_weights(self, job: Job, *, keep_last: bool = False) -> None:
        if not keep_last:
            self.dropped.append(job.key)

    def confirmed(self, jobs: list[Job]) -> list[float]:
        return [self._final(job) for job in jobs]

    def paired(self, ours: list[Job], theirs: list[Job], _half: Half) -> Paired:
        pairs = zip(self.confirmed(ours), self.confirmed(theirs), strict=True)
        return Paired(tuple(a - b for a, b in pairs), 0.002, 1000, ITEMS)

    def guarded(self, ours: list[Job], theirs: list[Job], _half: Half) -> dict[str, Estimate]:
        if not self.guards:
            return {}
        ours_value, theirs_value = (self.guards.get(rate(jobs[0]), -0.05) for jobs in (ours, theirs))
        value = ours_value - theirs_value
        return {"real_far1": Estimate(value, value - 0.01, value + 0.01, ITEMS)}

    def _final(self, job: Job) -> float:
        rows = (run_folder(job) / EVENTS).read_text("utf-8").splitlines()
        return float(json.loads(rows[-1])["value"])


class ScriptedRun:
    """A process that does one thing of its script at every look."""

    def __init__(self, job: Job, script: list[float | str]) -> None:
        self.job, self._left, self._code = job, list(script), 0
        self._done = False
        self.reports = 0
        self.stopped = False
        run_folder(job).mkdir(parents=True, exist_ok=True)
        (Path(job.folder) / OUTCOME).unlink(missing_ok=True)
        (run_folder(job) / EVENTS).unlink(missing_ok=True)

    @property
    def alive(self) -> bool:
        if self._done or self.stopped:
            return False
        act = self._left.pop(0) if self._left else "done"
        if isinstance(act, float):
            self.reports += 1
            with (run_folder(self.job) / EVENTS).open("a") as handle:
                handle.write(json.dumps({"event": "evaluation", "step": self.reports, "value": act}) + "\n")
            return True
        self._done = True
        if act in _ENDS:
            self._code = _ENDS[act]
            return False
        kind, _, reason = act.removeprefix("fail: ").partition(": ")
        outcome = Outcome(True) if act == "done" else Outcome(False, kind, reason)
        write_json(Path(self.job.folder) / OUTCOME, outcome.to_json())
        return False

    def result(self) -> int:
        return self._code

    def stop(self) -> None:
        self.stopped = True


@dataclass
class ScriptedLauncher:
    script: Script
    slots: int = 1
    started: list[ScriptedRun] = field(default_factory=list)

    def start(self, job: Job, _slot: int) -> ScriptedRun:
        self.started.append(ScriptedRun(job, self.script(job)))
        return self.started[-1]


def steady(job: Job) -> list[float | str]:
    """Reports that lie as high as the rate does: all trials but the recommended ones are different, none fails."""
    return [round(min(1.0, rate(job)), 3)] * REPORTS


def search(
    out: Path, script: Script = steady, *, slots: int = 1, wait: Callable[[], None] | None = None, **changes: Any
) -> tuple[Search, ScriptedLauncher]:
    """A search in a journal under `out`, with scripted trials."""
    out.mkdir(parents=True, exist_ok=True)
    owner = changes.pop("owner", "here")
    recipe = TuneRecipe(**{"models": ("m",), "datasets": ("d",), "out": str(out), "trials": 6, "prune": False, **changes})
    problem = ScriptedProblem(out=out)
    launcher = ScriptedLauncher(script, slots)
    study = open_study(recipe, out, problem.binding, starts=problem.starts())
    return Search(study, problem, recipe, launcher, quiet(), owner, wait or (lambda: None)), launcher
