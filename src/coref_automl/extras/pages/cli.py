"""coref-automl report: a page about finished evaluations. In: their paths. Out: report.html, report.md, results.csv."""

from __future__ import annotations

from typing import Annotated

import typer

from coref_automl.cli.app import app, print_result
from coref_automl.cli.compare import EvalSetName, Margin, Metric
from coref_automl.cli.options import AsJson, Out, Seed


@app.command(epilog="Example: coref-automl report runs --out report --target real1=0.68,real5=0.83")
def report(
    out: Out,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Evaluated checkpoints and runs; relation and coreference runs too."),
    ],
    target: Annotated[str | None, typer.Option("--target", help="Target values, e.g. real1=0.68,real5=0.83.")] = None,
    metric: Metric = None,
    margin: Margin = 2.0,
    eval_set: EvalSetName = None,
    seed: Seed = 0,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write report.html (one self-contained file), report.md and results.csv.

    Starts with the answer and what the data cannot show; then the questions that these runs can answer (the base, methods,
    length, training, other tasks, relation extraction, coreference), curves, paired differences, six aspects of each run, and
    suggested experiments with their commands.
    """
    from coref_automl.extras.pages.checkpoint_report import report as write

    written = write(paths, out=out, target=target, metric=metric, margin=margin, eval_set=eval_set, seed=seed, title=title)
    print_result(written, as_json, [written.sentence, str(written)])
