"""Documents of files. In: a path, a glob, a folder or a URL. Out: documents in order, and a flaw for every other row.

URLs (s3://, gs://, hf://, https://, file://) go through fsspec; drivers (s3fs, gcsfs) and credentials are the user's. Object
stores refuse, stall and disconnect: a failed read is retried with backoff from the byte it had reached; a final failure is one
sentence.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from coref_automl.base.errors import SourceError
from coref_automl.base.folders import expand_home, natural_order
from coref_automl.base.records import Document
from coref_automl.base.store import is_text
from coref_automl.corpus.formats import BROKEN, KNOWN, READERS, TEXT, Row, kind_of, lines_between, refuse_archive, stem_of

_WAITING = 1_000
"""Flaws at the head of a file that are held back until its first document names the source."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A row that is not a document: its source, where it is, and why."""

    source: str
    where: str
    reason: str


def files_of(place: str) -> list[Path]:
    """The files that a path, a glob or a folder names, in natural order."""
    path = expand_home(place)
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file() and kind_of(file) in READERS]
    elif path.is_file():
        files = [path]
    elif path.exists():
        raise SourceError(f"local:{place} is a pipe, a socket or a device; copy its content into a file and give that.")
    else:
        found = glob.glob(str(path), recursive=True)  # noqa: PTH207 - absolute patterns
        files = [Path(name) for name in found if Path(name).is_file()]
    if not files:
        raise SourceError(f"local:{place} matches no readable file; pass a file, a folder or a quoted glob of {KNOWN}.")
    for file in files:
        if not is_text(str(file)):
            raise SourceError(f"The name {os.fsencode(file)!r} is not UTF-8; rename the file.")
    return sorted(files, key=natural_order)


