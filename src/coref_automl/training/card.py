"""A model card that fills itself. In: a recipe and what made a checkpoint. Out: README.md beside its weights."""

from __future__ import annotations

from pathlib import Path

from coref_automl.config import to_yaml
from coref_automl.records import Evaluation, Provenance
from coref_automl.store import write_text
from coref_automl.training.recipe import TrainRecipe

_ABOUT = {
    "mlm": "masked language modelling",
    "entity": "entity masking: later mentions of a repeated noun are hidden as whole spans",
    "combined": "masked language modelling and entity masking, mixed by row",
}


def write_card(folder: Path, recipe: TrainRecipe, made: Provenance) -> None:
    """A fresh card; results are added when the checkpoint has been scored."""
    start = f"random weights of the shape `{recipe.shape}`" if recipe.shape else f"`{recipe.model}`"
    if recipe.words_from:
        start += f" with the words of `{recipe.words_from}`"
    header = ["---", "language: ko", "library_name: transformers", "pipeline_tag: fill-mask", "tags: [masked-lm, coref-automl]"]
    if not recipe.shape and not Path(recipe.model).exists() and ":" not in recipe.model:
        header.append(f"base_model: {recipe.model}")
    epochs = "1 epoch" if made.epoch == 1 else f"{made.epoch:g} epochs"
    lines = [
        *header,
        "---",
        f"# {made.run}, step {made.step}",
        "",
        f"Started from {start}; trained by {_ABOUT[made.objective]} on blocks of {made.seq_len:,} tokens for "
        f"{epochs} ({made.tokens:,} real tokens, seed {made.seed}) of `{Path(made.dataset).name}`.",
        "",
        "```python",
        "from transformers import pipeline",
        'pipeline("fill-mask", model="PATH/TO/THIS/FOLDER")("서울은 대한민국의 [MASK]이다.")',
        "```",
        "",
        "## Settings",
        "```yaml",
        to_yaml(recipe).rstrip(),
        "```",
        "",
    ]
    write_text(folder / "README.md", "\n".join(lines))


def add_results(folder: Path, evaluation: Evaluation) -> None:
    """What an evaluation set says of the checkpoint, each number with its interval; what stood there before is replaced."""
    card = folder / "README.md"
    if not card.is_file():
        return
    title = f"## Results on {evaluation.evalset}, {evaluation.seq_len:,} tokens"
    before = card.read_text("utf-8").split(title)[0].rstrip()
    rows = [f"| {name} | {estimate} | {estimate.n:,} |" for name, estimate in evaluation.estimates.items()]
    write_text(card, "\n".join([before, "", title, "| metric | value [95% interval] | items |", "|---|---|---:|", *rows, ""]))
