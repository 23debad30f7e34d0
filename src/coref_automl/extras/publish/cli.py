"""coref-automl publish. In: an evaluated checkpoint. Out: a model on the hub with a card that fills itself."""

from __future__ import annotations

from typing import Annotated

import typer

from coref_automl.base.say import language, say
from coref_automl.cli.app import app, print_json
from coref_automl.cli.options import AsJson


@app.command(epilog="Example: coref-automl publish runs/mlm --repo my-name/my-encoder --private --dry-run")
def publish(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="An evaluated checkpoint, or a run: its chosen one.")],
    repo: Annotated[str, typer.Option("--repo", help="Model repository on the hub: OWNER/NAME; made if missing.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    evaluations: Annotated[
        str | None, typer.Option("--evaluations", help="Where its evaluations are. Default: its study or its run.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the card and the files; send nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a checkpoint on the hub: weights, tokenizer, and a card with its measured table and the verdict against its base.

    Needs a token that may write (hf auth login, or HF_TOKEN). The same command again sends only what changed.
    """
    from coref_automl.extras.publish.publish import publish as send

    sent = send(checkpoint, repo, private=private, dry_run=dry_run, evaluations=evaluations, lang=language())
    if as_json:
        print_json(sent.to_json())
        return
    if dry_run:
        print(sent.card)
    what = f"{', '.join(sent.files)} ({sent.megabytes:,.1f} MB)"
    print(say(f"전송하지 않음: {what}", f"Not sent: {what}") if dry_run else f"{sent.url}: {what}")
