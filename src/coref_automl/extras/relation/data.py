"""Relation data. In: a KLUE-RE file of any kind in `corpus/formats`, `hub:klue/re:train`, `bundled:relations`. Out: checked rows.

Every bad row is listed with its number and reason; it is an error unless bad rows may be skipped. A process with many runs on
the same files (a grid, an ablation) shares one `RowCache`: rows are read, tokenized and marked once.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.errors import MissingExtra, RelationDataError, first_line
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.progress import Progress, quiet
from coref_automl.corpus.batch import KINDS, RowProblem, rows_of
from coref_automl.corpus.formats import NOT_UTF8, Row, kind_of, stem_of
from coref_automl.corpus.sources import bundled_rows
from coref_automl.extras.relation.markers import MarkedRow, Marker
from coref_automl.extras.relation.rows import LABELS, LONGER, BadRow, Ints, RelationRow, parse_row
from coref_automl.models.vocabulary import tokenize_all

BUNDLED = ("bundled:relations", "bundled:relations-dev")
"""Invented rows; the first thirty of each have every label once."""

_LISTED = 5


@dataclass(frozen=True, slots=True)
class RelationData:
    """The rows of a split, under the name reported with every score on them; `share` is the fraction of its rows that is used."""

    split: str
    rows: tuple[RelationRow, ...]
    problems: tuple[RowProblem, ...] = ()
    share: float = 1.0


def read_relations(
    name: str, *, labelled: bool = True, skip_bad: bool = False, max_rows: int | None = None, draw: int | None = None
) -> RelationData:
    """Read the rows of a file or named source. Bad rows are an error that lists the first few, unless `skip_bad`."""
    data = inspect_relations(name, labelled=labelled)
    if data.problems and not skip_bad:
        raise bad_rows(name, data.problems)
    if not data.rows:
        raise RelationDataError(f"{name} has no usable row; inspect it with: coref-automl re explore {name} --check")
    rows = sample_rows(data.rows, max_rows, draw)
    return replace(data, rows=rows, share=round(len(rows) / len(data.rows), 4))


def bad_rows(name: str, problems: Sequence[RowProblem]) -> RelationDataError:
    listed = "; ".join(str(problem) for problem in problems[:_LISTED])
    more = f"; and {len(problems) - _LISTED:,} more bad rows" if len(problems) > _LISTED else ""
    longer = " max_length is --max-length in re train, settings: {max_length: 512} in a recipe of re grid or tune."
    advice = longer if any(LONGER in problem.reason for problem in problems) else ""
    advice += " Save the file as UTF-8." if any(problem.reason == NOT_UTF8 for problem in problems) else ""
    return RelationDataError(
        f"{name}: {listed}{more}. Correct the file, or skip them: --skip-bad in re train, evaluate and predict, "
        f"settings: {{skip_bad: true}} in a recipe of re grid or tune.{advice}"
    )


def inspect_relations(name: str, *, labelled: bool = True) -> RelationData:
    rows: dict[str, RelationRow] = {}
    problems: list[RowProblem] = []
    for number, raw in raw_rows(name):
        try:
            if isinstance(raw, str):
                raise BadRow(raw)
            row = parse_row(raw, number=number, labels=LABELS, labelled=labelled)
            if row.guid in rows:
                raise BadRow(f"duplicate id of row {rows[row.guid].number}; predictions would be ambiguous")
            rows[row.guid] = row
        except BadRow as error:
            guid = str(raw.get("guid", raw.get("id", ""))) if isinstance(raw, dict) else ""
            problems.append(RowProblem(number, guid, str(error)))
    return RelationData(split_name(name), tuple(rows.values()), tuple(problems))


def split_name(name: str) -> str:
    """Name a split as reported with its scores: klue-re-v1.1_dev_a.json.xz -> klue-re-v1.1_dev_a."""
    if name.startswith(("hub:", "bundled:")):
        return name.replace("hub:", "").replace("bundled:", "bundled-").replace("/", "-").replace(":", "-")
    return stem_of(Path(name), KINDS)


def sentence_key(sentence: str) -> str:
    """Normalize a sentence: two with one key differ at most in Unicode composition and blanks."""
    return " ".join(unicodedata.normalize("NFC", sentence).split())


def sentence_numbers(rows: Sequence[RelationRow]) -> Ints:
    """Number the sentences of rows; rows of one sentence share a number."""
    return np.asarray(np.unique([sentence_key(row.sentence) for row in rows], return_inverse=True)[1], np.int64)


def sentence_fingerprint(sentence: str) -> str:
    """Fingerprint a sentence, so that a run can tell which rows of another file it was trained on."""
    return fingerprint(sentence_key(sentence))[:12]


def split_by_sentence(rows: Sequence[RelationRow], share: float) -> tuple[tuple[RelationRow, ...], tuple[RelationRow, ...]]:
    """Split rows into (kept, held out) without a common sentence; a sentence's side depends on its text alone."""
    out = [_uniform(sentence_key(row.sentence)) < share for row in rows]
    kept = tuple(row for row, held in zip(rows, out, strict=True) if not held)
    held_out = tuple(row for row, held in zip(rows, out, strict=True) if held)
    if not kept or not held_out:
        raise RelationDataError(
            f"{len(rows):,} rows are too few to hold {100 * share:.0f}% of their sentences out for early stopping; "
            "give more rows or a larger --holdout."
        )
    return kept, held_out


