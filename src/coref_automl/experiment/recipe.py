"""The recipe of an experiment (`study`, `adapt`, `demo`). In: YAML or options. Out: an ExperimentRecipe, possible as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from coref_automl.config import choose
from coref_automl.engine.pool import Engine
from coref_automl.errors import RecipeError
from coref_automl.models.build import NEW
from coref_automl.models.families import too_long
from coref_automl.records import Half, Task
from coref_automl.say import LANGUAGE

Kind = Literal["train", "evaluate", "relation", "coreference"]
KINDS: tuple[Kind, ...] = ("train", "evaluate", "relation", "coreference")
Documents = Literal["all", "dev", "not-dev"]
Start = Literal["every", "chosen"]
BUNDLED, CHOSEN = "bundled", "chosen"


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts to prepare where no dataset is named; the held-out share becomes the evaluation set where none is named."""

    sources: tuple[str, ...]
    limit: int | None = None
    holdout: float = 0.02
    near_duplicates: bool = True


@dataclass(frozen=True, slots=True)
class EvaluateStage:
    """Every checkpoint is scored on `sets`: folders, or "bundled". `half` keeps one half of each.

    `half: select` is for screening; what was screened there is judged with `confirm`. Without a set, one is built from the
    held-out documents of the texts, with these `tasks` and the limits of `prepare eval`; without texts it is the bundled one.
    `metric` is that of the report's verdicts, on the first set; `margin` is in points.
    """

    sets: tuple[str, ...] = ()
    half: Half | None = None
    tasks: tuple[Task, ...] = ("real", "lambada")
    words: Literal["all", "gold", "sample", "none"] = "all"
    metric: str | None = None
    margin: float = 2.0
    per_source: int = 1_600
    per_document: int = 3
    single_entry: bool = False

    def __post_init__(self) -> None:
        from coref_automl.comparison.choice import checked_margin
        from coref_automl.evaluation.tasks import TASKS

        for task in self.tasks:
            choose(task, TASKS, "task")
        checked_margin(self.margin)


@dataclass(frozen=True, slots=True)
class RelationStage:
    """Relation extraction from the last checkpoint of every run, and from the base, once for each share of `train`.

    `start: chosen` is from the recommended model alone. `train` is a file, or "bundled": as many generated `rows`. `seeds` are
    those of fine-tuning from one checkpoint. `settings` are the same for all, in the words of `re train`.
    """

    train: str = BUNDLED
    dev: str | None = None
    rows: int = 1_000
    start: Start = "every"
    shares: tuple[float, ...] = (0.1, 1.0)
    seeds: int = 3
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.shares or any(not 0 < share <= 1 for share in self.shares) or len(set(self.shares)) < len(self.shares):
            raise RecipeError(f"relation: shares are different numbers above 0 and up to 1, not {list(self.shares)}.")
        _at_least_one("relation: seeds", self.seeds)
        if self.dev is not None and self.train == BUNDLED:
            raise RecipeError("relation: dev (--re-dev) needs rows to train on; name them with --re-train, or leave it out.")
        _refuse("relation: settings", self.settings, _OF_RELATION)


@dataclass(frozen=True, slots=True)
class CoreferenceStage:
    """Coreference from the last checkpoint of every run, and from the base; the last epoch counts, nothing is chosen.

    `documents` are those that judge: `all` of them or all but the split's dev documents (`not-dev`), each tested once in `folds`
    folds (no more than there are documents); or its `dev` documents alone, tested by a head trained on its train documents, for
    screening. `start: chosen` is from the base and from the recommended model alone. `settings` are in the words of
    `coref train`.
    """

    data: str
    documents: Documents = "all"
    start: Start = "every"
    split: str = "koconovel"
    folds: int = 5
    seeds: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _at_least_one("coreference: seeds", self.seeds)
        _refuse("coreference: settings", self.settings, _OF_COREFERENCE)


