"""coref-automl tokenizer: a vocabulary of your own, for a model that starts from nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, Out, print_json


@app.command()
def tokenizer(
    source: Annotated[list[str], typer.Option("--source", help="A named source or local:PATH; may be given several times.")],
    out: Out,
    vocab_size: Annotated[int, typer.Option("--vocab-size", help="Entries of the vocabulary.")] = 16_000,
    alphabet: Annotated[int, typer.Option("--alphabet", help="Most single characters among them.")] = 3_000,
    tails: Annotated[int | None, typer.Option("--tails", help="Entries for what follows a noun; by default 6 in 100.")] = None,
    nouns: Annotated[bool, typer.Option("--nouns/--no-nouns", help="Learn nouns apart from the particles after them.")] = True,
    holdout: Annotated[
        float,
        typer.Option("--holdout", help="Share of each source kept for evaluation (300 at least, half at most), never seen here."),
    ] = 0.02,
    as_json: AsJson = False,
) -> None:
    """Learn a tokenizer from texts; the same texts give the same tokenizer.

    Example: coref-automl tokenizer --source local:wiki.jsonl --vocab-size 16000 --out tokenizers/wiki
    """
    from coref_automl.corpus.tokenizer import TokenizerRecipe, build_tokenizer
    from coref_automl.progress import Progress

    recipe = TokenizerRecipe(tuple(source), vocab_size=vocab_size, nouns=nouns, alphabet=alphabet, tails=tails, holdout=holdout)
    card = build_tokenizer(recipe, out, progress=Progress())
    if as_json:
        print_json(card.to_json())
    else:
        print(f"{out}: {card.vocab_size:,} entries from {card.documents:,} documents ({card.characters:,} characters)")
