"""The data card. In: the choice of documents and what encoding says of each. Out: counts per source, a table and card.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus import choice as choices
from coref_automl.corpus import encode
from coref_automl.corpus.choice import Choice
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import Index
from coref_automl.corpus.sources import SOURCES, licence_of, licence_of_bundled
from coref_automl.errors import WorkError
from coref_automl.progress import Progress


def counts_table(manifest: dict[str, Any], *, sizes: bool = True) -> str:
    """Documents in, kept and dropped by reason, characters and tokens, one line per source; the reasons below.

    Characters and tokens are counted last; without `sizes` their columns are left out.
    """
    columns = 6 if sizes else 4
    rows = [("source", "in", "kept", "dropped", "characters", "tokens")[:columns]]
    for source in [*manifest["sources"], _together(manifest["sources"])]:
        numbers = (source["in"], source["kept"], sum(source["dropped"].values()), source["characters"], source["tokens"])
        rows.append((source["name"], *(f"{number:,}" for number in numbers))[:columns])
    lines = aligned(rows)
    for source in manifest["sources"]:
        for reason, count in source["dropped"].items():
            lines.append(f"  {source['name']}: {count:,} {reason}")
    return "\n".join(lines)


def summary(manifest: dict[str, Any]) -> str:
    return (
        f"{manifest['blocks']:,} blocks of {manifest['seq_len']:,} tokens, {manifest['tokens']:,} tokens, "
        f"padding {manifest['padding_share']:.2%}, {manifest['mentions']:,} mentions in {manifest['chains']:,} chains"
    )


def card(manifest: dict[str, Any]) -> str:
    """card.md, filled from the manifest alone."""
    settings = manifest["settings"]
    parts = [
        f"# Dataset `{manifest['mode']}` at {manifest['seq_len']:,} tokens",
        f"{summary(manifest)}. Tokenizer: `{manifest['tokenizer']}` ({manifest['tokenizer_fingerprint']}); "
        f"unknown tokens {manifest['unknown_share']:.3%}. Fingerprint of the arrays: `{manifest['fingerprint']}`.",
        "## Sources\n\n" + _source_table(manifest["sources"]),
        "## Dropped, and why\n\n" + _reason_table(manifest["sources"]),
        "## Inputs\n\n"
        + _markdown(
            ("input", "rows", "fingerprint"), [(i["label"], f"{i['rows']:,}", i["fingerprint"]) for i in manifest["inputs"]]
        ),
    ]
    if manifest["missing"]:
        parts.append("## Could not be read\n\n" + "\n".join(f"- {line}" for line in manifest["missing"]))
    parts.append("## Evaluation documents\n\n" + _evaluation(manifest))
    parts.append("## Settings\n\n" + _markdown(("setting", "value"), [(key, f"`{value}`") for key, value in settings.items()]))
    parts.append("## Versions\n\n" + _markdown(("package", "version"), list(manifest["versions"].items())))
    return "\n\n".join(parts) + "\n"


def _source_table(sources: Sequence[dict[str, Any]]) -> str:
    head = ("source", "licence", "documents in", "kept", "characters", "tokens")
    rows = [
        (s["name"], s["licence"], f"{s['in']:,}", f"{s['kept']:,}", f"{s['characters']:,}", f"{s['tokens']:,}")
        for s in [*sources, _together(sources)]
    ]
    return _markdown(head, rows)


def _reason_table(sources: Sequence[dict[str, Any]]) -> str:
    rows = [(s["name"], reason, f"{count:,}") for s in sources for reason, count in s["dropped"].items()]
    return _markdown(("source", "reason", "documents"), rows) if rows else "Nothing was dropped."


def _evaluation(manifest: dict[str, Any]) -> str:
    settings = manifest["settings"]
    lines = [f"Held out of every source: {settings['holdout']:.1%} of its documents or 300, whichever is more, never over half."]
    for entry in manifest["eval_sets"]:
        lines.append(f"- excluded: the documents of `{entry['name']}` ({entry['fingerprint']}), by id, by text and by near text")
    overlap = manifest["overlap"]
    if overlap is not None:
        touched = overlap["documents_touched"]
        lines.append(
            f"\nOf {overlap['runs']:,} runs of 13 words in {overlap['documents']:,} evaluation documents, "
            f"{overlap['runs_found']:,} stand in the training text as well; {touched:,} documents are touched."
        )
        rows = [
            (e["evaluation_document"], f"{e['training_source']}/{e['training_document']}", e["words"])
            for e in overlap["examples"]
        ]
        if rows:
            lines.append("\n" + _markdown(("evaluation document", "training document", "shared words"), rows))
    return "\n".join(lines)


def _together(sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = {key: sum(source[key] for source in sources) for key in ("in", "kept", "characters", "tokens")}
    return {"name": "together", "licence": "", "dropped": {"": sum(sum(s["dropped"].values()) for s in sources)}, **total}


def _markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def aligned(rows: Sequence[tuple[str, ...]], *, right: bool = True) -> list[str]:
    """Lines of a table for the terminal: the first column to the left, the others to the right (or all to the left)."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    first = [row[0].ljust(widths[0]) for row in rows]
    place = str.rjust if right else str.ljust
    rest = ["  ".join(place(cell, width) for cell, width in zip(row[1:], widths[1:], strict=True)) for row in rows]
    return [f"{name}  {numbers}".rstrip() for name, numbers in zip(first, rest, strict=True)]


