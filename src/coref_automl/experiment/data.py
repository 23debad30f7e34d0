"""What an experiment reads. In: an ExperimentRecipe. Out: evaluation sets, and a dataset per length.

Texts are prepared under the experiment's folder. What outside checks read is opened by these themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coref_automl.comparison.arms import seed_of
from coref_automl.comparison.runs import CHOSEN
from coref_automl.comparison.scores import is_equal_training
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.engine.job import Job
from coref_automl.errors import FolderError, RecipeError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.experiment.recipe import BUNDLED, ExperimentRecipe, HeldOutTexts
from coref_automl.paths import short_names
from coref_automl.progress import Progress
from coref_automl.store import read_json
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


def refuse_unequal(tokens: Mapping[Any, int]) -> None:
    least, most = min(tokens, key=lambda arm: tokens[arm]), max(tokens, key=lambda arm: tokens[arm])
    if not is_equal_training(tokens[least], tokens[most]):
        raise RecipeError(
            f"The methods are not trained alike: {least} would see {tokens[least]:,} tokens and {most} {tokens[most]:,}, so a "
            "difference could come from the training alone; give all of them the same max_tokens or epochs, under train."
        )


def refuse_other_first_seed(recipe: ExperimentRecipe, out: Path) -> None:
    """Fine-tuning seeds count from the first seed: counted from another one, two runs would share theirs."""
    kinds = [kind for kind, stage in recipe.checks.items() if stage.start != CHOSEN]
    begun = set()
    for held in (path for kind in kinds for path in (out / "steps" / kind).glob("*/job.json")):
        job = Job.from_json(read_json(held))
        begun.add(seed_of(job.key) - job.recipe["settings"]["first_seed"] // SEEDS_APART)
    if begun and recipe.first_seed not in begun:
        raise FolderError(
            f"{out} was begun with first_seed {min(begun)}, and this command has first_seed {recipe.first_seed}; "
            "pass the same first seed with more seeds, or choose another --out."
        )
