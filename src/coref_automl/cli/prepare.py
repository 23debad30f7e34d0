"""coref-automl prepare: from text sources to packed datasets and frozen evaluation sets."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, Out, Seed, print_json
from coref_automl.corpus.encode import Mode
from coref_automl.errors import RecipeError

prepare_app = typer.Typer(help="Make datasets to train on, and evaluation sets.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(prepare_app, name="prepare")

Source = Annotated[
    list[str] | None,
    typer.Option("--source", help="A named source (see: coref-automl sources), local:PATH or a quoted glob; several times."),
]
Model = Annotated[str | None, typer.Option("--model", help="Model whose tokenizer is used: hub id, folder or bundled: name.")]
SeqLen = Annotated[int, typer.Option("--seq-len", help="Tokens of a block.")]
Field = Annotated[str | None, typer.Option("--field", help="Field that holds the text, if not the source's usual one.")]
EvalSets = Annotated[
    list[Path] | None, typer.Option("--eval-set", help="Evaluation set whose documents are left out; several times.")
]
Holdout = Annotated[
    float, typer.Option("--holdout", help="Share of each source kept for evaluation (300 at least, half at most); 0 keeps none.")
]
OnlyNames = Annotated[bool, typer.Option("--only-names", help="Chains of proper nouns alone.")]
ChainCap = Annotated[int, typer.Option("--chain-cap", help="Most mentions of one form in a piece.")]
MinCharacters = Annotated[int, typer.Option("--min-characters", help="Shorter documents are dropped.")]
MinHangul = Annotated[float, typer.Option("--min-hangul", help="Least share of Hangul among a document's letters.")]
ExactOnly = Annotated[bool, typer.Option("--exact-only", help="Drop exact duplicates alone, not near ones.")]
Similarity = Annotated[
    float, typer.Option("--similarity", help="From this Jaccard similarity on, two texts are near-duplicates.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="Read at most this many rows of each file or hub source.")]
Shard = Annotated[str | None, typer.Option("--shard", help="Do one share of the work, for example 3/16; see --merge.")]
Merge = Annotated[list[Path] | None, typer.Option("--merge", help="Put finished shares together; once for each of them.")]
Workers = Annotated[int, typer.Option("--workers", help="Processes; 0 means one a core.")]
AllowMissing = Annotated[bool, typer.Option("--allow-missing", help="Go on without what cannot be read.")]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Go on when a source contributes nothing.")]


DATASETS: dict[Mode, tuple[str, str]] = {
    "mlm": (
        "Packed text for masked language modelling; needs no tagger.",
        "coref-automl prepare mlm --source 'local:news/*.jsonl.xz' --model klue/roberta-base --out data/news",
    ),
    "entity": (
        "Packed text with noun chains; documents without a chain are left out.",
        "coref-automl prepare entity --source kowiki --model klue/bert-base --eval-set evalsets/a --out data/wiki",
    ),
    "combined": (
        "Packed text of all documents, with the noun chains that they have: serves every objective.",
        "coref-automl prepare combined --source local:wiki.jsonl --model bundled:ko-mini --out data/wiki",
    ),
}
"""The three commands that make a dataset: help and example. They take the same options, but for those of noun chains."""

_OF_CHAINS = ("only_names", "chain_cap")


def _prepare(
    mode: Mode,
    out: Out,
    source: Source = None,
    model: Model = None,
    seq_len: SeqLen = 1536,
    field: Field = None,
    eval_set: EvalSets = None,
    holdout: Holdout = 0.02,
    only_names: OnlyNames = False,
    chain_cap: ChainCap = 8,
    min_characters: MinCharacters = 200,
    min_hangul: MinHangul = 0.5,
    exact_only: ExactOnly = False,
    similarity: Similarity = 0.8,
    limit: Limit = None,
    shard: Shard = None,
    merge: Merge = None,
    workers: Workers = 0,
    allow_missing: AllowMissing = False,
    allow_empty: AllowEmpty = False,
    as_json: AsJson = False,
) -> None:
    settings = {name: value for name, value in locals().items() if name in _SETTINGS}
    from coref_automl.corpus.card import counts_table, summary
    from coref_automl.corpus.prepare import merge as merge_parts
    from coref_automl.corpus.prepare import prepare
    from coref_automl.corpus.recipe import PrepareRecipe
    from coref_automl.progress import Progress

    progress = Progress(shown=not as_json)
    if merge:
        manifest = merge_parts(merge, out, mode=mode, progress=progress)
    else:
        if not source or not model:
            raise RecipeError(
                f"prepare {mode} needs {'--model' if source else '--source'}; see: coref-automl prepare {mode} --help"
            )
        recipe = PrepareRecipe(
            mode=mode,
            sources=tuple(source),
            model=model,
            eval_sets=tuple(str(folder) for folder in eval_set or ()),
            near_duplicates=not exact_only,
            **settings,
        )
        manifest = prepare(recipe, out, progress=progress)
    if as_json:
        print_json(manifest)
    elif "blocks" in manifest:
        print(f"{counts_table(manifest)}\n{out}: {summary(manifest)}")
    else:
        print(f"{out}: share {manifest['settings']['shard']} is finished; put all shares together with --merge")


_SETTINGS = set(inspect.signature(_prepare).parameters) - {
    "mode", "out", "source", "model", "eval_set", "exact_only", "merge", "as_json",
}  # fmt: skip
"""Options that are called as the recipe's own fields."""


