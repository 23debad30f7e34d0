"""The demonstration. In: nothing but what is bundled. Out: the whole line in a few minutes on a laptop, ending with a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coref_automl.line import LineResult, run_line
from coref_automl.line_recipe import EvaluateStage, LineRecipe, PrepareStage, RelationStage, TrainStage
from coref_automl.progress import Progress

BASE = "bundled:ko-mini"

RECIPE = LineRecipe(
    model=BASE,
    prepare=PrepareStage(sources=("bundled:synthetic-short",), seq_len=512, limit=250, near_duplicates=False),
    train=TrainStage(epochs=1.0, batch=8, micro_batch=4, learning_rate=8e-4, warmup=0.1),
    evaluate=EvaluateStage(words="none", metric="real1_strict", per_source=28),
    relation=RelationStage(rows=400, epochs=3),
)
"""Half of the generated documents to learn from; the other half, held out, and written cloze passages to be measured by."""

QUICK = replace(
    RECIPE,
    prepare=replace(RECIPE.prepare, seq_len=128, limit=8),
    relation=RelationStage(rows=90, epochs=1),
)


def demo(out: Path, *, quick: bool = False, lang: str = "ko", progress: Progress | None = None) -> LineResult:
    """Run the line on bundled data; called again it goes on where it stopped."""
    recipe = QUICK if quick else RECIPE
    return run_line(replace(recipe, lang="en" if lang == "en" else "ko"), out, progress=progress)
