"""What every benchmark shares: the result, the clock's fence, peak memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coref_automl.records import Record
from coref_automl.say import say


@dataclass(frozen=True, slots=True)
class BenchResult(Record):
    """Two speeds in one unit, and the lines that explain them."""

    ours: float
    usual: float
    unit: str
    lines: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.ours / self.usual

    def closing_line(self) -> str:
        ours, usual = f"{self.ours:.1f} {self.unit}", f"{self.usual:.1f} {self.unit}"
        return say(
            f"비율 {self.ratio:.1f} (이 패키지 {ours}, 일반적인 방법 {usual})",
            f"ratio {self.ratio:.1f} (ours {ours}, usual way {usual})",
        )


class PeakMemory:
    """Bytes of a GPU beyond those held before the block; `peak` is None on a CPU."""

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._before = 0
        self.peak: int | None = None

    def __enter__(self) -> PeakMemory:
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._cuda:
            import torch

            self.peak = torch.cuda.max_memory_allocated() - self._before

    def __str__(self) -> str:
        return "" if self.peak is None else f", {self.peak / 1e6:,.0f} MB peak"


def synchronize(device: str) -> None:
    """Wait until a GPU has finished what it was given; reading a clock before that measures the launch."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()
