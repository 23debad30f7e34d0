"""coref-automl compare, report, archive: which checkpoint is better, is it more than noise, a page that shows it, its numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, LangOption, Out, Seed, print_json
from coref_automl.say import Say, language

Metric = Annotated[
    str | None, typer.Option("--metric", help="Metric of the verdicts. Default: strict Real@1, or word if tokenizers differ.")
]
Margin = Annotated[
    float, typer.Option("--margin", help="Points that count as no difference, and that may be given up for less training.")
]
EvalSetName = Annotated[str | None, typer.Option("--eval-set", help="Name of the set, if checkpoints were scored on several.")]


@app.command(
    epilog="Example: coref-automl compare runs/entity/checkpoint-130 runs/mlm/checkpoint-130 --reference runs/mlm/checkpoint-130"
)
def compare(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Evaluated checkpoints, runs, folders of runs, or models.")
    ],
    metric: Metric = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="Checkpoint to compare with. Default: the model each started from, or the first."),
    ] = None,
    margin: Margin = 2.0,
    common: Annotated[bool, typer.Option("--common", help="Compare on shared items if the sets differ.")] = False,
    eval_set: EvalSetName = None,
    seed: Seed = 0,
    lang: LangOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare evaluated checkpoints on the same items: differences with intervals, adjusted p-values, verdicts.

    Then the answer: what to use or that the base should be kept, why, how long to train next time, and, if the paths include
    relation or coreference runs, whether it carries over.
    """
    from coref_automl.comparison.choice import checked_margin
    from coref_automl.comparison.differences import require_two
    from coref_automl.comparison.groups import choose_group, choose_metric
    from coref_automl.comparison.study import study_at
    from coref_automl.report.printout import printed_answer, printed_comparison
    from coref_automl.report.terminal import in_colour, width

    allowed = checked_margin(margin)
    group, notes = choose_group(paths, common=common, evalset=eval_set)
    require_two(group)
    metric, more = choose_metric(group, metric)
    say, told = Say(language(lang)), (*notes, *more)
    table = printed_comparison(group, metric, reference=reference, common=common, seed=seed, notes=told, lang=say.lang)
    trained = any(entry.trained for entry in group.entries)
    study = study_at(paths, group, metric=metric, margin=allowed, seed=seed) if trained else None
    answer = printed_answer(study, lang=say.lang) if study else None
    if as_json:
        print_json({**table.to_json(), "answer": answer.to_json() if answer else None})
        return
    print(table.printed(width(), colour=in_colour()))
    if answer is not None:
        print(f"\n{answer}")
    command = f"coref-automl report {shlex.join(paths)} --out report"
    print("\n" + say(f"다음: {command}", f"Next: {command}"))


@app.command(epilog="Example: coref-automl report runs --out report --target real1=0.68,real5=0.83")
def report(
    out: Out,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Evaluated checkpoints and runs; relation and coreference runs too."),
    ] = None,
    table: Annotated[Path | None, typer.Option("--table", help="CSV of external results, instead of PATHs.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Target values, e.g. real1=0.68,real5=0.83.")] = None,
    lang: LangOption = None,
    metric: Metric = None,
    margin: Margin = 2.0,
    eval_set: EvalSetName = None,
    seed: Seed = 0,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write report.html (one self-contained file), report.md and results.csv.

    Starts with the answer and what the data cannot show; then the questions that these runs can answer (the base, methods,
    length, training, other tasks, relation extraction, coreference), curves, paired differences, ratings, suggested experiments
    with their commands, and the items on which the models disagree.
    """
    from coref_automl.errors import RecipeError
    from coref_automl.report.checkpoint_report import report as write

    if bool(paths) == (table is not None):
        raise RecipeError("Pass either evaluated PATHs or a --table.")
    made = write(
        paths or [],
        out=out,
        table=table,
        target=target,
        lang=lang,
        metric=metric,
        margin=margin,
        eval_set=eval_set,
        seed=seed,
        title=title,
    )
    if as_json:
        print_json(made.to_json())
        return
    print(made.sentence)
    print(made)


@app.command(epilog="Example: coref-automl archive runs --out results/experiment")
def archive(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Evaluated checkpoints and runs; relation and coreference runs too."),
    ],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Keep the numbers of evaluations without any text: no passage, answer, predicted word, title or path.

    `compare` and `report` read the folder like the runs it came from and give the same numbers, intervals and verdicts, so that
    it can be published, or committed, where the texts may not be.
    """
    from coref_automl.comparison.archive import archive as keep

    made = keep(paths, out=out)
    if as_json:
        print_json(made.to_json())
        return
    print(made)
