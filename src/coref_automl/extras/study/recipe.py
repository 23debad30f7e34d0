"""The recipe of an experiment (`study`, `adapt`, `demo`). In: YAML or options. Out: an ExperimentRecipe, possible as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from coref_automl.base.config import Setting, choose, from_mapping, nearest, short_repr, typed
from coref_automl.base.errors import RecipeError
from coref_automl.base.pool import Engine
from coref_automl.base.records import Half, Task
from coref_automl.base.say import LANGUAGE, say
from coref_automl.comparison.outside_checks import CHECKS, CHOSEN, CheckStage
from coref_automl.comparison.study_data import POINTS, checked_margin
from coref_automl.corpus.recipe import Texts
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.task import PER_DOCUMENT
from coref_automl.models.build import NEW
from coref_automl.models.families import too_long

BUNDLED = "bundled"


def step_kinds() -> tuple[str, ...]:
    return ("train", "evaluate", *CHECKS)


def kind_name(kind: str) -> str:
    """The kind's name in the current language."""
    return say({"train": "학습", "evaluate": "평가"}.get(kind) or CHECKS[kind].title[0], kind)


@dataclass(frozen=True, slots=True)
class HeldOutTexts(Texts):
    """Texts with a held-out share, which becomes the evaluation set if none is named."""

    holdout: float = 0.02


@dataclass(frozen=True, slots=True)
class EvaluateStage:
    """Every checkpoint is scored on `sets`: folders, or "bundled". `half` keeps one half of each.

    `half: select` screens methods, which are then judged with `half: confirm`. Without a set, one is built from the held-out
    documents of the texts, with these `tasks` and the limits of `prepare eval`; without texts it is the bundled one. `metric` is
    that of the report's verdicts, on the first set; `margin` is in points.
    """

    sets: Annotated[
        tuple[str, ...],
        Setting("Evaluation set; repeatable. Default: built from held-out documents, or the bundled set.", flags=("--eval-set",)),
    ] = ()
    half: Annotated[Half | None, Setting("Use one half of each set: select to screen methods, confirm to judge them.")] = None
    tasks: tuple[Task, ...] = ("real", "new", "lambada")
    metric: str | None = None
    margin: float = POINTS
    per_source: int = 1_600
    per_document: int = PER_DOCUMENT
    single_entry: bool = False

    def __post_init__(self) -> None:
        for task in self.tasks:
            choose(task, TASKS, "task")
        checked_margin(self.margin)


