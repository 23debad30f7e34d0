"""The recipe of a study. In: YAML or options. Out: a frozen TuneRecipe whose values are possible together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from coref_automl.engine.pool import Engine
from coref_automl.errors import RecipeError
from coref_automl.say import LANGUAGE

TuneTask = Literal["mlm", "re"]
Sampler = Literal["tpe", "random"]

REPORTS = 8
"""A trial reports at each eighth of its budget."""

_DECIDED: dict[TuneTask, dict[str, str]] = {
    "mlm": {
        "model": "models", "dataset": "datasets", "out": "out", "epochs": "epochs", "max_tokens": "max_tokens",
        "max_minutes": "max_minutes", "seed": "seed", "device": "device", "eval_set": "eval_set", "metric": "metric",
        "checkpoints": "", "keep_best": "", "eval_words": "",
    },
    "re": {
        "model": "models", "train": "train", "dev": "dev", "out": "out", "epochs": "epochs", "seeds": "seeds",
        "first_seed": "seed", "device": "device", "choose_by": "metric",
    },
}  # fmt: skip
"""Settings of a run that the study decides, and its own key for each; empty where it leaves no choice."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts to prepare where no dataset is named: one folder per length. `limit` is documents per file."""

    sources: tuple[str, ...]
    seq_lens: tuple[int, ...] = (512,)
    limit: int | None = None
    near_duplicates: bool = True


@dataclass(frozen=True, slots=True)
class TuneRecipe:
    """`models` and `datasets` (or `texts`) with more than one entry become dimensions. The budget is a trial's.

    `settings` are the same in every trial, in the words of a training recipe (a relation recipe for `task: re`). `space` is the
    whole space; None takes the recommended one for the length and the family. `eval_items` bounds what a trial is scored on.
    `finalists` are trained with `seeds` seeds in all, which choose the winner. The winner and the recommended settings are then
    trained with as many new seeds, and compared on the half of the evaluation set that chose nothing.
    """

    models: tuple[str, ...]
    out: str
    task: TuneTask = "mlm"
    study: str = "study"
    datasets: tuple[str, ...] = ()
    texts: Texts | None = None
    eval_set: str | None = None
    eval_items: int | None = None
    metric: str | None = None
    train: str | None = None
    dev: str | None = None
    trials: int = 20
    epochs: float | None = None
    max_tokens: int | None = None
    max_minutes: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] | None = None
    sampler: Sampler = "tpe"
    prune: bool = True
    finalists: int = 3
    seeds: int = 3
    seed: int = 0
    workers: int = 1
    engine: Engine = "local"
    storage: str | None = None
    device: str = "auto"
    lang: Literal["ko", "en"] | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise RecipeError("A study needs a model; pass --model, for example --model bundled:ko-mini.")
        for name in ("trials", "finalists", "seeds", "workers"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not 0 <= self.seed < 2**63:
            raise RecipeError(f"seed should be 0 or more and below 2**63, not {self.seed}; correct --seed.")
        for name in ("epochs", "max_tokens", "max_minutes", "eval_items"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise RecipeError(f"{name} should be above 0, not {value:g}; correct --{name.replace('_', '-')}.")
        if self.task == "mlm" and not self.datasets and self.texts is None:
            raise RecipeError("A study needs data; pass --dataset FOLDER (coref-automl prepare makes it), or texts in a recipe.")
        if self.task == "re" and self.train is None:
            raise RecipeError("A study of relation extraction needs rows; pass --train FILE, or --train bundled:relations.")
        if self.task == "re" and (self.max_tokens is not None or self.max_minutes is not None):
            raise RecipeError("The budget of a relation trial is in epochs; pass --epochs instead of tokens or minutes.")
        if self.task == "re" and self.epochs is not None and self.epochs != int(self.epochs):
            raise RecipeError(f"The epochs of a relation trial are a whole number, not {self.epochs:g}; correct --epochs.")
        for name in self.settings:
            if name in (decided := _DECIDED[self.task]):
                where = f"give it as {decided[name]}: beside settings" if decided[name] else "leave it out"
                raise RecipeError(f"settings: {name} is set by the study; {where}.")
        for name in ("models", "datasets"):
            entries = getattr(self, name)
            if len(set(entries)) != len(entries):
                raise RecipeError(f"{name} names {_twice(entries)} twice; name it once.")

    @property
    def arm(self) -> str:
        """The name of the Optuna study: random search has a name of its own."""
        return self.study if self.sampler == "tpe" else f"{self.study}-{self.sampler}"


def _twice(entries: tuple[str, ...]) -> str:
    return next(entry for entry in entries if entries.count(entry) > 1)


HELP = {
    "models": "Model; several become a dimension.",
    "out": "Folder of the study; must be empty or from the same command.",
    "task": "mlm, or re for relation extraction.",
    "study": "Name of the study in its storage.",
    "datasets": "Prepared dataset; several become a dimension.",
    "eval_set": "Evaluation set. Default: the bundled one.",
    "eval_items": "Maximum number of items per task in each half.",
    "metric": "Metric to maximise. Default real1_strict; micro_f1 for re.",
    "train": "Relation rows to train on (task re).",
    "dev": "Relation rows for the verdict (task re).",
    "trials": "Number of trials.",
    "epochs": "Budget of a trial in epochs.",
    "max_tokens": "Budget of a trial in real tokens.",
    "max_minutes": "Budget of a trial in minutes.",
    "sampler": "tpe, or random for a baseline in the same table.",
    "prune": "Prune trials that fall behind.",
    "finalists": "Best trials retrained with further seeds to choose the winner.",
    "seeds": "Seeds per finalist; the winner is judged with as many new ones.",
    "seed": "Random seed.",
    "workers": "Parallel trials; they share the GPUs.",
    "engine": "local or ray.",
    "storage": "postgresql://... for several machines. Default: a file.",
    "device": "auto, cpu or cuda.",
    "lang": LANGUAGE,
}
"""What each field means: the help of `coref-automl tune`; `texts`, `settings` and `space` can only be given in a recipe."""
