"""coref-automl compare, archive, power: what finished evaluations say.

In: paths of evaluations and runs. Out: a verdict, the numbers without text, a plan.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from coref_automl.base.say import Say, language
from coref_automl.cli.app import app, print_json, print_result
from coref_automl.cli.options import AsJson, Out, Seed

Metric = Annotated[str | None, typer.Option("--metric", help="Metric of verdicts. Default: Noun@1.")]
Margin = Annotated[float, typer.Option("--margin", help="Points that count as no difference, or may be given up to train less.")]
EvalSetName = Annotated[str | None, typer.Option("--eval-set", help="Name of the set, if checkpoints were scored on several.")]


@app.command(epilog="Example: coref-automl compare runs/entity runs/mlm --reference runs/mlm/checkpoint-130")
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Evaluated checkpoints, runs, their folders, or models.")],
    metric: Metric = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="Checkpoint to compare with. Default: the model each started from, or the first."),
    ] = None,
    margin: Margin = 2.0,
    common: Annotated[bool, typer.Option("--common", help="Compare on shared items if the sets differ.")] = False,
    eval_set: EvalSetName = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare evaluated checkpoints on the same items: differences with intervals, adjusted p-values, verdicts.

    Then the answer: what to use or that the base should be kept, why, how long to train next time, and, if the paths include
    relation or coreference runs, whether it carries over.
    """
    from coref_automl.comparison.reader import open_results
    from coref_automl.comparison.study import study_at
    from coref_automl.comparison.study_data import checked_margin
    from coref_automl.report.page import note
    from coref_automl.report.printout import compared, printed_answer
    from coref_automl.report.terminal import in_colour, width

    accepted, lang = checked_margin(margin), language()
    results = open_results(paths)
    table, group = compared(results, metric=metric, reference=reference, common=common, eval_set=eval_set, seed=seed, lang=lang)
    trained = any(entry.trained for entry in group.entries)
    study = study_at(results, group, metric=table.metric, margin=accepted, seed=seed) if trained else None
    answer = printed_answer(study, lang=lang) if study else None
    if as_json:
        print_json({**table.to_json(), "answer": answer.to_json() if answer else None})
        return
    print(table.printed(width(), colour=in_colour()))
    if answer is not None:
        print(f"{note('table and answer', Say(lang))}\n\n{answer}")
    given = {"--metric": metric, "--margin": f"{margin:g}" if margin != 2.0 else None, "--eval-set": eval_set}
    options = [word for option, value in given.items() if value for word in (option, value)]
    command = f"coref-automl report {shlex.join([*paths, *options])} --out report"
    print("\n" + Say(lang)(f"보고서: {command}", f"Report: {command}"))


@app.command(epilog="Example: coref-automl archive runs --out results/experiment")
def archive(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Evaluated checkpoints, and runs of every kind.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Keep the numbers of evaluations without any text: no passage, answer, predicted word, title or path.

    `compare` and `report` read the folder like the runs it came from and give the same numbers, intervals and verdicts, so that
    it can be published, or committed, where the texts may not be.
    """
    from coref_automl.comparison.archive import archive as keep

    kept = keep(paths, out=out)
    print_result(kept, as_json, [str(kept)])


@app.command(epilog="Example: coref-automl power --difference 1 --eval-set sets/judge --seeds 3")
def power(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Finished runs or studies: their spreads and costs are used.")
    ] = None,
    difference: Annotated[float | None, typer.Option("--difference", min=0.01, max=99.0, help="Difference, in points.")] = None,
    eval_set: Annotated[Path | None, typer.Option("--eval-set", help="Set at hand: what can it show?")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric. Default: Noun@1.")] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seeds", min=1, help="Seeds per method; repeatable. Default: 2-12.")
    ] = None,
    comparisons: Annotated[int, typer.Option("--comparisons", min=1, help="Comparisons corrected for together (Holm).")] = 1,
    against_base: Annotated[bool, typer.Option("--against-base", help="Plan for a method against its base.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan before training: the difference that is detected with 80% power, or the seeds and documents it takes.

    With PATHs the variance over seeds and documents is that of those runs, and tokens and time are theirs; otherwise it is that
    of the archived studies.
    """
    from coref_automl.comparison.power import power as plan

    result = plan(
        paths or (),
        difference=difference / 100 if difference is not None else None,
        eval_set=eval_set,
        metric=metric,
        seeds=seeds or (),
        comparisons=comparisons,
        against_base=against_base,
    )
    print_result(result, as_json)
