"""The live view of a run. In: a run's folder. Out: its state as its events tell it, once or until it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.errors import InputError
from coref_automl.progress import duration, read_events
from coref_automl.records import Record
from coref_automl.store import is_done

_SILENT = 120.0
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class RunStatus(Record):
    """A run at one moment. `state` is training, finished, stopped, or silent (no event for two minutes)."""

    run: str
    state: str
    step: int = 0
    epoch: float = 0.0
    loss: float | None = None
    rate: float | None = None
    tokens: int = 0
    tokens_per_second: float = 0.0
    seconds: float = 0.0
    left: float | None = None
    losses: tuple[float, ...] = ()
    last_evaluation: str = ""
    last_note: str = ""

    def lines(self) -> list[str]:
        left = f", {duration(self.left)} left" if self.left is not None and self.state == "training" else ""
        out = [f"{self.run}: {self.state}, step {self.step:,}, epoch {self.epoch:.2f}, {duration(self.seconds)}{left}"]
        if self.loss is not None:
            out.append(f"loss {self.loss:.4f}  {spark(self.losses)}")
            out.append(f"rate {self.rate:.3g}, {self.tokens_per_second:,.0f} real tokens/s, {self.tokens:,} tokens so far")
        out += [f"last evaluation: {self.last_evaluation}"] if self.last_evaluation else []
        repeated = self.last_note.replace(": ", " ", 1) == self.last_evaluation  # the note that went with it
        return out + ([self.last_note] if self.last_note and not repeated else [])


def status_of(run: Path) -> RunStatus:
    """What a run's events.ndjson says now."""
    events = run / "events.ndjson"
    if not events.is_file():
        raise InputError(f"{run} is not a run (no events.ndjson); pass the --out folder of a `coref-automl train` command.")
    step: dict[str, Any] = {}
    losses: list[float] = []
    stopped, note, scored, last = False, "", "", 0.0
    for row in read_events(events):
        try:
            kind, last = row["event"], float(row["time"])
            if kind == "step":
                found = {name: row[name] for name in _FROM_STEP if row.get(name) is not None}
                if not all(isinstance(value, int | float) for value in found.values()):
                    raise TypeError
                losses.append(float(row["loss"]))
                step = found
            elif kind == "note":
                note = str(row["text"])
            elif kind == "evaluation":
                scored = f"{row['checkpoint']} {row['metric']} {row['text']}"
        except (KeyError, TypeError, ValueError):  # a damaged line tells nothing; those after it do
            continue
        if row.get("stage") == "train":
            stopped = kind == "stopped"
    silent = "silent" if time.time() - last > _SILENT else "training"
    return RunStatus(
        run=str(run),
        state="finished" if is_done(run) else "stopped" if stopped else silent,
        losses=tuple(losses[-200:]),
        last_evaluation=scored,
        last_note=note,
        **step,
    )


_FROM_STEP = ("step", "epoch", "loss", "rate", "tokens", "tokens_per_second", "seconds", "left")


def follow(run: Path, every: float = 1.0) -> RunStatus:
    """Draw the state again and again until the run ends."""
    from rich.live import Live
    from rich.text import Text

    status = status_of(run)
    with Live(Text("\n".join(status.lines())), refresh_per_second=4) as live:
        while status.state not in ("finished", "stopped"):
            time.sleep(every)
            status = status_of(run)
            live.update(Text("\n".join(status.lines())))
    return status


def spark(values: tuple[float, ...], width: int = 40) -> str:
    """A line of bars; each is the mean of its share of the values."""
    if not values:
        return ""
    count = min(width, len(values))
    means = [
        sum(part) / len(part)
        for part in (values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count))
    ]
    low, high = min(means), max(means)
    return "".join(_BARS[round((len(_BARS) - 1) * (mean - low) / (high - low))] if high > low else _BARS[0] for mean in means)
