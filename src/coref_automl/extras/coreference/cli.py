"""coref-automl coref: coreference; explore annotated data, train, evaluate, predict the chains of a text."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.base.errors import InputError
from coref_automl.base.folders import natural_order, refuse_existing
from coref_automl.base.guard import LINE, read_whole
from coref_automl.base.progress import Progress
from coref_automl.base.say import say
from coref_automl.base.store import write_jsonl, write_text
from coref_automl.cli.app import COMMANDS, answers_file, app, note_foreign, print_json, print_result
from coref_automl.cli.options import AsJson, Column, Device, OptionalOut, RecipeFile, Rows, SkipBad, options_from, recipe_from
from coref_automl.corpus.batch import KINDS
from coref_automl.corpus.formats import kind_of
from coref_automl.extras.coreference.conventions import convert_documents, parse_edges
from coref_automl.extras.coreference.conventions import explore as describe
from coref_automl.extras.coreference.data import inspect_coref
from coref_automl.extras.coreference.documents import write_documents
from coref_automl.extras.coreference.recipe import BUNDLED, FILE, CoreferenceRecipe

coreference_app = typer.Typer(help=COMMANDS["coref"][1], no_args_is_help=True, rich_markup_mode=None)
app.add_typer(coreference_app, name="coref")

Head = Annotated[str, typer.Option("--model", help="A run of coref train, one seed's model, or the bundled head.")]
Base = Annotated[str | None, typer.Option("--base", help="Encoder of a low-rank head, if it has moved since training.")]

ConventionOption = Annotated[
    str, typer.Option("--convention", help="How far mentions reach: bare, words (whole words with particles), heads, or auto.")
]
SchemeOption = Annotated[
    str | None,
    typer.Option("--scheme", help="What to mark, if the model knows several schemes. Default: as the data, or its first."),
]


@coreference_app.command(epilog="Example: coref-automl coref explore koconovel_coref.jsonl.xz")
def explore(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=f"Annotated texts: {FILE}.")],
    write: Annotated[Path | None, typer.Option("--write", help="Convert one file to a new .jsonl without its bad rows.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Convention that --write converts to (bare, words, heads).")] = None,
    convention: ConventionOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Describe annotated data: chains, nesting, convention, and every problem with its reason."""
    if write is not None and len(files) != 1:
        raise InputError(f"--write takes one file, not {len(files)}; convert them one by one.")
    refuse_existing(write)
    if to is not None and write is None:
        raise InputError("--to converts what --write writes; give a file with --write.")
    edges, losses = parse_edges(convention), list[str]()
    data = [inspect_coref(name) for name in files]
    results = [describe(file, edges) for file in data]
    unusable = [name for name, file in zip(files, data, strict=True) if not file.documents]
    if write is not None and not unusable:
        documents, losses = convert_documents(data[0].documents, edges, parse_edges(to or "auto"))
        write_documents(write, documents)
    if as_json:
        print_json([result.to_json() for result in results])
    else:
        print("\n".join([*(line for result in results for line in result.lines()), *losses]))
    if unusable:
        raise InputError(f"No row of {', '.join(unusable)} can be used; correct the problems listed.")


@coreference_app.command(
    epilog="Example: coref-automl coref train --model bundled:ko-mini --data koconovel_coref.jsonl.xz --split koconovel "
    "--skip-bad --out runs/coref"
)
@options_from(CoreferenceRecipe)
def train(recipe: RecipeFile = None, *, as_json: AsJson = False, **given: Any) -> None:
    """Train coreference on annotated texts and score the test documents. The same command resumes an interrupted run.

    Reports MUC, B-cubed, CEAF-e, CoNLL and LEA with confidence intervals over documents.
    """
    from coref_automl.extras.coreference.train import train_coreference

    settings = recipe_from(CoreferenceRecipe, given, "coref train", recipe)
    result = train_coreference(settings, progress=Progress(shown=not as_json))
    print_result(result, as_json)


