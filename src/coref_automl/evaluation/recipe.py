"""The recipe of an evaluation set. In: options or YAML. Out: a frozen recipe whose values are possible together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from coref_automl.config import Setting, choose, typed
from coref_automl.corpus.holdout import LEAST, SHARE
from coref_automl.errors import RecipeError
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.real import PER_DOCUMENT
from coref_automl.evaluation.tasks.task import ClozeTask
from coref_automl.records import Task


@dataclass(frozen=True, slots=True)
class EvalRecipe:
    """What `prepare eval` is asked for.

    `models` name tokenizers: noun tables are built for each, and distances are counted in tokens of the first, the reference.
    `sources` give the texts of `real`, `real-far` and `passage`. `gold` and `lambada` are files of those tasks (`local:PATH` or a
    path; for lambada also `ko-lambada` on the hub and `bundled:cloze`); `files` are those of any other task, as `TASK=PATH`. Only
    held-out documents of a source are used, the ones that `prepare mlm|entity|combined` leaves out; `all_documents` uses every
    one, for texts that nothing trains on. `limit` bounds the rows of each file or hub source. At most `per_source` real items per
    source and `per_document` per document; at most `per_bucket` far items per source and bucket; each for names and for common
    nouns. `single_entry` keeps real items
    whose answer is one vocabulary entry of the reference tokenizer: with that vocabulary, strict cannot reach the others.
    """

    models: Annotated[
        tuple[str, ...],
        Setting("Model whose tokenizer to build noun tables for; the first is the reference. Repeatable.", flags=("--model",)),
    ]
    tasks: Annotated[
        tuple[Task, ...],
        Setting(f"{', '.join(TASKS)}; repeatable. Default: the tasks that the inputs allow.", flags=("--task",)),
    ] = ("real", "real-far")
    sources: Annotated[
        tuple[str, ...],
        Setting("Named source (see: coref-automl sources), local:PATH or a quoted glob; repeatable.", flags=("--source",)),
    ] = ()
    gold: Annotated[tuple[str, ...], Setting("File of texts with coreference clusters; repeatable.")] = ()
    lambada: Annotated[tuple[str, ...], Setting("File in Ko-LAMBADA's columns, ko-lambada or bundled:cloze; repeatable.")] = ()
    field: Annotated[str | None, Setting("Field that holds the text, if not the source's usual one.")] = None
    limit: Annotated[int | None, Setting("Read at most this many rows of each file or hub source.", 1)] = None
    holdout: Annotated[
        float,
        Setting(
            "Fraction of each source held out for evaluation (at least 300 documents, at most half); 0 holds out none.", 0, 0.5
        ),
    ] = SHARE
    least: Annotated[int, Setting("Minimum number of documents held out per source.", 0)] = LEAST
    all_documents: Annotated[bool, Setting("Use all documents, not only held-out ones: for texts that are never trained on.")] = (
        False
    )
    per_source: Annotated[int, Setting("Maximum number of real items per source, of names and of common nouns.", 1)] = 1_600
    per_bucket: Annotated[int, Setting("Maximum number of far items per source and distance bucket.", 1)] = 400
    per_document: Annotated[int, Setting("Maximum number of real items per document.", 1)] = PER_DOCUMENT
    single_entry: Annotated[bool, Setting("Keep only real items whose answer is one vocabulary entry of the first --model.")] = (
        False
    )
    seed: Annotated[int, Setting("Random seed.", 0)] = 0
    files: Annotated[
        tuple[str, ...], Setting("Annotated file of any other task, as TASK=PATH; repeatable.", flags=("--file",))
    ] = ()

    def __post_init__(self) -> None:
        typed(self)
        if not self.models:
            raise RecipeError("Name the model whose tokenizer is the reference, with --model.")
        for entry in self.files:
            choose(entry.partition("=")[0], {name: task for name, task in TASKS.items() if task.rows}, "task with files")
        for task in self.tasks:
            choose(task, TASKS, "task")
            if self.asks_for_items and not self.inputs(task):
                raise RecipeError(f"The task {task} needs {_option(TASKS[task])}; name one, or leave the task out.")

    @property
    def asks_for_items(self) -> bool:
        return bool(self.sources or self.gold or self.lambada or self.files)

    def inputs(self, task: Task) -> tuple[str, ...]:
        """Where a task finds its documents: the sources, or files of its own."""
        if TASKS[task].rows is None:
            return self.sources
        named = {"gold": self.gold, "lambada": self.lambada}.get(task, ())
        return (*named, *(path for name, _, path in (entry.partition("=") for entry in self.files) if name == task))


def _option(task: ClozeTask) -> str:
    if task.rows is None:
        return "--source"
    return f"--{task.name}" if task.name in ("gold", "lambada") else f"--file {task.name}=PATH"
