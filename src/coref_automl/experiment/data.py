"""What an experiment reads. In: an ExperimentRecipe. Out: evaluation sets, a dataset per length, relation rows, annotated texts.

Texts are prepared, and bundled rows and parts of annotated data written, under the experiment's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from coref_automl.comparison.arms import seed_of
from coref_automl.comparison.scores import is_equal_training
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.engine.job import Job
from coref_automl.errors import FolderError, RecipeError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.experiment.recipe import BUNDLED, CoreferenceStage, ExperimentRecipe, HeldOutTexts, RelationStage
from coref_automl.paths import short_names
from coref_automl.progress import Progress
from coref_automl.store import read_json, write_json
from coref_automl.tuning.score import half_set

SEEDS_APART = 1_000
"""Between the fine-tuning seeds of one run and the next: seeds that a later call adds are still no other run's."""


def evaluation_sets(recipe: ExperimentRecipe, out: Path, progress: Progress) -> tuple[Path, ...]:
    stage = recipe.evaluate
    named = tuple(bundled_eval_set() if name == BUNDLED else Path(name) for name in stage.sets)
    if not named:
        named = (_built_set(recipe, recipe.texts, out / "evalset", progress) if recipe.texts else bundled_eval_set(),)
    if stage.half is None:
        return named
    names = short_names([folder.resolve() for folder in named])
    places = [out / "evalsets" / f"{names[folder.resolve()]}-{stage.half}" for folder in named]
    return tuple(half_set(EvalSet.open(folder), place, stage.half).folder for folder, place in zip(named, places, strict=True))


def _built_set(recipe: ExperimentRecipe, texts: HeldOutTexts, folder: Path, progress: Progress) -> Path:
    """An evaluation set of the texts' held-out documents, and of the bundled cloze passages where LAMBADA is among the tasks."""
    from coref_automl.evaluation.prepare import prepare_eval
    from coref_automl.evaluation.recipe import EvalRecipe

    stage = recipe.evaluate
    wanted = EvalRecipe(
        models=(recipe.model,),
        tasks=stage.tasks,
        sources=texts.sources,
        lambada=("bundled:cloze",) if "lambada" in stage.tasks else (),
        holdout=texts.holdout,
        limit=texts.limit,
        per_source=stage.per_source,
        per_document=stage.per_document,
        min_syllables=stage.min_syllables,
        single_entry=stage.single_entry,
    )
    return prepare_eval(wanted, folder, progress=progress).folder


def datasets(recipe: ExperimentRecipe, out: Path, sets: Sequence[Path], progress: Progress) -> dict[int, Path]:
    """A dataset for each length: the one prepared for it, or one whose blocks it divides."""
    if not recipe.datasets and recipe.texts:
        return {n: _prepared(recipe, recipe.texts, sets, out / "datasets" / str(n), n, progress) for n in recipe.lengths}
    held = {folder: PackedDataset.open(Path(folder)).seq_len for folder in recipe.datasets}
    found = {}
    for length in recipe.lengths:
        able = [folder for folder, has in held.items() if has % length == 0]
        if not able:
            known = ", ".join(f"{folder} ({has:,})" for folder, has in held.items())
            raise RecipeError(
                f"No dataset has blocks that {length:,} tokens divide: {known}; prepare one with --seq-len {length}."
            )
        found[length] = Path(min(able, key=lambda folder: held[folder]))
    return found


def _prepared(
    recipe: ExperimentRecipe, texts: HeldOutTexts, sets: Sequence[Path], folder: Path, length: int, progress: Progress
) -> Path:
    """One dataset for all methods: blocks with noun chains. The runs differ in what they hide, and in nothing else."""
    from coref_automl.corpus.prepare import prepare
    from coref_automl.corpus.recipe import PrepareRecipe

    wanted = PrepareRecipe(
        mode="combined",
        sources=texts.sources,
        model=recipe.model,
        seq_len=length,
        eval_sets=tuple(map(str, sets)),
        holdout=texts.holdout,
        limit=texts.limit,
        near_duplicates=texts.near_duplicates,
    )
    prepare(wanted, folder, progress=progress)
    return folder