def _add_command(mode: Mode) -> None:
    """`_prepare` as a command of its own, with the options that mean something for the mode."""
    told, example = DATASETS[mode]
    left_out = ("mode", *(_OF_CHAINS if mode == "mlm" else ()))
    options = [option for name, option in inspect.signature(_prepare, eval_str=True).parameters.items() if name not in left_out]

    def command(**given: Any) -> None:
        _prepare(mode, **given)

    command.__doc__ = told
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    prepare_app.command(mode, epilog=f"Example: {example}")(command)


for _mode in DATASETS:
    _add_command(_mode)


@prepare_app.command(
    "eval", epilog="Example: coref-automl prepare eval --source kowiki --model klue/bert-base --out evalsets/wiki"
)
def evaluation(
    out: Out,
    model: Annotated[list[str], typer.Option("--model", help="Tokenizers to serve; the first is the reference. Several times.")],
    source: Source = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="real, real-far, lambada or gold; several times.")] = None,
    gold: Annotated[list[str] | None, typer.Option("--gold", help="File of texts with coreference clusters.")] = None,
    lambada: Annotated[
        list[str] | None, typer.Option("--lambada", help="File in Ko-LAMBADA's columns, ko-lambada or bundled:cloze.")
    ] = None,
    field: Field = None,
    limit: Limit = None,
    holdout: Holdout = 0.02,
    all_documents: Annotated[
        bool,
        typer.Option("--all-documents", help="Use every document, not held-out ones alone: for texts that nothing trains on."),
    ] = False,
    per_source: Annotated[int, typer.Option("--per-source", help="Most real items of a source.")] = 1_600,
    per_bucket: Annotated[int, typer.Option("--per-bucket", help="Most far items of a source and distance bucket.")] = 400,
    per_document: Annotated[int, typer.Option("--per-document", help="Most real items of a document.")] = 3,
    single_entry: Annotated[
        bool, typer.Option("--single-entry", help="Only real items whose answer is one vocabulary entry of the first --model.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """A frozen evaluation set from held-out documents; with --out and --model alone, noun tables for a set that stands."""
    from coref_automl.config import from_mapping
    from coref_automl.evaluation.manifest import lines
    from coref_automl.evaluation.prepare import EvalRecipe, prepare_eval
    from coref_automl.progress import Progress

    tasks = task or [*(["real", "real-far"] if source else []), *(["lambada"] if lambada else []), *(["gold"] if gold else [])]
    values: dict[str, Any] = {
        "models": model,
        "tasks": tasks or ["real", "real-far"],
        "sources": source or [],
        "gold": gold or [],
        "lambada": lambada or [],
        "field": field,
        "limit": limit,
        "holdout": holdout,
        "all_documents": all_documents,
        "per_source": per_source,
        "per_bucket": per_bucket,
        "per_document": per_document,
        "single_entry": single_entry,
        "seed": seed,
    }
    built = prepare_eval(from_mapping(EvalRecipe, values, "prepare eval"), out, progress=Progress(shown=not as_json))
    if as_json:
        print_json(built.manifest)
        return
    print("\n".join([*lines(built.manifest), f"{out}: {sum(map(len, built.items.values())):,} items, frozen"]))
