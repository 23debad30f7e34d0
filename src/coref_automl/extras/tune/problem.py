"""What a study asks of a task. In: a TuneRecipe. Out: a Problem: the space, the jobs of trials, their reports, who is pruned.

`masked.py` and `relation.py` are the two tasks; search, finish and page know only what is defined here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from coref_automl.base.config import to_mapping
from coref_automl.base.errors import RecipeError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import EVENTS
from coref_automl.base.job import Job
from coref_automl.base.progress import parse_events
from coref_automl.base.records import Estimate, Half
from coref_automl.comparison.power import Evidence
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.space import Space, read_space
from coref_automl.models.build import NEW
from coref_automl.models.model_files import config_of, folder_of, models_fingerprint
from coref_automl.statistics.planning import Paired

Origin = Literal["default", "recommended", "portfolio", "drawn"]
SAMPLED: Origin = "drawn"
ORIGINS: tuple[Origin, ...] = ("default", "recommended", "portfolio", SAMPLED)
"""Where a trial comes from, in the order of what a winner is judged against: `train`'s own defaults, the recommended settings of
each objective, what earlier studies found, and what this search sampled."""


RunJobs = Callable[[list[Job], str], set[str]]
"""Runs jobs as a stage of this name; returns the keys of those that failed."""


class Follower:
    """Reads the new rows of an events file that another process appends to, and skips a line that a kill cut in two.

    Every row carries the progress of its run: its own, or else that of the last step.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._progress = 0.0

    def rows(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._offset)
                new = handle.read()
        except FileNotFoundError:
            return
        lines = new[: new.rfind(b"\n") + 1]
        self._offset += len(lines)
        for row in parse_events(lines):
            if row["event"] == "step":
                self._progress = row.get("progress", self._progress)
            row.setdefault("progress", self._progress)
            yield row


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a trial: the quarter of its budget, its score on `select`, and its mean reciprocal rank there, which tells
    settings of one objective apart with half the items (None for `re`). `averaged`: the score is that of averaged weights."""

    step: int
    value: float
    mrr: float | None = None
    averaged: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Settings to begin with, and where they come from."""

    origin: Origin
    name: str
    params: dict[str, Any]


