"""coref-automl train, coref-automl watch: adapt a model, and look on."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, OptionalOut, print_json
from coref_automl.training.recipe import HELP, TrainRecipe


def _one_option_a_field(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command an option for every field of TrainRecipe: what a recipe can say, the command line can say."""
    hints = typing.get_type_hints(TrainRecipe)
    parameters = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if name == "given":
            parameters += [_parameter(field.name, hints[field.name]) for field in fields(TrainRecipe)]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def called(**options: Any) -> None:
        own = {name: options.pop(name) for name in ("recipe", "dry_run", "as_json")}
        command(**own, **{name: value for name, value in options.items() if value is not None})

    called.__doc__, called.__name__ = command.__doc__, command.__name__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameter(name: str, hint: Any) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    kind = next((a for a in typing.get_args(hint) if a is not types.NoneType), hint) if _optional(hint) else hint
    if name == "out":
        annotation: Any = OptionalOut
    elif kind is bool:
        annotation = Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=HELP[name], show_default=False)]
    else:
        plain = list[str] if typing.get_origin(kind) is tuple else kind if kind in (int, float) else str
        annotation = Annotated[plain | None, typer.Option(flag, help=HELP[name], show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _optional(hint: Any) -> bool:
    return types.NoneType in typing.get_args(hint)


@app.command()
@_one_option_a_field
def train(
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A recipe; every option below overrides its value.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Adapt a model to prepared data; a checkpoint each half epoch, safe to interrupt.

    Example: coref-automl train --model klue/roberta-base --dataset prepared_datasets/entity_512 --objective entity --epochs 3
    --out runs/entity_512

    The same command goes on from where it stopped. Several GPUs: accelerate launch -m coref_automl.cli train ...
    """
    from coref_automl.config import from_mapping, read_yaml

    values = read_yaml(recipe) if recipe else {}
    values |= {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    settings = from_mapping(TrainRecipe, values, str(recipe) if recipe else "train")
    if dry_run:
        _show_plan(settings, as_json)
        return
    from coref_automl.progress import Progress
    from coref_automl.training.run import train as run_it

    result = run_it(settings, progress=Progress(shown=not as_json))
    if as_json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines()))


def _show_plan(settings: TrainRecipe, as_json: bool) -> None:
    from coref_automl.config import to_mapping, to_yaml
    from coref_automl.store import is_done
    from coref_automl.training.folder import check_run, resumable, standing
    from coref_automl.training.setup import prepare_run

    work = prepare_run(settings)
    check_run(work.recipe, work.prints)
    run = Path(work.recipe.out)
    finished = is_done(run)
    if as_json:
        resume = None if finished else resumable(run)
        told = {"recipe": to_mapping(work.recipe), "plan": work.summary()}
        print_json({**told, "finished": finished, "resume": str(resume) if resume else None})
        return
    print(to_yaml(work.recipe).rstrip())
    if stands := standing(run):
        print(stands)
    for line in () if finished else (*work.notes, *work.lines()):
        print(line)


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    once: Annotated[bool, typer.Option("--once", help="Show the present state and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Live view of a run: loss, rate, real tokens a second, time left, last evaluation.

    Example: coref-automl watch runs/entity_512 (Ctrl-C ends the view, not the run)
    """
    from coref_automl.training.watch import follow, status_of

    if as_json:
        print_json(status_of(run).to_json())
    elif once or not sys.stdout.isatty():
        print("\n".join(status_of(run).lines()))
    else:
        follow(run)