@coreference_app.command(epilog="Example: coref-automl coref evaluate runs/coref --data my_novels.jsonl")
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, one seed's model, or bundled:ko-mini-coref.")],
    data: Annotated[str, typer.Option("--data", help=f"Annotated texts: {FILE}.")],
    split: Annotated[str | None, typer.Option("--split", help="Score a side of a split: fixed, koconovel, a JSON file.")] = None,
    side: Annotated[str, typer.Option("--side", help="Side of the split to score: train, dev or test.")] = "test",
    scheme: SchemeOption = None,
    convention: ConventionOption = "auto",
    base: Base = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a run on annotated texts, with gold and with predicted mentions; training documents are left out.

    The same-string baseline stands beside every score. Scores are in the convention of the file's own mentions.
    """
    from coref_automl.extras.coreference.evaluate import evaluate_coreference

    options: dict[str, Any] = {"split": split, "side": side, "scheme": scheme, "convention": parse_edges(convention)}
    options |= {"base": base, "skip_bad": skip_bad, "device": device}
    print_result(evaluate_coreference(run, data, **options, progress=Progress(shown=not as_json)), as_json)


@coreference_app.command(
    epilog='Example: coref-automl coref predict "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다."'
)
def predict(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="Text. Without it: --file, or standard input.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A UTF-8 text file.")] = None,
    model: Head = BUNDLED,
    base: Base = None,
    scheme: SchemeOption = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a new HTML page with coloured chains.")] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="Print the text with names in place of pronouns.")] = False,
    data: Rows = None,
    column: Column = "text",
    out: OptionalOut = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the coreference chains of a text: coloured on a terminal, else in brackets.

    --json adds character offsets and the probability of every link. --data FILE --out DIR answers a whole file.
    """
    from coref_automl.models.light_imports import light_imports
    from coref_automl.report.terminal import in_colour

    if text is not None and file is not None:
        raise InputError("Pass a text or --file, not both.")
    of_file = answers_file(data, out, {"TEXT": text, "--file": file, "--html": html})
    passage = "" if of_file else _text_of(text, file)
    if not (of_file or passage.strip()):
        raise InputError("The text is empty; pass one with some words.")
    refuse_existing(html)
    from coref_automl.extras.coreference.predict import coreference, resolve_file

    progress = Progress(shown=not as_json)
    if of_file:
        options: dict[str, Any] = {"base": base, "scheme": scheme, "device": device, "column": column}
        options |= {"resolve": resolve, "skip_bad": skip_bad}
        print_result(resolve_file(str(data), Path(out or ""), model, progress=progress, **options), as_json)
        return
    with light_imports():
        result = coreference(passage, model, base=base, scheme=scheme, device=device, progress=progress)
    note_foreign(result.text)
    if html is not None:
        from coref_automl.extras.coreference.drawing import html_page, in_html

        page = in_html(result.text, result.chains, note=result.localized_note, confidence=result.confidence)
        write_text(html, html_page(page, "coreference"))
    if as_json:
        named = {"resolved": result.named} if resolve else {}
        print_json({**result.to_json(), "strings": result.strings, "confidence": result.confidence, **named})
        return
    if result.note:
        print(result.localized_note, file=sys.stderr, flush=True)
    print(result.named if resolve else "\n".join(result.lines(colour=in_colour())))


@coreference_app.command(epilog="Example: coref-automl coref annotate texts --out corrected.jsonl")
def annotate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of UTF-8 .txt files, one document each.")],
    out: Annotated[Path, typer.Option("--out", help="JSON lines to write; must not exist yet.")],
    model: Head = BUNDLED,
    base: Base = None,
    scheme: SchemeOption = None,
    device: Device = "auto",
) -> None:
    """Write the predicted chains of your texts as data to correct, then train with: coref train --from MODEL --data FILE.

    Each mention has the probability of its link: look at the low ones first.
    """
    from coref_automl.extras.coreference.predict import annotated_rows

    paths = sorted(folder.glob("*.txt"), key=natural_order)
    if not paths:
        raise InputError(f"{folder} has no .txt files; pass a folder with one document per file.")
    refuse_existing(out)
    texts = {path.stem: _text_of(None, path) for path in paths}
    note, rows = annotated_rows(texts, model, base=base, scheme=scheme, device=device, progress=Progress())
    print(note, file=sys.stderr, flush=True)
    write_jsonl(out, rows)
    count = sum(len(chain) for row in rows for chain in row["clusters"])
    print(say(f"{out}: 문서 {len(rows):,}개, 언급 {count:,}개", f"{out}: {len(rows):,} documents, {count:,} mentions"))


def _text_of(text: str | None, file: Path | None) -> str:
    """Read the text, before anything is loaded. The name of a file is refused as a text, and so is a file of rows."""
    path = file or Path(text or "")
    exists = os.path.isfile(path)  # noqa: PTH113 - False for a name that is too long
    if exists and (text or kind_of(path) in KINDS):
        name = shlex.quote(str(path))
        options = f"--data {name} --out chains" if kind_of(path) in KINDS else f"--file {name}"
        raise InputError(f"{path} is a file, not a text; run: coref-automl coref predict {options}")
    if text is not None:
        return text
    if file is None and sys.stdin.isatty():
        raise InputError("Which text? Pass it as an argument, with --file, or through standard input.")
    try:
        raw = read_whole(file, largest=LINE) if file else read_whole(Path("standard input"), sys.stdin.buffer, LINE)
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"Cannot read {file} ({error.strerror or error}); give the path of a text file.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"The text is not UTF-8 (at byte {error.start:,}); save it as UTF-8.") from error