@dataclass(eq=False, kw_only=True)
class Problem(ABC):
    """`fixed` are settings that a dimension's `when` may refer to; `binding` names all that trials depend on. `averaged` is the
    number of last checkpoints that a trial also averages (0: none), `shape` the family and hidden size of the first model."""

    metric: str
    label: str
    space: Space
    task: str = "mlm"
    confirm_name: str = "confirm"
    averaged: int = 0
    shape: tuple[str, int] = ("", 0)
    fixed: dict[str, Any] = field(default_factory=dict)
    binding: dict[str, Any] = field(default_factory=dict)

    @abstractmethod
    def starts(self) -> list[Start]:
        """The points to begin with."""

    def power(self) -> Evidence | None:
        """What the judging half can show; None if that is unknown."""
        return None

    def accepts(self, _params: dict[str, Any]) -> bool:
        """Are these settings possible together?"""
        return True

    @abstractmethod
    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        """Return a trial's job; with `confirm`, its end is also scored on the half that chooses nothing."""

    @abstractmethod
    def reports(self, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        """Turn new events of a job's run into reports."""

    @abstractmethod
    def cost(self, job: Job) -> dict[str, float]:
        """Tokens and seconds that a job has used."""

    @abstractmethod
    def best_recipe(self, params: Mapping[str, Any], out: Path) -> Any:
        """Return the recipe that trains the winner again."""

    @abstractmethod
    def weights(self, job: Job) -> Path:
        """Return the folder of the checkpoint that a finished job is judged by; an error if its weights were deleted."""

    @abstractmethod
    def drop_weights(self, job: Job, *, keep_last: bool = False) -> None:
        """Delete all weights, or all but those that `weights` names; the scores stay."""

    @abstractmethod
    def paired(self, ours: list[Job], theirs: list[Job], half: Half) -> Paired:
        """Compare runs of two recipes, paired by seed."""

    def guarded(self, _ours: list[Job], _theirs: list[Job], _half: Half) -> dict[str, Estimate]:
        """Return the difference of every guard's metric; empty without guards."""
        return {}

    def checked(self, _ours: list[Job], _theirs: list[Job], _run_jobs: RunJobs) -> dict[str, Estimate]:
        """Return the difference of every guard's fine-tuned task, trained from the weights of both sides; empty without any."""
        return {}

    @abstractmethod
    def confirmed(self, jobs: list[Job]) -> list[float]:
        """Return the scores of finished jobs on the half that chose nothing."""


def models_bytes(recipe: TuneRecipe) -> str:
    """A fingerprint of the configs and tokenizers that trials start from."""
    names = [*recipe.models, str(recipe.settings.get("tokenizer") or "")]
    return models_fingerprint(name for name in names if name and not name.startswith(NEW))


def shape_of(model: str) -> tuple[str, int]:
    """Return family and hidden size; a model with random weights has no size yet."""
    if model.startswith(NEW):
        return model, 0
    config = config_of(folder_of(model))
    return str(config["model_type"]), int(config.get("hidden_size", 768))


def whole_space(recipe: TuneRecipe, default: Callable[[], dict[str, Any]], sides: Mapping[str, Sequence[str]]) -> Space:
    """Return the recipe's own space, or the default without what its settings fix; `sides` with several entries join it."""
    entries = recipe.space
    if entries is None:
        entries = {name: entry for name, entry in default().items() if name not in recipe.settings}
    for name, values in sides.items():
        if name in entries and entries[name] != list(values):
            raise RecipeError(f"space: {name} becomes a dimension when --{name} is given several times; leave it out.")
    whole = {**{name: list(values) for name, values in sides.items() if len(values) > 1}, **entries}
    if both := sorted(set(whole) & set(recipe.settings)):
        raise RecipeError(f"{both[0]} is in settings and in space; keep it in one of them.")
    return read_space(whole, recipe.task)


def job_of(work: Callable[[Job], None], task: str, recipe: Any, fingerprints: Mapping[str, str], out: Path, **more: str) -> Job:
    """Return the job that runs this recipe, in a folder named after what is trained; work beyond training (`more`) is not."""
    key = job_key(task, to_mapping(recipe), fingerprints)
    folder = out / "trials" / key
    recipe = replace(recipe, out=str(folder / f"run-{key}"))
    return Job(f"{work.__module__}:{work.__name__}", key, str(folder), to_mapping(recipe) | more)


def run_folder(job: Job) -> Path:
    return Path(job.recipe["out"])


def events_of(job: Job) -> Follower:
    return Follower(run_folder(job) / EVENTS)


def job_key(task: str, recipe: Mapping[str, Any], fingerprints: Mapping[str, str]) -> str:
    """Hash what is trained: settings, and the bytes of model and data rather than their paths."""
    paths = ("out", "model", "dataset", "train", "dev", "eval_set", "device")
    return fingerprint(task, {name: value for name, value in recipe.items() if name not in paths}, dict(fingerprints))[:12]


RUNGS = (1, 2)
"""Quarters of the budget at which trials are pruned: the better half goes on."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A trial at one quarter of its budget: its score on `select` and, where the task has one, its mean reciprocal rank there."""

    number: int
    objective: str
    value: float
    mrr: float | None = None


def reason_to_prune(trial: Rung, others: Sequence[Rung], step: int) -> str | None:
    """Say why a trial is pruned at this quarter; None if it goes on. `others` are all trials that have reached it so far.

    Trials of one objective are ranked by mean reciprocal rank, which tells them apart with half the items; objectives are
    compared by the score itself, because their ranks below the first differ.
    """
    if step not in RUNGS:
        return None
    rivals = [other for other in others if other.objective == trial.objective]
    ranks = {rung.number: rung.value if rung.mrr is None else rung.mrr for rung in (*rivals, trial)}
    if not _in_better_half(trial.number, ranks):
        return f"not in the better half of its objective at {step}/{REPORTS} of the budget"
    leads = all(trial.value >= rival.value for rival in rivals)  # the best of an objective goes on, whatever others reach
    if not leads and not _in_better_half(trial.number, {rung.number: rung.value for rung in (*others, trial)}):
        return f"not in the better half of all trials at {step}/{REPORTS} of the budget"
    return None


def _in_better_half(number: int, values: Mapping[int, float]) -> bool:
    """Is it in the better half, rounded down, with ties won by the earlier trial?"""
    order = sorted(values, key=lambda trial: (-values[trial], trial))
    return order.index(number) < max(1, len(order) // 2)
