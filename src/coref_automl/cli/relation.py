"""coref-automl re: relation extraction; explore the data, evaluate a run, predict. Training stands in relation_train."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coref_automl.cli.app import Verbs, app
from coref_automl.cli.options import AsJson, OptionalOut, print_json

if TYPE_CHECKING:
    from coref_automl.relation.results import RelationResult

relation_app = typer.Typer(
    cls=Verbs,
    help="Relation extraction on KLUE-RE: explore, train, evaluate, predict, grid.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(relation_app, name="re")

SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without bad rows; they are counted and listed.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `re train` made, or one seed's model in it.")]
FILE = "a .json, .jsonl, .csv or .parquet file (also .xz, .gz), hub:klue/re:train, hub:OWNER/NAME:SPLIT, or bundled:relations"
_TYPES = "PER, ORG, LOC, DAT, POH or NOH; needed where the run's scheme or label mask reads types"


@relation_app.command(
    epilog="Example: coref-automl re explore klue-re-v1.1_train.json klue-re-v1.1_dev.json --check --out explored"
)
def explore(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=f"One split, or train and another: {FILE}.")],
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
    from coref_automl.report.exploration_page import write_exploration
    from coref_automl.report.language import LANGUAGES

    language = choose(lang, LANGUAGES, "language")
    splits = [inspect_relations(name) for name in files]
    found = look(splits)
    schemes = scheme or ["typed", "typed-punct"]
    checked = check_files(splits, model, schemes, max_length=max_length, progress=Progress(shown=not as_json)) if check else ()
    page = write_exploration(found, out, lang=language) if out else None
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


@relation_app.command(epilog="Example: coref-automl re evaluate runs/re --data klue-re-v1.1_dev.json --json")
def evaluate(
    run: Run,
    data: Annotated[str, typer.Option("--data", help=f"Labelled rows: {FILE}.")],
    labels: Annotated[bool, typer.Option("--labels", help="Also a line for each of the 30 labels.")] = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score every finished seed of a run on labelled rows: micro-F1, AUPRC, accuracy, n, split; mean, spread, intervals."""
    from coref_automl.progress import Progress
    from coref_automl.relation.evaluate import evaluate_relation

    result = evaluate_relation(run, data, skip_bad=skip_bad, device=device, progress=Progress(shown=not as_json))
    show_result(result, as_json, labels=labels)


@relation_app.command(
    epilog='Example: coref-automl re predict runs/re --text "이순신은 서울에서 태어났다." --subject 이순신 --object 서울 '
    "--subject-type PER --object-type LOC"
)
def predict(
    run: Run,
    data: Annotated[str | None, typer.Option("--data", help=f"Rows to label: {FILE}; no label is needed.")] = None,
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


def show_result(result: RelationResult, as_json: bool, *, labels: bool = False) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join([*result.lines(), *(result.label_lines() if labels else ())]))
