"""coref-automl studio. In: folders of runs and evaluations. Out: a local web page over them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coref_automl.base.errors import InputError, RecipeError
from coref_automl.base.say import language, say
from coref_automl.cli.app import app


@app.command(epilog="Example: coref-automl studio")
def studio(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Folders of runs, evaluations, evaluation sets and models. Default: this one."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 takes any free one.")] = 8420,
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Any other opens it to the network.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """See which method wins, open a run, compare, triage items, correct chains and try models, in a local web page.

    It reads the given folders and nothing outside them; notes, tags and corrected chains are kept beside them. Ctrl-C ends it.
    """
    from coref_automl.extras.studio.safety import is_loopback

    try:
        from coref_automl.extras.studio.server import serve
    except ModuleNotFoundError as error:
        raise RecipeError(f"The studio needs {error.name}; run: pip install 'coref-automl[studio]'") from error
    folders = paths or [Path()]
    for path in folders:
        if not path.is_dir():
            raise InputError(
                f"{path} {'is not a folder' if path.exists() else 'does not exist'}; pass folders of runs, or none for this one."
            )

    def ready(address: str) -> None:
        print(address, flush=True)
        names = ", ".join(str(path.resolve()) for path in folders)
        print(say(f"폴더: {names}. 끝내려면 Ctrl-C.", f"Shows {names}. Ctrl-C ends it."), file=sys.stderr)
        if not is_loopback(host):
            warning = (
                "네트워크에서 이 서버에 접속할 수 있는 사람은 누구나 이 폴더들을 읽고 메모를 남길 수 있습니다.",
                "Anyone who can reach this machine on the network can read these folders here, and write notes.",
            )
            print(say(*warning), file=sys.stderr)
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(folders, host=host, port=port, lang=language(), on_ready=ready)
    except KeyboardInterrupt:
        return
