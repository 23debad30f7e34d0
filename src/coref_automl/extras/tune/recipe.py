"""The recipe of a study. In: YAML or options. Out: a frozen TuneRecipe whose values are possible together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from coref_automl.base.config import Setting, typed
from coref_automl.base.errors import RecipeError
from coref_automl.base.pool import Engine
from coref_automl.base.say import LANGUAGE
from coref_automl.corpus.recipe import Texts
from coref_automl.statistics.planning import PAIRS

TuneTask = Literal["mlm", "re"]
REPORTS = 4
"""A trial reports at each quarter of its budget."""

_DECIDED: dict[TuneTask, dict[str, str]] = {
    "mlm": {
        "model": "models", "dataset": "datasets", "out": "out", "epochs": "epochs", "max_tokens": "max_tokens",
        "max_minutes": "max_minutes", "seed": "seed", "device": "device", "eval_set": "eval_set", "metric": "metric",
        "checkpoints": "",
    },
    "re": {
        "model": "models", "train": "train", "dev": "dev", "out": "out", "epochs": "epochs", "seeds": "seeds",
        "first_seed": "seed", "device": "device", "choose_by": "metric",
    },
}  # fmt: skip
"""Settings of a run that the study decides, and the study's key for each; empty if it leaves no choice."""


@dataclass(frozen=True, slots=True)
class TuneTexts(Texts):
    """Texts from which one dataset per length is prepared."""

    sources: Annotated[tuple[str, ...], Setting("Texts to prepare: named source or local:PATH; repeatable.", flags=("--source",))]
    limit: Annotated[int | None, Setting("Documents per file of the texts.", above=0, flags=("--train-limit",))] = None
    seq_lens: Annotated[tuple[int, ...], Setting("Tokens per block; several become a dimension.", flags=("--seq-len",))] = (512,)

    def __post_init__(self) -> None:
        typed(self)


@dataclass(frozen=True, slots=True)
class TuneRecipe:
    """`models` and `datasets` (or `texts`) with more than one entry become dimensions. The budget is a trial's.

    `settings` are the same in every trial, in the words of a training recipe (a relation recipe for `task: re`). `space` is the
    whole space; None takes the recommended one for the length and the family. A guard of a fine-tuned task (`relation_f1>=-1`) is
    checked at the end, with its section in `checks` as in an experiment's recipe.
    """

    models: Annotated[tuple[str, ...], Setting("Model; several become a dimension.", flags=("--model",))]
    out: Annotated[str, Setting("Folder of the study; must be empty or from the same command.")]
    task: Annotated[TuneTask, Setting("mlm, or re for relation extraction.")] = "mlm"
    study: Annotated[str, Setting("Name of the study in its storage.")] = "study"
    datasets: Annotated[tuple[str, ...], Setting("Prepared dataset; several become a dimension.", flags=("--dataset",))] = ()
    texts: TuneTexts | None = None
    eval_set: Annotated[str | None, Setting("Evaluation set. Default: the bundled one.")] = None
    eval_items: Annotated[int | None, Setting("Maximum number of items per task in each half.", above=0)] = None
    metric: Annotated[
        str | None, Setting("Metric to maximise. Default: Noun@1, or the first that the set has; micro_f1 for re.")
    ] = None
    score: Annotated[str | None, Setting("Weighted metrics for --metric, such as noun1=.5,lambada_top1=.5.")] = None
    guards: Annotated[
        tuple[str, ...],
        Setting(
            "Least difference of a metric from the reference, in points, such as 'real_far1>=-0.5'; repeatable.",
            flags=("--guard",),
        ),
    ] = ()
    checks: dict[str, Any] = field(default_factory=dict)
    train: Annotated[str | None, Setting("Relation rows to train on (task re).")] = None
    dev: Annotated[str | None, Setting("Relation rows for the verdict (task re).")] = None
    trials: Annotated[int, Setting("Most trials; the search stops earlier where it has nothing to win.", 1)] = 48
    epochs: Annotated[float | None, Setting("Budget of a trial in epochs.", above=0)] = None
    max_tokens: Annotated[int | None, Setting("Budget of a trial in real tokens.", above=0)] = None
    max_minutes: Annotated[float | None, Setting("Budget of a trial in minutes.", above=0)] = None
    settings: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] | None = None
    portfolio: Annotated[bool, Setting("Start from the settings that earlier studies found good.")] = True
    portfolio_only: Annotated[bool, Setting("Try the portfolio alone; nothing is drawn.")] = False
    remember: Annotated[bool, Setting("Keep a shown winner in this user's own portfolio.")] = True
    prune: Annotated[bool, Setting("Prune trials that fall behind.")] = True
    finalists: Annotated[int, Setting("Best trials retrained with fresh seeds to choose the winner.", 1)] = 6
    seeds: Annotated[int, Setting("Most pairs of fresh seeds that judge the winner; fewer if enough.", 1, 1_000)] = PAIRS
    worth: Annotated[float, Setting("Smallest gain that matters, in points.", above=0)] = 0.5
    ablate: Annotated[bool, Setting("Retrain a shown winner with one setting back at a time.")] = True
    seed: Annotated[int, Setting("Random seed.", 0)] = 0
    workers: Annotated[int, Setting("Parallel trials; they share the GPUs.", 1, 1_024)] = 1
    engine: Annotated[Engine, Setting("local or ray.")] = "local"
    storage: Annotated[str | None, Setting("postgresql://... for several machines. Default: a file.")] = None
    device: Annotated[str, Setting("auto, cpu, cuda or cuda:1.")] = "auto"
    lang: Annotated[Literal["ko", "en"] | None, Setting(LANGUAGE)] = None

    def __post_init__(self) -> None:
        typed(self)
        if not self.models:
            raise RecipeError("A study needs a model; pass --model, for example --model bundled:ko-mini.")
        if self.task == "mlm" and not self.datasets and self.texts is None:
            raise RecipeError("A study needs data; pass --dataset FOLDER (coref-automl prepare makes it), or --source.")
        if self.datasets and self.texts is not None:
            raise RecipeError("datasets and texts are both data to learn from; keep one of them.")
        if self.task == "re" and self.train is None:
            raise RecipeError("A study of relation extraction needs rows; pass --train FILE, or --train bundled:relations.")
        if self.task == "re" and (self.max_tokens is not None or self.max_minutes is not None):
            raise RecipeError("The budget of a relation trial is in epochs; pass --epochs instead of tokens or minutes.")
        if self.task == "re" and self.epochs is not None and self.epochs != int(self.epochs):
            raise RecipeError(f"The epochs of a relation trial are a whole number, not {self.epochs:g}; correct --epochs.")
        if self.metric is not None and self.score is not None:
            raise RecipeError("metric and score both say what to maximise; keep one of them.")
        if self.task == "re" and (self.score is not None or self.guards):
            raise RecipeError("score and guards weigh cloze tasks; a study of relation extraction has --metric alone.")
        if self.portfolio_only and not self.portfolio:
            raise RecipeError("--portfolio-only and --no-portfolio leave nothing to try; keep one of them.")
        for name in self.settings:
            if name in (decided := _DECIDED[self.task]):
                remedy = f"give it as {decided[name]}: beside settings" if decided[name] else "leave it out"
                raise RecipeError(f"settings: {name} is set by the study; {remedy}.")
        for name in ("models", "datasets"):
            entries = getattr(self, name)
            if twice := [entry for entry in entries if entries.count(entry) > 1]:
                raise RecipeError(f"{name} names {twice[0]} twice; name it once.")
