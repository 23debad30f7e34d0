"""Attacks of one case per number. In: seed, number, world, a folder to work in. Out: line, what was wrong, megabytes.

Bombs, tokenizers, pickles, changes between two calls, signals, invented files, calls of the API.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.torture import bombs, changes, generated, hostile, signals
from tests.torture.attempt import fault, start

Case = tuple[str, str | None, float]
Kind = Callable[[int, int, Path, Path], Case]
PATIENCE = 300
BATCH = 200
"""Invented files of one number: each takes a millisecond."""


def bomb(seed: int, number: int, world: Path, folder: Path) -> Case:
    name = list(bombs.BOMBS)[number % len(bombs.BOMBS)]
    line, write = bombs.BOMBS[name]
    return _harmed(f"{line} ({name})", line, write, world, folder, bombs.wall, heavy="near" in name)


def tokenizer(seed: int, number: int, world: Path, folder: Path) -> Case:
    names, readers = list(hostile.TOKENIZERS), list(hostile.READERS)
    name, reader = names[number % len(names)], readers[(number + number // len(names)) % len(readers)]
    line = hostile.READERS[reader]
    return _harmed(f"{reader} ({name})", line, lambda at: hostile.tokenizer(at, name), world, folder, bombs.wall)


def pickled(seed: int, number: int, world: Path, folder: Path) -> Case:
    name = list(hostile.PICKLES)[number % len(hostile.PICKLES)]
    line, write = hostile.PICKLES[name]
    told, wrong, most = _harmed(f"{line} ({name})", line, write, world, folder)
    return told, "its pickle was run" if list(folder.rglob(hostile.OWNED)) else wrong, most


def _harmed(
    told: str,
    line: str,
    write: Callable[[Path], object],
    world: Path,
    folder: Path,
    first: Callable[[], object] | None = None,
    *,
    heavy: bool = False,
) -> Case:
    """`heavy`: a text as long as a library is read in earnest, and may take its time."""
    shutil.copytree(world, folder, symlinks=True)
    write(folder)
    end = start(shlex.split(line), folder, first=first).end()
    return told, fault(end, heavy=heavy), end.megabytes


def _simple(case: Callable[[int, int, Path, Path], tuple[str, str | None]]) -> Kind:
    return lambda seed, number, world, folder: (*case(seed, number, world, folder), 0.0)


def _invented(work: Callable[[Random, Path], str | None], times: int) -> Kind:
    """A number of cases in a child of their own, which may crash."""

    def case(seed: int, number: int, world: Path, folder: Path) -> Case:
        folder.mkdir()
        told = folder / "told"
        pid = os.fork()
        if pid == 0:
            signal.alarm(PATIENCE)
            os.chdir(folder)
            wrong = "died"
            try:
                found = (work(Random(f"{seed} {number} {one}"), folder) for one in range(times))
                wrong = next((each for each in found if each), "")
            finally:
                told.write_text(wrong, "utf-8", "replace")
                os._exit(0)
        os.waitpid(pid, 0)
        return f"{times} invented", (told.read_text("utf-8") if told.is_file() else "died") or None, 0.0

    return case


CASES: dict[str, Kind] = {
    "signals": _simple(signals.signals),
    "stopped": _simple(signals.stopped),
    "bombs": bomb,
    "tokenizers": tokenizer,
    "pickles": pickled,
    "stale": _simple(changes.stale),
    "elsewhere": _simple(changes.elsewhere),
    "unreadable": _simple(changes.unreadable),
    "clocks": _simple(changes.clocks),
    "coreference": _invented(generated.coreference_case, BATCH),
    "api": _invented(lambda random, _folder: generated.api_case(random), 10),
}
