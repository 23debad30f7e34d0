"""Following a run. In: a run's folder. Out: its status and curves by its events, of which each is read once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import Any

from coref_automl.base.errors import InputError
from coref_automl.base.folders import EVENTS, is_done
from coref_automl.base.guard import lines_of
from coref_automl.base.locks import holder_of, is_alive
from coref_automl.base.progress import parse_events
from coref_automl.base.records import Estimate, Record

_GRACE = 10.0
"""A run without a lock counts as training for this many seconds after its last event."""
_CURVE_POINTS = 600
"""Most points of a loss curve."""


@dataclass(frozen=True, slots=True)
class RunStatus(Record):
    """A run at one moment. `state` is training, finished, stopped (ended early, or no process holds its lock) or silent: the
    process that holds the lock has sent no heartbeat for two minutes. `quiet` is the time since the last event in seconds, which
    may only mean a slow step."""

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
    last_note: str = ""
    quiet: float = 0.0


class RunWatch:
    """Follows the events of a run; each `status()` reads only those written since the last call.

    `curve` has the loss by step, thinned out if there are many; `scores` has the value of each checkpoint scored in training.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self._events = run / EVENTS
        self._reset()

    def _reset(self) -> None:
        self._read = 0
        self._step: dict[str, Any] = {}
        self._stopped, self._note, self._last = False, "", 0.0
        self.curve: list[tuple[int, float]] = []
        self._seen, self._stride = 0, 1
        self.scores: dict[str, Estimate] = {}
        self.metric = ""

    def status(self) -> RunStatus:
        if not self._events.is_file():
            raise InputError(f"{self.run} is not a run (no events.ndjson); pass the --out folder of `coref-automl train`.")
        with self._events.open("rb") as handle:
            if handle.seek(0, SEEK_END) < self._read:  # the file was written anew
                self._reset()
            handle.seek(self._read)
            for line in lines_of(self._events, handle):
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                for row in parse_events(line):
                    self._take(row)
        quiet = max(0.0, time.time() - self._last)
        working = is_alive(self.run) or quiet < _GRACE
        silent = "silent" if holder_of(self.run) is not None else "stopped"
        return RunStatus(
            run=str(self.run),
            state="finished" if is_done(self.run) else "stopped" if self._stopped else "training" if working else silent,
            quiet=quiet,
            last_note=self._note,
            **self._step,
        )

    def _take(self, row: dict[str, Any]) -> None:
        try:
            kind, self._last = row["event"], float(row["time"])
            if kind == "step":
                step = {name: row[name] for name in _STEP_FIELDS if row.get(name) is not None}
                if not all(isinstance(value, int | float) for value in step.values()):
                    raise TypeError
                loss = float(row["loss"])
                self._step = step
                self._add_to_curve(int(step.get("step", 0)), loss)
            elif kind == "note":
                self._note = str(row["text"])
            elif kind == "evaluation":
                self.metric = str(row["metric"])
                low, value, high = (float(row[part]) for part in ("low", "value", "high"))
                self.scores[str(row["checkpoint"])] = Estimate(value, low, high, int(row["n"]))
        except (KeyError, TypeError, ValueError):  # skip a damaged line
            return
        if row.get("stage") == "train":
            self._stopped = kind == "stopped"

    def _add_to_curve(self, step: int, loss: float) -> None:
        while self.curve and self.curve[-1][0] >= step:  # a resumed run repeats some steps
            self.curve.pop()
        self._seen += 1
        if self._seen % self._stride == 0:
            self.curve.append((step, loss))
        if len(self.curve) > _CURVE_POINTS:
            self.curve, self._stride = self.curve[1::2], self._stride * 2


_STEP_FIELDS = ("step", "epoch", "loss", "rate", "tokens", "tokens_per_second", "seconds", "left")
