"""Bad inputs. In: a seed, a number and the world. Out: a copy of the world, damaged, and a command line to run in it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from zlib import crc32

from tests.torture.damage import damage
from tests.torture.options import worsened
from tests.torture.world import LINES, OUT, Line

Stat = tuple[int, int]
FINISHED = (".safetensors", ".npy", "documents.jsonl", "items.jsonl", "result.json", "DONE", "config.json")
"""Files that no command may lose or change once they are written."""
_MARKS = ("DONE", "result.json")
"""Of these the first may be set again, and the second learns anew where its set stands; neither may be lost."""


@dataclass(frozen=True, slots=True)
class Case:
    """A command line in a folder, and what was done to either."""

    line: Line
    words: list[str]
    changes: list[str]
    folder: Path
    finished: dict[Path, Stat]

    def lost(self) -> list[Path]:
        """Finished files that are gone or changed."""
        now = finished(self.folder)
        return [path for path, stat in self.finished.items() if now.get(path) != stat]


def case(seed: int, number: int, world: Path, folder: Path, *, heavy: bool = True) -> Case:
    """The case of this number: the same for the same seed."""
    random = Random(f"inputs {seed} {number}")
    lines = [line for line in LINES.values() if heavy or not line.heavy]
    line = random.choices(lines, [1 / max(1.0, line.seconds) for line in lines])[0]
    shutil.copytree(world, folder, symlinks=True)
    words, changes, sound = line.words, [], finished(folder)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if line.reads and random.random() < 0.55:
            changes.append(damage(random, folder / random.choice(line.reads)).replace(f"{folder}/", ""))
        else:
            words, change = worsened(random, words)
            changes.append(change)
    if random.random() < 0.05:
        shutil.copytree(world / random.choice(("data", "set", "model", "runs")), folder / OUT)
        sound |= finished(folder / OUT)
        changes.append(f"{OUT} holds something else")
    kept = {path: stat for path, stat in finished(folder).items() if sound.get(path) == stat}  # what is damaged may be made anew
    return Case(line, words, changes, folder, kept)


def finished(folder: Path) -> dict[Path, Stat]:
    found = (path for path in folder.rglob("*") if path.name.endswith(FINISHED) and path.is_file())
    return {path: _stat(path) for path in found if not any(part.endswith((".part", ".swap")) for part in path.parts)}


def _stat(path: Path) -> Stat:
    if path.name in _MARKS:
        return 0, 0
    if path.name == "items.jsonl" and "evaluations" in path.parts:
        raw = path.read_bytes()
        return len(raw), crc32(raw)
    return path.stat().st_size, path.stat().st_mtime_ns
