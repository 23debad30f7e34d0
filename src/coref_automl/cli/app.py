"""The Typer application and its entry point. In: the command line. Out: an exit status of 0, 1, 2 or 130."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from coref_automl.cli.panels import laid_out
from coref_automl.errors import CorefError
from coref_automl.say import VARIABLE
from coref_automl.store import is_text

try:
    from typer.exceptions import TyperException
except ImportError:  # older releases of Typer use Click's exceptions
    from click import ClickException as TyperException  # type: ignore[assignment]

_IN_ORDER = (
    "demo", "adapt", "sources", "tokenizer", "learn", "inspect", "prepare", "explore", "train", "watch", "evaluate", "evalset",
    "predict", "grid", "power", "compare", "report", "archive", "studio", "fill", "study", "tune", "re", "coref", "bench",
)  # fmt: skip


_MODULES: dict[str, tuple[str, ...]] = {
    "demo": ("demo", "adapt"),
    "prepare": ("sources", "prepare"),
    "tokenizer": ("tokenizer",),
    "train": ("train", "watch"),
    "evaluate": ("evaluate", "fill"),
    "power": ("power",),
    "evalset": ("evalset",),
    "compare": ("compare", "report", "archive"),
    "studio": ("studio",),
    "study": ("study",),
    "tune": ("tune",),
    "relation": ("re",),
    "coreference": ("coref",),
    "bench": ("bench",),
}
"""The modules beside this one and the commands that each has."""


class Verbs(TyperGroup):
    """Commands in the order of the workflow; one that is not named above comes last."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _IN_ORDER.index(name) if name in _IN_ORDER else len(_IN_ORDER))


HELP = "Adapt a Korean encoder to entities, measure every checkpoint, and choose the checkpoint the evidence supports."
app = typer.Typer(
    name="coref-automl",
    cls=Verbs,
    help=HELP,
    epilog="Start with: coref-automl demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from coref_automl import __version__

        print(f"coref-automl {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack of an error; may stand anywhere.")]


@app.callback(help=HELP)
def _every_command(version: Version = False, debug: Debug = False) -> None:
    """What every command has."""


_LONGEST = 1_600
"""Longest error in characters; a longer one keeps its beginning and its end."""
_INTERRUPTED = "Interrupted. The same command resumes."


def load_commands(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application with every command on it, or with the one that a command line asks for: the others take time to import.

    A new command is a module here and a line in `_MODULES`.
    """
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    for module in [module for module, verbs in _MODULES.items() if verb in verbs] or _MODULES:
        importlib.import_module(f"coref_automl.cli.{module}")
    return laid_out(app)


def main() -> None:
    """The installed command."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a script's background job inherits it: nobody could interrupt it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status. `--debug`, anywhere, shows the stack of an error."""
    application = load_commands(arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    with _own_language():
        return _run(application, arguments, debug)


@contextmanager
def _own_language() -> Iterator[None]:
    """What --lang settles ends with the command."""
    before = os.environ.get(VARIABLE)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def _run(application: typer.Typer, arguments: list[str], debug: bool) -> int:
    for argument in arguments:
        if not is_text(argument):
            return _report(f"{os.fsencode(argument)!r} is not UTF-8; rename the file.", 2, debug)
    try:
        result = application(arguments, standalone_mode=False)
    except CorefError as error:
        return _report(str(error), error.exit_status, debug)
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # Typer and Click each have their own, and older ones have none
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
        return _report(_usage(error), error.exit_code, debug)
    except (typer.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # Typer takes a file that ends too early for the end of what is typed
            return _report(f"A file ends too early ({error.__cause__}); run it again with --debug to see which.", 1, debug)
        return _report(_INTERRUPTED, 130, debug)
    except MemoryError:
        return _report("Out of memory; close other programs, or give the command less at a time.", 1, debug)
    except OSError as error:
        if error.filename is None or not error.strerror:
            return _report(_unforeseen(error), 1, debug)
        return _report(f"{error.filename}: {error.strerror}; check the path.", 2, debug)
    except Exception as error:
        return _report(_unforeseen(error), 1, debug)
    if result == 130:  # newer Typer turns Ctrl-C into this status by itself, without a word
        return _report(_INTERRUPTED, 130, debug)
    return result if isinstance(result, int) else 0


def _unforeseen(error: Exception) -> str:
    first_line = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"{first_line} (run it again with --debug for the whole stack)"


def _usage(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    help_line = f" See {context.command_path} --help." if context else ""
    return error.format_message() + help_line


def _report(message: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    shown = message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
    print(f"coref-automl: {shown}", file=sys.stderr)
    return status


_WIDTH = 100


def reference() -> str:
    """The command reference in Markdown: one section per command with its `--help`, the same on every machine."""
    os.environ["COLUMNS"] = str(_WIDTH)
    sections = ["# Commands", "Written from the commands by `make docs`; a test holds this page to them."]
    for path, command in _walk("coref-automl", typer.main.get_command(load_commands())):
        sections.append(f"## {path}\n\n```\n{_help(path, command)}\n```")
    return "\n\n".join(sections) + "\n"


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{path} {name}", child)


def _help(path: str, command: Any) -> str:
    with command.make_context(path, [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH) as context:
        lines = command.get_help(context).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()
