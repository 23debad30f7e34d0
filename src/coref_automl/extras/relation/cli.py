"""coref-automl re: relation extraction; explore the data, train, evaluate, predict, run a grid, report on runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.base.errors import InputError
from coref_automl.base.progress import Progress
from coref_automl.base.say import language, say
from coref_automl.cli.app import COMMANDS, answers_file, app, print_json, print_result
from coref_automl.cli.options import AsJson, Device, OptionalOut, RecipeFile, SkipBad, options_from, recipe_from
from coref_automl.extras.relation.recipe import FILE, GridRecipe, RelationRecipe

relation_app = typer.Typer(help=COMMANDS["re"][1], no_args_is_help=True, rich_markup_mode=None)
app.add_typer(relation_app, name="re")

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a relation run, or one seed's model.")]
_TYPES = "PER, ORG, LOC, DAT, POH or NOH; required if the run's scheme or label mask uses types"


@relation_app.command(epilog="Example: coref-automl re explore klue-re-v1.1_train.json klue-re-v1.1_dev.json --check --out klue")
def explore(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=f"One split, or train and another: {FILE}.")],
    check: Annotated[bool, typer.Option("--check", help="Check all spans and markers of all rows and list the errors.")] = False,
    model: Annotated[str, typer.Option("--model", help="Model whose tokenizer --check uses.")] = "bundled:ko-mini",
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", help="Marker scheme to check; repeatable. Default: typed, typed-punct.")
    ] = None,
    max_length: Annotated[int, typer.Option("--max-length", help="Tokens per row in --check.")] = 256,
    out: OptionalOut = None,
    as_json: AsJson = False,
) -> None:
    """Describe relation data: labels, type pairs, lengths, duplicates, conflicts, shift; --check checks all markers."""
    from coref_automl.extras.relation.data import inspect_relations
    from coref_automl.extras.relation.explore import check_files
    from coref_automl.extras.relation.explore import explore as describe
    from coref_automl.extras.relation.page import write_exploration

    splits = [inspect_relations(name) for name in files]
    exploration = describe(splits)
    schemes = scheme or ["typed", "typed-punct"]
    checked = check_files(splits, model, schemes, max_length=max_length, progress=Progress(shown=not as_json)) if check else ()
    page = write_exploration(exploration, out, lang=language()) if out else None
    if as_json:
        checks = [result.to_json() for result in checked]
        print_json({**exploration.to_json(), "checks": checks, "page": str(page) if page else None})
    else:
        print("\n".join(exploration.lines()))
        for facts in exploration.splits:
            for problem in facts.problems:
                print(f"{facts.split}, {problem.in_words()}")
        for result in checked:
            print("\n".join(result.lines()))
        if page:
            print(page)
    if check and (any(facts.problems for facts in exploration.splits) or any(result.problems for result in checked)):
        raise typer.Exit(2)


@relation_app.command(
    epilog="Example: coref-automl re train --model klue/roberta-base --train klue-re-v1.1_train.json --dev klue-re-v1.1_dev.json "
    "--out runs/re --scheme typed"
)
@options_from(RelationRecipe)
def train(recipe: RecipeFile = None, *, as_json: AsJson = False, **given: Any) -> None:
    """Train relation extraction over several seeds, then score --dev. The same command resumes an interrupted run.

    The epoch is chosen on held-out training sentences. Optional techniques are off by default.
    """
    from coref_automl.extras.relation.train import train_relation

    settings = recipe_from(RelationRecipe, given, "re train", recipe)
    print_result(train_relation(settings, progress=Progress(shown=not as_json)), as_json)


@relation_app.command(epilog="Example: coref-automl re evaluate runs/re --data klue-re-v1.1_dev.json --json")
def evaluate(
    run: Run,
    data: Annotated[str, typer.Option("--data", help=f"Labelled rows: {FILE}.")],
    labels: Annotated[bool, typer.Option("--labels", help="Add one row per label.")] = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score all finished seeds of a run on labelled rows: micro-F1, AUPRC, accuracy, n, split; mean, spread, intervals."""
    from coref_automl.extras.relation.evaluate import evaluate_relation

    result = evaluate_relation(run, data, skip_bad=skip_bad, device=device, progress=Progress(shown=not as_json))
    print_result(result, as_json, [*result.lines(), *(result.label_lines() if labels else ())])