@dataclass(frozen=True, slots=True)
class ExperimentRecipe:
    """Every method is trained from `model` at every length with every seed; a method is a name and the settings that make it.

    `seeds` is how many, from `first_seed` on. `train` holds the settings that all runs share, in the words of `train`, with a
    budget in tokens or epochs. `datasets` are prepared folders, one per length or one whose blocks the lengths divide; else
    `texts` are prepared. `checks` holds the sections of outside checks, which stand at the top level of a recipe, each under its
    name (`relation:`); a check without a section is not run. `keep_weights: false` removes a run's weights once it is judged.
    """

    model: Annotated[str, Setting("Base model: hub id, folder, or bundled:ko-mini.")]
    methods: dict[str, dict[str, Any]]
    out: Annotated[str, Setting("Folder of the study; must be empty or from the same command.")]
    lengths: Annotated[tuple[int, ...], Setting("Tokens per row; repeatable.", flags=("--length",))] = (2048,)
    seeds: Annotated[int, Setting("Seeds per method and length.", 1, 1_000)] = 3
    first_seed: Annotated[int, Setting("First seed.", 0, 2**31 - 1)] = 0
    datasets: Annotated[
        tuple[str, ...],
        Setting("Prepared dataset; one per length, or one whose blocks the lengths divide.", flags=("--dataset",)),
    ] = ()
    texts: HeldOutTexts | None = None
    train: dict[str, Any] = field(default_factory=dict)
    evaluate: EvaluateStage = field(default_factory=EvaluateStage)
    checks: dict[str, CheckStage] = field(default_factory=dict)
    keep_weights: Annotated[bool, Setting("Keep the weights of runs whose evaluation is complete.")] = True
    jobs: Annotated[int, Setting("Steps at a time; they share the GPUs.", 1, 1_024)] = 1
    engine: Annotated[Engine, Setting("local or ray.")] = "local"
    device: Annotated[str, Setting("auto, cpu, cuda or cuda:1.")] = "auto"
    lang: Annotated[Literal["ko", "en"] | None, Setting(LANGUAGE)] = None
    title: Annotated[str, Setting("Title of the report.")] = ""

    def __post_init__(self) -> None:
        typed(self)
        if self.model.startswith(NEW):
            raise RecipeError(f"An experiment starts from a trained base, and {self.model} has random weights; train it first.")
        if not self.methods:
            raise RecipeError("A study needs methods, for example `methods: {mlm: {}, entity: {}}`.")
        if not self.lengths or len(set(self.lengths)) < len(self.lengths) or min(self.lengths) < 1:
            raise RecipeError(f"lengths are one or more different numbers of tokens, each at least 1, not {list(self.lengths)}.")
        if why := next(filter(None, map(too_long, self.lengths)), None):
            raise RecipeError(f"lengths: seq_len {why}.")
        if not self.datasets and self.texts is None:
            raise RecipeError("A study needs data; name datasets (coref-automl prepare makes them), or texts to prepare.")
        if self.datasets and self.texts and not self.evaluate.sets:
            raise RecipeError("A set made of texts may hold what the given datasets train on; name the sets, too (--eval-set).")
        for name, settings in self.methods.items():
            if not name or set(name) & set("/-_ \\"):
                raise RecipeError(f"A method's name is one word without / - _ or spaces, not {name!r}: it names folders.")
            _refuse(f"methods: {name}", settings, _DECIDED)
        _refuse("train", self.train, _DECIDED)
        for name, stage in self.checks.items():
            if stage.start == CHOSEN and not self.keep_weights:
                raise RecipeError(f"{name}: start: chosen needs the weights of the chosen run; leave out keep_weights: false.")
            decided = ("model", "out", "seeds", "first_seed", "device", *CHECKS[name].set_by_stage)
            _refuse(f"{name}: settings", stage.settings, dict.fromkeys(decided, "leave it out"))

    @staticmethod
    def sections() -> dict[str, Any]:
        """Sections that a recipe may have at its top level besides its fields, with the type of each."""
        return {name: check.stage | None for name, check in CHECKS.items()}

    @classmethod
    def known_keys(cls, data: Mapping[str, Any], where: str, also: Iterable[str] = ()) -> list[str]:
        """Return the fields that a recipe may name at its top level; other keys but sections are refused (`also`: to suggest)."""
        fields = [name for name in cls.__dataclass_fields__ if name != "checks"]
        for key in data:
            if key not in fields and key not in CHECKS:
                raise RecipeError(f"{where}: unknown key {short_repr(key)}. {nearest(key, {*fields, *CHECKS, *also})}")
        return fields

    @classmethod
    def gathered(cls, data: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Move the sections of outside checks into `checks`."""
        fields = cls.known_keys(data, where)
        sections = {name: data[name] for name in CHECKS if data.get(name) is not None}
        checks = {name: from_mapping(CHECKS[name].stage, section, f"{where}: {name}") for name, section in sections.items()}
        return {**{key: value for key, value in data.items() if key in fields}, "checks": checks}

    def settings(self, method: str) -> dict[str, Any]:
        """The settings of a method over those that all runs share. Without an objective, its name is the objective."""
        return {"objective": method, **self.train, **self.methods[method]}


def with_methods(recipe: ExperimentRecipe, names: Sequence[str]) -> ExperimentRecipe:
    """Keep these methods of the recipe, in its order; all of them if none is named."""
    for name in names:
        choose(name, recipe.methods, "method")
    methods = {name: settings for name, settings in recipe.methods.items() if not names or name in names}
    return replace(recipe, methods=methods)


_EQUAL = "methods are compared at equal tokens"
_DECIDED = {
    "model": "give it beside methods", "device": "give it beside methods", "dataset": "give it as datasets",
    "out": "give it as out", "seed": "give seeds and first_seed", "method": "it is its name", "seq_len": "give it as lengths",
    "max_minutes": f"{_EQUAL}; give max_tokens or epochs", "stop_when_flat": f"{_EQUAL}; leave it out",
    "eval_set": "the study scores every checkpoint itself; give it under evaluate",
}  # fmt: skip
"""Settings of a run that the study decides, and where to set them instead."""


def _refuse(where: str, settings: Mapping[str, Any], decided: Mapping[str, str]) -> None:
    for name in settings:
        if name in decided:
            raise RecipeError(f"{where}: {name} is set by the study; {decided[name]}.")
