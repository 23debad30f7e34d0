"""Local files. In: a path, a glob or a folder. Out: documents in order, and a flaw with file and line for every other row."""

from __future__ import annotations

import bz2
import csv
import glob
import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from coref_automl.errors import MissingExtra, SourceError
from coref_automl.records import Document
from coref_automl.store import at_home, is_text, natural_order

LONGEST = 16 << 20
"""Bytes of the longest line that is read as one document; a longer one is a broken export, and is counted."""

TEXT = "text"
_WAITING = 1_000
"""Flaws at the head of a file that wait for its first document."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A row that is no document: where it stands, and why."""

    source: str
    where: str
    reason: str


Row = tuple[int, dict[str, Any] | str]
"""A line number and what stands there: a row, or the reason why there is none."""


def files_of(place: str) -> list[Path]:
    """The files that a path, a glob or a folder names, in natural order."""
    path = at_home(place)
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and _reader_of(file)]
    elif path.is_file():
        found = [path]
    elif path.exists():
        raise SourceError(f"local:{place} is a pipe, a socket or a device; copy its content into a file and give that.")
    else:
        found = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]  # noqa: PTH207 - absolute patterns
    if not found:
        raise SourceError(f"local:{place} names no file that can be read; give a file, a folder or a quoted glob of {_KNOWN}.")
    for file in found:
        if not is_text(str(file)):
            raise SourceError(f"The name {os.fsencode(file)!r} is not UTF-8; rename the file.")
    return sorted(found, key=natural_order)


def name_of(place: str) -> str:
    """What a local source is called where its rows do not say: the file, or the folder that holds the files."""
    path = at_home(place)
    if path.is_dir():
        return path.resolve().name
    return _stem(path) if path.is_file() else path.resolve().parent.name


def read_file(path: Path, *, name: str, field: str | None = None, broken_ok: bool = False) -> Iterator[Document | Flaw]:
    """Every row of a file, in order: a document, or the flaw that keeps it from being one.

    A field that none of the first thousand rows has is a wrong field, not a thousand wrong rows. A file that breaks off is an
    error, or with `broken_ok` one more flaw. A flawed row without a source belongs to the source of the document before it, at
    the head of a file to that of the first one.
    """
    reader = _reader_of(path)
    if reader is None:
        raise SourceError(f"{path} is of an unknown kind; known are {_KNOWN}.")
    field, line = field or TEXT, 0
    source: str | None = None
    lacking: SourceError | None = None
    found = False
    waiting: list[Flaw] = []
    try:
        for line, row in reader(path):
            where = f"{path.name}, line {line}"
            if isinstance(row, str):
                entry: Document | Flaw = Flaw(source or name, where, row)
            else:
                entry = _document(row, where, f"{_stem(path)}-{line}", name, source, field)
                found = found or field in row
                lacking = lacking or _wrong_field(path, field, row)
            if isinstance(entry, Document):
                source = entry.source
            elif source is None and len(waiting) < _WAITING:
                waiting.append(entry)
                continue
            if lacking and not found:
                raise lacking
            yield from (replace(flaw, source=source or name) if flaw.source == name else flaw for flaw in waiting)
            waiting.clear()
            yield entry
    except _BROKEN as error:
        if not broken_ok:
            reason = f"{path} breaks off after line {line} ({error})"
            raise SourceError(
                f"{reason}; fetch it again (prepare mlm, entity and combined keep what can be read under --allow-missing)."
            ) from error
        waiting.append(Flaw(source or name, f"{path.name}, after line {line}", "the file breaks off"))
    if lacking and not found:
        raise lacking
    if not line and not waiting:
        waiting.append(Flaw(name if path.stem == name else _stem(path), path.name, "an empty file"))
    yield from waiting


def _wrong_field(path: Path, field: str, row: dict[str, Any]) -> SourceError:
    return SourceError(f"{path} has no field {field!r}; its rows hold {', '.join(map(str, row)) or 'nothing'}. Pass --field.")


def _document(row: dict[str, Any], where: str, fallback: str, name: str, before: str | None, field: str) -> Document | Flaw:
    stated = _clean(row["source"]) if isinstance(row.get("source"), str) and row["source"] else None
    text = row.get(field)
    if not isinstance(text, str):
        return Flaw(
            stated or before or name, where, f"no field {field!r}" if text is None else f"the field {field!r} is not text"
        )
    identity = row.get("id")
    title = row.get("title")
    return Document(
        id=_clean(str(identity)) if isinstance(identity, str | int) and str(identity) else fallback,
        source=stated or name,
        text=text,
        title=_clean(title) if isinstance(title, str) else "",
    )


def _clean(name: str) -> str:
    """Half a surrogate pair can be written in JSON, but not to a file."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _jsonl(path: Path) -> Iterator[Row]:
    with _opened(path) as stream:
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
        return "not UTF-8"
    except (ValueError, RecursionError):
        return "not JSON"
    return row if isinstance(row, dict) else "not a JSON object"


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)
    with _opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        rows = csv.DictReader(text, delimiter="\t" if ".tsv" in path.suffixes else ",")
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield rows.line_num, f"a field over {LONGEST >> 20} MB" if "field limit" in str(error) else f"not CSV ({error})"
                continue
            if any("\udc80" <= character <= "\udcff" for value in row.values() if isinstance(value, str) for character in value):
                yield rows.line_num, "not UTF-8"
            else:
                yield rows.line_num, {str(key): value for key, value in row.items()}


def _txt(path: Path) -> Iterator[Row]:
    """A text file is one document: a novel's empty lines are its own affair."""
    with _opened(path) as stream:
        raw = stream.read(LONGEST + 1)
    if len(raw) > LONGEST:
        yield 1, f"a text over {LONGEST >> 20} MB"
    elif raw.strip():
        try:
            yield 1, {TEXT: raw.decode("utf-8-sig"), "title": path.stem}
        except UnicodeDecodeError as error:
            yield raw.count(b"\n", 0, error.start) + 1, "not UTF-8"


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
def _opened(path: Path) -> Iterator[IO[bytes]]:
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


def _reader_of(path: Path) -> Callable[[Path], Iterator[Row]] | None:
    kind = Path(path.stem).suffix if path.suffix in {*_UNPACK, ".zst"} else path.suffix
    return READERS.get(kind)


def _stem(path: Path) -> str:
    stem = path.name
    while Path(stem).suffix in {*_UNPACK, ".zst", *READERS}:
        stem = Path(stem).stem
    return stem


_UNPACK: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
_BROKEN = (EOFError, lzma.LZMAError, zlib.error, OSError)

READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".tsv": _csv,
    ".txt": _txt,
    ".parquet": _parquet,
}
"""Every kind of file that can be read; all but parquet also as .xz, .gz, .bz2 and .zst."""

_KNOWN = ", ".join(READERS) + " (also .xz, .gz, .bz2, .zst)"
