"""Progress as events. In: stages that advance. Out: a bar on a terminal, plain lines elsewhere, events.ndjson in a run folder.

All of it goes to standard error, so that standard output has nothing but the result.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.base.guard import lines_of, parse_json, refuse_special
from coref_automl.base.records import Record
from coref_automl.base.say import Say, catalogue, in_korean, language, say
from coref_automl.base.store import NOT_JSON

T = TypeVar("T")

_LINE_EVERY = 10.0
_BAR_EVERY = 0.1
_WARM_UP = 1 / 50
"""The share of the work that is warm-up. Its time does not count, and there is no ETA before as much again is done."""


class Stage:
    """A piece of work with a known or unknown total, reported as it advances."""

    def __init__(self, name: str, total: float | None, unit: str, progress: Progress) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.done = 0.0
        self._progress = progress
        self._started = time.monotonic()
        self._skipped = 0.0
        self._warmed_up = (self._started, 0.0)
        self._shown = self._started
        self._facts: dict[str, Any] = {}
        self._outcome: dict[str, Any] = {}

    def advance(self, amount: float = 1, **facts: Any) -> None:
        """Count more work as done; `facts` (loss=2.1, ...) are shown beside the bar and stored in the events."""
        self.done += amount
        self._facts.update(facts)
        now = time.monotonic()
        worked = self.done - self._skipped
        if self.total and worked < _WARM_UP * (self.total - self._skipped):
            self._warmed_up = (now, worked)
        if now - self._shown >= self._progress.every:
            self._shown = now
            self._progress.show(self)

    def skip(self, amount: float) -> None:
        """Count work that an earlier call finished: it is done, but not part of the throughput."""
        self.done += amount
        self._skipped += amount

    def conclude(self, **facts: Any) -> None:
        """Add results of the work to the last line and to the end event."""
        self._outcome.update(facts)

    def line(self) -> str:
        say, facts = self._progress.say, self._formatted(self._facts)
        left = self.seconds_left()
        name, unit, wait = in_korean(self.name), self._unit(), duration(left or 0, say.lang)
        share = say(f"/{self.total:,.0f}", f" of {self.total:,.0f}") if self.total else ""
        return say(
            f"{name}: {unit} {self.done:,.0f}{share}{facts}".replace(":  ", ": ")
            + (f", {wait} 남음" if left is not None else ""),
            f"{self.name}: {self.done:,.0f}{share} {unit}".rstrip() + facts + (f", {wait} left" if left is not None else ""),
        )

    def end(self) -> str:
        """The last line, with the time taken and the results."""
        say, outcome = self._progress.say, self._formatted(self._outcome)
        took = duration(self.seconds(), say.lang)
        return say(
            f"{in_korean(self.name)}: {self._unit()} {self.done:,.0f}, {took}{outcome}".replace(":  ", ": "),
            f"{self.name}: {self.done:,.0f} {self._unit()} in {took}{outcome}".replace("  ", " "),
        )

    def _formatted(self, facts: Mapping[str, Any]) -> str:
        say = self._progress.say
        short = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in facts.items()}
        return "".join(f", {say(in_korean(key), key.replace('_', ' '))} {value}" for key, value in short.items())

    def _unit(self) -> str:
        """The unit; empty if it is the name of the stage."""
        if self.unit == self.name:
            return ""
        english = self.unit.removesuffix("s") if (self.total or self.done) == 1 else self.unit
        return self._progress.say(catalogue().get(f"{self.name} {self.unit}", in_korean(self.unit)), english)

    def seconds_left(self) -> float | None:
        """ETA from the throughput after warm-up; None until that is known."""
        if not self.total or self.done >= self.total:
            return None
        then, before = self._warmed_up
        worked = self.done - self._skipped - before
        if worked < _WARM_UP * (self.total - self._skipped):
            return None
        return (self.total - self.done) * (time.monotonic() - then) / worked

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def facts(self) -> dict[str, Any]:
        return {**self._facts, **self._outcome}


class Progress:
    """Where stages report. A command has one; functions take it as an argument and default to `quiet()`."""

    def __init__(self, *, shown: bool = True, events: Path | None = None, lang: str | None = None) -> None:
        self.say = Say(language(lang))
        self._shown = shown
        self._events = events
        self._bars = _Bars() if shown and sys.stderr.isatty() else None

    @property
    def every(self) -> float:
        """Seconds between two reports of a stage."""
        return _LINE_EVERY if self._bars is None else _BAR_EVERY

    @contextmanager
    def stage(self, name: str, total: float | None = None, unit: str = "") -> Iterator[Stage]:
        stage = Stage(name, total, unit, self)
        self.event("start", stage=name, total=total, unit=unit)
        finished = False
        try:
            yield stage
            finished = True
        finally:
            outcome = "end" if finished else "stopped"
            self.event(outcome, stage=name, done=stage.done, seconds=round(stage.seconds(), 3), **stage.facts())
            self._close(stage, finished)

    def track(self, items: Iterable[T], name: str, total: float | None = None, unit: str = "") -> Iterator[T]:
        with self.stage(name, total, unit) as stage:
            for item in items:
                yield item
                stage.advance()

    def note(self, text: str, english: str | None = None) -> None:
        """Print a line for people, in the current language if both are given."""
        text = text if english is None else say(text, english)
        self.event("note", text=text)
        if self._shown:
            print(text, file=sys.stderr, flush=True)

    def show(self, stage: Stage) -> None:
        self.event("progress", stage=stage.name, done=stage.done, total=stage.total, left=stage.seconds_left(), **stage.facts())
        if self._bars is not None:
            self._bars.show(stage)
        elif self._shown:
            print(stage.line(), file=sys.stderr, flush=True)

    def event(self, kind: str, **facts: Any) -> None:
        """Append an event to events.ndjson, which the studio and `tune` follow."""
        if self._events is None:
            return
        row = {"time": round(time.time(), 3), "event": kind, **facts}
        with self._events.open("a+b") as handle:
            torn = handle.tell() > 0 and handle.seek(-1, os.SEEK_END) >= 0 and handle.read(1) != b"\n"  # a kill cut the last row
            handle.write(b"\n" * torn + json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def into(self, events: Path) -> Progress:
        """The same display, with events written to this file."""
        events.parent.mkdir(parents=True, exist_ok=True)
        refuse_special(events)
        other = copy(self)
        other._events = events
        return other

    def _close(self, stage: Stage, finished: bool) -> None:
        if self._bars is not None:
            self._bars.close(stage)
        if self._shown and finished and stage.seconds() >= 0.5:
            print(stage.end(), file=sys.stderr, flush=True)


class _Bars:
    """A bar on the terminal for every running stage; lines printed to standard error appear above the bars."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskID, TextColumn
        from rich.progress import Progress as Display
        from rich.table import Column

        line = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        console = Console(stderr=True)
        self._display = Display(BarColumn(24), line, console=console, transient=True, auto_refresh=False, redirect_stdout=False)
        self._tasks: dict[Stage, TaskID] = {}

    def show(self, stage: Stage) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._display.add_task(stage.line(), total=stage.total)
            self._display.start()
        self._display.update(self._tasks[stage], completed=stage.done, total=stage.total, description=stage.line(), refresh=True)

    def close(self, stage: Stage) -> None:
        task = self._tasks.pop(stage, None)
        if task is not None:
            self._display.remove_task(task)
        if not self._tasks:
            self._display.stop()


