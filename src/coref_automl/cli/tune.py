"""coref-automl tune: search settings, finish with a confirmed recipe; tune probe: what fits and how fast it trains."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, RecipeFile, options_from, print_json, recipe_from, speak
from coref_automl.config import described, to_mapping
from coref_automl.training.recipe import TrainRecipe
from coref_automl.tuning.recipe import HELP, TuneRecipe

tune_app = typer.Typer(
    help="Search for the best settings and confirm them with new seeds.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
app.add_typer(tune_app, name="tune")


@contextmanager
def from_texts(sources: list[str], seq_lens: list[int], limit: int) -> Iterator[Path]:
    """A recipe that names texts to prepare, for callers who have no file of their own."""
    import yaml

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.yaml"
        texts = {"sources": sources, "seq_lens": seq_lens, "limit": limit}
        path.write_text(yaml.safe_dump({"texts": texts}, allow_unicode=True), "utf-8")
        yield path


@tune_app.callback(epilog="Example: coref-automl tune --recipe recipes/tune-smoke.yaml --out smoke-study")
@options_from(TuneRecipe, HELP, {"models": ("--model",), "datasets": ("--dataset",)})
def tune(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the recipe with its search space and exit.")] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Search for the best settings of training (or of relation extraction), then confirm the best with new seeds.

    The recommended settings are the first trials. Trials that fall behind are pruned; failed ones are marked failed. The same
    command resumes an interrupted study. Writes best-recipe.yaml, best-model/, study.html and trials.csv.
    """
    if context.invoked_subcommand is not None:
        return
    from coref_automl.progress import Progress
    from coref_automl.report.tuning_page import write_study_page
    from coref_automl.tuning.run import read_tune_recipe, recipe_text, run_study, settled

    speak(given.get("lang"))
    wanted = read_tune_recipe(recipe, given)
    speak(wanted.lang)
    progress = Progress(shown=not as_json)
    if dry_run:
        shown = settled(wanted, progress)
        print_json(to_mapping(shown)) if as_json else print(recipe_text(shown), end="")
        return
    result = run_study(wanted, progress=progress, draw=write_study_page)
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines()))


_PROBED = ("model", "dataset", "tokenizer", "objective", "gradient_checkpointing", "device")


@tune_app.command(epilog="Example: coref-automl tune probe --model bundled:ko-mini --dataset prepared_datasets/entity_512")
@options_from(TrainRecipe, {name: described(TrainRecipe)[name].help for name in _PROBED})
def probe(
    *,
    largest: Annotated[int, typer.Option("--largest", min=1, help="Largest micro-batch to try, in rows.")] = 256,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Timed steps per size.")] = 3,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Find the largest micro-batch that trains, optimizer state included; step time, throughput, suggested accumulation."""
    from coref_automl.progress import Progress
    from coref_automl.tuning.probe import probe as measure

    recipe = recipe_from(TrainRecipe, {**given, "out": ""}, "tune probe")
    result = measure(recipe, largest=largest, steps=steps, progress=Progress(shown=not as_json))
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines()))
