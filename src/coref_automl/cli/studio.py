"""coref-automl studio: a local web page to watch runs, compare checkpoints, explore items and try models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import LangOption
from coref_automl.say import language, say


@app.command(epilog="Example: coref-automl studio")
def studio(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Folders of runs, evaluations, evaluation sets and models. Default: this one."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 takes any free one.")] = 8420,
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Others than 127.0.0.1 open it to the network.")] = (
        "127.0.0.1"
    ),
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    lang: LangOption = None,
) -> None:
    """Watch runs, compare checkpoints, explore every item and try models, in a local web page.

    It reads the given folders, nothing outside them, and writes into none. Ctrl-C ends it.
    """
    from coref_automl.errors import InputError, RecipeError
    from coref_automl.studio.safety import is_loopback

    try:
        from coref_automl.studio.server import serve
    except ModuleNotFoundError as error:
        raise RecipeError(f"The studio needs {error.name}; run: pip install 'coref-automl[studio]'") from error
    folders = paths or [Path()]
    for path in folders:
        if not path.is_dir():
            raise InputError(f"{path} is not a folder; pass folders of runs, or none for this one.")

    def ready(address: str) -> None:
        print(address, flush=True)
        shown = ", ".join(str(path.resolve()) for path in folders)
        print(say(f"폴더: {shown}. 끝내려면 Ctrl-C.", f"Shows {shown}. Ctrl-C ends it."), file=sys.stderr)
        if not is_loopback(host):
            told = (
                "네트워크에서 이 기계에 닿는 누구나 이 폴더들을 읽을 수 있습니다.",
                "Anyone who can reach this machine on the network can read these folders here.",
            )
            print(say(*told), file=sys.stderr)
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(folders, host=host, port=port, lang=language(lang), on_ready=ready)
    except KeyboardInterrupt:
        return
