"""coref-automl re train, re grid: one recipe or many, each over seeds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.options import AsJson, OptionalOut, print_json
from coref_automl.cli.relation import FILE, SkipBad, relation_app, show_result


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


@relation_app.command(
    epilog="Example: coref-automl re train --model klue/roberta-base --train klue-re-v1.1_train.json --dev klue-re-v1.1_dev.json "
    "--out runs/re --scheme typed"
)
def train(
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A recipe; every option below overrides its value.")] = None,
    model: Annotated[str | None, _option("Hub id, folder, or bundled:ko-mini.", "--model")] = None,
    train: Annotated[str | None, _option(f"Training rows: {FILE}.", "--train")] = None,
    dev: Annotated[str | None, _option("Rows to score at the end; they choose nothing.", "--dev")] = None,
    out: OptionalOut = None,
    scheme: Annotated[str | None, _option("Marker scheme (default typed).", "--scheme")] = None,
    head: Annotated[str | None, _option("What the head reads: auto, cls, starts, both.", "--head")] = None,
    seeds: Annotated[int | None, _option("How many seeds (default 3).", "--seeds")] = None,
    first_seed: Annotated[int | None, _option("The first of them (default 0).", "--seed", "--first-seed")] = None,
    epochs: Annotated[int | None, _option("Epochs at most (default 5).", "--epochs")] = None,
    batch_size: Annotated[int | None, _option("Rows a step (default 32).", "--batch-size")] = None,
    learning_rate: Annotated[
        float | None, _option("Default: 3e-4 for small encoders, 5e-5 else.", "--lr", "--learning-rate")
    ] = None,
    weight_decay: Annotated[float | None, _option("Default 0.01.", "--weight-decay")] = None,
    warmup: Annotated[float | None, _option("Share of the steps (default 0.1).", "--warmup")] = None,
    layer_decay: Annotated[float | None, _option("Rate of a layer over the one above it (default 1).", "--layer-decay")] = None,
    dropout: Annotated[float | None, _option("Of the head (default 0.1).", "--dropout")] = None,
    max_length: Annotated[
        int | None, _option("Tokens a row; longer ones are cut around the entities (256).", "--max-length")
    ] = None,
    max_rows: Annotated[int | None, _option("Use this many training rows, always the same ones.", "--max-rows")] = None,
    holdout: Annotated[float | None, _option("Share of train's sentences that chooses the epoch (0.05).", "--holdout")] = None,
    choose_by: Annotated[str | None, _option("micro_f1, auprc or loss on that share.", "--choose-by")] = None,
    patience: Annotated[int | None, _option("Epochs without a gain before stopping; 0 never stops (2).", "--patience")] = None,
    threshold: Annotated[float | None, _option("A gain under this many points is none (0).", "--threshold")] = None,
    label_smoothing: Annotated[float | None, _option("Default 0.", "--label-smoothing")] = None,
    r_drop: Annotated[float | None, _option("Weight of R-Drop (default 0).", "--r-drop")] = None,
    label_mask: Annotated[str | None, _option("off, hard or soft, by type pair.", "--label-mask")] = None,
    mask_support: Annotated[int | None, _option("Rows a label needs with a pair to be allowed (1).", "--mask-support")] = None,
    hard_negatives: Annotated[
        float | None, _option("Share of no_relation rows repeated next epoch (0).", "--hard-negatives")
    ] = None,
    loss: Annotated[str | None, _option("cross-entropy (default), focal or class-balanced.", "--loss")] = None,
    focal_gamma: Annotated[float | None, _option("How little easy rows count under focal (2).", "--focal-gamma")] = None,
    balance_beta: Annotated[float | None, _option("Effective number, class-balanced (0.9999).", "--balance-beta")] = None,
    fgm: Annotated[float | None, _option("Length of an adversarial push on the word embeddings (0).", "--fgm")] = None,
    ema: Annotated[float | None, _option("Decay of the average of weights that is scored, say 0.999 (0: off).", "--ema")] = None,
    distance: Annotated[
        bool | None, _option("Tell the head how far the entities stand apart (no).", "--distance/--no-distance")
    ] = None,
    encoder_dropout: Annotated[float | None, _option("Set the encoder's dropout (as it is).", "--encoder-dropout")] = None,
    prior: Annotated[str | None, _option("off, or em: correct the label prior of the rows scored.", "--prior")] = None,
    precision: Annotated[str | None, _option("auto, float32, tf32 or bfloat16.", "--precision")] = None,
    graphs: Annotated[bool | None, _option("On CUDA, record a step once and replay it (yes).", "--graphs/--no-graphs")] = None,
    keep_weights: Annotated[
        bool | None, _option("Keep each seed's best weights (default yes).", "--keep-weights/--no-keep-weights")
    ] = None,
    skip_bad: SkipBad = False,
    device: Annotated[str | None, _option("cpu, cuda, cuda:1, or auto.", "--device")] = None,
    as_json: AsJson = False,
) -> None:
    """Train relation extraction, three seeds by default, and score --dev with the weights a slice of train chose.

    The same command goes on from where it stopped. Techniques are off unless asked for.
    """
    given = {key: value for key, value in locals().items() if key not in ("recipe", "as_json") and value is not None}
    from coref_automl.config import from_mapping, read_yaml
    from coref_automl.progress import Progress
    from coref_automl.relation.recipe import RelationRecipe
    from coref_automl.relation.train import train_relation

    values = read_yaml(recipe) if recipe else {}
    if not given["skip_bad"]:
        del given["skip_bad"]  # a recipe may ask for it
    values |= {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    settings = from_mapping(RelationRecipe, values, str(recipe) if recipe else "re train")
    show_result(train_relation(settings, progress=Progress(shown=not as_json)), as_json)


@relation_app.command(epilog="Example: coref-automl re grid --recipe recipes/klue-re-grid.yaml --out runs/re_grid")
def grid(
    recipe: Annotated[
        Path, typer.Option("--recipe", help="The grid: models, learning_rates, batch_sizes, epochs, schemes, settings.")
    ],
    train: Annotated[str | None, _option(f"Training rows: {FILE}.", "--train")] = None,
    dev: Annotated[str | None, _option("Rows to score; they choose nothing.", "--dev")] = None,
    out: OptionalOut = None,
    keep_weights: Annotated[
        bool | None,
        _option(
            "Keep every cell's weights, not the best one's alone, to score another --dev later (no).",
            "--keep-weights/--no-keep-weights",
        ),
    ] = None,
    lang: Annotated[str, typer.Option("--lang", help="Language of the page: ko or en.")] = "ko",
    as_json: AsJson = False,
) -> None:
    """Train a grid of backbones, rates, batch sizes and schemes; one cell's error does not stop the others.

    The same command goes on from where it stopped. Results stand in results.csv, results.md and results.html.
    """
    from coref_automl.config import choose, from_mapping, read_yaml
    from coref_automl.progress import Progress
    from coref_automl.relation.grid import GridRecipe, run_grid
    from coref_automl.report.grid_page import write_grid_page
    from coref_automl.report.language import LANGUAGES

    given = {"train": train, "dev": dev, "out": str(out) if out else None, "keep_weights": keep_weights}
    values = read_yaml(recipe) | {key: value for key, value in given.items() if value is not None}
    settings = from_mapping(GridRecipe, values, str(recipe))
    language = choose(lang, LANGUAGES, "language")
    result = run_grid(settings, progress=Progress(shown=not as_json), draw=partial(write_grid_page, lang=language))
    if as_json:
        print_json(result.to_json())
    else:
        for cell in sorted(result.cells, key=lambda cell: -cell.validation):
            scores = f"micro-F1 {cell.result.micro_f1:.2f}, validation {cell.validation:.2f}" if cell.result else ""
            print(f"{cell.name}: {cell.error or scores}")
        print(Path(result.out) / "results.html")
    if any(cell.error for cell in result.cells):
        raise typer.Exit(1)
