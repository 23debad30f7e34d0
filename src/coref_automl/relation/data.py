"""Relation data. In: a KLUE-RE file of any kind in `corpus/formats`, `hub:klue/re:train`, `bundled:relations`. Out: checked rows.

Every bad row is listed with its number and the reason; it is an error unless bad rows may be skipped. A process that makes many
runs on the same files (a grid, an ablation) shares one `RowCache`: rows are read, tokenised and marked once.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.corpus.formats import BROKEN, LISTS, NOT_UTF8, READERS, kind_of, stem_of
from coref_automl.corpus.sources import bundled_rows
from coref_automl.errors import MissingExtra, RelationDataError
from coref_automl.models.vocabulary import Pieces, tokenize_all
from coref_automl.progress import Progress
from coref_automl.records import Record
from coref_automl.relation.labels import LABELS
from coref_automl.relation.markers import MarkedRow, Marker
from coref_automl.relation.rows import LONGER, BadRow, RelationRow, parse_row
from coref_automl.say import of_row
from coref_automl.store import NOT_JSON, fingerprint, json_fault, refuse_special

BUNDLED = ("bundled:relations", "bundled:relations-dev")
"""Invented rows; the first thirty of each hold every label once."""

_LISTED = 5
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class RowProblem(Record):
    """A row that cannot be used. Rows count from 1, as an editor counts the entries of the file."""

    row: int
    guid: str
    reason: str

    def __str__(self) -> str:
        """For an error, which is in English."""
        return f"row {self.row}" + (f" ({self.guid})" if self.guid else "") + f": {self.reason}"

    def in_words(self) -> str:
        return of_row(self.row, self.guid, self.reason)


@dataclass(frozen=True, slots=True)
class RelationData:
    """The rows of one split, under the name reported with every number measured on them."""

    split: str
    rows: tuple[RelationRow, ...]
    problems: tuple[RowProblem, ...] = ()


def read_relations(name: str, *, labelled: bool = True, skip_bad: bool = False, max_rows: int | None = None) -> RelationData:
    """The rows of a file or named source. A bad row is an error that lists the first few, unless `skip_bad`."""
    data = inspect_relations(name, labelled=labelled)
    if data.problems and not skip_bad:
        raise bad_rows(name, data.problems)
    if not data.rows:
        raise RelationDataError(f"{name} has no usable row; inspect it with: coref-automl re explore {name} --check")
    return RelationData(data.split, sample_rows(data.rows, max_rows), data.problems)


def bad_rows(name: str, problems: Sequence[RowProblem]) -> RelationDataError:
    """The error of a file with bad rows: the first few, and how many more."""
    listed = "; ".join(str(problem) for problem in problems[:_LISTED])
    more = f"; and {len(problems) - _LISTED:,} more bad rows" if len(problems) > _LISTED else ""
    how = " max_length is --max-length in re train, settings: {max_length: 512} in a recipe of re grid or tune."
    raised = how if any(LONGER in problem.reason for problem in problems) else ""
    raised += " Save the file as UTF-8." if any(problem.reason == NOT_UTF8 for problem in problems) else ""
    return RelationDataError(
        f"{name}: {listed}{more}. Correct the file, or skip them: --skip-bad in re train, evaluate and predict, "
        f"settings: {{skip_bad: true}} in a recipe of re grid or tune.{raised}"
    )


def inspect_relations(name: str, *, labelled: bool = True) -> RelationData:
    """Every good row and every problem, whatever their number."""
    rows: list[RelationRow] = []
    problems: list[RowProblem] = []
    seen: dict[str, int] = {}
    for number, raw in enumerate(_raw_rows(name), 1):
        guid = str(raw.get("guid", raw.get("id", ""))) if isinstance(raw, dict) else ""
        if isinstance(raw, str):
            problems.append(RowProblem(number, guid, raw))
            continue
        try:
            row = parse_row(raw, number=number, labels=LABELS, labelled=labelled)
        except BadRow as error:
            problems.append(RowProblem(number, guid, str(error)))
            continue
        if row.guid in seen:
            problems.append(RowProblem(number, guid, f"duplicate id of row {seen[row.guid]}; predictions would be ambiguous"))
            continue
        seen[row.guid] = number
        rows.append(row)
    return RelationData(split_name(name), tuple(rows), tuple(problems))


def split_name(name: str) -> str:
    """klue-re-v1.1_dev_a.json.xz -> klue-re-v1.1_dev_a: the name reported with a number."""
    if name.startswith(("hub:", "bundled:")):
        return name.replace("hub:", "").replace("bundled:", "bundled-").replace("/", "-").replace(":", "-")
    return stem_of(Path(name), _READERS)


def sentence_key(sentence: str) -> str:
    """Two sentences with one key are the same sentence: composed alike, blanks aside."""
    return " ".join(unicodedata.normalize("NFC", sentence).split())


def sentence_mark(sentence: str) -> str:
    """A short name of a sentence, so that a run can say which rows of another file it has seen."""
    return fingerprint(sentence_key(sentence))[:12]


def split_by_sentence(rows: Sequence[RelationRow], share: float) -> tuple[tuple[RelationRow, ...], tuple[RelationRow, ...]]:
    """(kept, held out): no sentence is on both sides, and a sentence's side depends on its text alone."""
    held = [_uniform(sentence_key(row.sentence)) < share for row in rows]
    kept = tuple(row for row, out in zip(rows, held, strict=True) if not out)
    aside = tuple(row for row, out in zip(rows, held, strict=True) if out)
    if not kept or not aside:
        raise RelationDataError(
            f"{len(rows):,} rows are too few to hold {100 * share:.0f}% of their sentences out for early stopping; "
            "give more rows or a larger --holdout."
        )
    return kept, aside


