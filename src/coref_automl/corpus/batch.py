"""Answers to a file of rows. In: rows, and a function that answers a batch. Out: a folder with one answer per row, in order.

Rows are read twice and streamed in batches: first to check all of them before any work, then to answer them. A killed command
resumes at the batch it was in and ends with the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

from coref_automl.base.binding import check_binding, stored_binding
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import FolderError, InputError
from coref_automl.base.folders import DONE, MANIFEST, is_done, mark_done
from coref_automl.base.guard import refuse_special
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress
from coref_automl.base.records import Record
from coref_automl.base.say import in_words, say
from coref_automl.base.store import NOT_JSON, is_text, json_fault, os_errors_as_ours, write_json
from coref_automl.corpus.clean import foreign_note
from coref_automl.corpus.formats import BROKEN, LISTS, READERS, Row, kind_of, refuse_archive

T = TypeVar("T")
KINDS = {kind: reader for kind, reader in {**LISTS, **READERS}.items() if kind != ".txt"}
"""Readers of files of rows; a .txt file is one text."""
LISTED = 20
_STATE = "state.json"
_SHOWN = 30
"""Characters of a column's name in an error."""


@dataclass(frozen=True, slots=True)
class RowProblem(Record):
    """A row that cannot be used, and why. Rows count from 1, as in an editor."""

    row: int
    guid: str
    reason: str

    def __str__(self) -> str:
        """English, for errors."""
        return f"row {self.row}" + (f" ({self.guid})" if self.guid else "") + f": {self.reason}"

    def in_words(self) -> str:
        row, guid = say(f"{self.row}행", f"row {self.row}"), f" ({self.guid})" if self.guid else ""
        return f"{row}{guid}: {in_words(self.reason)}"


def skipped(rows: int, name: str) -> str:
    return say(f"{name}의 잘못된 행 {rows:,}개를 제외했습니다.", f"{rows:,} bad rows of {name} were skipped.")


@dataclass(frozen=True, slots=True)
class Answered(Record):
    """The answers to a file: their path and number, the number of skipped rows, and the first of those.

    `foreign` counts rows that were answered although they are hardly Korean.
    """

    path: str
    rows: int
    skipped: int
    problems: tuple[RowProblem, ...]
    foreign: int = 0

    def lines(self) -> list[str]:
        notes = [skipped(self.skipped, say("파일", "the file"))] if self.skipped else []
        notes += [problem.in_words() for problem in self.problems]
        if self.foreign:
            ko = f"한글이 거의 없는 행 {self.foreign:,}개도 답했습니다. 한국어 모델이므로 그 답은 믿지 마세요."
            notes.append(
                say(ko, f"Rows with hardly any Hangul: {self.foreign:,}. The models read Korean; do not rely on these answers.")
            )
        return [f"{self.path}: " + say(f"답 {self.rows:,}개", f"{self.rows:,} answer{'s' * (self.rows != 1)}"), *notes]


@dataclass(frozen=True, slots=True)
class RowTask(Generic[T]):
    """How to answer one kind of row. `check` raises `reject` with the reason; `answer` may return one instead of an answer."""

    kind: str
    check: Callable[[int, dict[str, Any]], T]
    reject: type[Exception]
    answer: Callable[[Sequence[T]], Iterable[Mapping[str, Any] | str]]
    refused: Callable[[Sequence[RowProblem]], InputError]
    batch_size: int = 64


class _State(TypedDict):
    read: int
    rows: int
    skipped: int
    bytes: int
    problems: list[RowProblem]