@relation_app.command(
    epilog='Example: coref-automl re predict runs/re --text "이순신은 서울에서 태어났다." --subject 이순신 --object 서울 '
    "--subject-type PER --object-type LOC"
)
def predict(
    run: Run,
    data: Annotated[str | None, typer.Option("--data", help=f"Unlabelled rows: {FILE}.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="One sentence.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Subject as written in the text.")] = None,
    object_: Annotated[str | None, typer.Option("--object", help="Object as written in the text.")] = None,
    subject_type: Annotated[str | None, typer.Option("--subject-type", help=f"{_TYPES}.")] = None,
    object_type: Annotated[str | None, typer.Option("--object-type", help=f"{_TYPES}.")] = None,
    subject_start: Annotated[int | None, typer.Option("--subject-start", help="Character offset, if it recurs.")] = None,
    object_start: Annotated[int | None, typer.Option("--object-start", help="Character offset, if it recurs.")] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Average all seeds instead of using the best one.")] = False,
    out: OptionalOut = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Label new rows (--data FILE --out DIR writes submission.csv), or one sentence (--text, --subject, --object, types)."""
    from coref_automl.extras.relation.predict import predict_file, predict_texts, render
    from coref_automl.models.light_imports import light_imports

    words = {"--text": text, "--subject": subject, "--object": object_}
    types = {"--subject-type": subject_type, "--object-type": object_type}
    starts = {"--subject-start": subject_start, "--object-start": object_start}
    if answers_file(data, out, words | types | starts):
        options: dict[str, Any] = {"ensemble": ensemble, "skip_bad": skip_bad, "device": device}
        print_result(predict_file(run, str(data), Path(out or ""), progress=Progress(shown=not as_json), **options), as_json)
        return
    if text is None or subject is None or object_ is None:
        raise InputError("Say what to label: pass --data FILE --out DIR, or --text with --subject and --object.")
    row = {"sentence": text, "subject": subject, "subject_type": subject_type, "subject_start": subject_start}
    row |= {"object": object_, "object_type": object_type, "object_start": object_start}
    with light_imports():
        (prediction,) = predict_texts(run, [row], ensemble=ensemble, device=device)
    print_result(prediction, as_json, [render(prediction)])


@relation_app.command(epilog="Example: coref-automl re grid --recipe recipes/klue-re-grid.yaml --out runs/re_grid")
@options_from(GridRecipe)
def grid(recipe: RecipeFile = None, *, as_json: AsJson = False, **given: Any) -> None:
    """Train a grid of backbones, learning rates, batch sizes and schemes. The same command resumes an interrupted grid.

    A failed cell does not stop the others. Writes results.csv, results.md and results.html.
    """
    from coref_automl.extras.relation.grid import run_grid
    from coref_automl.extras.relation.page import write_grid_page

    settings = recipe_from(GridRecipe, given, "re grid", recipe)
    result = run_grid(settings, progress=Progress(shown=not as_json), on_cell=partial(write_grid_page, lang=language()))
    if as_json:
        print_json(result.to_json())
    else:
        for cell in sorted(result.cells, key=lambda cell: -cell.validation):
            chosen = say("검증 micro-F1", "validation micro-F1")
            scores = f"micro-F1 {cell.result.micro_f1:.2f}, {chosen} {cell.validation:.2f}" if cell.result else ""
            print(f"{cell.name}: {cell.error or scores}")
        print(Path(result.out) / "results.html")
    if any(cell.error for cell in result.cells):
        raise typer.Exit(1)
