"""Faults from outside: kill -9 at any moment, two commands on one folder, a disk that fills up.

Each ends with the same command once more, which must finish and lose nothing that was finished before.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from zlib import crc32

from tests.torture.attempt import Ended, fault, start
from tests.torture.inputs import finished
from tests.torture.world import OUT

LONG = {
    "tokenizer": f"tokenizer learn --source local:texts.jsonl --vocab-size 1000 --alphabet 300 --out {OUT}",
    "prepare": f"prepare combined --source local:texts.jsonl --model tokenizer --seq-len 64 --holdout 0 --workers 2 --out {OUT}",
    "prepare eval": f"prepare eval --source local:texts.jsonl --model tokenizer --all-documents --out {OUT}",
    "train": f"train --recipe train.yaml --epochs 2 --save-every 0.5 --keep-states --out {OUT}",
    "train and score": f"train --recipe train.yaml --epochs 1 --eval-set set --out {OUT}",
    "evaluate": f"evaluate runs --eval-set set --seq-len 32 --device cpu --out {OUT}",
    "re train": f"re train --recipe relation.yaml --seeds 2 --epochs 2 --out {OUT}",
    "re grid": f"re grid --recipe grid.yaml --out {OUT}",
    "coref train": f"coref train --recipe chains.yaml --epochs 2 --out {OUT}",
    "report": f"report runs --out {OUT}",
    "archive": f"archive runs --out {OUT}",
    "study": f"study --recipe study.yaml --out {OUT}",
    "coref evaluate": "coref evaluate coreference --data others.jsonl --device cpu",
    "adapt": f"adapt --recipe line.yaml --out {OUT}",
    "tune": f"tune --recipe tune.yaml --out {OUT}",
    "demo": f"demo --quick --out {OUT}",
}
"""Commands that write for a while, on inputs of the world."""
SLOW = ("demo", "tune")
PATIENT = 1_200.0
_FINISHED = "holds a finished "
"""What a command says that does not take up a folder again once it is done."""
_SAME = (".safetensors", ".npy", "items.jsonl", "documents.jsonl")
_MAY = {"trials", "log.txt"}
_LEFT = (".part", ".lock", ".lock.json")


class Faults:
    """The faults of one seed. `usual` holds what an undisturbed run of each command takes and leaves behind."""

    def __init__(self, seed: int, world: Path, place: Path) -> None:
        self.seed, self.world, self.place = seed, world, place
        self.usual: dict[str, tuple[float, dict[str, int]]] = {}
        self.most = 0.0

    def kills(self, number: int, commands: tuple[str, ...] = tuple(LONG)) -> tuple[str, int, str | None]:
        """The line, how often it was killed, and what was wrong."""
        random, name, folder = self._begin("kills", number, commands)
        seconds, files = self._undisturbed(name)
        wanted, killed, real = random.choice((1, 1, 2, 3)), 0, random.random() < 0.1
        for _ in range(wanted):
            going = start(shlex.split(LONG[name]), folder, real=real)
            time.sleep(random.uniform(0, 1.2 * seconds + (6 if real else 0)))
            before = finished(folder)
            going.kill()
            killed += self._seen(going.end(PATIENT)).status == -9
            if lost := [path for path in before if not path.exists()]:
                return LONG[name], killed, f"{lost[0].relative_to(folder)} was lost by the kill"
        return LONG[name], killed, self._again(name, folder, files)

    def pairs(self, number: int) -> tuple[str, int, str | None]:
        """Two at once: one works; the other waits, hears who works, or finds the work done."""
        random, name, folder = self._begin("pairs", number, tuple(name for name in LONG if name not in SLOW))
        seconds, files = self._undisturbed(name)
        words = shlex.split(LONG[name])
        first = start(words, folder)
        time.sleep(random.uniform(0, seconds))
        second = start(words, folder)
        ends = [self._seen(going.end(PATIENT)) for going in (first, second)]
        for end in ends:
            told = any(words in end.err for words in (" is in use by ", _FINISHED))
            if wrong := fault(end) or ("refused: " + end.err[-300:] if end.status and not told else None):
                return LONG[name], 1, wrong
        if all(end.status for end in ends):
            return LONG[name], 1, "neither of the two worked"
        return LONG[name], 1, self._again(name, folder, files)

    def disks(self, number: int) -> tuple[str, int, str | None]:
        """The disk, or the largest file allowed, is too small; then it is not."""
        random, name, folder = self._begin("disks", number, tuple(name for name in LONG if name not in SLOW))
        _, files = self._undisturbed(name)
        mounted = random.random() < 0.7 and _mounted(folder / OUT, random.randrange(4, 3_000))
        limit = None if mounted else random.randrange(1_000, 400_000)
        try:
            end = self._seen(start(shlex.split(LONG[name]), folder, limit=limit).end(PATIENT))
            if wrong := fault(end):
                return LONG[name], 1, wrong
            told = ("disk is full", "free some space", "largest file allowed", "No space left", "ulimit")
            if end.status and not any(words in end.err + end.out for words in told):
                return LONG[name], 1, f"status {end.status} without the reason: {end.err[-300:]}"
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=1g", str(folder / OUT)], check=True)
            return LONG[name], 1, self._again(name, folder, files)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", str(folder / OUT)], check=True)

    def _begin(self, kind: str, number: int, commands: tuple[str, ...]) -> tuple[Random, str, Path]:
        random = Random(f"{kind} {self.seed} {number}")
        name = commands[number % len(commands)]
        if name in SLOW and (number // len(commands)) % 4:
            name = "train"
        folder = self.place / f"{kind}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.world, folder)
        return random, name, folder

    def _undisturbed(self, name: str) -> tuple[float, dict[str, int]]:
        if name not in self.usual:
            folder = self.place / "usual"
            shutil.copytree(self.world, folder)
            end = self._seen(start(shlex.split(LONG[name]), folder).end(PATIENT))
            if end.status:
                raise SystemExit(f"{end.line()} ended with {end.status}: {end.err[-500:]}")
            self.usual[name] = (end.seconds, _left(folder))
            shutil.rmtree(folder)
        return self.usual[name]

    def _again(self, name: str, folder: Path, files: dict[str, int]) -> str | None:
        """The same command once more: it finishes, keeps what was finished, and leaves what an undisturbed one leaves."""
        before = {path: stat for path, stat in finished(folder).items() if (path.parent / "DONE").exists()}
        end = self._seen(start(shlex.split(LONG[name]), folder).end(PATIENT))
        if wrong := fault(end):
            return f"the same command again: {wrong}"
        if end.status and _FINISHED not in end.err:
            return f"the same command again ended with {end.status}: {end.err[-300:]}"
        now = finished(folder)
        if lost := [path for path, stat in before.items() if now.get(path) != stat]:
            return f"{lost[0].relative_to(folder)} was finished, and is lost or made again"
        left = _left(folder)
        if stray := sorted(path for path in left if path.endswith(_LEFT)):
            return f"{stray[0]} was left behind"
        if other := sorted(left.keys() ^ files.keys()):
            return f"other files than an undisturbed run leaves: {other[:4]}"
        if other := sorted(path for path in files if left[path] != files[path]):
            return f"other bytes than an undisturbed run leaves: {other[:4]}"
        return None

    def _seen(self, end: Ended) -> Ended:
        self.most = max(self.most, end.megabytes)
        return end


def _left(folder: Path) -> dict[str, int]:
    """What a command left, with a sum over the bytes of what depends on nothing but its inputs.

    Not a study's trials, of which a killed one is tried again under a name of its own, nor the log of a step that failed first.
    """
    places = [folder / OUT, *folder.glob("coreference/seed-*/evaluated")]
    found = (
        path for place in places for path in place.rglob("*") if path.is_file() and not {"trials", "log.txt"} & {*path.parts}
    )
    return {str(path.relative_to(folder)): crc32(path.read_bytes()) if path.name.endswith(_SAME) else 0 for path in found}


def _mounted(folder: Path, kilobytes: int) -> bool:
    """A small disk at this folder, where one may mount."""
    folder.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True)
    except FileNotFoundError:
        made = None
    if made is None or made.returncode:
        folder.rmdir()
        return False
    return True