def rows_of(
    name: str, column: str, error: type[InputError] = InputError, advice: str = "rename the column that holds it"
) -> Iterator[Row]:
    """Yield the rows of a file in any format of `corpus/formats`; any other file is refused in one sentence."""
    path, kind = Path(name), kind_of(Path(name))
    if kind not in KINDS:
        raise error(f"{name} is not one of {', '.join(KINDS)} (also .xz, .gz, .bz2, .zst); save the rows as one of them.")
    refuse_special(path)
    refuse_archive(path, name, error)
    checked, number = False, 0
    try:
        for number, (_, row) in enumerate(KINDS[kind](path), 1):
            if not checked and isinstance(row, dict):
                checked = True
                if kind in (".csv", ".tsv", ".parquet") and column not in row:
                    columns = ", ".join(repr(key[:_SHOWN]) for key in row)
                    raise error(f"{name}: The columns are {columns}, and none is {column!r}; {advice}.")
            yield number, row
        if not number:
            raise error(f"{name} has no rows; pass a file with at least one.")
    except InputError:
        raise
    except UnicodeDecodeError as fault:
        raise error(f"{name} is not UTF-8 (at byte {fault.start:,}); save it as UTF-8.") from fault
    except OSError as fault:
        raise error(f"Cannot read {name} ({fault.strerror or fault}); give the path of a file of rows.") from fault
    except (*BROKEN, *NOT_JSON) as fault:
        raise error(f"{name} is damaged or not {kind[1:]}: {json_fault(fault)}.") from fault


class NoText(ValueError):
    """Why a row has no text to answer; caught by the caller, who knows its number."""


def answer_texts(
    data: str,
    out: Path,
    kind: str,
    answer: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]],
    made_from: Mapping[str, str],
    *,
    column: str,
    check: Callable[[str], object] = bool,
    batch_size: int = 64,
    skip_bad: bool = False,
    progress: Progress,
) -> Answered:
    """Answer the text of every row, keeping the row's columns. A table is answered as CSV, any other file as JSON lines."""
    last, foreign = 0, 0

    def checked(number: int, row: dict[str, Any]) -> dict[str, Any]:
        nonlocal last, foreign
        if not isinstance(row.get(column), str):
            raise NoText(f"no text under {column!r}; --column names another key")
        if not is_text(row[column]):
            raise NoText("half of a surrogate pair")
        try:
            check(row[column])
        except InputError as error:
            raise NoText(str(error).rstrip(".")) from error
        if number > last:  # rows are checked a second time when they are answered
            last, foreign = number, foreign + (foreign_note(row[column]) is not None)
        return row

    def answered(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row, columns in zip(rows, answer([row[column] for row in rows]), strict=True):
            yield {**row, **columns}

    def refused(problems: Sequence[RowProblem]) -> InputError:
        more = "" if len(problems) == 1 else f" (and {len(problems) - 1} more like it)"
        return InputError(f"{data}, {problems[0]}{more}. Correct the file, or pass --skip-bad.")

    task = RowTask(kind, checked, NoText, answered, refused, batch_size)
    file = "answers.csv" if kind_of(Path(data)) in (".csv", ".tsv") else "answers.jsonl"
    rows = partial(rows_of, data, column, advice="name the one that holds the text with --column")
    answers = answer_rows(rows, task, out, file, {**made_from, "column": column}, skip_bad=skip_bad, progress=progress)
    return replace(answers, foreign=foreign)


def answer_rows(
    rows: Callable[[], Iterable[Row]],
    task: RowTask[T],
    out: Path,
    file: str,
    made_from: Mapping[str, str],
    *,
    skip_bad: bool = False,
    progress: Progress,
) -> Answered:
    """Answer every row into `out/file` (.jsonl or .csv), or resume; a folder with answers to other rows is refused."""
    total, digest, problems = 0, hashlib.blake2b(digest_size=12), list[RowProblem]()
    for number, row, fault in _checked(rows(), task):
        digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str).encode("utf-8", "surrogatepass") + b"\0")
        total = number
        if isinstance(fault, RowProblem):
            problems = [*problems, fault][:LISTED] if len(problems) < LISTED else problems
            if not skip_bad and len(problems) == LISTED:
                break
    if problems and not skip_bad:
        raise task.refused(problems)
    binding = {"fingerprints": {**made_from, "rows": digest.hexdigest()}}
    with claimed(out, task.kind):
        if (out / MANIFEST).is_file():
            advice = "pass the same rows and model to resume, or choose another --out"
            check_binding(out, stored_binding(out), binding, advice)
        elif (out / file).exists():
            raise FolderError(f"{out / file} exists and does not say what it was made from; choose another --out.")
        write_json(out / MANIFEST, {"kind": task.kind, "binding": binding})
        return _answer(rows, task, out, file, total, skip_bad, progress)


