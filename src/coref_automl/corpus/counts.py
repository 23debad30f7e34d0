"""Counts. In: the choice of documents and what encoding said of each. Out: a line a source, and a loud word about empty ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus import encode, select
from coref_automl.corpus.card import counts_table
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.select import Choice
from coref_automl.corpus.shards import Index
from coref_automl.corpus.sources import SOURCES, licence_of, licence_of_bundled
from coref_automl.errors import WorkError
from coref_automl.progress import Progress


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
    progress.note(f"NOTHING came from: {named}")


def counted(index: Index, choice: Choice, facts: NDArray[np.int64], hub: frozenset[str]) -> list[dict[str, Any]]:
    """A line a source: documents in, kept, dropped by reason, characters and tokens."""
    lines = []
    for number, name in enumerate(index.sources):
        rows = np.flatnonzero(index.source == number)
        dropped = Counter(index.dropped.get(name, {}))
        chosen = rows[choice.kept[rows]]
        for reasons, codes in ((select.REASONS, choice.reason[rows]), (encode.REASONS, facts[chosen, 3])):
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
