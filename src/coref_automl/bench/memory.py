"""Peak memory of a piece of work. In: a with-block. Out: bytes beyond what was held before, on the GPU or in this process."""

from __future__ import annotations

import ctypes
import gc
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

_STATM = Path("/proc/self/statm")
_PAGE = 4096
_EVERY = 0.01


class PeakMemory:
    """Watches the process (or the GPU) while its block runs; `peak` is None where the system does not say."""

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._stop = threading.Event()
        self._most = 0
        self._before = 0
        self.peak: int | None = None

    def __enter__(self) -> PeakMemory:
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        elif _STATM.is_file():
            _give_back()
            self._before = self._most = _resident()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._cuda:
            import torch

            self.peak = torch.cuda.max_memory_allocated() - self._before
        elif _STATM.is_file():
            self._stop.set()
            self._thread.join()
            self.peak = max(0, max(self._most, _resident()) - self._before)

    def __str__(self) -> str:
        return "memory not known here" if self.peak is None else f"{self.peak / 1e6:,.0f} MB peak"

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY):
            self._most = max(self._most, _resident())


def _give_back() -> None:
    """Pages that earlier work freed go back to the system, so that they are not counted as held."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE
