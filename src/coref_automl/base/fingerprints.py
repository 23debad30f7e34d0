"""Hashes of values and of the bytes of files, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from coref_automl.base.guard import refuse_special

_CHUNK = 1 << 20
_FRAMED = {".safetensors", ".bin", ".npy", ".npz", ".model", ".pt", ".parquet", ".arrow", ".gz", ".xz", ".zip", ".zst", ".bz2"}
"""Formats that contain their own length. Files of other formats end at a NUL byte, or their size is hashed."""


def fingerprint(*parts: Any) -> str:
    """A hash of a value, the same on every machine."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        raw = part if isinstance(part, bytes) else json.dumps(part, ensure_ascii=False, sort_keys=True).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def chunks_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks of a megabyte."""
    refuse_special(path)
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk


def fingerprint_files(paths: Iterable[Path], *, read: Callable[[Path], Iterable[bytes]] = chunks_of) -> str:
    """A hash of the bytes of several files, independent of their names and folders; `read` yields the bytes of a path.

    A NUL byte ends each file. If a file contains NUL bytes itself, another split of the same bytes could have the same hash, so
    sizes are hashed too; only then, since stored results hold hashes without sizes.
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
