"""What a study asks of a task. In: a TuneRecipe. Out: a Problem: the space, the jobs of trials, their reports, the verdict.

`masked.py` and `relation.py` are the two tasks; search, finish and page know only what is defined here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from coref_automl.comparison.power import Evidence
from coref_automl.config import to_mapping
from coref_automl.engine.job import Job
from coref_automl.errors import RecipeError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import EVENTS
from coref_automl.models.build import NEW
from coref_automl.models.model_files import config_of, folder_of, models_fingerprint
from coref_automl.progress import parse_events
from coref_automl.records import Estimate, Half
from coref_automl.statistics.planning import Paired
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.space import Space, read_space

Origin = Literal["default", "recommended", "portfolio", "drawn"]
ORIGINS: tuple[Origin, ...] = ("default", "recommended", "portfolio", "drawn")
"""Where a trial comes from, what everybody has first: `train`'s own defaults, the recommended settings of each objective, what
earlier studies found, and what this search drew. A winner is judged against the best of what comes before it."""


class Follower:
    """Reads a file that another process appends to. A line that a kill cut in two is passed over, as `watch` does.

    Every row carries how far the run had come: what it says itself, or else what the last step said.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._progress = 0.0

    def rows(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._at)
                new = handle.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for row in parse_events(whole):
            if row["event"] == "step":
                self._progress = row.get("progress", self._progress)
            row.setdefault("progress", self._progress)
            yield row


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a trial: the quarter of its budget, the score on `select`, and there the mean reciprocal rank, which tells
    settings of one objective apart with half the items (None for `re`). `averaged`: the score is that of the averaged weights."""

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
    """`fixed` are settings that a dimension's `when` may look at; `binding` names everything that trials depend on. `averaged` is
    how many last checkpoints a trial averages beside its end (0: none), `shape` the family and hidden size of the first model."""

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
        """What the half that judges can show; None where that is not known."""
        return None

    def accepts(self, _params: dict[str, Any]) -> bool:
        """Can a run have these settings together?"""
        return True

    @abstractmethod
    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        """A trial's job; with `confirm` the end is also scored on the half that chooses nothing."""

    @abstractmethod
    def reports(self, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        """The reports that new events of a job's run amount to."""

    @abstractmethod
    def cost(self, job: Job) -> dict[str, float]:
        """What a job has used: tokens and seconds."""

    @abstractmethod
    def best_recipe(self, params: Mapping[str, Any], out: Path) -> Any:
        """The recipe that trains the winner again."""

    @abstractmethod
    def weights(self, job: Job) -> Path:
        """The folder of what a finished job is judged by; an error where its weights were given back."""

    @abstractmethod
    def drop_weights(self, job: Job, *, keep_last: bool = False) -> None:
        """Give the disk back, of all weights or of all but those that `weights` names; the scores stay."""

    @abstractmethod
    def paired(self, ours: list[Job], theirs: list[Job], half: Half) -> Paired:
        """Runs of two recipes, paired by seed."""

    def guarded(self, _ours: list[Job], _theirs: list[Job], _half: Half) -> dict[str, Estimate]:
        """The difference of every guard's metric; empty without guards."""
        return {}

    def checked(self, _ours: list[Job], _theirs: list[Job], _train: Callable[[list[Job], str], set[str]]) -> dict[str, Estimate]:
        """The difference of every guard's fine-tuned task, trained from the weights of both sides; empty without any."""
        return {}

    @abstractmethod
    def confirmed(self, jobs: list[Job]) -> list[float]:
        """The score of finished jobs on the half that chose nothing."""


def models_bytes(recipe: TuneRecipe) -> str:
    """The configs and tokenizers of what trials start from."""
    named = [*recipe.models, str(recipe.settings.get("tokenizer") or "")]
    return models_fingerprint(name for name in named if name and not name.startswith(NEW))


def shape_of(model: str) -> tuple[str, int]:
    """Family and hidden size; a model with random weights has none yet."""
    if model.startswith(NEW):
        return model, 0
    config = config_of(folder_of(model))
    return str(config["model_type"]), int(config.get("hidden_size", 768))


def whole_space(recipe: TuneRecipe, default: Callable[[], dict[str, Any]], sides: Mapping[str, Sequence[str]]) -> Space:
    """The recipe's own space, or the default without what its settings fix; `sides` with several entries are dimensions."""
    given = recipe.space
    if given is None:
        given = {name: entry for name, entry in default().items() if name not in recipe.settings}
    for name, values in sides.items():
        if name in given and given[name] != list(values):
            raise RecipeError(f"space: {name} becomes a dimension when --{name} is given several times; leave it out.")
    whole = {**{name: list(values) for name, values in sides.items() if len(values) > 1}, **given}
    if both := sorted(set(whole) & set(recipe.settings)):
        raise RecipeError(f"{both[0]} is in settings and in space; keep it in one of them.")
    return read_space(whole, recipe.task)


def job_of(work: Callable[[Job], None], task: str, recipe: Any, fingerprints: Mapping[str, str], out: Path, **asked: str) -> Job:
    """A run of this recipe under `out`, in a folder that is named by what is trained. What is `asked` of it beside training
    stands with the settings in the job's recipe, and makes no other run."""
    key = job_key(task, to_mapping(recipe), fingerprints)
    folder = out / "trials" / key
    recipe = replace(recipe, out=str(folder / f"run-{key}"))
    return Job(f"{work.__module__}:{work.__name__}", key, str(folder), to_mapping(recipe) | asked)


def run_folder(job: Job) -> Path:
    return Path(job.recipe["out"])


def events_of(job: Job) -> Follower:
    return Follower(run_folder(job) / EVENTS)


def job_key(task: str, recipe: Mapping[str, Any], fingerprints: Mapping[str, str]) -> str:
    """A short name of what is trained: settings, and the bytes of model and data rather than their paths."""
    paths = ("out", "model", "dataset", "train", "dev", "eval_set", "device")
    return fingerprint(task, {name: value for name, value in recipe.items() if name not in paths}, dict(fingerprints))[:12]
