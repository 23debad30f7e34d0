"""coref-automl tokenizer: learn one from texts, or look at several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.base.progress import Progress
from coref_automl.base.say import language, say
from coref_automl.cli.app import COMMANDS, app, print_result
from coref_automl.cli.options import AsJson, OptionalOut, Out, options_from, recipe_from
from coref_automl.extras.tokenizer.recipe import TokenizerRecipe

tokenizer_app = typer.Typer(help=COMMANDS["tokenizer"][1], no_args_is_help=True, rich_markup_mode=None)


app.add_typer(tokenizer_app, name="tokenizer")


@tokenizer_app.command(epilog="Example: coref-automl tokenizer learn --source local:wiki.jsonl --vocab-size 16000 --out wiki-16k")
@options_from(TokenizerRecipe)
def learn(out: Out, *, as_json: AsJson = False, **given: Any) -> None:
    """Learn a tokenizer from texts; the same texts give the same tokenizer."""
    from coref_automl.extras.tokenizer.recipe import build_tokenizer

    card = build_tokenizer(recipe_from(TokenizerRecipe, given, "tokenizer"), out, progress=Progress())
    size, documents, characters = (f"{count:,}" for count in (card.vocab_size, card.documents, card.characters))
    summary = say(
        f"문서 {documents}개({characters}자)에서 어휘 {size}개",
        f"{size} entries from {documents} documents ({characters} characters)",
    )
    print_result(card, as_json, [f"{out}: {summary}"])


@tokenizer_app.command(
    epilog="Example: coref-automl tokenizer inspect bundled:ko-mini klue/bert-base --data klue-re-v1.1_train.json --out looked"
)
def inspect(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Hub ids, folders, or bundled:ko-mini.")],
    data: Annotated[list[str] | None, typer.Option("--data", help="Relation rows or annotated chains; repeatable.")] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Named source or local:PATH; repeatable.")] = None,
    eval_set: Annotated[list[Path] | None, typer.Option("--eval-set", help="Evaluation set; repeatable.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Texts read of each. Default: all of a file or set, 2,000 of a source.")
    ] = None,
    out: OptionalOut = None,
    as_json: AsJson = False,
) -> None:
    """Compare tokenizers: tokens per word, pieces of entities, token edges, glued particles, unknown characters.

    No weights are loaded. --out writes the tables as a page. Default data: bundled relation rows.
    """
    from coref_automl.extras.tokenizer.inspection import inspect_tokenizers, write_inspection

    progress, lang = Progress(shown=not as_json), language()
    inspection = inspect_tokenizers(
        models, data=data or (), sources=source or (), eval_sets=eval_set or (), limit=limit, progress=progress
    )
    page = write_inspection(inspection, out, lang=lang) if out else None
    lines = [*inspection.lines(lang), *([str(page)] if page else [])]
    print_result(inspection, as_json, lines, page=str(page) if page else None)
