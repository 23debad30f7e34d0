"""The Typer application, its entry point, what commands share. In: the command line. Out: an exit status of 0, 1, 2 or 130."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from coref_automl.base.decoder import short_repr
from coref_automl.base.errors import CorefError, FolderError, InputError
from coref_automl.base.machine import current_folder, without_panics
from coref_automl.base.say import VARIABLE, say
from coref_automl.base.store import is_text
from coref_automl.cli.options import with_panels
from coref_automl.extras import table

try:
    from typer.exceptions import TyperException
except ImportError:  # older releases of Typer use Click's exceptions
    from click import ClickException as TyperException  # type: ignore[assignment]

_OWN = {
    "sources": ("prepare", "List named sources and their licences; check texts of your own."),
    "prepare": ("prepare", "Build training datasets and evaluation sets."),
    "train": ("train", "Train a model on prepared data."),
    "evaluate": ("evaluate", "Score checkpoints on frozen items."),
    "fill": ("evaluate", "Compare what models predict for a [MASK]."),
    "compare": ("compare", "Compare evaluated checkpoints on the same items."),
    "archive": ("compare", "Keep the numbers of evaluations without any text."),
    "power": ("compare", "Plan before training: which differences can be detected."),
}
"""The core's commands: the module of this package that has it, and its line in the list."""
_ORDER = (
    "demo", "adapt", "study", "sources", "tokenizer", "prepare", "train", "tune", "evaluate", "fill",
    "compare", "report", "archive", "power", "publish", "studio", "re", "coref",
)  # fmt: skip
COMMANDS: dict[str, tuple[str, str]] = dict(
    sorted(
        ({verb: (f"{__package__}.{module}", line) for verb, (module, line) in _OWN.items()} | table.commands()).items(),
        key=lambda entry: _ORDER.index(entry[0]) if entry[0] in _ORDER else len(_ORDER),
    )
)
"""All commands in the order of the workflow: their modules, and their lines in the list."""


class CommandList(TyperGroup):
    """Lists all commands without importing their modules: one that is not loaded is shown by its line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        loaded = self.commands
        self.commands = {name: loaded.get(name) or TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()}


HELP = "Continue the pretraining of a Korean encoder, measure every checkpoint, and choose the checkpoint the evidence supports."
app = typer.Typer(
    name="coref-automl",
    cls=CommandList,
    help=HELP,
    epilog="Start with: coref-automl demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"coref-automl {version('coref-automl')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack of an error; accepted anywhere.")]


@app.callback(help=HELP)
def _every_command(version: Version = False, debug: Debug = False) -> None:
    """Options of every command."""


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_result(result: Any, as_json: bool, lines: Iterable[str] | None = None, **more: Any) -> None:
    """Print a result as JSON, with further keys from `more`; or as lines, by default its own."""
    if as_json:
        print_json({**result.to_json(), **more})
    else:
        print("\n".join(result.lines() if lines is None else lines))


class Ahead(Protocol):
    """What training will take."""

    @property
    def too_short(self) -> bool: ...


def confirmation(yes: bool, as_json: bool) -> Callable[[Ahead], bool]:
    """A function that decides whether to train: --yes, the user's answer, or without a terminal whether steps are enough."""

    def confirm(preflight: Ahead) -> bool:
        if yes or as_json or not sys.stdin.isatty():
            return yes or not preflight.too_short
        return typer.confirm(say("계속할까요?", "Go on?"), err=True)

    return confirm


def note_foreign(text: str) -> None:
    from coref_automl.corpus.clean import foreign_note

    if note := foreign_note(text):
        print(note, file=sys.stderr)


