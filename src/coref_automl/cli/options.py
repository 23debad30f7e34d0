"""Options: those that commands share, those made from recipes, their panels in a long help.

A command that runs a recipe has one option per field: `@options_from(TrainRecipe)` decorates a function that takes those passed
on the command line as `**given`. `recipe_from` puts them over the values of a YAML file; the recipe's defaults fill the rest.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from coref_automl.base.config import Setting, described, from_mapping, overlaid, read_yaml
from coref_automl.base.errors import RecipeError
from coref_automl.base.say import LANGUAGE, VARIABLE, language

T = TypeVar("T")

_OUT = ("--out", "--output-dir")
_FOLDER = "Output folder; must be empty or from the same command."
Out = Annotated[Path, typer.Option(*_OUT, help=_FOLDER)]
OptionalOut = Annotated[Path | None, typer.Option(*_OUT, help=_FOLDER)]


def set_language(value: str | None) -> str | None:
    """Set the language of the whole command, including its progress and its workers."""
    if value is not None:
        os.environ[VARIABLE] = language(value)
    return value


LangOption = Annotated[str | None, typer.Option("--lang", callback=set_language, is_eager=True, help=LANGUAGE)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows; they are counted and listed.")]
Rows = Annotated[
    str | None, typer.Option("--data", help="Answer every row of a file (.jsonl, .csv, ...) into the folder of --out; resumable.")
]
Column = Annotated[str, typer.Option("--column", help="With --data: the column or key that holds the text.")]
Yes = Annotated[bool, typer.Option("--yes", help="Train without asking, even where the texts give too few steps.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="YAML recipe; options override its values.")]


def options_from(
    recipe: type[Any],
    texts: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    *,
    leave_out: Collection[str] = (),
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add an option for each field of `recipe` and of its stages (`evaluate.sets`) that has help, or only for those in `texts`.

    `flags` are names other than --field-name, and override those of the fields. The options come after the command's positional
    arguments and before its keyword-only ones.
    """
    settings = {name: setting for name, setting in _described(recipe).items() if name not in leave_out}
    texts = texts or {name: setting.help for name, setting in settings.items()}
    flags = {name: setting.flags for name, setting in settings.items()} | dict(flags or {})

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        positional = [parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        keyword_only = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        paths = {path.replace(".", "_"): path for path in texts}
        options = [_option(name, path, recipe, texts[path], flags.get(path)) for name, path in paths.items()]

        @wraps(command)
        def wrapped(**values: Any) -> T:
            given: dict[str, Any] = {}
            for name, path in paths.items():
                if (value := values.pop(name)) not in (None, []):
                    *stage, field = path.split(".")
                    (given.setdefault(stage[0], {}) if stage else given)[field] = value
            return command(**values, **given)

        _declare(wrapped, [*positional, *options, *keyword_only])
        required = {name for name, path in paths.items() if _field(recipe, path)[1] is dataclasses.MISSING}
        wrapped.without_default = required  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _described(recipe: Any) -> dict[str, Setting]:
    """The settings of all fields that have help, including the fields of stages (`evaluate.sets`)."""
    settings: dict[str, Setting] = {}
    for name, hint in _hints(recipe).items():
        stage: Any = next((kind for kind in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(kind)), None)
        settings |= {name: described(recipe)[name]} if name in described(recipe) else {}
        if stage is not None:
            settings |= {f"{name}.{field}": setting for field, setting in described(stage).items()}
    return {name: setting for name, setting in settings.items() if setting.help}


def with_language(command: Callable[..., T]) -> Callable[..., T]:
    """Add --lang to a command that does not have it; the option works by its callback, and the command does not get it."""
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    names = [parameter.name for parameter in parameters]
    if "lang" in names:
        return command

    @wraps(command)
    def wrapped(**values: Any) -> T:
        values.pop("lang")
        return command(**values)

    lang = inspect.Parameter("lang", inspect.Parameter.KEYWORD_ONLY, annotation=LangOption, default=None)
    parameters.insert(names.index("as_json") if "as_json" in names else len(names), lang)
    _declare(wrapped, parameters)
    return wrapped


def _declare(command: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> None:
    """Typer reads a command's options from its declared signature (PEP 362)."""
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword_only}


def recipe_from(recipe: type[T], given: Mapping[str, Any], where: str, file: Path | None = None) -> T:
    """Build a recipe from a YAML file, from options, or from both; options override the file."""
    return from_mapping(recipe, overlaid(read_yaml(file) if file else {}, given), str(file) if file else where)


def _option(name: str, path: str, recipe: type[Any], text: str, flags: tuple[str, ...] | None) -> inspect.Parameter:
    kind, default = _field(recipe, path)
    flag = "--" + path.rpartition(".")[2].replace("_", "-")
    names = flags or (_OUT if path == "out" else (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,))
    in_help = _in_help(default, names)
    option = typer.Option(*names, help=f"{text}  [default: {in_help}]" if in_help else text, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


@cache
def _hints(recipe: type[Any]) -> dict[str, Any]:
    """The types of a recipe's fields and further sections; cached, since every option needs them."""
    return typing.get_type_hints(recipe) | getattr(recipe, "sections", dict)()


def _field(recipe: type[Any], path: str) -> tuple[Any, Any]:
    """The type that the command line reads for a field (bool, int, float, str, or a list of one), and the field's default."""
    name, _, inner = path.partition(".")
    hint = _hints(recipe)[name]  # type: ignore[arg-type]  # a class can be hashed
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    kind = kinds[0] if types.NoneType in typing.get_args(hint) and len(kinds) == 1 else hint
    default = next((field.default for field in dataclasses.fields(recipe) if field.name == name), None)
    if inner:
        of_stage, of_field = _field(kind, inner)
        return of_stage, None if default is None else of_field  # a stage that is absent by default has no defaults to show
    if typing.get_origin(kind) is tuple:
        entry = typing.get_args(kind)[0]
        return list[entry if entry in (int, float) else str], default  # type: ignore[misc]
    return kind if kind in (bool, int, float) else str, default


def _in_help(default: Any, names: tuple[str, ...]) -> str:
    """A default as help shows it; that of a switch which is off is not shown."""
    if isinstance(default, bool):
        return names[0].split("/")[0].removeprefix("--") if default else ""
    if default in (None, "", ()) or default is dataclasses.MISSING:
        return ""
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


MANY = 15
"""With more options than this, a help has panels."""
PANELS: dict[str, tuple[str, ...]] = {
    "Basics": (
        "model", "dataset", "out", "recipe", "objective", "source", "train", "dev", "data", "task", "seed", "seeds", "first-seed",
        "tokenizer", "words-from", "scheme", "head", "lang", "json", "dry-run", "help",
    ),
    "Budget": (
        "epochs", "max-tokens", "max-minutes", "trials", "limit", "max-rows", "learning-rate", "weight-decay",
        "warmup", "schedule", "layer-decay", "clip", "batch", "batch-size", "patience", "threshold", "folds", "save-every",
        "checkpoints", "average", "keep-states", "finalists", "portfolio", "portfolio-only", "tune", "until-shown",
    ),
    "Masking": (
        "min-prob", "max-prob", "rates", "whole-word", "replacement", "entity-rate", "background", "ratio", "far-weight",
        "copy-weight", "link-weight", "temperature", "cross-document", "label-mask", "mask-support",
    ),
    "Memory": (
        "micro-batch", "seq-len", "max-length", "policy", "attention", "dtype", "precision", "device", "compile",
        "gradient-checkpointing", "workers", "batch-tokens", "engine", "storage", "segment", "rank",
    ),
    "Evaluation": (
        "eval-set", "eval-items", "metric", "score", "guard", "worth", "margin", "stop-when-flat",
        "holdout", "base", "new-head", "by", "choose-by", "per-source", "per-bucket", "per-document", "single-entry",
    ),
}  # fmt: skip
"""Options by panel, for all commands; others are in the panel Other."""
_PANEL = {name: panel for panel, names in PANELS.items() for name in names}


class Panelled(TyperCommand):
    """A command with panels in a long help, which names all missing options at once."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = [(param, record) for param in self.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
        options = [(param, record) for param, record in records if param.param_type_name == "option"]
        if len(options) <= MANY:
            super().format_options(ctx, formatter)
            return
        arguments = [record for param, record in records if param.param_type_name == "argument"]
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in (*PANELS, "Other")}
        for param, record in options:
            names = (name.removeprefix("--") for name in param.opts)
            panels[next((_PANEL[name] for name in names if name in _PANEL), "Other")].append(record)
        for title, lines in {"Arguments": arguments, **panels}.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and not {"--help", "-h"} & set(args):
            self._refuse_missing(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_missing(self, ctx: Any, args: list[str]) -> None:
        """Name all missing options at once; other mistakes are left to the parser."""
        try:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        except Exception:  # the parser raises it again, as its own error
            return
        needed: set[str] = getattr(self.callback, "without_default", set()) if not given.get("recipe") else set()
        params = [param for param in self.get_params(ctx) if param.required or param.name in needed]
        missing = [param for param in params if given.get(param.name or "") in (None, (), [])]
        if missing:
            names = [
                param.opts[0] if param.param_type_name == "option" else (param.metavar or str(param.name)).upper()
                for param in missing
            ]
            raise RecipeError(f"Missing: {', '.join(names)}. See {ctx.command_path} --help.")


def with_panels(app: typer.Typer) -> typer.Typer:
    """Give panels and --lang to all commands of an application and of its groups."""
    for command in app.registered_commands:
        command.cls = Panelled
        if command.callback is not None:
            command.callback = with_language(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_panels(group.typer_instance)
    return app
