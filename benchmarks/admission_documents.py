"""The documents of the admission test. In: the corpus folder. Out: OUT/judge.jsonl and OUT/train.jsonl.

Taken in the order of a salted hash of their id, so that the choice depends on nothing that was measured. Judged are documents
that ko-mini did not see: of Wikipedia and Wikinews those of the standard hold-out, of `precedents_*` (which it never read) those
outside it. Trained on are longer documents outside the hold-out.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.base.store import write_jsonl
from coref_automl.corpus.clean import limits, rank

SALT = "admission-1/"


@dataclass(frozen=True, slots=True)
class Taken:
    """How many documents of a source to judge with and to train on; `least` characters for judging; from the hold-out or not."""

    judge: int
    train: int
    least: int
    held_out: bool


SOURCES = {
    "kowiki": Taken(420, 2600, 1000, True),
    "precedents_1": Taken(110, 180, 1000, False),
    "precedents_2": Taken(110, 200, 1000, False),
    "wikinews_ko": Taken(100, 0, 600, True),
}
LEAST_TRAINED, MOST = 2500, 12_000
"""Characters of a document."""


def choose_documents(corpus: Path, out: Path) -> None:
    judge: list[dict[str, Any]] = []
    train: list[dict[str, Any]] = []
    for source, taken in SOURCES.items():
        found = {row["id"]: row for path in sorted(corpus.glob(f"{source}*.jsonl.xz")) for row in rows(path)}
        limit = limits((source, identity) for identity in found)[source]
        held = {identity for identity in found if rank(identity) <= limit}
        fit = [row for row in found.values() if taken.least <= len(row["text"]) <= MOST]
        order = sorted(fit, key=lambda row: rank(SALT + row["id"]))
        judged = [row for row in order if (row["id"] in held) == taken.held_out][: taken.judge]
        spoken_for = held | {row["id"] for row in judged}
        free = [row for row in order if row["id"] not in spoken_for and len(row["text"]) >= LEAST_TRAINED]
        judge += judged
        train += free[: taken.train]
        print(f"{source}: {len(found)} documents, {len(judged)} to judge with, {len(free[: taken.train])} to train on")
    for name, part in (("judge", judge), ("train", train)):
        write_jsonl(out / f"{name}.jsonl", part)
        print(f"{name}: {len(part)} documents, {sum(len(row['text']) for row in part) / 1e6:.1f} million characters")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as handle:
        yield from map(json.loads, handle)
