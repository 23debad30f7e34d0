"""Hashes of values and of the bytes of files, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from coref_automl.guard import refuse_special

_CHUNK = 1 << 20
_FRAMED = {".safetensors", ".bin", ".npy", ".npz", ".model", ".pt", ".parquet", ".arrow", ".gz", ".xz", ".zip", ".zst", ".bz2"}
"""Files that say themselves how long they are. Any other ends at a NUL, or has its length counted."""


def fingerprint(*parts: Any) -> str:
    """A hash of a value, the same on every machine."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        raw = part if isinstance(part, bytes) else json.dumps(part, ensure_ascii=False, sort_keys=True).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def chunks_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time."""
    refuse_special(path)
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk


def fingerprint_files(paths: Iterable[Path], *, read: Callable[[Path], Iterable[bytes]] = chunks_of) -> str:
    """A hash of the bytes of some files, whatever their names and wherever `read` finds them.

    A NUL byte ends each file. Where a file may itself contain one, two splits of the same bytes could agree, so the sizes are
    hashed too; only there, since stored results name the files by the hash without sizes.
    """
    digest = hashlib.blake2b(digest_size=12)
    sizes, ambiguous = [], False
    for path in paths:
        size = 0
        for chunk in read(path):
            digest.update(chunk)
            size += len(chunk)
            ambiguous = ambiguous or (path.suffix not in _FRAMED and b"\0" in chunk)
        digest.update(b"\0")
        sizes.append(size)
    return fingerprint(digest.hexdigest(), sizes) if ambiguous else digest.hexdigest()
