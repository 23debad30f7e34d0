"""File formats. In: a path. Out: its rows with their line numbers, or the reason why a line is not a row.

Every command that reads a user's rows reads them here: JSONL, CSV, TSV, plain text, parquet, JSON lists; packed or not.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from coref_automl.errors import MissingExtra

LONGEST = 16 << 20
"""Bytes of the longest line that is read as one row; a longer one is a broken export, and is counted."""

TEXT = "text"
NOT_UTF8 = "not UTF-8"

Row = tuple[int, dict[str, Any] | str]
"""A line number and what is there: a row, or the reason why there is none."""


def kind_of(path: Path) -> str:
    """The suffix that says how a file is read: `.jsonl` of `a.jsonl.xz`."""
    return (Path(path.stem).suffix if path.suffix in _PACKED else path.suffix).lower()


def stem_of(path: Path, kinds: Iterable[str] | None = None) -> str:
    """The name without the suffixes that say how the file is read: `a` of `a.jsonl.xz`. `kinds` defaults to READERS."""
    stem, endings = path.name, {*_PACKED, *(READERS if kinds is None else kinds)}
    while Path(stem).suffix.lower() in endings:
        stem = Path(stem).stem
    return stem


def _jsonl(path: Path) -> Iterator[Row]:
    with opened(path) as stream:
        number = 0
        while line := stream.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                while not line.endswith(b"\n") and (line := stream.readline(LONGEST)):
                    pass
                yield number, f"a line over {LONGEST >> 20} MB"
            elif line.strip():
                yield number, _json_row(line)


def _json_row(line: bytes) -> dict[str, Any] | str:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):
        return "not JSON"
    return _object(row)


def _object(row: Any) -> dict[str, Any] | str:
    return row if isinstance(row, dict) else "not a JSON object"


def _json(path: Path) -> Iterator[Row]:
    """A list of rows, alone or as the `data` of an object; rows are counted, not lines."""
    with opened(path) as stream:
        data = json.loads(stream.read().decode("utf-8-sig"))
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    if not isinstance(data, list):
        raise ValueError("not a list of rows")
    yield from ((number, _object(row)) for number, row in enumerate(data, 1))


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)
    with opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        tabs = kind_of(path) == ".tsv"
        rows = csv.DictReader(text, delimiter="\t" if tabs else ",")
        if any(_undecoded(name) for name in rows.fieldnames or ()):
            yield 1, NOT_UTF8
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield rows.line_num, f"a field over {LONGEST >> 20} MB" if "field limit" in str(error) else f"not CSV ({error})"
                continue
            if any(_undecoded(value) for value in row.values() if isinstance(value, str)):
                yield rows.line_num, NOT_UTF8
            elif None in row:
                yield rows.line_num, "more fields than columns"
            elif tabs and any("\n" in value and "\t" in value for value in row.values() if isinstance(value, str)):
                yield rows.line_num, "a quotation mark that opens a field and does not end it"
            else:
                yield rows.line_num, {str(key): value for key, value in row.items()}


def _undecoded(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text)


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
        from pyarrow import ArrowInvalid
    except ImportError as error:
        raise MissingExtra("pyarrow", "hub", f"Reading {path.name}") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except ArrowInvalid as error:
        raise OSError(" ".join(str(error).split())) from error


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked by its last suffix."""
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
"""What a file that breaks off raises."""

READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".tsv": _csv,
    ".txt": _txt,
    ".parquet": _parquet,
}
"""Every kind of file that can be read; all but parquet also as .xz, .gz, .bz2 and .zst."""

LISTS: dict[str, Callable[[Path], Iterator[Row]]] = {".json": _json}
"""Kinds that are read only where a file is named: a folder of texts may hold JSON files that are not rows."""

KNOWN = ", ".join(READERS) + " (also .xz, .gz, .bz2, .zst)"
