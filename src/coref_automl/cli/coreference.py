"""coref-automl coref: coreference; explore annotated data, train, evaluate, predict the chains of a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.app import Verbs, app
from coref_automl.cli.options import AsJson, OptionalOut, print_json

coreference_app = typer.Typer(
    cls=Verbs, help="Coreference: explore, train, evaluate, predict.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(coreference_app, name="coref")

FILE = "a .jsonl, .conll or .conllu file (also .xz)"
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without bad rows; they are counted and listed.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.")]
Base = Annotated[
    str | None, typer.Option("--base", help="Where the encoder of a low-rank head lies, if not where it was trained.")
]


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


@coreference_app.command(epilog="Example: coref-automl coref explore koconovel_coref.jsonl.xz --model bundled:ko-mini")
def explore(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=f"Annotated texts: {FILE}.")],
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Whose tokens to look at; repeat. Without it: bundled:ko-mini.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the good documents of one file as .jsonl, .conll or .conllu.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at annotated data: chains, nesting, particles, the share of mentions on token edges, every problem with its reason."""
    from coref_automl.coreference.data import inspect_coref, write_documents
    from coref_automl.coreference.explore import explore as look
    from coref_automl.errors import InputError

    if write is not None and len(files) != 1:
        raise InputError(f"--write takes one file, not {len(files)}; convert them one by one.")
    read = [inspect_coref(name) for name in files]
    found = [look(data, model or ["bundled:ko-mini"]) for data in read]
    if write is not None:
        write_documents(write, read[0].documents)
    if as_json:
        print_json([one.to_json() for one in found])
    else:
        print("\n".join(line for one in found for line in one.lines()))


@coreference_app.command(
    epilog="Example: coref-automl coref train --model bundled:ko-mini --data koconovel_coref.jsonl.xz --split koconovel "
    "--skip-bad --out runs/coref"
)
def train(
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A recipe; every option below overrides its value.")] = None,
    model: Annotated[str | None, _option("Hub id, folder, or bundled:ko-mini.", "--model")] = None,
    data: Annotated[str | None, _option(f"Annotated texts: {FILE}.", "--data")] = None,
    out: OptionalOut = None,
    split: Annotated[str | None, _option("koconovel, or a JSON file with train, dev and test.", "--split")] = None,
    folds: Annotated[int | None, _option("Cross-fit: test every document once, in this many folds.", "--folds")] = None,
    holdout: Annotated[
        float | None, _option("Without a split: share of documents that chooses the epoch (0.1).", "--holdout")
    ] = None,
    seeds: Annotated[int | None, _option("How many seeds (default 1).", "--seeds")] = None,
    first_seed: Annotated[int | None, _option("The first of them (default 0).", "--seed", "--first-seed")] = None,
    epochs: Annotated[int | None, _option("Epochs (default 8).", "--epochs")] = None,
    rank: Annotated[int | None, _option("Train a change of this rank instead of the whole encoder (0: whole).", "--rank")] = None,
    learning_rate: Annotated[float | None, _option("Of the encoder (default by its size).", "--lr", "--learning-rate")] = None,
    head_rate: Annotated[float | None, _option("Of the head (default 1e-3).", "--head-lr", "--head-rate")] = None,
    weight_decay: Annotated[float | None, _option("Default 0.01.", "--weight-decay")] = None,
    warmup: Annotated[float | None, _option("Share of the steps (default 0.1).", "--warmup")] = None,
    dropout: Annotated[float | None, _option("Of the head (default 0.3).", "--dropout")] = None,
    size: Annotated[int | None, _option("Width of the head (default 192).", "--size")] = None,
    window: Annotated[int | None, _option("Tokens the encoder reads at a time (default 512).", "--window")] = None,
    segment: Annotated[int | None, _option("Tokens a mention looks back over in training (default 2048).", "--segment")] = None,
    batch_tokens: Annotated[int | None, _option("Tokens per step (default 2048).", "--batch-tokens")] = None,
    note: Annotated[str | None, _option("What the model knows, in a sentence; predict shows it.", "--note")] = None,
    skip_bad: SkipBad = False,
    device: Annotated[str | None, _option("cpu, cuda, cuda:1, or auto.", "--device")] = None,
    precision: Annotated[str | None, _option("auto (bfloat16 on CUDA), float32 or bfloat16.", "--precision")] = None,
    as_json: AsJson = False,
) -> None:
    """Train coreference on annotated texts and score the test documents: MUC, B-cubed, CEAF-e, CoNLL, LEA, with intervals.

    The same command goes on from where it stopped.
    """
    given = {key: value for key, value in locals().items() if key not in ("recipe", "as_json") and value is not None}
    from coref_automl.config import from_mapping, read_yaml
    from coref_automl.coreference.recipe import CoreferenceRecipe
    from coref_automl.coreference.train import train_coreference
    from coref_automl.progress import Progress

    values = read_yaml(recipe) if recipe else {}
    if not given["skip_bad"]:
        del given["skip_bad"]  # a recipe may ask for it
    values |= {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    settings = from_mapping(CoreferenceRecipe, values, str(recipe) if recipe else "coref train")
    result = train_coreference(settings, progress=Progress(shown=not as_json))
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines()))


