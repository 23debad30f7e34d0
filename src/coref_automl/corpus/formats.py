"""File formats. In: a path. Out: its rows with their line numbers, or the reason why a line is not a row.

Every command reads a user's rows here: JSONL, CSV, TSV, plain text, Parquet and JSON lists, compressed or not.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast
from zipfile import is_zipfile

from coref_automl.base.errors import InputError, MissingExtra
from coref_automl.base.guard import LINE as LONGEST
from coref_automl.base.guard import parse_json, read_whole
from coref_automl.base.store import is_text

TEXT = "text"
NOT_UTF8 = "not UTF-8"
_END = "\uffff"
"""Behind the last line of a table: a row of its own, or part of a field whose quotation mark is still open."""

Row = tuple[int, dict[str, Any] | str]
"""A line number, and the row or the reason why the line is not one."""


def refuse_archive(path: Path, shown: str, error: type[InputError]) -> None:
    if is_zipfile(path):
        raise error(f"{shown} is a zip archive or an office document; unpack it, or save it as text, and pass that.")


def kind_of(path: Path) -> str:
    """The suffix that decides how a file is read: `.jsonl` for `a.jsonl.xz`."""
    return (Path(path.stem).suffix if path.suffix in _PACKED else path.suffix).lower()


def stem_of(path: Path, kinds: Iterable[str] | None = None) -> str:
    """The name without the suffixes that decide how the file is read: `a` for `a.jsonl.xz`. `kinds` defaults to READERS."""
    stem, suffixes = path.name, {*_PACKED, *(READERS if kinds is None else kinds)}
    while Path(stem).suffix.lower() in suffixes:
        stem = Path(stem).stem
    return stem


def lines_between(path: Path, start: int = 0, end: int | None = None, number: int = 0) -> Iterator[Row]:
    """Yield the rows of a range of whole lines in bytes; `number` lines come before it."""
    with opened(path) as stream:
        if start:
            stream.seek(start)
        while (end is None or start < end) and (line := stream.readline(LONGEST + 1)):
            number += 1
            start += len(line)
            if len(line) > LONGEST:
                while not line.endswith(b"\n") and (line := stream.readline(LONGEST)):
                    start += len(line)
                yield number, f"a line over {LONGEST >> 20} MB"
            elif line.strip():
                yield number, _json_row(line)


def _json_row(line: bytes) -> dict[str, Any] | str:
    try:
        row = parse_json(line.removeprefix(BOM_UTF8))
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):
        return "not JSON"
    return _object(row)


def _object(row: Any) -> dict[str, Any] | str:
    return row if isinstance(row, dict) else "not a JSON object"


def _json(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSON list, bare or as the `data` of an object; numbers count rows, not lines."""
    with opened(path) as stream:
        data = parse_json(read_whole(path, stream).removeprefix(BOM_UTF8))
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    if not isinstance(data, list):
        raise ValueError("not a list of rows")
    yield from ((number, _object(row)) for number, row in enumerate(data, 1))


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)
    with opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        tabs, row_size = kind_of(path) == ".tsv", [0]
        rows = csv.DictReader(_bounded(text, row_size), delimiter="\t" if tabs else ",")
        if not all(map(is_text, rows.fieldnames or ())):
            yield 1, NOT_UTF8
        while True:
            row_size[0] = 0
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield rows.line_num, f"a field over {LONGEST >> 20} MB" if "field limit" in str(error) else f"not CSV ({error})"
                continue
            if not row_size[0] or _END in row.values():
                return
            if not all(is_text(value) for value in row.values() if isinstance(value, str)):
                yield rows.line_num, NOT_UTF8
            elif None in row:
                yield rows.line_num, "more fields than columns"
            elif any(_END in value or (tabs and "\n" in value and "\t" in value) for value in row.values() if value):
                yield rows.line_num, "a quotation mark that opens a field and does not end it"
            else:
                yield rows.line_num, {str(key): value for key, value in row.items()}


def _bounded(text: io.TextIOWrapper, row_size: list[int]) -> Iterator[str]:
    """Yield the lines of a text and bound the size of a row; `row_size[0]` counts characters since the caller reset it."""
    while line := text.readline(LONGEST + 1):
        row_size[0] += len(line)
        if row_size[0] > LONGEST:
            raise OSError(f"a row over {LONGEST >> 20} MB")
        yield line
    yield _END


def _txt(path: Path) -> Iterator[Row]:
    """A text file is one document: empty lines do not separate documents."""
    with opened(path) as stream:
        raw = stream.read(LONGEST + 1)
    if len(raw) > LONGEST:
        yield 1, f"a text over {LONGEST >> 20} MB"
    elif raw.strip():
        try:
            yield 1, {TEXT: raw.decode("utf-8-sig"), "title": path.stem}
        except UnicodeDecodeError as error:
            yield raw.count(b"\n", 0, error.start) + 1, NOT_UTF8


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow.parquet as parquet
        from pyarrow import ArrowInvalid, types
    except ImportError as error:
        raise MissingExtra("pyarrow", "hub", f"Reading {path.name}") from error
    number = 0
    try:
        texts = [column.name for column in parquet.read_schema(path) if types.is_string(column.type)]
        with parquet.ParquetFile(path, read_dictionary=texts) as table:  # a long text repeated over many rows stays one in memory
            for batch in table.iter_batches(batch_size=256):
                for offset in range(len(batch)):
                    number += 1
                    yield number, _arrow_row(batch, offset)
    except ArrowInvalid as error:
        raise OSError(" ".join(str(error).split())) from error


def _arrow_row(batch: Any, offset: int) -> dict[str, Any] | str:
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[offset].as_py()
        except UnicodeDecodeError:
            return NOT_UTF8
        except (ValueError, OverflowError):  # a time that Python cannot hold: nanoseconds, or beyond the year 9999
            row[name] = str(column.slice(offset, 1)).strip("[] \n")
    return row


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressed according to its last suffix."""
    if path.suffix == ".zst":
        try:
            import pyarrow
        except ImportError as error:
            raise MissingExtra("pyarrow", "hub", f"Reading {path.name}") from error
        with pyarrow.input_stream(str(path), compression="zstd") as packed:
            yield cast(IO[bytes], io.BufferedReader(packed))
        return
    opener = cast(Callable[[Path], Any], _UNPACK.get(path.suffix, lambda plain: plain.open("rb")))
    with opener(path) as stream:
        yield stream


_UNPACK: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
_PACKED = {*_UNPACK, ".zst"}
BROKEN = (EOFError, lzma.LZMAError, zlib.error, OSError)
"""Errors of a truncated file."""

READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": lines_between,
    ".ndjson": lines_between,
    ".csv": _csv,
    ".tsv": _csv,
    ".txt": _txt,
    ".parquet": _parquet,
}
"""Readers by suffix; all but .parquet also read .xz, .gz, .bz2 and .zst."""

LINES = frozenset({".jsonl", ".ndjson"})
"""Formats that can be read from the middle, unless compressed."""

LISTS: dict[str, Callable[[Path], Iterator[Row]]] = {".json": _json}
"""Readers of files that are named one by one: JSON files in a folder of texts may not hold rows."""

KNOWN = ", ".join(READERS) + " (also .xz, .gz, .bz2, .zst)"
