"""coref-automl sources: where texts can come from, and whether they can be read here."""

from __future__ import annotations

from typing import Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, print_json


@app.command(epilog="Example: coref-automl sources --check local:news.jsonl.xz kowiki")
def sources(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sources to look at, also local:PATH; all named ones when none is given.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read the first row of each, and say what was found.")] = False,
    field: Annotated[str | None, typer.Option("--field", help="Field that holds the text, if not the usual one.")] = None,
    as_json: AsJson = False,
) -> int:
    """The named sources: hub id, field, licence; with --check, whether each can be read."""
    from coref_automl.corpus.card import aligned
    from coref_automl.corpus.sources import BUNDLED, SOURCES, check_source, inputs_of

    chosen = names or [*SOURCES, *BUNDLED]
    if check:
        found = [entry for name in chosen for entry in check_source(name, field=field)]
        if as_json:
            print_json([entry.to_json() for entry in found])
        else:
            for entry in found:
                print(f"{'readable' if entry.readable else 'NOT READABLE':13} {entry.name} [{entry.field}] {entry.message}")
        return 1 if names and not all(entry.readable for entry in found) else 0
    for name in chosen:
        inputs_of(name)
    rows = [{"name": name, **_described(name)} for name in chosen]
    if as_json:
        print_json(rows)
    else:
        print("\n".join(aligned([tuple(rows[0]), *(tuple(row.values()) for row in rows)], right=False)))
    return 0


def _described(name: str) -> dict[str, str]:
    from coref_automl.corpus.sources import SOURCES, licence_of

    source = SOURCES.get(name)
    if source is None:
        return {"hub": "", "split": "", "field": "text", "licence": licence_of(name), "note": ""}
    place = f"{source.hub} {source.config}" if source.config else source.hub
    note = ", ".join(part for part in ("gated: set HF_TOKEN" if source.gated else "", source.note) if part)
    return {"hub": place, "split": source.split, "field": " + ".join(source.fields), "licence": source.licence, "note": note}