@coreference_app.command(epilog="Example: coref-automl coref evaluate runs/coref --data my_novels.jsonl --groups")
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, one seed's model, or bundled:ko-mini-coref.")],
    data: Annotated[str, typer.Option("--data", help=f"Annotated texts: {FILE}.")],
    split: Annotated[str | None, typer.Option("--split", help="koconovel, or a JSON file: score one side of it alone.")] = None,
    side: Annotated[str, typer.Option("--side", help="The side of the split to score: train, dev or test.")] = "test",
    groups: Annotated[bool, typer.Option("--groups", help="Also by kind of mention and by distance.")] = False,
    base: Base = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a run on annotated texts, with gold mentions and with its own; documents it learned from are left out."""
    from coref_automl.coreference.evaluate import evaluate_coreference, group_lines
    from coref_automl.progress import Progress

    progress = Progress(shown=not as_json)
    found = evaluate_coreference(
        run, data, split=split, side=side, skip_bad=skip_bad, device=device, base=base, groups=groups, progress=progress
    )
    if as_json:
        print_json(found.to_json())
    else:
        print("\n".join([*found.result.lines(), *(group_lines(found.groups) if groups else ())]))


@coreference_app.command(epilog='Example: coref-automl coref predict "민수는 어머니를 찾았다. 그는 어머니를 안았다."')
def predict(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="A text; without it --file, or standard input.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A UTF-8 text file.")] = None,
    model: Annotated[
        str, typer.Option("--model", help="A run of coref train, one seed's model, or the bundled head.")
    ] = "bundled:ko-mini-coref",
    base: Base = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page with the chains in colour.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find who is who in a text: chains in colour on a terminal, in brackets elsewhere, --json with character offsets."""
    from coref_automl.coreference.predict import coreference
    from coref_automl.errors import InputError
    from coref_automl.progress import Progress
    from coref_automl.report.chains import html_page, in_html
    from coref_automl.store import write_text

    if text is not None and file is not None:
        raise InputError("Pass a text or --file, not both.")
    found = coreference(_given(text, file), model, base=base, device=device, progress=Progress(shown=not as_json))
    if html is not None:
        write_text(html, html_page(in_html(found.text, found.chains, note=found.note), "coreference"))
    if as_json:
        print_json({**found.to_json(), "strings": found.strings})
        return
    print("\n".join(found.lines(colour=sys.stdout.isatty())))
    if found.note:
        print(found.note, file=sys.stderr)


def _given(text: str | None, file: Path | None) -> str:
    from coref_automl.errors import InputError

    if text is not None:
        return text
    if file is None and sys.stdin.isatty():
        raise InputError("Which text? Pass it as an argument, with --file, or through standard input.")
    try:
        raw = file.read_bytes() if file is not None else sys.stdin.buffer.read()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"Cannot read {file} ({error.strerror or error}); give the path of a text file.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"The text is not UTF-8 (at byte {error.start:,}); save it as UTF-8.") from error
