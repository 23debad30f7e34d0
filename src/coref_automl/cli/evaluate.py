"""coref-automl evaluate and fill: score checkpoints on frozen items; look at what a model puts into a gap."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, Device, LangOption, options_from, print_json, recipe_from
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.say import Say, language

if TYPE_CHECKING:
    from coref_automl.models.load import LoadedModel
    from coref_automl.records import Evaluation


@app.command(
    epilog="Example: coref-automl evaluate runs/mlm_v2_scratch_1536 --eval-set evalsets/real --seq-len 1536",
)
@options_from(EvaluateRecipe)
def evaluate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Checkpoints, runs, folders of runs, or models.")],
    *,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Add a table by source, tag, pieces, reach, distance, half or pronoun; repeatable."),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric of the --by tables.")] = None,
    lang: LangOption = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Score checkpoints on frozen items: Real, Real-far, LAMBADA and gold, each with a confidence interval.

    Finished evaluations are reused; the same command resumes an interrupted one. Results are stored in the run's folder, or in
    --out.
    """
    from coref_automl.config import choose
    from coref_automl.evaluation.metrics import GROUPINGS, METRICS
    from coref_automl.evaluation.results import summary_json
    from coref_automl.evaluation.run import evaluate as run
    from coref_automl.progress import Progress

    tongue = language(lang)
    for grouping in by or ():
        choose(grouping, GROUPINGS, "grouping")
    if metric:
        choose(metric, METRICS, "metric")
    recipe = recipe_from(EvaluateRecipe, given, "evaluate")
    shown: list[Evaluation] = []

    def show(evaluation: Evaluation) -> None:
        shown.append(evaluation)
        if not as_json:
            _print_block(evaluation, recipe, tongue)

    done: list[Evaluation] = []
    try:
        done = list(run(paths, recipe, progress=Progress(), on_result=show))
    finally:  # what was scored before an error is still printed
        if as_json and (done or shown):
            _print_results([summary_json(evaluation) for evaluation in done or shown])
        elif shown:
            _print_tables(paths, shown, recipe, by or [], metric, tongue)
            print(_next_step(paths, shown, recipe, Say(tongue)))


def _print_results(found: list[dict[str, Any]]) -> None:
    """Each as in the file beside its checkpoint, so that one line of jq reads both; several are one object per line."""
    if len(found) == 1:
        print_json(found[0])
    else:
        print("\n".join(json.dumps(one, ensure_ascii=False) for one in found))


def _next_step(paths: list[str], shown: list[Evaluation], recipe: EvaluateRecipe, say: Say) -> str:
    """Several evaluations are compared; one is put into a report."""
    where = [str(recipe.out)] if recipe.out else paths
    several = len(shown) > 1 or any(entry.baselines.get("un-adapted") for entry in shown)
    command = f"coref-automl compare {shlex.join(where)}" if several else f"coref-automl report {shlex.join(where)} --out report"
    return say(f"다음: {command}", f"Next: {command}")


def _print_block(evaluation: Evaluation, recipe: EvaluateRecipe, lang: str) -> None:
    from coref_automl.evaluation.results import neighbours
    from coref_automl.report.terminal import best_of, format_result

    print("\n".join(format_result(evaluation, best_of(neighbours(evaluation.path, recipe.out), evaluation), lang)))
    print(flush=True)


def _print_tables(
    paths: list[str], shown: list[Evaluation], recipe: EvaluateRecipe, by: list[str], metric: str | None, lang: str
) -> None:
    from coref_automl.evaluation.results import find_evaluations
    from coref_automl.report.terminal import format_by_group, format_overview

    if len(shown) > 1:
        print("\n".join(format_overview(shown, lang)) + "\n")
    wanted = list(dict.fromkeys([*by, *(["distance"] if any("real_far1" in entry.estimates for entry in shown) else [])]))
    if not wanted:
        return
    keys = {(entry.path, entry.identity) for entry in shown}
    stored = [
        entry
        for entry in find_evaluations([recipe.out] if recipe.out else paths, skip_damaged=True)
        if (entry.evaluation.path, entry.evaluation.identity) in keys
    ]
    for grouping in wanted:
        print("\n".join(format_by_group(stored, grouping, metric, lang)) + "\n")


@app.command(epilog='Example: coref-automl fill "서울은 [MASK]의 수도이다." --model bundled:ko-mini --model runs/a/checkpoint-65')
def fill(
    sentence: Annotated[str | None, typer.Argument(help="Sentence with one [MASK]. Without it: interactive.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Hub id, folder, or bundled:ko-mini; repeatable.")] = None,
    nouns: Annotated[bool, typer.Option("--nouns/--no-nouns", help="Only nouns of two or more syllables, or all words.")] = True,
    top: Annotated[int, typer.Option("--top", min=1, max=100, help="Number of words.")] = 10,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compare what models predict for a [MASK], side by side. A particle after [MASK] stays with the hidden word."""
    from coref_automl.evaluation.fill import find_gap
    from coref_automl.models.load import load_masked_lm

    names = model or ["bundled:ko-mini"]
    if sentence is not None:
        find_gap(sentence)
    loaded = {name: load_masked_lm(name, device=device) for name in names}
    if sentence is not None:
        _fill_once(loaded, sentence, nouns, top, as_json)
        return
    if sys.stdin.isatty():
        told = Say(language())(
            "[MASK]가 하나 있는 문장을 쓰세요. :nouns 명사만, :all 모든 낱말, 빈 줄이면 끝납니다.",
            "Type a sentence with one [MASK]. :nouns for nouns, :all for all words, an empty line to end.",
        )
        print(told, file=sys.stderr)
    _prompt(loaded, nouns, top, as_json)


def _prompt(loaded: dict[str, LoadedModel], nouns: bool, top: int, as_json: bool) -> None:
    """Read sentences until an empty line or the end of input; a sentence without a gap is explained, not fatal."""
    from coref_automl.errors import InputError

    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return
        if not line:
            return
        if line in (":nouns", ":all"):
            nouns = line == ":nouns"
            continue
        try:
            _fill_once(loaded, line, nouns, top, as_json)
        except InputError as error:
            print(error, file=sys.stderr)


def _fill_once(loaded: dict[str, LoadedModel], sentence: str, nouns: bool, top: int, as_json: bool) -> None:
    from coref_automl.evaluation.fill import fill as run
    from coref_automl.report.terminal import format_filled

    found = [run(ready, sentence, name=name, nouns_only=nouns, top=top) for name, ready in loaded.items()]
    if as_json:
        print_json([entry.to_json() for entry in found])
    else:
        print("\n".join(format_filled(found)), flush=True)
