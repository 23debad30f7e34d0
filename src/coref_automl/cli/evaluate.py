"""coref-automl evaluate and fill: score checkpoints on frozen items; look at what a model puts into a gap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, OptionalOut, Seed, print_json

if TYPE_CHECKING:
    from coref_automl.evaluation.run import EvaluateRecipe
    from coref_automl.models.load import LoadedModel
    from coref_automl.records import Evaluation

EvalSets = Annotated[
    list[Path] | None, typer.Option("--eval-set", help="Evaluation set; repeat for more. Without it: the bundled set.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto: every GPU there is, else the CPU.")]
Language = Annotated[str, typer.Option("--lang", help="Language of the printed result: ko or en.")]


@app.command(
    epilog="Example: coref-automl evaluate runs/mlm_v2_scratch_1536 --eval-set evalsets/real --seq-len 1536",
)
def evaluate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Checkpoints, runs, folders of runs, or models.")],
    eval_set: EvalSets = None,
    seq_len: Annotated[
        int | None, typer.Option("--seq-len", help="Window length in tokens. Without it: each model's own.")
    ] = None,
    out: OptionalOut = None,
    device: Device = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16, float16, or auto: bfloat16 on a GPU.")] = "auto",
    words: Annotated[
        str,
        typer.Option(
            "--words",
            help="Word ranks of all items (about 3 times the cost of none), of gold alone, of a sample of 200 a task, or none; "
            "l2r checks all.",
        ),
    ] = "all",
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Also a table by source, tag, pieces, reach, distance, half or pronoun; repeat for more."),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric of the --by tables.")] = None,
    base: Annotated[
        bool, typer.Option("--base/--no-base", help="Also score the model that training began from, if it is here.")
    ] = True,
    tokens_per_batch: Annotated[
        int | None, typer.Option("--batch-tokens", help="Tokens of a batch; halved when memory is short.")
    ] = None,
    new_head: Annotated[
        bool, typer.Option("--new-head", help="Allow a mask head with new weights: it knows nothing yet.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option("--engine", help="local: one process a GPU; ray: a task a checkpoint on a cluster that sees this folder."),
    ] = "local",
    lang: Language = "ko",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Score every checkpoint on frozen items: Real, Real-far, LAMBADA and gold, each number with its interval.

    Finished work is recognised and not done again; an interrupted call goes on where it stopped. Results stand in the run's
    folder, or in --out.
    """
    from coref_automl.config import choose, from_mapping
    from coref_automl.evaluation.metrics import GROUPINGS, METRICS
    from coref_automl.evaluation.run import EvaluateRecipe
    from coref_automl.evaluation.run import evaluate as run
    from coref_automl.progress import Progress
    from coref_automl.report.terminal import WORDS

    choose(lang, WORDS, "language")
    for grouping in by or ():
        choose(grouping, GROUPINGS, "grouping")
    if metric:
        choose(metric, METRICS, "metric")
    settings = {
        "eval_sets": [str(folder) for folder in eval_set or ()], "seq_len": seq_len, "out": out, "device": device, "dtype": dtype,
        "words": words, "budget": tokens_per_batch, "base": base, "new_head": new_head, "seed": seed,
        "engine": engine,
    }  # fmt: skip
    recipe = from_mapping(EvaluateRecipe, settings, "evaluate")
    shown: list[Evaluation] = []

    def show(evaluation: Evaluation) -> None:
        shown.append(evaluation)
        if not as_json:
            _print_block(evaluation, recipe, lang)

    done: list[Evaluation] = []
    try:
        done = list(run(paths, recipe, progress=Progress(), on_result=show))
    finally:  # what was scored before an error is told all the same
        if as_json and (done or shown):
            print_json([evaluation.to_json() for evaluation in done or shown])
        elif shown:
            _print_tables(paths, shown, recipe, by or [], metric, lang)


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
        for entry in find_evaluations([recipe.out] if recipe.out else paths)
        if (entry.evaluation.path, entry.evaluation.identity) in keys
    ]
    for grouping in wanted:
        print("\n".join(format_by_group(stored, grouping, metric, lang)) + "\n")


@app.command(
    epilog='Example: coref-automl fill "서울은 대한민국의 [MASK]이다." --model bundled:ko-mini --model runs/a/checkpoint-65'
)
def fill(
    sentence: Annotated[str | None, typer.Argument(help="A sentence with one [MASK]. Without it: a prompt.")] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="A hub id, a folder, or bundled:ko-mini; repeat to compare.")
    ] = None,
    nouns: Annotated[bool, typer.Option("--nouns/--no-nouns", help="Only nouns of two or more syllables, or every word.")] = True,
    top: Annotated[int, typer.Option("--top", min=1, max=100, help="How many words.")] = 10,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show the words that models put into a gap, side by side. A particle after [MASK] stays with the hidden word."""
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
        print("문장을 [MASK] 하나와 함께 쓰세요. :nouns 명사만, :all 모든 낱말, 빈 줄은 끝.", file=sys.stderr)
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
