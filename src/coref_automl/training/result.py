"""What a run leaves behind. In: nothing; it is a shape. Out: TrainResult, as JSON or as lines for a person."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from coref_automl.progress import duration


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run left behind. `stopped` says why it ended before its budget, if it did."""

    run: Path
    checkpoints: tuple[Path, ...]
    steps: int
    epochs: float
    tokens: int
    seconds: float
    loss: float | None
    best: Path | None = None
    stopped: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Paths as text; everything else as it is."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {
            "run": str(self.run),
            "checkpoints": [str(path) for path in self.checkpoints],
            "best": str(self.best) if self.best else None,
        }

    def lines(self) -> list[str]:
        """What a person wants to know first."""
        loss = f", loss {self.loss:.4f}" if self.loss is not None else ""
        out = [
            f"{self.run}: {_count(self.steps, 'step')}, {_count(self.epochs, 'epoch')}, {self.tokens:,} tokens "
            f"in {duration(self.seconds)}{loss}",
            f"{_count(len(self.checkpoints), 'checkpoint')}, the newest {self.checkpoints[-1]}"
            if self.checkpoints
            else "no checkpoint",
        ]
        out += [f"Chosen by the evaluation set: {self.best}"] if self.best else []
        return out + ([self.stopped] if self.stopped else [])


def _count(number: float, noun: str) -> str:
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"