def refuse_empty(index: Index, choice: Choice, recipe: PrepareRecipe, progress: Progress) -> None:
    """Name the sources that contribute nothing before the long work begins; without `allow_empty` they end it."""
    refuse_sources(counted(index, choice, np.zeros((len(index), 4), np.int64), frozenset()), recipe, progress)


def refuse_sources(sources: list[dict[str, Any]], recipe: PrepareRecipe, progress: Progress) -> None:
    empty = [source for source in sources if not source["kept"]]
    if not empty:
        return
    why = (max(s["dropped"], key=s["dropped"].__getitem__, default="no rows") for s in empty)
    named = ", ".join(f"{source['name']} ({reason})" for source, reason in zip(empty, why, strict=True))
    if not recipe.allow_empty or len(empty) == len(sources):
        progress.note(counts_table({"sources": sources}, sizes=False))
        raise WorkError(f"These sources contribute no document: {named}. Leave them out, relax a filter, or pass --allow-empty.")
    progress.note(f"No documents from: {named}")


def counted(index: Index, choice: Choice, facts: NDArray[np.int64], hub: frozenset[str]) -> list[dict[str, Any]]:
    """One line per source: documents in, kept, dropped by reason, characters and tokens."""
    lines = []
    for number, name in enumerate(index.sources):
        rows = np.flatnonzero(index.source == number)
        dropped = Counter(index.dropped.get(name, {}))
        chosen = rows[choice.kept[rows]]
        for reasons, codes in ((choices.REASONS, choice.reason[rows]), (encode.REASONS, facts[chosen, 3])):
            for code, count in zip(*np.unique(codes[codes > 0], return_counts=True), strict=True):
                dropped[reasons[int(code)]] += int(count)
        good = chosen[facts[chosen, 3] == 0]
        came = len(rows) + sum(index.dropped.get(name, {}).values())
        stated = licence_of(name) if name in hub or name not in SOURCES else "not stated by a local file"
        lines.append(
            {
                "name": name,
                "licence": licence_of_bundled(name, hub) or stated,
                "in": came,
                "kept": len(good),
                "dropped": dict(sorted(dropped.items())),
                "characters": int(facts[good, 0].sum()),
                "tokens": int(facts[good, 1].sum()),
            }
        )
    return sorted(lines, key=lambda line: line["name"])
