"""Rows kept between runs of one process. In: names of data, markers. Out: the same rows, read, tokenised and marked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coref_automl.models.vocabulary import Pieces, tokenize_all
from coref_automl.progress import Progress
from coref_automl.relation.data import Problem, RelationData, bad_rows, read_relations
from coref_automl.relation.markers import MarkedRow, Marker
from coref_automl.relation.rows import BadRow, RelationRow

_AT_ONCE = 2_000


class RowCache:
    """One for a process that makes many runs on the same files (a grid, an ablation); a single run makes its own."""

    def __init__(self) -> None:
        self._read: dict[tuple[Any, ...], RelationData] = {}
        self._pieces: dict[tuple[str, str], Pieces] = {}
        self._marked: dict[tuple[Any, ...], MarkedRow] = {}

    def read(self, name: str, *, skip_bad: bool, max_rows: int | None = None) -> RelationData:
        key = (name, skip_bad, max_rows)
        if key not in self._read:
            self._read[key] = read_relations(name, skip_bad=skip_bad, max_rows=max_rows)
        return self._read[key]

    def mark(
        self, rows: Sequence[RelationRow], marker: Marker, *, progress: Progress, skip_bad: bool = False, name: str = "The rows"
    ) -> tuple[tuple[RelationRow, ...], list[MarkedRow], list[Problem]]:
        """(rows, the same marked, what could not be); the last is an error unless `skip_bad`."""
        self._tokenize(rows, marker)
        kept: list[RelationRow] = []
        marked: list[MarkedRow] = []
        problems: list[Problem] = []
        for row in progress.track(rows, "marking", len(rows), "rows"):
            try:
                marked.append(self._mark(row, marker))
                kept.append(row)
            except BadRow as error:
                problems.append(Problem(row.number, row.guid, str(error)))
        if problems and not skip_bad:
            raise bad_rows(name, problems)
        return tuple(kept), marked, problems

    def _tokenize(self, rows: Sequence[RelationRow], marker: Marker) -> None:
        """All sentences that are not held yet, many at a time: one by one, reading them would take longer than marking them."""
        held = ((marker.vocabulary, row.sentence) for row in rows if _key(row, marker) not in self._marked)
        missing = list(dict.fromkeys(key for key in held if key not in self._pieces))
        for low in range(0, len(missing), _AT_ONCE):
            part = missing[low : low + _AT_ONCE]
            read = tokenize_all(marker.tokenizer, [sentence for _, sentence in part])
            self._pieces.update(zip(part, read, strict=True))

    def _mark(self, row: RelationRow, marker: Marker) -> MarkedRow:
        key = _key(row, marker)
        if key not in self._marked:
            self._marked[key] = marker.mark(row, self._pieces[marker.vocabulary, row.sentence])
        return self._marked[key]


def _key(row: RelationRow, marker: Marker) -> tuple[Any, ...]:
    """All that decides what a marked row is."""
    a, b = row.subject, row.object
    return (marker.name, row.sentence, a.start, a.end, a.type, b.start, b.end, b.type)