def _answer(
    rows: Callable[[], Iterable[Row]], task: RowTask[T], out: Path, file: str, total: int, skip_bad: bool, progress: Progress
) -> Answered:
    empty: _State = {"read": 0, "rows": 0, "skipped": 0, "bytes": 0, "problems": []}
    path, state = out / file, read_stored(out / _STATE, _State) if (out / _STATE).is_file() else empty
    if not path.is_file() or path.stat().st_size < state["bytes"]:  # removed, or cut short by somebody
        state = empty
        (out / DONE).unlink(missing_ok=True)
    elif is_done(out):
        return Answered(str(path), state["rows"], state["skipped"], tuple(state["problems"]))
    appender = _AnswerFile(path, state["bytes"])
    with progress.stage("answering", total, "rows") as stage:
        stage.skip(state["read"])
        checked_rows = _checked(rows(), task)
        source = islice(checked_rows, state["read"], None)
        while batch := list(islice(source, task.batch_size)):
            good = [(number, checked) for number, _, checked in batch if not isinstance(checked, RowProblem)]
            bad = [checked for *_, checked in batch if isinstance(checked, RowProblem)]
            answers = list(task.answer([checked for _, checked in good])) if good else []
            paired = zip(good, answers, strict=True)
            bad += [RowProblem(number, "", answer) for (number, _), answer in paired if isinstance(answer, str)]
            if bad and not skip_bad:
                raise task.refused(bad)
            usable = [answer for answer in answers if not isinstance(answer, str)]
            state = {
                "read": state["read"] + len(batch),
                "rows": state["rows"] + len(usable),
                "skipped": state["skipped"] + len(bad),
                "bytes": appender.append(usable),
                "problems": [*state["problems"], *bad][:LISTED],
            }
            problems = [problem.to_json() for problem in state["problems"]]
            write_json(out / _STATE, {**state, "problems": problems})
            stage.advance(len(batch))
    mark_done(out)
    return Answered(str(path), state["rows"], state["skipped"], tuple(state["problems"]))


def _checked(rows: Iterable[Row], task: RowTask[T]) -> Iterator[tuple[int, Any, T | RowProblem]]:
    """Yield (number, row, checked row or what is wrong with it)."""
    for number, row in rows:
        if isinstance(row, str):
            yield number, row, RowProblem(number, "", row)
            continue
        try:
            yield number, row, task.check(number, row)
        except task.reject as error:
            yield number, row, RowProblem(number, str(row.get("guid", row.get("id", ""))), str(error))


class _AnswerFile:
    """Appends answers to their file, after truncating what a killed command left beyond its last whole batch."""

    def __init__(self, path: Path, keep: int) -> None:
        self._path, self._csv, self._size = path, path.suffix == ".csv", keep
        with os_errors_as_ours(path), path.open("ab") as handle:
            handle.truncate(keep)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        text = io.StringIO()
        if self._csv and rows:
            table = csv.DictWriter(text, list(rows[0]), lineterminator="\n", extrasaction="ignore")
            if not self._size:
                table.writeheader()
            table.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
        elif not self._csv:
            text.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        raw = text.getvalue().encode("utf-8", "replace")  # half a surrogate pair in a column of the row
        with os_errors_as_ours(self._path), self._path.open("ab") as handle:
            handle.write(raw)
            handle.flush()
            os.fsync(handle.fileno())
        self._size += len(raw)
        return self._size


def _cell(value: Any) -> Any:
    """A table's cell; lists are written as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value
