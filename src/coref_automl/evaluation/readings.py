"""Items read by people. In: a set's items and one mark per item and reader. Out: the share of fair items with its interval, and
the agreement of two readers.

    evalsets/<name>/readings/<reader>.jsonl   {"item": ..., "mark": ...}, the last line of an item counts

Readings are no part of a set's fingerprint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal, TypedDict, get_args

from coref_automl.decoder import read_stored_rows
from coref_automl.errors import EvalSetError
from coref_automl.evaluation.tasks.task import draw_lot
from coref_automl.records import ClozeItem, Estimate, Record, Task
from coref_automl.statistics.closed_forms import wilson
from coref_automl.store import JsonlAppender

Mark = Literal["fair", "ambiguous", "lexical", "wrong antecedent", "tagger error"]
KEYS: dict[str, Mark] = {mark[0]: mark for mark in get_args(Mark)}
"""Marks by their first letter, which is what readers type."""
FOLDER = "readings"
_NAME = re.compile(r"[\w-]{1,40}")
AROUND = 240
"""Characters shown on either side of a gap, and half as many around an antecedent elsewhere."""


class Marked(TypedDict):
    item: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Reading(Record):
    """The readers' marks on the items of one task: the share of fair items and, of two readers, agreement and Cohen's kappa."""

    task: Task
    readers: tuple[str, ...]
    fair: Estimate
    marks: dict[str, int]
    agreement: float | None = None
    kappa: float | None = None

    def __str__(self) -> str:
        text = f"{self.task}: {self.fair.n} read by {', '.join(self.readers)}, fair {self.fair}"
        if self.agreement is None or self.kappa is None:
            return text
        return f"{text}, agreement {100 * self.agreement:.1f}% (kappa {self.kappa:.2f})"


def path_of(folder: Path, reader: str) -> Path:
    if not _NAME.fullmatch(reader):
        raise EvalSetError(f"{reader!r} cannot name a reader; use up to 40 letters, digits, _ and -.")
    return folder / FOLDER / f"{reader}.jsonl"


def marks_of(folder: Path) -> dict[str, dict[str, Mark]]:
    """The marks of every reader of a set, by item."""
    marks: dict[str, dict[str, Mark]] = {}
    for path in sorted((folder / FOLDER).glob("*.jsonl")):
        marks[path.stem] = {row["item"]: row["mark"] for row in read_stored_rows(path, Marked, error=EvalSetError)}
    return marks


def add_mark(folder: Path, reader: str, item: str, mark: Mark) -> None:
    path = path_of(folder, reader)
    path.parent.mkdir(exist_ok=True)
    with JsonlAppender(path) as handle:
        handle.append([{"item": item, "mark": mark}])


def to_read(items: Sequence[ClozeItem], most: int, known: Mapping[str, Mark], seed: int = 0) -> list[ClozeItem]:
    """A sample of the items of each task, the same for every reader, without those marked already."""
    chosen: list[ClozeItem] = []
    for task in dict.fromkeys(item.task for item in items):
        sample = sorted((item for item in items if item.task == task), key=lambda item: draw_lot(seed, item.id))[:most]
        chosen += [item for item in sample if item.id not in known]
    return chosen


def passage_of(item: ClozeItem, text: str) -> str:
    """The text around a gap with the answer in 【 】 and the antecedent in 《 》, which has its own line if it is far away."""
    low, high = max(0, item.start - AROUND), min(len(text), item.end + AROUND)
    spans = [(item.start, item.end, "【】")]
    elsewhere = ""
    if item.antecedent:
        start, end = item.antecedent
        if low <= start and end <= high:
            spans.append((start, end, "《》"))
        else:
            elsewhere = (
                f"\n  ... {text[max(0, start - AROUND // 2) : start]}《{text[start:end]}》{text[end : end + AROUND // 2]} ..."
            )
    passage, position = "", low
    for start, end, brackets in sorted(spans):
        passage += text[position:start] + brackets[0] + text[start:end] + brackets[1]
        position = end
    return passage + text[position:high] + elsewhere


def summarise(items: Sequence[ClozeItem], marks: Mapping[str, Mapping[str, Mark]]) -> list[Reading]:
    """One reading per task. An item of several readers is fair if all of them say so."""
    readings = []
    for task in dict.fromkeys(item.task for item in items):
        ids = {item.id for item in items if item.task == task}
        by_reader = {reader: {item: mark for item, mark in given.items() if item in ids} for reader, given in marks.items()}
        by_reader = {reader: given for reader, given in by_reader.items() if given}
        read = set().union(*by_reader.values()) if by_reader else set()
        if not read:
            continue
        fair = sum(all(given.get(item, "fair") == "fair" for given in by_reader.values()) for item in read)
        readers = combinations(by_reader.values(), 2)
        pairs = [(first[item], second[item]) for first, second in readers for item in first.keys() & second]
        counts: Counter[str] = Counter(mark for given in by_reader.values() for mark in given.values())
        agreement, kappa = agree(pairs) if pairs else (None, None)
        readings.append(Reading(task, tuple(by_reader), wilson(fair, len(read)), dict(counts), agreement, kappa))
    return readings


def agree(pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """The share of equal marks, and Cohen's kappa: that share corrected for the agreement expected by chance."""
    same = sum(mark == other for mark, other in pairs) / len(pairs)
    first, second = Counter(mark for mark, _ in pairs), Counter(mark for _, mark in pairs)
    chance = sum(first[mark] * second[mark] for mark in first) / len(pairs) ** 2
    return same, 1.0 if chance == 1 else (same - chance) / (1 - chance)