def answers_file(data: str | None, out: Path | None, single: Mapping[str, Any]) -> bool:
    """Was --data FILE --out DIR passed? Options in `single`, which are for one text, exclude it."""
    of_file = [name for name, value in (("--data", data), ("--out", out)) if value is not None]
    of_text = [name for name, value in single.items() if value is not None]
    if of_file and of_text:
        raise InputError(f"{of_file[0]} is for a file of rows and {of_text[0]} for one text; pass one of them.")
    if len(of_file) == 1:
        raise InputError("A file of rows needs both --data FILE and --out DIR.")
    return bool(of_file)


_MAX_ERROR = 1_600
"""Characters of an error; a longer one is cut in the middle."""
_INTERRUPTED = "Interrupted. The same command resumes."


def load_commands(names: Iterable[str] = tuple(COMMANDS)) -> typer.Typer:
    """The application with these commands loaded, and all others of their modules. A new command is a line in `COMMANDS`."""
    for module in dict.fromkeys(COMMANDS[name][0] for name in names):
        importlib.import_module(module)
    for command in app.registered_commands:
        command.short_help = COMMANDS[str(command.name or getattr(command.callback, "__name__", ""))][1]
    for group in app.registered_groups:
        group.short_help = COMMANDS[str(group.name)][1]
    return with_panels(app)


@cache
def _parser(*names: str) -> Any:
    """Cached: building it takes longer than some commands."""
    return typer.main.get_command(load_commands(names))


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of scripts, which could not be interrupted
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status. `--debug`, anywhere, shows the stack of an error."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    with _own_language():
        return _run(_parser(verb) if verb in COMMANDS else _parser(), arguments, debug)


@contextmanager
def _own_language() -> Iterator[None]:
    """Restore the language after a command that sets --lang."""
    previous = os.environ.get(VARIABLE)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if previous is not None:
            os.environ[VARIABLE] = previous


def _run(parser: Any, arguments: list[str], debug: bool) -> int:
    for argument in arguments:
        if not is_text(argument):
            shown = short_repr(argument.encode("utf-8", "replace").decode())
            return _report(f"The argument {shown} is not UTF-8; pass whole characters, or rename the file it names.", 2, debug)
    try:
        with without_panics():
            result = parser(arguments, standalone_mode=False)
    except CorefError as error:
        return _report(str(error), error.exit_status, debug)
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a class of Typer and another of Click, which older versions lack
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
        context = getattr(error, "ctx", None)
        help_line = f" See {context.command_path} --help." if context else ""
        return _report(error.format_message() + help_line, error.exit_code, debug)
    except (typer.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # Typer takes the end of a truncated file for that of typed input
            return _report(f"A file ends too early ({error.__cause__}); run it again with --debug to see which.", 1, debug)
        return _report(_INTERRUPTED, 130, debug)
    except MemoryError:
        return _report("Out of memory; close other programs, or give the command less at a time.", 1, debug)
    except shutil.Error as error:  # the first file of a folder that could not be copied
        return _report(f"{error.args[0][0][0]} cannot be copied ({error.args[0][0][2]}); copy the folder again.", 2, debug)
    except OSError as error:
        if error.filename is None or not error.strerror:
            deleted = _deleted_folder()
            return _report(deleted or _unforeseen(error), 2 if deleted else 1, debug)
        return _report(f"{error.filename}: {error.strerror}; check the path.", 2, debug)
    except Exception as error:
        return _report(_unforeseen(error), 1, debug)
    if result == 130:  # newer versions of Typer turn Ctrl-C into this status, silently
        return _report(_INTERRUPTED, 130, debug)
    return result if isinstance(result, int) else 0


def _deleted_folder() -> str:
    """A sentence if the current folder was deleted, which the system reports without a path."""
    try:
        current_folder()
    except FolderError as error:
        return str(error)
    return ""


def _unforeseen(error: Exception) -> str:
    first_line = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"{first_line} (run it again with --debug for the whole stack)"


def _report(message: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    if len(message) > _MAX_ERROR:
        message = f"{message[: _MAX_ERROR // 2]} ... {message[-_MAX_ERROR // 2 :]}"
    print(f"coref-automl: {message}", file=sys.stderr)
    return status
