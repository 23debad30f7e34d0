"""coref-automl re: relation extraction; explore the data, train, evaluate, predict, run a grid."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, OptionalOut, print_json

if TYPE_CHECKING:
    from coref_automl.relation.results import RelationResult

relation_app = typer.Typer(
    help="Relation extraction on KLUE-RE: explore, train, evaluate, predict, grid.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(relation_app, name="re")

SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without bad rows; they are counted and listed.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `re train` made, or one seed's model in it.")]
_FILE = "a .json, .jsonl or .csv file (also .xz), hub:klue/re:train, or bundled:relations"

_TYPES = "PER, ORG, LOC, DAT, POH or NOH; needed where the run's scheme or label mask reads types"


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


@relation_app.command(
    epilog="Example: coref-automl re train --model klue/roberta-base --train klue-re-v1.1_train.json --dev klue-re-v1.1_dev.json "
    "--out runs/re --scheme typed"
)
def train(
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A recipe; every option below overrides its value.")] = None,
    model: Annotated[str | None, _option("Hub id, folder, or bundled:ko-mini.", "--model")] = None,
    train: Annotated[str | None, _option(f"Training rows: {_FILE}.", "--train")] = None,
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
    _show(train_relation(settings, progress=Progress(shown=not as_json)), as_json)


@relation_app.command(epilog="Example: coref-automl re evaluate runs/re --data klue-re-v1.1_dev.json --json")
def evaluate(
    run: Run,
    data: Annotated[str, typer.Option("--data", help=f"Labelled rows: {_FILE}.")],
    labels: Annotated[bool, typer.Option("--labels", help="Also a line for each of the 30 labels.")] = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score every finished seed of a run on labelled rows: micro-F1, AUPRC, accuracy, n, split; mean, spread, intervals."""
    from coref_automl.progress import Progress
    from coref_automl.relation.evaluate import evaluate_relation

    result = evaluate_relation(run, data, skip_bad=skip_bad, device=device, progress=Progress(shown=not as_json))
    _show(result, as_json, labels=labels)


