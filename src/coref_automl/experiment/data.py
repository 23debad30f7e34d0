"""What an experiment reads. In: an ExperimentRecipe. Out: evaluation sets, and a dataset for each length; texts are prepared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coref_automl.corpus.dataset import PackedDataset
from coref_automl.errors import RecipeError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.experiment.recipe import BUNDLED, ExperimentRecipe, Texts
from coref_automl.progress import Progress
from coref_automl.store import short_names
from coref_automl.tuning.halves import half_set


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


def _built_set(recipe: ExperimentRecipe, texts: Texts, folder: Path, progress: Progress) -> Path:
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
            told = ", ".join(f"{folder} ({has:,})" for folder, has in held.items())
            raise RecipeError(
                f"No dataset has blocks that {length:,} tokens divide: {told}; prepare one with --seq-len {length}."
            )
        found[length] = Path(min(able, key=lambda folder: held[folder]))
    return found


def _prepared(
    recipe: ExperimentRecipe, texts: Texts, sets: Sequence[Path], folder: Path, length: int, progress: Progress
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
