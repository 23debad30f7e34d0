"""Checksums of a dataset's arrays. In: files. Out: a checksum per shard of each, and an error that names what has changed.

`prepare` writes them into the manifest and training compares them before its first step, so that an array that was edited, or
damaged on its way here, is not learned from. Shards are hashed side by side: the disk, not the processor, sets the pace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from coref_automl.errors import DatasetError

SHARD = 64 << 20
"""Bytes of a shard."""

LEAST = 1 << 20
"""A manifest that claims smaller ones is damaged."""

_CHUNK = 1 << 20
_THREADS = 4

Checksums = dict[str, Any]
"""`shard_bytes`, and under each file's name the checksums of its shards."""


def checksums(
    paths: Iterable[Path], *, shard_bytes: int | None = None, on_bytes: Callable[[int], None] | None = None
) -> Checksums:
    """The checksums of some files of one folder."""
    shard_bytes = shard_bytes or SHARD
    found: Checksums = {"shard_bytes": shard_bytes}
    with ThreadPoolExecutor(_THREADS) as pool:
        for path in paths:
            starts = range(0, path.stat().st_size, shard_bytes)
            found[path.name] = []
            for checksum, count in pool.map(lambda start, path=path: _hashed(path, start, shard_bytes), starts):
                found[path.name].append(checksum)
                if on_bytes is not None:
                    on_bytes(count)
    return found


def verify(folder: Path, written: Any, *, on_bytes: Callable[[int], None] | None = None) -> None:
    """Compare a folder's files with the checksums that were written when they were made."""
    shard_bytes = written.get("shard_bytes") if isinstance(written, dict) else None
    if not isinstance(shard_bytes, int) or shard_bytes < LEAST:
        raise DatasetError(f"The manifest of {folder} has damaged checksums; prepare the dataset again in another folder.")
    now = checksums((folder / name for name in written if (folder / name).is_file()), shard_bytes=shard_bytes, on_bytes=on_bytes)
    for name, before in written.items():
        if before != (after := now.get(name)):
            raise DatasetError(
                f"{folder / name} is no longer what was prepared{_where(before, after)}: it was edited or damaged; restore it "
                "from a copy, or prepare the dataset again in another folder."
            )


def _where(before: Any, after: Any) -> str:
    """Which shard it is, where there are several."""
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after) or len(before) < 2:
        return ""
    at = next(number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    return f" (shard {at + 1} of {len(before)})"


def _hashed(path: Path, start: int, size: int) -> tuple[str, int]:
    digest, left = hashlib.blake2b(digest_size=12), size
    with path.open("rb") as handle:
        handle.seek(start)
        while left and (chunk := handle.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest(), size - left
