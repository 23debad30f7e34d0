"""coref-automl power: what a set or a study can show, and how many seeds and documents a wanted difference takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, print_json


@app.command(epilog="Example: coref-automl power --difference 1 --eval-set sets/judge --seeds 3")
def power(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Finished runs or studies: their spreads and costs are used.")
    ] = None,
    difference: Annotated[
        float | None, typer.Option("--difference", min=0.01, max=99.0, help="Wanted difference, in points.")
    ] = None,
    eval_set: Annotated[Path | None, typer.Option("--eval-set", help="Set at hand: what can it show?")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric. Default: strict Real@1.")] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seeds", min=1, help="Seeds per method; repeatable. Default: 2 to 12.")
    ] = None,
    comparisons: Annotated[int, typer.Option("--comparisons", min=1, help="Comparisons corrected for together (Holm).")] = 1,
    against_base: Annotated[
        bool, typer.Option("--against-base", help="Plan for a method against its base, not for two methods.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan before training: the difference that is detected with 80% power, or the seeds and documents it takes.

    With PATHs the variance over seeds and documents is that of those runs, and tokens and time are theirs; otherwise it is that
    of the archived studies.
    """
    from coref_automl.comparison.power import power as plan

    found = plan(
        paths or (),
        difference=difference / 100 if difference is not None else None,
        eval_set=eval_set,
        metric=metric,
        seeds=seeds or (),
        comparisons=comparisons,
        against_base=against_base,
    )
    if as_json:
        print_json(found.to_json())
        return
    print("\n".join(found.lines()))
