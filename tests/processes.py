"""Other processes, watched. In: a process id, or something to wait for. Out: is it alive; has it come true."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

WAIT = 240.0


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