@dataclass(frozen=True, slots=True)
class ExperimentRecipe:
    """Every method is trained from `model` at every length with every seed; a method is a name and the settings that make it.

    `seeds` is how many, from `first_seed` on. `train` holds what all runs share, in the words of `train`, with a budget in tokens
    or epochs. `datasets` are prepared folders, one for each length or one whose blocks the lengths divide; else `texts` are
    prepared. A stage that is left out is not run. `keep_weights: false` removes the weights of a run when all that judges it is
    finished.
    """

    model: str
    methods: dict[str, dict[str, Any]]
    out: str
    lengths: tuple[int, ...] = (2048,)
    seeds: int = 3
    first_seed: int = 0
    datasets: tuple[str, ...] = ()
    texts: Texts | None = None
    train: dict[str, Any] = field(default_factory=dict)
    evaluate: EvaluateStage = field(default_factory=EvaluateStage)
    relation: RelationStage | None = None
    coreference: CoreferenceStage | None = None
    keep_weights: bool = True
    jobs: int = 1
    engine: Engine = "local"
    device: str = "auto"
    lang: Literal["ko", "en"] | None = None
    title: str = ""

    def __post_init__(self) -> None:
        if self.model.startswith(NEW):
            raise RecipeError(f"An experiment starts from a trained base, and {self.model} has random weights; train it first.")
        if not self.methods:
            raise RecipeError("A study needs methods, for example `methods: {mlm: {}, entity: {}}`.")
        if not self.lengths or len(set(self.lengths)) < len(self.lengths) or min(self.lengths) < 1:
            raise RecipeError(f"lengths are one or more different numbers of tokens, each at least 1, not {list(self.lengths)}.")
        if why := next(filter(None, map(too_long, self.lengths)), None):
            raise RecipeError(f"lengths: seq_len {why}.")
        _at_least_one("seeds", self.seeds)
        _at_least_one("jobs", self.jobs)
        if not 0 <= self.first_seed < 2**31:
            raise RecipeError(f"first_seed should be 0 or more and below 2**31, not {self.first_seed}.")
        if not self.datasets and self.texts is None:
            raise RecipeError("A study needs data; name datasets (coref-automl prepare makes them), or texts to prepare.")
        for name, settings in self.methods.items():
            if not name or set(name) & set("/-_ \\"):
                raise RecipeError(f"A method's name is one word without / - _ or spaces, not {name!r}: it names folders.")
            _refuse(f"methods: {name}", settings, _DECIDED)
        _refuse("train", self.train, _DECIDED)

    def settings(self, method: str) -> dict[str, Any]:
        """What makes a method, over what all runs share. A name without settings is that of an objective."""
        return {"objective": method, **self.train, **self.methods[method]}


def with_methods(recipe: ExperimentRecipe, names: Sequence[str]) -> ExperimentRecipe:
    """The recipe with these of its methods alone, in its own order; all where none is named."""
    for name in names:
        choose(name, recipe.methods, "method")
    kept = {name: settings for name, settings in recipe.methods.items() if not names or name in names}
    return replace(recipe, methods=kept)


_DECIDED = {
    "model": "give it beside methods",
    "dataset": "give it as datasets",
    "out": "give it as out",
    "seed": "give seeds and first_seed",
    "seq_len": "give it as lengths",
    "device": "give it beside methods",
    "max_minutes": "methods are compared at equal tokens; give max_tokens or epochs",
    "stop_when_flat": "methods are compared at equal tokens; leave it out",
    "eval_set": "the study scores every checkpoint itself; give it under evaluate",
    "keep_best": "the study scores every checkpoint itself; leave it out",
}
"""Settings of a run that the study decides, and what to write instead."""
_OF_RELATION = dict.fromkeys(("model", "train", "dev", "out", "seeds", "first_seed", "max_rows", "device"), "leave it out")
_OF_COREFERENCE = dict.fromkeys(("model", "data", "out", "split", "folds", "seeds", "first_seed", "device"), "leave it out")


def _refuse(where: str, settings: Mapping[str, Any], decided: Mapping[str, str]) -> None:
    for name in settings:
        if name in decided:
            raise RecipeError(f"{where}: {name} is set by the study; {decided[name]}.")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise RecipeError(f"{name} must be at least 1, not {value}.")


HELP = {
    "model": "Base model: hub id, folder, or bundled:ko-mini.",
    "out": "Folder of the study; must be empty or from the same command.",
    "datasets": "Prepared dataset; one per length, or one whose blocks the lengths divide.",
    "lengths": "Tokens per row; repeatable.",
    "evaluate.sets": "Evaluation set; repeatable. Default: built from held-out documents, or the bundled set.",
    "evaluate.half": "Use one half of each set: select to screen methods, confirm to judge them.",
    "relation.train": "Relation rows to fine-tune on.",
    "relation.dev": "Relation rows to score; never used for selection.",
    "relation.shares": "Fraction of the relation rows to train on; repeatable.",
    "coreference.data": "Annotated texts.",
    "coreference.documents": "Documents that judge: all, not-dev, or dev to screen methods.",
    "seeds": "Seeds per method and length.",
    "first_seed": "First seed.",
    "keep_weights": "Keep the weights of runs whose evaluation is complete.",
    "jobs": "Steps at a time; they share the GPUs.",
    "engine": "local or ray.",
    "device": "auto, cpu or cuda.",
    "lang": LANGUAGE,
    "title": "Title of the report.",
}
"""What each field means: the help of `coref-automl study`; the other fields can only be given in a recipe."""
FLAGS = {
    "datasets": ("--dataset",),
    "lengths": ("--length",),
    "evaluate.sets": ("--eval-set",),
    "relation.train": ("--re-train",),
    "relation.dev": ("--re-dev",),
    "relation.shares": ("--re-share",),
    "coreference.data": ("--coref",),
    "coreference.documents": ("--coref-documents",),
}
