"""What a study of pretraining works with. In: its recipe. Out: prepared datasets by name, and the space to search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coref_automl.config import choose
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.errors import RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.progress import Progress
from coref_automl.tuning.defaults import masked_space
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.space import Space, read_space


def open_datasets(recipe: TuneRecipe, evalset: EvalSet, out: Path, progress: Progress) -> dict[str, PackedDataset]:
    """The prepared datasets by name; texts are prepared first, a folder a length."""
    if recipe.datasets:
        return _labelled([PackedDataset.open(Path(folder)) for folder in recipe.datasets])
    from coref_automl.corpus.prepare import prepare
    from coref_automl.corpus.recipe import PrepareRecipe

    texts = recipe.texts
    assert texts is not None  # a TuneRecipe has datasets or texts
    found = []
    for length in texts.seq_lens:
        folder = out / "datasets" / f"blocks-{length}"
        wanted = PrepareRecipe(
            mode="combined",
            sources=texts.sources,
            model=str(recipe.settings.get("tokenizer") or recipe.models[0]),
            seq_len=length,
            eval_sets=(str(evalset.folder),),
            holdout=0.0,
            limit=texts.limit,
            near_duplicates=texts.near_duplicates,
        )
        prepare(wanted, folder, progress=progress)
        found.append(PackedDataset.open(folder))
    return _labelled(found)


def _labelled(datasets: Sequence[PackedDataset]) -> dict[str, PackedDataset]:
    """Datasets by the name of their folder, so that machines with other paths share a study."""
    names = [dataset.folder.resolve().name for dataset in datasets]
    if len(set(names)) == len(names):
        return dict(zip(names, datasets, strict=True))
    return {str(dataset.folder): dataset for dataset in datasets}


def settle_space(recipe: TuneRecipe, datasets: dict[str, PackedDataset], *, scratch: bool) -> Space:
    """The recipe's own space, or the one for its lengths and families; several models or datasets are dimensions of it."""
    from coref_automl.models.build import NEW, SHAPES
    from coref_automl.models.files import config_of, folder_of

    given = recipe.space
    if given is None:
        families = [
            choose(model.removeprefix(NEW), SHAPES, "shape").family if scratch else config_of(folder_of(model))["model_type"]
            for model in recipe.models
        ]
        given = masked_space(
            lengths=[dataset.seq_len for dataset in datasets.values()],
            rows=min(len(dataset) for dataset in datasets.values()),
            families=families,
            scratch=scratch,
            chains=all(len(dataset.mentions) for dataset in datasets.values()),
            minutes=recipe.max_minutes is not None,
        )
        given = {name: entry for name, entry in given.items() if name not in recipe.settings}
    sides = {"model": recipe.models, "dataset": tuple(datasets)}
    for name in sides:
        if name in given:
            raise RecipeError(f"space: {name} is a dimension by itself when --{name} is given several times; leave it out.")
    whole = {**{name: list(values) for name, values in sides.items() if len(values) > 1}, **given}
    if both := sorted(set(whole) & set(recipe.settings)):
        raise RecipeError(f"{both[0]} stands in settings and in space; leave it in one of them.")
    return read_space(whole, "mlm")
