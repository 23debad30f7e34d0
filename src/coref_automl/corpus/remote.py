"""Files behind a URL (s3://, gs://, hf://, https://, file://), through fsspec. In: a URL. Out: its bytes, or a local copy.

Object stores refuse, stall and break off. A read that fails is repeated from the byte it had come to, with growing pauses; what
still fails is one sentence. Drivers (s3fs, gcsfs) and credentials are the user's, as fsspec finds them.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from coref_automl.corpus.files import ByteRange
from coref_automl.corpus.formats import KNOWN, READERS, kind_of
from coref_automl.errors import SourceError
from coref_automl.store import natural_order

PAUSES = (0.5, 2.0, 8.0, 30.0)
"""Seconds before a failed read is tried again; bytes that arrive begin the row anew."""

_CHUNK = 4 << 20
_FINAL = (PermissionError, FileNotFoundError, IsADirectoryError, NotImplementedError)
"""What another attempt does not change."""


def is_url(place: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*://", place) is not None


def urls_of(place: str) -> list[str]:
    """The files that a URL, a folder behind one or a glob names, in natural order."""
    files, path = _system(place)
    with _explained(place):
        if any(sign in path for sign in "*?["):
            found = list(files.glob(path))
        elif files.isdir(path):
            found = [name for name in files.find(path) if kind_of(Path(name)) in READERS]
        else:
            found = [path] if files.exists(path) else []
    if not found:
        raise SourceError(f"{place} matches no readable file; pass the URL of a file, a folder or a quoted glob of {KNOWN}.")
    return [str(files.unstrip_protocol(name)) for name in sorted(found, key=lambda name: natural_order(Path(name)))]


def size_of(url: str) -> int:
    files, path = _system(url)
    with _explained(url):
        return int(files.info(path)["size"])


def remote_chunks(url: str, span: ByteRange | None = None) -> Iterator[bytes]:
    """The bytes of a file or of a span of it. As many come as were announced, or it is an error."""
    files, path = _system(url)
    at, end = (span.start, span.end) if span else (0, size_of(url))
    pauses = list(PAUSES)
    while at < end:
        try:
            with files.open(path, "rb") as stream:
                stream.seek(at)
                while at < end:
                    chunk = stream.read(min(_CHUNK, end - at))
                    if not chunk:
                        raise OSError(f"it breaks off at byte {at:,} of {end:,}")
                    yield chunk
                    at, pauses = at + len(chunk), list(PAUSES)
        except Exception as error:
            if isinstance(error, _FINAL) or not pauses:
                with _explained(url):
                    raise
            time.sleep(pauses.pop(0))


@contextmanager
def local_copy(url: str, span: ByteRange | None = None) -> Iterator[Path]:
    """A file, or a span of it, on the disk of this machine under its own name, as long as it is read."""
    with tempfile.TemporaryDirectory(prefix="coref-automl-") as folder:
        path = Path(folder) / PurePosixPath(url).name
        with path.open("wb") as handle:
            for chunk in remote_chunks(url, span):
                handle.write(chunk)
        yield path


def _system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path there."""
    from fsspec.core import url_to_fs

    with _explained(url):
        files, path = url_to_fs(url)
        return files, str(path)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # every driver raises kinds of its own
        said = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        step = "install it" if isinstance(error, ImportError) else "check the address and its credentials"
        raise SourceError(f"{url} cannot be read ({said}); {step}, and run the same command again: it resumes.") from error