@dataclass(frozen=True, slots=True)
class TaskData:
    """What a task is fine-tuned on and scored by: files and settings in the words of its recipe, their sizes and their bytes."""

    files: dict[str, str | None]
    sizes: dict[str, int]
    prints: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)


def relation_rows(stage: RelationStage, out: Path) -> TaskData:
    """The rows that a stage names; the first of the bundled ones are written to OUT/relation-rows."""
    from coref_automl.corpus.sources import bundled_rows
    from coref_automl.relation.data import read_relations
    from coref_automl.relation.scoring import rows_fingerprint

    files = {"train": stage.train, "dev": stage.dev}
    if stage.train == BUNDLED:
        folder = out / "relation-rows" / f"{stage.rows}"
        files = {name: str(folder / f"{name}.json") for name in files}
        for file, name, count in (("train", "relations", stage.rows), ("dev", "relations-dev", max(200, stage.rows // 4))):
            if not Path(str(files[file])).is_file():
                write_json(Path(str(files[file])), list(islice(bundled_rows(name), count)))
    skip = bool(stage.settings.get("skip_bad", False))
    read = {name: read_relations(path, skip_bad=skip).rows for name, path in files.items() if path}
    prints = {name: rows_fingerprint(rows) for name, rows in read.items()}
    return TaskData(files, {name: len(rows) for name, rows in read.items()}, prints)


def annotated_data(stage: CoreferenceStage, out: Path) -> TaskData:
    """The documents of a stage. A part of them (`dev`, `not-dev`) is written to OUT/data, with its split."""
    from coref_automl.coreference.data import read_schemes, write_documents
    from coref_automl.coreference.split import Split, documents_fingerprint, sides_of

    more = tuple(stage.settings.get("more", ()))
    read = read_schemes((stage.data, *more), skip_bad=bool(stage.settings.get("skip_bad", False)))
    documents, path, split, folds = list(read.documents), stage.data, None, stage.folds
    if len(documents) < 2:
        raise RecipeError(f"{stage.data} has {len(documents)} documents; coreference needs two: one to train on, one to test.")
    if stage.documents != "all":
        if more:
            raise RecipeError(f"coreference: settings: more goes with documents: all, not {stage.documents}; join the files.")
        sides = sides_of(stage.split, documents)
        without = sides.test if stage.documents == "dev" else sides.dev
        documents = [document for document in documents if document.id not in without]
        path = str(out / "data" / f"{read.name}-{stage.documents}.jsonl")
        write_documents(Path(path), documents)
        if stage.documents == "dev":
            split, folds = str(Path(path).with_suffix(".split.json")), 0
            write_json(Path(split), Split(sides.train, (), sides.dev).to_json())
    characters = {"characters": sum(len(document.text) for document in documents)}
    prints = {"documents": documents_fingerprint(documents)}
    return TaskData({"data": path, "split": split}, characters, prints, {"folds": min(folds, len(documents))})


def refuse_unequal(tokens: Mapping[Any, int]) -> None:
    least, most = min(tokens, key=lambda arm: tokens[arm]), max(tokens, key=lambda arm: tokens[arm])
    if not is_equal_training(tokens[least], tokens[most]):
        raise RecipeError(
            f"The methods are not trained alike: {least} would see {tokens[least]:,} tokens and {most} {tokens[most]:,}, so a "
            "difference could come from the training alone; give all of them the same max_tokens or epochs, under train."
        )


def refuse_other_first_seed(recipe: ExperimentRecipe, out: Path) -> None:
    """Fine-tuning seeds count from the first seed: counted from another one, two runs would share theirs."""
    kinds = [kind for kind in ("relation", "coreference") if (stage := getattr(recipe, kind)) and stage.start == "every"]
    begun = set()
    for held in (path for kind in kinds for path in (out / "steps" / kind).glob("*/job.json")):
        job = Job.from_json(read_json(held))
        begun.add(seed_of(job.key) - job.recipe["settings"]["first_seed"] // SEEDS_APART)
    if begun and recipe.first_seed not in begun:
        raise FolderError(
            f"{out} was begun with first_seed {min(begun)}, and this command has first_seed {recipe.first_seed}; "
            "pass the same first seed with more seeds, or choose another --out."
        )
