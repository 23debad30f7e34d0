"""What a benchmark gives: two speeds in one unit, and the lines that explain them."""

from __future__ import annotations

from dataclasses import dataclass

from coref_automl.records import Record


@dataclass(frozen=True, slots=True)
class BenchResult(Record):
    ours: float
    usual: float
    unit: str
    lines: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.ours / self.usual

    def closing_line(self) -> str:
        return f"ratio {self.ratio:.1f} (ours {self.ours:.1f} {self.unit}, usual way {self.usual:.1f} {self.unit})"
