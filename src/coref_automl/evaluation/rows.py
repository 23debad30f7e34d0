"""Rows of annotated files. In: `local:PATH` (or a plain path). Out: each row as a mapping, or the reason why it is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.corpus.files import files_of
from coref_automl.corpus.formats import BROKEN, KNOWN, READERS, kind_of
from coref_automl.errors import SourceError

T = TypeVar("T")


def local_rows(place: str, *, needs: Sequence[str]) -> Iterator[dict[str, Any] | str]:
    """Every row of the files a path, folder or glob names. A first row without the needed columns is the wrong file."""
    for path in files_of(place.removeprefix("local:")):
        yield from _file_rows(path, needs)


def sorted_out(
    rows: Iterable[dict[str, Any] | str], read: Callable[[dict[str, Any], int], T | str]
) -> tuple[list[T], Counter[str]]:
    """What `read` makes of each row, in order; rows that are none, or of which it makes a reason, are counted by reason."""
    found: list[T] = []
    drops: Counter[str] = Counter()
    for number, row in enumerate(rows):
        entry = row if isinstance(row, str) else read(row, number)
        if isinstance(entry, str):
            drops[entry] += 1
        else:
            found.append(entry)
    return found, drops


def _file_rows(path: Path, needs: Sequence[str]) -> Iterator[dict[str, Any] | str]:
    reader = READERS.get(kind_of(path))
    if reader is None:
        raise SourceError(f"{path} is of an unknown kind; known are {KNOWN}.")
    number = 0
    try:
        for number, row in reader(path):
            if isinstance(row, dict) and number == 1 and (missing := [name for name in needs if name not in row]):
                raise SourceError(f"{path} has no column {missing[0]!r}; its rows hold {', '.join(row) or 'nothing'}.")
            yield row
    except (*BROKEN, ValueError) as error:
        raise SourceError(f"{path} breaks off after line {number} ({error}); fetch it again.") from error
