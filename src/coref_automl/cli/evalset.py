"""coref-automl evalset: read the items of an evaluation set one by one, and say how many hold up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coref_automl.cli.app import Verbs, app
from coref_automl.cli.options import AsJson, print_json
from coref_automl.errors import EvalSetError

evalset_app = typer.Typer(cls=Verbs, help="Read the items of an evaluation set.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(evalset_app, name="evalset")


@evalset_app.callback()
def _group() -> None:
    """A group with one verb stays a group."""


@evalset_app.command(epilog="Example: coref-automl evalset read evalsets/wiki --reader kim --sample 200")
def read(
    folder: Annotated[Path, typer.Argument(metavar="SET", help="Folder of an evaluation set.")],
    reader: Annotated[str | None, typer.Option("--reader", help="Name of the reader. Default: only print what was read.")] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Task; repeatable. Default: all.")] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="Items read of each task, the same for every reader.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Mark items one by one: f fair, a ambiguous, l lexical, w wrong antecedent, t tagger error; s skips, q stops.

    Marks are kept in SET/readings/READER.jsonl, and reading goes on where it stopped. At the end: the share of fair items of each
    task with its 95% interval, and the agreement of the readers.
    """
    from coref_automl.evaluation import readings
    from coref_automl.evaluation.evalset import EvalSet

    evalset = EvalSet.open(folder)
    items = evalset.select(task)
    if not items:
        raise EvalSetError(f"{folder} has no items of {', '.join(task or [])}; it has {', '.join(evalset.items)}.")
    if reader is not None:
        readings.path_of(folder, reader)
        known = readings.marks_of(folder).get(reader, {})
        waiting = readings.to_read(items, sample, known)
        for number, item in enumerate(waiting, 1):
            shown = readings.passage_of(item, evalset.documents[item.document])
            print(f"\n[{number}/{len(waiting)}] {item.task}, {item.source}\n{shown}")
            key = typer.prompt("f/a/l/w/t, s, q", default="s").strip().lower()[:1]
            if key == "q":
                break
            if key in readings.KEYS:
                readings.add_mark(folder, reader, item.id, readings.KEYS[key])
    found = readings.summarise(items, readings.marks_of(folder))
    if as_json:
        print_json([entry.to_json() for entry in found])
    else:
        print("\n".join(map(str, found)) or f"{folder}: not read yet")