@relation_app.command(
    epilog='Example: coref-automl re predict runs/re --text "이순신은 서울에서 태어났다." --subject 이순신 --object 서울 '
    "--subject-type PER --object-type LOC"
)
def predict(
    run: Run,
    data: Annotated[str | None, typer.Option("--data", help=f"Rows to label: {_FILE}; no label is needed.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="One sentence.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The subject as it is written in the text.")] = None,
    object_: Annotated[str | None, typer.Option("--object", help="The object as it is written in the text.")] = None,
    subject_type: Annotated[str | None, typer.Option("--subject-type", help=f"{_TYPES}.")] = None,
    object_type: Annotated[str | None, typer.Option("--object-type", help=f"{_TYPES}.")] = None,
    subject_start: Annotated[
        int | None, typer.Option("--subject-start", help="Its first character, where it occurs twice.")
    ] = None,
    object_start: Annotated[
        int | None, typer.Option("--object-start", help="Its first character, where it occurs twice.")
    ] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Average all seeds instead of taking the best one.")] = False,
    out: OptionalOut = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Label new rows (--data FILE --out DIR writes submission.csv), or one sentence (--text, --subject, --object, both types)."""
    from coref_automl.errors import InputError
    from coref_automl.progress import Progress
    from coref_automl.relation.predict import predict_file, predict_text, render

    ways = "pass --data FILE --out DIR, or --text with --subject and --object"
    of_file = [name for name, value in (("--data", data), ("--out", out)) if value is not None]
    words = {"--text": text, "--subject": subject, "--object": object_}
    types = {"--subject-type": subject_type, "--object-type": object_type}
    places = {"--subject-start": subject_start, "--object-start": object_start}
    of_text = [name for name, value in (words | types | places).items() if value is not None]
    if of_file and of_text:
        raise InputError(f"{of_file[0]} is for a file of rows and {of_text[0]} for one sentence; {ways}.")
    if data is not None:
        if out is None:
            raise InputError("Where should submission.csv go? Pass --out DIR.")
        progress = Progress(shown=not as_json)
        made = predict_file(run, data, out, ensemble=ensemble, skip_bad=skip_bad, device=device, progress=progress)
        if as_json:
            print_json(made.to_json())
            return
        for problem in made.problems:
            print(problem, file=sys.stderr)
        print(f"{made.path}: {made.rows:,} rows, seeds {', '.join(map(str, made.seeds))}")
        return
    if text is None or subject is None or object_ is None:
        raise InputError(f"Say what to label: {ways}.")
    found = predict_text(
        run,
        text,
        subject,
        object_,
        types=(subject_type, object_type),
        starts=(subject_start, object_start),
        ensemble=ensemble,
        device=device,
    )
    if as_json:
        print_json(found.to_json())
    else:
        print(render(found, colour=sys.stdout.isatty()))


def _show(result: RelationResult, as_json: bool, *, labels: bool = False) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join([*result.lines(), *(result.label_lines() if labels else ())]))


@relation_app.command(
    epilog="Example: coref-automl re explore klue-re-v1.1_train.json klue-re-v1.1_dev.json --check --out explored"
)
def explore(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=f"One split, or train and another: {_FILE}.")],
    check: Annotated[
        bool, typer.Option("--check", help="Check every span and every mark of every row; list what is wrong.")
    ] = False,
    model: Annotated[str, typer.Option("--model", help="Whose tokenizer --check marks with.")] = "bundled:ko-mini",
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", help="Schemes to check; repeat. Without it: typed, typed-punct.")
    ] = None,
    max_length: Annotated[int, typer.Option("--max-length", help="Tokens a row in --check.")] = 256,
    lang: Annotated[str, typer.Option("--lang", help="Language of the page: ko or en.")] = "ko",
    out: OptionalOut = None,
    as_json: AsJson = False,
) -> None:
    """Look at relation data: labels, type pairs, lengths, repeats, conflicts, shift; with --check, every mark of every row."""
    from coref_automl.config import choose
    from coref_automl.progress import Progress
    from coref_automl.relation.check import check_files
    from coref_automl.relation.data import inspect_relations
    from coref_automl.relation.explore import explore as look
    from coref_automl.relation.explore_page import write_exploration

    language = choose(lang, {"ko": "ko", "en": "en"}, "language")
    splits = [inspect_relations(name) for name in files]
    found = look(splits)
    schemes = scheme or ["typed", "typed-punct"]
    checked = check_files(splits, model, schemes, max_length=max_length, progress=Progress(shown=not as_json)) if check else ()
    page = write_exploration(found, out, lang=language) if out else None  # type: ignore[arg-type]
    if as_json:
        print_json({**found.to_json(), "checks": [result.to_json() for result in checked], "page": str(page) if page else None})
    else:
        print("\n".join(found.lines()))
        for facts in found.splits:
            for problem in facts.problems:
                print(f"{facts.split}, {problem}")
        for result in checked:
            print("\n".join(result.lines()))
        if page:
            print(page)
    if check and (any(facts.problems for facts in found.splits) or any(result.problems for result in checked)):
        raise typer.Exit(2)


@relation_app.command(epilog="Example: coref-automl re grid --recipe recipes/klue-re-grid.yaml --out runs/re_grid")
def grid(
    recipe: Annotated[
        Path, typer.Option("--recipe", help="The grid: models, learning_rates, batch_sizes, epochs, schemes, settings.")
    ],
    train: Annotated[str | None, _option(f"Training rows: {_FILE}.", "--train")] = None,
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

    given = {"train": train, "dev": dev, "out": str(out) if out else None, "keep_weights": keep_weights}
    values = read_yaml(recipe) | {key: value for key, value in given.items() if value is not None}
    settings = from_mapping(GridRecipe, values, str(recipe))
    language = choose(lang, {"ko": "ko", "en": "en"}, "language")
    result = run_grid(settings, progress=Progress(shown=not as_json), lang=language)  # type: ignore[arg-type]
    if as_json:
        print_json(result.to_json())
    else:
        for cell in sorted(result.cells, key=lambda cell: -cell.validation):
            scores = f"micro-F1 {cell.result.micro_f1:.2f}, validation {cell.validation:.2f}" if cell.result else ""
            print(f"{cell.name}: {cell.error or scores}")
        print(Path(result.out) / "results.html")
    if any(cell.error for cell in result.cells):
        raise typer.Exit(1)
