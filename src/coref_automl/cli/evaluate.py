"""coref-automl evaluate, fill: score checkpoints on frozen items, look at what models put into a gap."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.base.config import choose
from coref_automl.base.errors import InputError
from coref_automl.base.progress import Progress
from coref_automl.base.records import Evaluation
from coref_automl.base.say import Lang, Say, language
from coref_automl.cli.app import answers_file, app, note_foreign, print_json, print_result
from coref_automl.cli.options import AsJson, Column, Device, OptionalOut, Rows, SkipBad, options_from, recipe_from
from coref_automl.evaluation.run import EvaluateRecipe


@app.command(epilog="Example: coref-automl evaluate runs/mlm_v2_scratch_1536 --eval-set evalsets/real --seq-len 1536")
@options_from(EvaluateRecipe)
def evaluate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Checkpoints, runs, folders of runs, or models.")],
    *,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Add a table by source, tag, reach, distance or half; repeatable."),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric of the --by tables.")] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Score checkpoints on frozen items: Real, New, Real-far and LAMBADA, each with a confidence interval.

    Finished evaluations are reused; the same command resumes an interrupted one. Results are stored in the run's folder, or in
    --out.
    """
    from coref_automl.evaluation.metrics import GROUPINGS, metric_named
    from coref_automl.evaluation.results import nearby_evaluations
    from coref_automl.evaluation.run import evaluate as run
    from coref_automl.evaluation.targets import summary_json
    from coref_automl.report.terminal import best_of, format_result

    lang = language()
    for grouping in by or ():
        choose(grouping, GROUPINGS, "grouping")
    if metric:
        metric_named(metric)
    recipe = recipe_from(EvaluateRecipe, given, "evaluate")
    printed: list[Evaluation] = []

    def show(evaluation: Evaluation) -> None:
        printed.append(evaluation)
        if not as_json:
            best = best_of(nearby_evaluations(evaluation.path, recipe.out), evaluation)
            print("\n".join(format_result(evaluation, best, lang, out=recipe.out)), end="\n\n", flush=True)

    finished: list[Evaluation] = []
    try:
        finished = list(run(paths, recipe, progress=Progress(), on_result=show))
    finally:  # also print what was scored before an error
        summaries = [summary_json(evaluation) for evaluation in finished or printed] if as_json else []
        if len(summaries) == 1:  # as in the file beside its checkpoint, so that the same jq filter reads both
            print_json(summaries[0])
        elif summaries:
            print("\n".join(json.dumps(summary, ensure_ascii=False) for summary in summaries))
        elif printed:
            _print_tables(paths, printed, recipe, by or [], metric, lang)
            where = shlex.join([str(recipe.out)] if recipe.out else paths)
            several = len(printed) > 1 or any(evaluation.baselines.get("un-adapted") for evaluation in printed)
            command = f"coref-automl compare {where}" if several else f"coref-automl report {where} --out report"
            print(Say(lang)(f"다음: {command}", f"Next: {command}"))


def _print_tables(
    paths: list[str], evaluations: list[Evaluation], recipe: EvaluateRecipe, by: list[str], metric: str | None, lang: Lang
) -> None:
    from coref_automl.evaluation.results import find_evaluations
    from coref_automl.report.terminal import format_by_group, format_overview

    if len(evaluations) > 1:
        print("\n".join(format_overview(evaluations, lang)) + "\n")
    by_distance = any("real_far1" in evaluation.estimates for evaluation in evaluations)
    groupings = list(dict.fromkeys([*by, *(["distance"] if by_distance else [])]))
    if not groupings:
        return
    keys = {(evaluation.path, evaluation.identity) for evaluation in evaluations}
    stored = [
        entry
        for entry in find_evaluations([recipe.out] if recipe.out else paths, skip_damaged=True)
        if (entry.evaluation.path, entry.evaluation.identity) in keys
    ]
    for grouping in groupings:
        print("\n".join(format_by_group(stored, grouping, metric, lang)) + "\n")


@app.command(epilog='Example: coref-automl fill "서울은 [MASK]의 수도이다." --model bundled:ko-mini --model runs/a/checkpoint-65')
def fill(
    sentence: Annotated[str | None, typer.Argument(help="Sentence with one [MASK].")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Hub id, folder, or bundled:ko-mini; repeatable.")] = None,
    nouns: Annotated[bool, typer.Option("--nouns/--no-nouns", help="Only nouns of two or more syllables, or all words.")] = True,
    top: Annotated[int, typer.Option("--top", min=1, max=100, help="Number of words.")] = 10,
    data: Rows = None,
    column: Column = "text",
    out: OptionalOut = None,
    skip_bad: SkipBad = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compare what models predict for a [MASK], side by side. A particle after [MASK] stays with the hidden word.

    --data FILE --out DIR answers every sentence of a file.
    """
    from coref_automl.evaluation.fill import fill as run
    from coref_automl.evaluation.fill import fill_file, find_gap
    from coref_automl.models.light_imports import light_imports
    from coref_automl.models.load import load_masked_lm
    from coref_automl.report.terminal import format_filled

    if sentence is not None:
        find_gap(sentence)
    of_file = answers_file(data, out, {"SENTENCE": sentence})
    if sentence is None and not of_file:
        raise InputError("Which sentence? Pass one with a [MASK], or --data FILE --out DIR.")
    with light_imports():
        loaded = {name: load_masked_lm(name, device=device) for name in model or ["bundled:ko-mini"]}
    if of_file:
        options: dict[str, Any] = {"column": column, "nouns_only": nouns, "top": top, "skip_bad": skip_bad}
        print_result(fill_file(loaded, str(data), Path(out or ""), progress=Progress(shown=not as_json), **options), as_json)
        return
    note_foreign(str(sentence))
    fills = [run(ready, str(sentence), name=name, nouns_only=nouns, top=top) for name, ready in loaded.items()]
    print_json([filled.to_json() for filled in fills]) if as_json else print("\n".join(format_filled(fills)))
