"""Options that commands share, options made from recipes, and how results reach standard output.

A command that runs a recipe has one option per field of it: `@options_from(TrainRecipe)` over a function that takes them as
`**given`. Only what was passed on the command line is in `given`; `recipe_from` puts it over the YAML file, and the recipe's own
defaults fill the rest.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from coref_automl.config import described, from_mapping, read_yaml
from coref_automl.say import LANGUAGE, VARIABLE, language

T = TypeVar("T")

_OUT = ("--out", "--output-dir")
_FOLDER = "Output folder; must be empty or from the same command."
Out = Annotated[Path, typer.Option(*_OUT, help=_FOLDER)]
OptionalOut = Annotated[Path | None, typer.Option(*_OUT, help=_FOLDER)]


def speak(value: str | None) -> str | None:
    """Settle the language for the whole command, its progress and its workers included."""
    if value is not None:
        os.environ[VARIABLE] = language(value)
    return value


LangOption = Annotated[
    str | None,
    typer.Option("--lang", callback=speak, is_eager=True, help=LANGUAGE),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows; they are counted and listed.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="YAML recipe; options override its values.")]


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def options_from(
    recipe: type[Any],
    texts: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    *,
    leave_out: Collection[str] = (),
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """One option for each field of `recipe` that is described there, or has its help in `texts` (`prepare.seq_len`: of a field).

    `flags` are names other than --field-name. The options come after the command's own arguments, before its keyword-only ones.
    """
    kind: Any = recipe
    own = {name: setting for name, setting in described(kind).items() if name not in leave_out}
    texts = texts or {name: setting.help for name, setting in own.items()}
    flags = flags or {name: setting.flags for name, setting in own.items()}

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        given = inspect.signature(command, eval_str=True).parameters.values()
        first = [one for one in given if one.kind is one.POSITIONAL_OR_KEYWORD]
        last = [one for one in given if one.kind is one.KEYWORD_ONLY]
        made = {path.replace(".", "_"): path for path in texts}
        options = [_option(name, path, recipe, texts[path], flags.get(path)) for name, path in made.items()]

        @wraps(command)
        def called(**values: Any) -> T:
            given = {path: value for name, path in made.items() if (value := values.pop(name)) not in (None, [])}
            return command(**values, **_nested(given))

        # Typer reads a command's options from its declared signature (PEP 362)
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*first, *options, *last)]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        called.without_default = {name for name, path in made.items() if _field(recipe, path)[1] is dataclasses.MISSING}  # type: ignore[attr-defined]
        return called

    return decorate


def with_language(command: Callable[..., T]) -> Callable[..., T]:
    """The command with --lang, if it has none of its own: the option speaks by its callback, the command need not know of it."""
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    names = [one.name for one in parameters]
    if "lang" in names:
        return command

    @wraps(command)
    def called(**values: Any) -> T:
        values.pop("lang")
        return command(**values)

    kind = inspect.Parameter.KEYWORD_ONLY
    lang = inspect.Parameter("lang", kind, annotation=LangOption, default=None)
    parameters.insert(names.index("as_json") if "as_json" in names else len(names), lang)
    parameters = [one.replace(kind=kind) for one in parameters]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def recipe_from(recipe: type[T], given: Mapping[str, Any], where: str, file: Path | None = None) -> T:
    """The recipe of a YAML file, of options, or of both; an option wins over the file."""
    values = read_yaml(file) if file else {}
    for name, value in given.items():
        held = values.get(name) or {}
        if not isinstance(value, dict):
            values[name] = value
        elif isinstance(held, Mapping):  # anything else is refused below, with the file's name
            values[name] = {**held, **value}
    return from_mapping(recipe, values, str(file) if file else where)


def _option(name: str, path: str, recipe: type[Any], text: str, flags: tuple[str, ...] | None) -> inspect.Parameter:
    kind, default = _field(recipe, path)
    flag = "--" + path.rpartition(".")[2].replace("_", "-")
    names = flags or (_OUT if path == "out" else (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,))
    shown = _shown(default, names)
    option = typer.Option(*names, help=f"{text}  [default: {shown}]" if shown else text, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _field(recipe: type[Any], path: str) -> tuple[Any, Any]:
    """What the command line reads for a field (bool, int, float, str, or a list of one of them), and the field's default."""
    name, _, inner = path.partition(".")
    hint = typing.get_type_hints(recipe)[name]
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    kind = kinds[0] if types.NoneType in typing.get_args(hint) and len(kinds) == 1 else hint
    default = next(field.default for field in dataclasses.fields(recipe) if field.name == name)
    if inner:
        read, own = _field(kind, inner)
        return read, None if default is None else own  # what is left out as a whole has no defaults to show
    if typing.get_origin(kind) is tuple:
        entry = typing.get_args(kind)[0]
        return list[entry if entry in (int, float) else str], default  # type: ignore[misc]
    return kind if kind in (bool, int, float) else str, default


def _shown(default: Any, names: tuple[str, ...]) -> str:
    """A default as help shows it; a switch that is off needs no word."""
    if isinstance(default, bool):
        return names[0].split("/")[0].removeprefix("--") if default else ""
    if default in (None, "", ()) or default is dataclasses.MISSING:
        return ""
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _nested(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in given.items():
        outer, _, inner = path.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[outer] = value
    return found