def sample_rows(rows: Sequence[RelationRow], count: int | None) -> tuple[RelationRow, ...]:
    """`count` rows in file order, the same ones every time; which ones depends on their ids alone."""
    if count is None or count >= len(rows):
        return tuple(rows)
    chosen = set(sorted(range(len(rows)), key=lambda index: _uniform("sample " + rows[index].guid))[:count])
    return tuple(row for index, row in enumerate(rows) if index in chosen)


def _uniform(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") / 2**64


def _raw_rows(name: str) -> Iterable[Any]:
    """Rows as they are in the source; a string is the reason why a line is not a row."""
    if name.startswith("bundled:"):
        return _bundled(name)
    if name.startswith("hub:"):
        return _hub(name)
    path = Path(name)
    kind = kind_of(path).lower()
    if kind not in _READERS:
        known = f"{', '.join(_READERS)} (also .xz, .gz, .bz2, .zst)"
        raise RelationDataError(f"{name} is not one of {known}, hub:klue/re:SPLIT, bundled:relations.")
    refuse_special(path)
    try:
        rows = [row for _, row in _READERS[kind](path)]
    except OSError as error:
        raise RelationDataError(f"Cannot read {name} ({error.strerror or error}); give the path of a KLUE-RE file.") from error
    except UnicodeDecodeError as error:
        raise RelationDataError(f"{name} is not UTF-8 (at byte {error.start:,}); save it as UTF-8.") from error
    except (*BROKEN, *NOT_JSON) as error:
        raise RelationDataError(f"{name} is damaged or not {kind[1:]}: {json_fault(error)}.") from error
    first = next((row for row in rows if isinstance(row, dict)), None)
    if kind in (".csv", ".tsv", ".parquet") and first and "sentence" not in first:
        found = ", ".join(repr(column[:_SHOWN]) for column in first)
        raise RelationDataError(
            f"{name}: The columns are {found}, and none is 'sentence'; rename the column that holds the sentences."
        )
    return rows


_READERS = {kind: reader for kind, reader in {**LISTS, **READERS}.items() if kind != ".txt"}


def _bundled(name: str) -> Iterable[dict[str, Any]]:
    if name not in BUNDLED:
        raise RelationDataError(f"Unknown data {name}; known: {', '.join(BUNDLED)}.")
    return bundled_rows(name.removeprefix("bundled:"))


def hub_parts(name: str) -> tuple[str, str | None, str]:
    """Repository, configuration and split of `hub:OWNER/NAME:SPLIT`, `hub:OWNER/NAME/CONFIG:SPLIT` or `hub:klue/re:SPLIT`."""
    place, _, split = name.removeprefix("hub:").partition(":")
    if place in _SHORT:
        return (*_SHORT[place], split or "train")
    owner, _, rest = place.partition("/")
    repository, _, config = rest.partition("/")
    return f"{owner}/{repository}" if repository else owner, config or None, split or "train"


_SHORT = {"klue/re": ("klue/klue", "re")}
"""Names that say a configuration where a repository is expected, because everyone calls the data so."""


def _hub(name: str) -> Iterable[Any]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "hub", "Reading a hub dataset") from error
    repository, config, split = hub_parts(name)
    try:
        return datasets.load_dataset(repository, config, split=split)  # type: ignore[no-any-return]
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RelationDataError(
            f"{name} cannot be fetched ({first}); download klue-re-v1.1 by hand and pass the path of its JSON file."
        ) from error


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
    ) -> tuple[tuple[RelationRow, ...], list[MarkedRow], list[RowProblem]]:
        """(rows, the same marked, what could not be); the last is an error unless `skip_bad`."""
        self._tokenize(rows, marker)
        kept: list[RelationRow] = []
        marked: list[MarkedRow] = []
        problems: list[RowProblem] = []
        for row in progress.track(rows, "marking", len(rows), "rows"):
            try:
                marked.append(self._mark(row, marker))
                kept.append(row)
            except BadRow as error:
                problems.append(RowProblem(row.number, row.guid, str(error)))
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
