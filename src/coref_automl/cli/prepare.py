"""coref-automl sources, prepare: text sources, packed datasets, frozen evaluation sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.base.progress import Progress
from coref_automl.base.say import Say, align, language, say
from coref_automl.cli.app import COMMANDS, app, print_json, print_result
from coref_automl.cli.options import AsJson, Out, options_from, recipe_from
from coref_automl.corpus.recipe import Mode, PrepareRecipe
from coref_automl.evaluation.recipe import EvalRecipe

_PARTS = 5
"""The number of readable files of a source that --check shows; unreadable files are all shown."""


@app.command(epilog="Example: coref-automl sources --check local:news.jsonl.xz kowiki")
def sources(
    names: Annotated[list[str] | None, typer.Argument(help="Sources to list, also local:PATH. Default: all named ones.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Read the first row of each source.")] = False,
    field: Annotated[str | None, typer.Option("--field", help="Field with the text, if not the source's usual one.")] = None,
    as_json: AsJson = False,
) -> int:
    """List named sources: hub id, field, licence; with --check, whether each is readable."""
    from coref_automl.corpus.sources import BUNDLED, SOURCES, check_source, inputs_of

    chosen = names or [*SOURCES, *BUNDLED]
    if check:
        parts = {name: check_source(name, field=field) for name in chosen}
        files = [file for source in parts.values() for file in source]
        if as_json:
            print_json([file.to_json() for file in files])
        for name, entries in {} if as_json else parts.items():
            shown = [entry for number, entry in enumerate(entries) if number < _PARTS or not entry.usable]
            for entry in shown:
                fault = say("비어 있음", "EMPTY") if entry.empty else say("읽을 수 없음", "NOT READABLE")
                state = say("읽을 수 있음", "readable") if entry.usable else fault
                print(f"{state}  {entry.name} [{entry.field}] {entry.message}")
            if more := len(entries) - len(shown):
                print(say(f"읽을 수 있음  {name}의 파일 {more:,}개 더", f"readable  {more:,} more files of {name}"))
        return 1 if names and not all(file.usable for file in files) else 0
    for name in chosen:
        inputs_of(name)
    rows = [{"name": name, **_described(name, Say("en") if as_json else Say(language()))} for name in chosen]
    if as_json:
        print_json(rows)
    else:
        print("\n".join(_listed(rows)))
    return 0


def _described(name: str, say: Say) -> dict[str, str]:
    from coref_automl.corpus.sources import BUNDLED, SOURCES, licence_of, open_source

    source = SOURCES.get(name)
    if source is None:
        rows = f"{sum(1 for _ in open_source(name)):,}" if name in BUNDLED else ""
        return {"hub": "", "split": "", "field": "text", "licence": licence_of(name), "note": "", "rows": rows}
    hub = f"{source.hub} {source.config}" if source.config else source.hub
    gated = say("승인 필요: HF_TOKEN 설정", "gated: set HF_TOKEN") if source.gated else ""
    note, field = ", ".join(part for part in (gated, say(*source.note)) if part), " + ".join(source.fields)
    return {"hub": hub, "split": source.split, "field": field, "licence": source.licence, "note": note, "rows": source.rows}


def _listed(rows: list[dict[str, str]]) -> list[str]:
    """Lines of at most about a hundred columns: name, rows, licence and location of each source, details below."""
    from coref_automl.corpus.sources import licence_in_words

    cells = [tuple(say("이름/행/라이선스/허브 id", "name/rows/licence/hub id").split("/"))]
    for row in rows:
        where, _, licence = row["licence"].rpartition(", ") if not row["hub"] else (row["hub"], "", row["licence"].split(";")[0])
        where, licence = map(licence_in_words, (where, licence))
        cells.append((row["name"], row["rows"] or "–", licence, where))
    lines = align(cells)
    listed = lines[:1]
    for line, row in zip(lines[1:], rows, strict=True):
        listed.append(line.rstrip())
        split, field = say("분할", "split"), say("필드", "field")
        details = [f"{split} {row['split']}" if row["split"] not in ("", "train") else "", row["note"]]
        details.append(f"{field} {row['field']}" if row["field"] != "text" else "")
        if any(details):
            listed.append("    " + "; ".join(part for part in details if part))
    return listed


prepare_app = typer.Typer(help=COMMANDS["prepare"][1], no_args_is_help=True, rich_markup_mode=None)
app.add_typer(prepare_app, name="prepare")

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
"""Help and example of the three commands that build a dataset. They share all options except those of noun chains."""

_OF_CHAINS = ("only_names", "chain_cap")


def _add_command(mode: Mode) -> None:
    """Add `prepare MODE`, with the options that apply to the mode."""
    about, example = DATASETS[mode]

    @prepare_app.command(mode, help=about, epilog=f"Example: {example}")
    @options_from(PrepareRecipe, leave_out=_OF_CHAINS if mode == "mlm" else ())
    def command(out: Out, *, as_json: AsJson = False, **given: Any) -> None:
        from coref_automl.corpus.card import counts_table, summary
        from coref_automl.corpus.prepare import prepare

        recipe = recipe_from(PrepareRecipe, {"mode": mode, **given}, f"prepare {mode}")
        manifest = prepare(recipe, out, progress=Progress(shown=not as_json))
        print_json(manifest) if as_json else print(f"{counts_table(manifest)}\n{out}: {summary(manifest)}")


for _mode in DATASETS:
    _add_command(_mode)


@prepare_app.command("eval", epilog="Example: coref-automl prepare eval --source kowiki --model klue/bert-base --out sets/wiki")
@options_from(EvalRecipe)
def evaluation(out: Out, *, as_json: AsJson = False, **given: Any) -> None:
    """Build a frozen evaluation set from held-out documents; with --out and --model alone, noun tables for an existing set."""
    from coref_automl.evaluation.prepare import prepare_eval
    from coref_automl.evaluation.recipe import lines

    evalset = prepare_eval(recipe_from(EvalRecipe, given, "prepare eval"), out, progress=Progress(shown=not as_json))
    if as_json:
        print_json(evalset.manifest)
        return
    count = f"{sum(map(len, evalset.items.values())):,}"
    frozen = say(f"문항 {count}개 고정", f"{count} items, frozen")
    print("\n".join([*lines(evalset.manifest), f"{out}: {frozen}"]))


@prepare_app.command(epilog="Example: coref-automl prepare status prepared_datasets/web")
def status(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The --out of a prepare command, running or stopped.")],
    as_json: AsJson = False,
) -> None:
    """Show how far a preparation has come: shards done, running and failed, throughput, time left."""
    from coref_automl.corpus.work import prepare_status, status_lines

    progress = prepare_status(out)
    print_result(progress, as_json, status_lines(progress))
