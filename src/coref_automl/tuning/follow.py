"""A run's events as they are written. In: the path of events.ndjson. Out: rows since the last look; a half-written one waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Follower:
    """Reads a file that another process appends to. A line that a kill cut in two is passed over, as `watch` does.

    Every row carries how far the run had come: what it says itself, or else what the last step said.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._progress = 0.0

    def rows(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._at)
                new = handle.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and "event" in row:
                if row["event"] == "step":
                    self._progress = row.get("progress", self._progress)
                row.setdefault("progress", self._progress)
                yield row
