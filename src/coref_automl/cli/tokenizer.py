"""coref-automl tokenizer: learn a vocabulary from texts, and look at what tokenizers make of words and entities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.app import Verbs, app
from coref_automl.cli.options import AsJson, LangOption, OptionalOut, Out, options_from, print_json, recipe_from
from coref_automl.corpus.tokenizer import TokenizerRecipe
from coref_automl.errors import RecipeError
from coref_automl.say import language, say


class _LearnByDefault(Verbs):
    """`tokenizer --source ...` without a verb is `tokenizer learn --source ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["learn", *args]
        return super().parse_args(ctx, args)


tokenizer_app = typer.Typer(
    cls=_LearnByDefault,
    help="Learn a tokenizer, or inspect tokenizers side by side. Without a verb: learn.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(tokenizer_app, name="tokenizer")


@tokenizer_app.command(
    epilog="Example: coref-automl tokenizer learn --source local:wiki.jsonl --vocab-size 16000 --out tokenizers/wiki"
)
@options_from(TokenizerRecipe)
def learn(out: Out, *, as_json: AsJson = False, **given: Any) -> None:
    """Learn a tokenizer from texts; the same texts give the same tokenizer."""
    from coref_automl.corpus.tokenizer import build_tokenizer
    from coref_automl.progress import Progress

    if "sources" not in given:
        raise RecipeError("tokenizer needs --source; see: coref-automl tokenizer learn --help")
    card = build_tokenizer(recipe_from(TokenizerRecipe, given, "tokenizer"), out, progress=Progress())
    if as_json:
        print_json(card.to_json())
    else:
        size, documents, characters = (f"{count:,}" for count in (card.vocab_size, card.documents, card.characters))
        told = (
            f"문서 {documents}개({characters}자)에서 어휘 {size}개",
            f"{size} entries from {documents} documents ({characters} characters)",
        )
        print(f"{out}: {say(*told)}")


@tokenizer_app.command(
    epilog="Example: coref-automl tokenizer inspect bundled:ko-mini klue/bert-base --data klue-re-v1.1_train.json --out looked"
)
def inspect(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Hub ids, folders, or bundled:ko-mini.")],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Relation rows, annotated chains, cloze passages or plain text; repeatable."),
    ] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Named source or local:PATH; repeatable.")] = None,
    eval_set: Annotated[list[Path] | None, typer.Option("--eval-set", help="Evaluation set; repeatable.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Texts read of each. Default: all of a file or set, 2,000 of a source.")
    ] = None,
    lang: LangOption = None,
    out: OptionalOut = None,
    as_json: AsJson = False,
) -> None:
    """Compare tokenizers: tokens per word, pieces of entities, token edges, glued particles, unknown characters.

    No weights are loaded. --out writes the tables as a page. Default data: bundled relation rows.
    """
    from coref_automl.progress import Progress
    from coref_automl.report.tokenizer_inspection import inspect_tokenizers, write_inspection

    tongue = language(lang)
    progress = Progress(shown=not as_json)
    found = inspect_tokenizers(
        models, data=data or (), sources=source or (), eval_sets=eval_set or (), limit=limit, progress=progress
    )
    page = write_inspection(found, out, lang=tongue) if out else None
    if as_json:
        print_json({**found.to_json(), "page": str(page) if page else None})
    else:
        print("\n".join([*found.lines(tongue), *([str(page)] if page else [])]))