def name_of(place: str) -> str:
    """The name of a local source whose rows have none: that of the file, or of the folder of the files."""
    path = expand_home(place)
    if path.is_dir():
        return path.resolve().name
    return stem_of(path) if path.is_file() else next(up.name for up in path.resolve().parents if not glob.has_magic(up.name))


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of whole lines in a file, in bytes, and the number of lines before it."""

    start: int
    end: int
    lines: int


def read_file(
    path: Path, *, name: str, field: str | None = None, broken_ok: bool = False, span: ByteRange | None = None, shown: str = ""
) -> Iterator[Document | Flaw]:
    """Yield a document or a flaw for every row of a file, or of one span of it.

    A field that none of the first thousand rows has is one error, not a thousand flaws. A truncated file is an error, or with
    `broken_ok` one more flaw. A flawed row without a source belongs to the source of the document before it, or of the first
    document of the file or span. Errors call the file `shown`, the URL of a copy.
    """
    stem, folders = stem_of(path), (Path(shown).parent if shown else path.parent.resolve()).parts  # of a copy, those of its URL
    field, line, shown = field or TEXT, 0, shown or str(path)
    rows = rows_in(path, shown, span)
    inner = folders[len(folders) - folders[::-1].index(name) :] if name in folders and name != stem else ()  # below the source's
    source: str | None = None
    no_field: SourceError | None = None
    field_seen = False
    waiting: list[Flaw] = []
    try:
        for line, row in rows:
            where = f"{path.name}, line {line}"
            if isinstance(row, str):
                entry: Document | Flaw = Flaw(source or name, where, row)
            else:
                entry = _document(row, where, "/".join([*inner, f"{stem}-{line}"]), name, source, field)
                if no_field is None:
                    fields = ", ".join(map(str, row)) or "nothing"
                    no_field = SourceError(f"{shown} has no field {field!r}; its rows hold {fields}. Pass --field.")
                field_seen = field_seen or field in row or (span is not None and span.lines > 0)  # the head was checked already
            if isinstance(entry, Document):
                source = entry.source
            elif source is None and len(waiting) < _WAITING:
                waiting.append(entry)
                continue
            if no_field and not field_seen:
                raise no_field
            yield from (replace(flaw, source=source or name) if flaw.source == name else flaw for flaw in waiting)
            waiting.clear()
            yield entry
    except BROKEN as error:
        if not broken_ok:
            reason = f"{shown} breaks off after line {line} ({error})"
            raise SourceError(
                f"{reason}; download it again (prepare mlm, entity and combined keep the readable part under --allow-missing)."
            ) from error
        waiting.append(Flaw(source or name, f"{path.name}, after line {line}", "the file breaks off"))
    if no_field and not field_seen:
        raise no_field
    if not line and not waiting and span is None:
        waiting.append(Flaw(name if path.stem == name else stem_of(path), path.name, "an empty file"))
    yield from waiting


def rows_in(path: Path, shown: str, span: ByteRange | None = None) -> Iterator[Row]:
    """The rows of a file, or of one span of it; other kinds of files are refused."""
    refuse_archive(path, shown, SourceError)
    reader = READERS.get(kind_of(path))
    if reader is None:
        raise SourceError(f"{shown} has an unknown file type; known types: {KNOWN}.")
    return lines_between(path, span.start, span.end, span.lines) if span else reader(path)


def _document(row: dict[str, Any], where: str, fallback: str, name: str, previous: str | None, field: str) -> Document | Flaw:
    stated = writable(row["source"]) if isinstance(row.get("source"), str) and row["source"] else None
    text = row.get(field)
    if not isinstance(text, str):
        reason = f"no field {field!r}" if text is None else f"the field {field!r} is not text"
        return Flaw(stated or previous or name, where, reason)
    identity, title = row.get("id"), row.get("title")
    return Document(
        id=writable(str(identity)) if isinstance(identity, str | int) and str(identity) else fallback,
        source=stated or name,
        text=text,
        title=writable(title) if isinstance(title, str) else "",
    )


def writable(name: str) -> str:
    """The name without lone surrogates, which JSON can hold and a UTF-8 file cannot."""
    return name.encode("utf-8", "replace").decode("utf-8")


PAUSES = (0.5, 2.0, 8.0, 30.0)
"""Seconds before each retry of a read; every chunk that arrives resets them."""

_CHUNK = 4 << 20
_FINAL = (PermissionError, FileNotFoundError, IsADirectoryError, NotImplementedError)
"""Errors that are not retried."""


def is_url(place: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*://", place) is not None


def urls_of(place: str) -> list[str]:
    """The files that the URL of a file, a folder or a glob names, in natural order."""
    system, path = _system(place)
    with _explained(place):
        if any(sign in path for sign in "*?["):
            names = list(system.glob(path))
        elif system.isdir(path):
            names = [name for name in system.find(path) if kind_of(Path(name)) in READERS]
        else:
            names = [path] if system.exists(path) else []
    if not names:
        raise SourceError(f"{place} matches no readable file; pass the URL of a file, a folder or a quoted glob of {KNOWN}.")
    return [str(system.unstrip_protocol(name)) for name in sorted(names, key=lambda name: natural_order(Path(name)))]


def size_of(url: str) -> int:
    system, path = _system(url)
    with _explained(url):
        return int(system.info(path)["size"])


def remote_chunks(url: str, span: ByteRange | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file or of a span of it; fewer bytes than announced are an error."""
    system, path = _system(url)
    position, end = (span.start, span.end) if span else (0, size_of(url))
    pauses = list(PAUSES)
    while position < end:
        try:
            with system.open(path, "rb") as stream:
                stream.seek(position)
                while position < end:
                    chunk = stream.read(min(_CHUNK, end - position))
                    if not chunk:
                        raise OSError(f"it breaks off at byte {position:,} of {end:,}")
                    yield chunk
                    position, pauses = position + len(chunk), list(PAUSES)
        except Exception as error:
            if isinstance(error, _FINAL) or not pauses:
                with _explained(url):
                    raise
            time.sleep(pauses.pop(0))


@contextmanager
def local_copy(url: str, span: ByteRange | None = None) -> Iterator[Path]:
    """Copy a file, or a span of it, to this machine under its own name while it is read."""
    with tempfile.TemporaryDirectory(prefix="coref-automl-") as folder:
        path = Path(folder) / PurePosixPath(url).name
        with path.open("wb") as handle:
            for chunk in remote_chunks(url, span):
                handle.write(chunk)
        yield path


def _system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it."""
    from fsspec.core import url_to_fs

    with _explained(url):
        system, path = url_to_fs(url)
        return system, str(path)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # every driver raises kinds of its own
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        advice = "install it" if isinstance(error, ImportError) else "check the address and its credentials"
        raise SourceError(f"{url} cannot be read ({reason}); {advice}, and run the same command again: it resumes.") from error
