"""Rows of annotated files. In: `local:PATH` (or a plain path). Out: each row as a mapping, or the reason why it is none."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coref_automl.corpus.files import READERS, files_of
from coref_automl.errors import SourceError


def local_rows(place: str, *, needs: Sequence[str]) -> Iterator[dict[str, Any] | str]:
    """Every row of the files a path, folder or glob names. A first row without the needed columns is the wrong file."""
    for path in files_of(place.removeprefix("local:")):
        yield from _file_rows(path, needs)


def _file_rows(path: Path, needs: Sequence[str]) -> Iterator[dict[str, Any] | str]:
    reader = next((READERS[suffix] for suffix in reversed(path.suffixes) if suffix in READERS), None)
    if reader is None:
        raise SourceError(f"{path} is of an unknown kind; known are {', '.join(READERS)}.")
    number = 0
    try:
        for number, row in reader(path):
            if isinstance(row, dict) and number == 1 and (missing := [name for name in needs if name not in row]):
                raise SourceError(f"{path} has no column {missing[0]!r}; its rows hold {', '.join(row) or 'nothing'}.")
            yield row
    except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise SourceError(f"{path} breaks off after line {number} ({error}); fetch it again.") from error
