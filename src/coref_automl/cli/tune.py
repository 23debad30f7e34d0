"""coref-automl tune: search settings, finish with a confirmed recipe; tune probe: what fits and how fast it trains."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, OptionalOut, print_json

tune_app = typer.Typer(
    help="Search for the best settings; ends with a recipe that further seeds have confirmed, or says that it is noise.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
app.add_typer(tune_app, name="tune")


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


@contextmanager
def from_texts(sources: list[str], seq_lens: list[int], limit: int) -> Iterator[Path]:
    """A recipe that names texts to prepare, for callers who have no file of their own."""
    import yaml

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.yaml"
        texts = {"sources": sources, "seq_lens": seq_lens, "limit": limit}
        path.write_text(yaml.safe_dump({"texts": texts}, allow_unicode=True), "utf-8")
        yield path


@tune_app.callback(
    epilog="Example: coref-automl tune --recipe recipes/tune-smoke.yaml --out smoke-study (the same command goes on after a stop)"
)
def tune(
    context: typer.Context,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A recipe; every option below overrides its value.")] = None,
    models: Annotated[list[str] | None, _option("Model; several become a dimension.", "--model")] = None,
    datasets: Annotated[list[str] | None, _option("Prepared folder; several become a dimension.", "--dataset")] = None,
    task: Annotated[str | None, _option("mlm (default) or re: relation extraction.", "--task")] = None,
    train: Annotated[str | None, _option("Relation rows to train on (task re).", "--train")] = None,
    dev: Annotated[str | None, _option("Relation rows for the verdict (task re).", "--dev")] = None,
    eval_set: Annotated[str | None, _option("Evaluation set; the bundled one unless given.", "--eval-set")] = None,
    eval_items: Annotated[int | None, _option("At most so many items of a task in each half.", "--eval-items")] = None,
    metric: Annotated[str | None, _option("What is searched for (default real1_strict; micro_f1 for re).", "--metric")] = None,
    trials: Annotated[int | None, _option("How many trials (default 20).", "--trials")] = None,
    epochs: Annotated[float | None, _option("Budget of a trial in epochs.", "--epochs")] = None,
    max_tokens: Annotated[int | None, _option("Budget of a trial in real tokens.", "--max-tokens")] = None,
    max_minutes: Annotated[float | None, _option("Budget of a trial in minutes.", "--max-minutes")] = None,
    sampler: Annotated[str | None, _option("tpe (default), or random to stand beside it in one table.", "--sampler")] = None,
    prune: Annotated[bool | None, _option("Cut trials that fall behind (default yes).", "--prune/--no-prune")] = None,
    finalists: Annotated[int | None, _option("Trials trained with further seeds at the end (3).", "--finalists")] = None,
    seeds: Annotated[int | None, _option("Seeds of a finalist in all (3).", "--seeds")] = None,
    seed: Annotated[int | None, _option("Seed of everything random (0).", "--seed")] = None,
    workers: Annotated[int | None, _option("Trials at a time (1); they take the GPUs in turn.", "--workers")] = None,
    engine: Annotated[str | None, _option("local (default) or ray.", "--engine")] = None,
    storage: Annotated[str | None, _option("postgresql://... for many machines; a file unless given.", "--storage")] = None,
    study: Annotated[str | None, _option("Name of the study in its storage.", "--study")] = None,
    device: Annotated[str | None, _option("auto, cpu or cuda.", "--device")] = None,
    lang: Annotated[str | None, _option("Language of study.html: ko or en.", "--lang")] = None,
    out: OptionalOut = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the recipe with its space, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search for the best settings of training (or of relation extraction), then confirm the best with further seeds.

    The recommended settings are the first trials. Trials that fall behind are cut; failed ones are marked failed. The same
    command goes on from where it stopped. Leaves best-recipe.yaml, best-model/, study.html and trials.csv.
    """
    if context.invoked_subcommand is not None:
        return
    given = {key: value for key, value in locals().items() if key not in ("context", "recipe", "dry_run", "as_json")}
    from coref_automl.progress import Progress
    from coref_automl.report.tuning_page import write_study_page
    from coref_automl.tuning.run import read_tune_recipe, recipe_text, run_study, settled

    wanted = read_tune_recipe(recipe, given)
    progress = Progress(shown=not as_json)
    if dry_run:
        print(recipe_text(settled(wanted, progress)), end="")
        return
    result = run_study(wanted, progress=progress, draw=write_study_page)
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines()))


@tune_app.command(epilog="Example: coref-automl tune probe --model bundled:ko-mini --dataset prepared_datasets/entity_512")
def probe(
    model: Annotated[str, typer.Option("--model", help="Model to train, or new:SHAPE.")],
    dataset: Annotated[Path, typer.Option("--dataset", help="Prepared folder; its length is the one that is tried.")],
    tokenizer: Annotated[str | None, _option("Tokenizer of a new:SHAPE model.", "--tokenizer")] = None,
    objective: Annotated[str, typer.Option("--objective", help="mlm, entity or combined.")] = "mlm",
    gradient_checkpointing: Annotated[bool, typer.Option("--gradient-checkpointing", help="Less memory, more time.")] = False,
    largest: Annotated[int, typer.Option("--largest", min=1, help="Rows at which to stop trying.")] = 256,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps that are timed at each size.")] = 3,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """The largest micro-batch that trains (optimizer state included), step time, tokens a second, suggested accumulation."""
    from coref_automl.progress import Progress
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.tuning.probe import probe as measure

    recipe = TrainRecipe(
        model=model,
        dataset=str(dataset),
        out="",
        tokenizer=tokenizer,
        objective=objective,  # type: ignore[arg-type]
        gradient_checkpointing=gradient_checkpointing,
        device=device,
    )
    result = measure(recipe, largest=largest, steps=steps, progress=Progress(shown=not as_json))
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines()))
