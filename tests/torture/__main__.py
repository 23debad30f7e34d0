"""python -m tests.torture --seconds 600 --seed 1: what was tried, what failed, and how to repeat each failure."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.world import build, quiet

quiet()

SHARES = {
    "inputs": 0.28, "commands": 0.06, "kills": 0.16, "pairs": 0.04, "disks": 0.05, "signals": 0.1, "stopped": 0.02,
    "bombs": 0.08, "tokenizers": 0.03, "pickles": 0.03, "stale": 0.06, "elsewhere": 0.01, "unreadable": 0.03, "clocks": 0.02,
    "coreference": 0.02, "api": 0.01,
}  # fmt: skip
"""What each kind may take of the time: bad inputs in a forked child and as real commands, faults from outside, cases.py."""
CUT = 4.0
SHOWN = 20
EVERY = 100


@dataclass(slots=True)
class Tally:
    """What one kind tried, and what failed: number, command line, changes, reason."""

    kind: str
    tried: int = 0
    failed: list[tuple[int, str, str, str]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    most: float = 0.0

    def line(self) -> str:
        how = ", ".join(f"{name} {count:,}" for name, count in sorted(self.statuses.items()))
        return f"{self.kind:9} {self.tried:6,} tried  {len(self.failed):4,} failed  peak {self.most:5,.0f} MB  ({how})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--kinds", default=",".join(SHARES), help="of " + ", ".join(SHARES))
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first case of each kind")
    parser.add_argument("--only", help="repeat one case, say inputs:17")
    parser.add_argument("--keep", type=Path, help="with --only: leave its folder here")
    parser.add_argument("--world", type=Path, help="keep the world here, and take it from here if it stands")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="torture-", dir=memory if os.access(memory, os.W_OK) else None) as scratch:
        Path(scratch).chmod(0o755)  # cases of an ordinary user lie there too
        os.environ["COREF_AUTOML_CACHE"] = f"{scratch}/cache"
        world = given.world or Path(scratch) / "world"
        if not world.exists():
            _in_a_child(lambda: build(world), Path(scratch) / "world.log")
        from tests.torture.attempt import warm

        warm()
        kinds = [given.only.split(":")[0]] if given.only else given.kinds.split(",")
        tallies = []
        for kind in kinds:
            until = time.monotonic() + given.seconds * SHARES[kind] / sum(SHARES[name] for name in kinds)
            numbers = iter([int(given.only.split(":")[1])]) if given.only else _numbers(given.first, until)
            tallies.append(_tried(kind, numbers, given.seed, world, Path(scratch) / "cases", given.keep))
            print(tallies[-1].line(), flush=True)
    return _told(tallies, given.seed)


def _numbers(first: int, until: float) -> Iterator[int]:
    number = first
    while number == first or time.monotonic() < until:
        yield number
        number += 1


def _tried(kind: str, numbers: Iterator[int], seed: int, world: Path, place: Path, keep: Path | None) -> Tally:
    from tests.torture.cases import CASES
    from tests.torture.faults import Faults

    tally, faults = Tally(kind), Faults(seed, world, place)
    place.mkdir(exist_ok=True)
    for number in numbers:
        if kind in ("inputs", "commands"):
            line, changes, wrong = _input(tally, kind, number, seed, world, place / f"{kind}-{number}")
            tally.tried += 1
        elif kind in CASES:
            line, wrong, most = CASES[kind](seed, number, world, place / f"{kind}-{number}")
            changes, tally.most = "", max(tally.most, most)
            tally.tried += 1
        else:
            line, times, wrong = getattr(faults, kind)(number)
            line, changes, tally.most = f"coref-automl {line}", "", max(tally.most, faults.most)
            tally.tried += times
            tally.statuses["lines"] += 1
        if wrong:
            tally.failed.append((number, line, changes, wrong))
            print(f"{kind}:{number} {line}\n  {changes}\n  {wrong}", flush=True)
        if keep:
            shutil.copytree(place / f"{kind}-{number}", keep, symlinks=True)
        shutil.rmtree(place / f"{kind}-{number}", ignore_errors=True)
        if number % EVERY == EVERY - 1:
            print(tally.line(), flush=True)
    return tally


def _input(tally: Tally, kind: str, number: int, seed: int, world: Path, folder: Path) -> tuple[str, str, str | None]:
    from tests.torture.attempt import PATIENCE, fault, start
    from tests.torture.inputs import case

    made = case(seed if kind == "inputs" else seed + 1, number, world, folder)
    heavy = made.line.heavy
    end = start(made.words, folder, real=kind == "commands").end(CUT + (10 if kind == "commands" else 0) if heavy else PATIENCE)
    wrong = fault(end, heavy=heavy)
    if wrong is None and (lost := made.lost()):
        wrong = f"{lost[0].relative_to(folder)} was finished, and is lost or changed"
    tally.statuses["cut" if end.cut else f"status {end.status}"] += 1
    tally.most = max(tally.most, end.megabytes)
    return end.line(), "; ".join(made.changes), wrong


def _in_a_child(work: Callable[[], object], log: Path) -> None:
    """In a process of its own, so that no thread of the work stands here when commands are forked off."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for stream in (1, 2):
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
            work()
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"The world could not be made:\n{log.read_text('utf-8')[-2_000:]}")


def _told(tallies: list[Tally], seed: int) -> int:
    failed = [(tally.kind, *entry) for tally in tallies for entry in tally.failed]
    print("\n" + "\n".join(tally.line() for tally in tallies))
    for kind, number, line, changes, wrong in failed[:SHOWN]:
        again = shlex.join(["python", "-m", "tests.torture", "--seed", str(seed), "--only", f"{kind}:{number}"])
        print(f"\n{wrong}\n  {line}\n  {changes}\n  again: {again}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