Shown = Progress | bool | None
"""The `progress` argument of public functions: a Progress, True to show it, or None."""


def as_progress(shown: Shown) -> Progress:
    return shown if isinstance(shown, Progress) else Progress() if shown else quiet()


def quiet() -> Progress:
    return Progress(shown=False)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file, oldest first; none if there is no file. A line that a kill cut is skipped."""
    if path.is_file():
        with path.open("rb") as handle:
            for line in lines_of(path, handle):
                yield from parse_events(line)


def parse_events(lines: bytes) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        with suppress(*NOT_JSON):
            row = parse_json(line)
            if isinstance(row, dict) and "event" in row:
                yield row


@dataclass(frozen=True, slots=True)
class Spent(Record):
    """The cost of a command so far: wall time, and the peak resident memory of its process and of any finished child."""

    seconds: float
    peak_bytes: int

    def __str__(self) -> str:
        say, peak = Say(language()), f"{self.peak_bytes / 1e9:.1f} GB"
        took = duration(self.seconds, say.lang)
        return say(f"소요 시간 {took}, 최대 메모리 {peak}.", f"Took {took}; peak memory {peak}.")


def spent(since: float) -> Spent:
    """The cost since a reading of time.monotonic()."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Spent(round(time.monotonic() - since, 1), peak * unit)


def peak_gigabytes() -> float:
    """Peak memory of this process: that allocated on its GPU if it has used one, else resident memory."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return round(float(torch.cuda.max_memory_allocated()) / 1e9, 2)
    return round(spent(0.0).peak_bytes / 1e9, 2)


def duration(seconds: float, lang: str = "en") -> str:
    """12 s, 3 min 05 s, 2 h 10 min; 12초, 3분 05초, 2시간 10분."""
    hour, minute, second = ("시간", "분", "초") if lang == "ko" else (" h", " min", " s")
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}{second}" if seconds < 10 else f"{whole}{second}"
    if whole < 3600:
        return f"{whole // 60}{minute} {whole % 60:02d}{second}"
    return f"{whole // 3600}{hour} {whole % 3600 // 60:02d}{minute}"
