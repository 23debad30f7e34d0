"""`coref_automl.adapt`. In: a model and texts. Out: what the full pipeline found, as `coref-automl adapt` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.base.config import as_path, as_paths
from coref_automl.base.progress import Shown, as_progress

if TYPE_CHECKING:
    from coref_automl.extras.study.adapt import Adapted


def adapt(
    model: str | Path,
    source: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    seq_len: int | None = None,
    epochs: float | None = None,
    objective: str | Sequence[str] | None = None,
    yes: bool = False,
    progress: Shown = None,
    **options: Any,
) -> Adapted:
    """Prepare texts, train, evaluate and recommend, as `coref-automl adapt` does; `load(result.chosen)` is the model to use.

    Args:
        model: a hub id, a folder, or bundled:ko-mini.
        source: one or several files of texts, or named sources.
        out: output folder; the same call resumes.
        seq_len: tokens per block and window. Default: 512.
        epochs: epochs of each run. Default: 1, more where texts are few.
        objective: mlm, combined or entity. Default: all three.
        yes: train even where the texts give too few steps.
        progress: True shows progress on standard error.
        options: other sections of the recipe as dictionaries (train, texts, evaluate, relation, coreference); seeds, device, ...

    Example:
        >>> import coref_automl as ca
        >>> try:
        ...     ca.adapt("bundled:ko-mini", "missing.jsonl", out=out)
        ... except ca.CorefError as error:
        ...     "missing.jsonl" in str(error)
        True
    """
    from coref_automl.corpus.sources import SOURCES
    from coref_automl.extras.study.adapt import adapt as run
    from coref_automl.extras.study.adapt import adapt_recipe, recipe_values
    from coref_automl.extras.study.recipe import ExperimentRecipe

    ExperimentRecipe.known_keys(options, "adapt", adapt.__kwdefaults__ or ())
    sources = [name if ":" in name or name in SOURCES else f"local:{name}" for name in as_paths(source, "source")]
    texts = {**options.pop("texts", {}), "sources": sources}
    objectives = as_paths(objective or (), "objective")
    values = {"model": str(as_path(model, "model")), "out": str(as_path(out, "out")), "texts": texts, **options}
    for key, value in recipe_values(seq_len, epochs, objectives).items():
        values[key] = {**values.get(key, {}), **value} if key == "train" else value
    return run(adapt_recipe(None, values), progress=as_progress(progress), confirm=lambda plan: yes or not plan.too_short)