def sample_rows(rows: Sequence[RelationRow], count: int | None, draw: int | None = None) -> tuple[RelationRow, ...]:
    """Sample `count` rows in file order; which ones depends on their ids and `draw` alone."""
    if count is None or count >= len(rows):
        return tuple(rows)
    salt = "sample " if draw is None else f"sample {draw} "
    chosen = set(sorted(range(len(rows)), key=lambda index: _uniform(salt + rows[index].guid))[:count])
    return tuple(row for index, row in enumerate(rows) if index in chosen)


def _uniform(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") / 2**64


def raw_rows(name: str) -> Iterable[Row]:
    """Read the rows of a source as they are, numbered; a string is the reason why a line is not a row."""
    if name.startswith("bundled:"):
        if name not in BUNDLED:
            raise RelationDataError(f"Unknown data {name}; known: {', '.join(BUNDLED)}.")
        return enumerate(bundled_rows(name.removeprefix("bundled:")), 1)
    if name.startswith("hub:"):
        return enumerate(_hub(name), 1)
    if kind_of(Path(name)) not in KINDS:
        known = f"{', '.join(KINDS)} (also .xz, .gz, .bz2, .zst)"
        raise RelationDataError(f"{name} is not one of {known}, hub:klue/re:SPLIT, bundled:relations.")
    return rows_of(name, "sentence", RelationDataError)


def _hub(name: str) -> Iterable[Any]:
    """Read `hub:OWNER/NAME:SPLIT`, `hub:OWNER/NAME/CONFIG:SPLIT`, or `hub:klue/re:SPLIT`, the usual short name."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "hub", "Reading a hub dataset") from error
    dataset, _, split = name.removeprefix("hub:").partition(":")
    parts = ("klue/klue/re" if dataset == "klue/re" else dataset).split("/", 2)
    try:
        config = parts[2] if len(parts) > 2 else None
        return datasets.load_dataset("/".join(parts[:2]), config, split=split or "train")  # type: ignore[no-any-return]
    except Exception as error:
        raise RelationDataError(
            f"{name} cannot be fetched ({first_line(error)}); download klue-re-v1.1 by hand and pass the path of its JSON file."
        ) from error


_AT_ONCE = 2_000


class RowCache:
    """Rows read and marked once per process, shared by the runs of a grid or an ablation."""

    def __init__(self) -> None:
        self._read: dict[tuple[Any, ...], RelationData] = {}
        self._marked: dict[tuple[Any, ...], MarkedRow | RowProblem] = {}

    def read(self, name: str, *, skip_bad: bool, max_rows: int | None = None, draw: int | None = None) -> RelationData:
        key = (name, skip_bad, max_rows, draw)
        if key not in self._read:
            self._read[key] = read_relations(name, skip_bad=skip_bad, max_rows=max_rows, draw=draw)
        return self._read[key]

    def usable(
        self, name: str, marker: Marker, *, skip_bad: bool, max_rows: int | None = None, draw: int | None = None
    ) -> RelationData:
        """Read the rows of a file that can be marked; others raise before any work, or are listed as problems."""
        data = self.read(name, skip_bad=skip_bad, max_rows=max_rows, draw=draw)
        rows, _, problems = self.mark(data.rows, marker, progress=quiet(), skip_bad=skip_bad, name=name)
        return replace(data, rows=rows, problems=(*data.problems, *problems))

    def mark(
        self, rows: Sequence[RelationRow], marker: Marker, *, progress: Progress, skip_bad: bool = False, name: str = "The rows"
    ) -> tuple[tuple[RelationRow, ...], list[MarkedRow], list[RowProblem]]:
        """Mark rows: (rows, the same marked, problems); problems raise unless `skip_bad`."""
        with progress.stage("marking", len(rows), "rows") as stage:
            for low in range(0, len(rows), _AT_ONCE):  # tokenizing one by one would take longer than marking
                part = rows[low : low + _AT_ONCE]
                missing = [row for row in part if (marker.name, row) not in self._marked]
                tokenized = tokenize_all(marker.tokenizer, [row.sentence for row in missing])
                for row, pieces in zip(missing, tokenized, strict=True):
                    try:
                        self._marked[marker.name, row] = marker.mark(row, pieces)
                    except BadRow as error:
                        self._marked[marker.name, row] = RowProblem(row.number, row.guid, str(error))
                stage.advance(len(part))
        results = [(row, self._marked[marker.name, row]) for row in rows]
        problems = [problem for _, problem in results if isinstance(problem, RowProblem)]
        if problems and not skip_bad:
            raise bad_rows(name, problems)
        kept = [(row, marked) for row, marked in results if isinstance(marked, MarkedRow)]
        return tuple(row for row, _ in kept), [marked for _, marked in kept], problems
