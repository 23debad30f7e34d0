"""How far a preparation has come. In: its folder, from any machine that sees it. Out: what is done, running, failed and left.

Everything is read from the files that the work leaves anyway; no process is asked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.dedup import PLAN
from coref_automl.corpus.manifest import ANEW, read_shard
from coref_automl.corpus.prepare import DEDUP, ENCODE, PARTS, WORK
from coref_automl.corpus.shards import READ
from coref_automl.decoder import read_stored
from coref_automl.errors import DatasetError
from coref_automl.folders import is_done, kind_of_folder
from coref_automl.locks import is_alive
from coref_automl.progress import duration
from coref_automl.records import Record
from coref_automl.say import in_words, language, say
from coref_automl.store import read_json

_RECENT = 600.0
"""Seconds of the past that speed is measured over."""


class _Part(TypedDict):
    place: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PrepareStatus(Record):
    """`done` of `total` parts or shards of a stage. `speed` is in bytes (read) or characters (encode) per second."""

    alive: bool
    stage: str
    done: int = 0
    total: int = 0
    running: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    speed: float | None = None
    seconds_left: float | None = None


def prepare_status(out: Path) -> PrepareStatus:
    if kind_of_folder(out) != KIND:
        raise DatasetError(f"{out} is not a dataset, finished or begun; pass the --out of a prepare command.")
    if is_done(out):
        return PrepareStatus(False, "finished")
    work, alive = out / WORK, is_alive(out)
    if not (work / PARTS).is_file():
        return PrepareStatus(alive, "fingerprint inputs")
    failed = tuple(path.read_text("utf-8") for path in sorted(work.glob("*/*.failed")))
    parts = read_stored(work / PARTS, list[_Part], error=DatasetError, remedy=ANEW)
    reading = {work / READ / f"{number:04d}": part["bytes"] for number, part in enumerate(parts)}
    if not all(map(_finished, reading)):
        names = {stem: part["place"] for stem, part in zip(reading, parts, strict=True)}
        return _status(alive, "read and clean", reading, names, failed)
    shards = {work / ENCODE / path.stem: read_shard(path)["characters"] for path in sorted((work / READ).glob("*-*.json"))}
    if not any((work / ENCODE).iterdir()):
        plan, done = work / DEDUP / PLAN, len(list((work / DEDUP).glob("pairs-*.npy")))
        tasks = read_json(plan)["tasks"] if plan.is_file() else 0
        return PrepareStatus(alive, "find near-duplicates", done, tasks, failed=failed)
    if all(map(_finished, shards)):
        return PrepareStatus(alive, "pack", len(shards), len(shards), failed=failed)
    return _status(alive, "encode", shards, {stem: stem.name for stem in shards}, failed)


def status_lines(found: PrepareStatus) -> list[str]:
    """In the language of results."""
    if found.stage == "finished":
        return [say("완료", "finished")]
    lines = [f"{in_words(found.stage)}: {found.done:,}/{found.total:,}"]
    if found.speed:
        unit = "MB/s" if found.stage == "read and clean" else say("백만 글자/초", "million characters/s")
        lines[0] += f", {found.speed / 1e6:.2f} {unit}"
    if found.seconds_left is not None:
        wait = duration(found.seconds_left, language())
        lines[0] += say(f", {wait} 남음", f", {wait} left")
    if not found.alive:
        lines.append(say("중단됨: 같은 명령을 다시 실행하면 이어서 진행합니다.", "Stopped: the same command resumes it."))
    lines += [say(f"진행 중: {name}", f"running: {name}") for name in found.running]
    return [*lines, *(say(f"실패: {reason}", f"failed: {reason}") for reason in found.failed)]


def _finished(stem: Path) -> bool:
    return stem.with_suffix(".json").is_file()


def _status(alive: bool, stage: str, sizes: dict[Path, int], names: dict[Path, str], failed: tuple[str, ...]) -> PrepareStatus:
    finished = {stem: stem.with_suffix(".json").stat().st_mtime for stem in sizes if _finished(stem)}
    begun = {stem: stem.with_suffix(".started") for stem in sizes if stem.with_suffix(".started").is_file()}
    running = tuple(f"{names[stem]}: {_workers(mark)}" for stem, mark in begun.items() if stem not in finished) if alive else ()
    now = time.time()
    since = max(now - _RECENT, min((mark.stat().st_mtime for mark in begun.values()), default=now))
    recent = sum(sizes[stem] for stem, when in finished.items() if when >= since)
    speed = recent / (now - since) if recent else None
    left = sum(size for stem, size in sizes.items() if stem not in finished)
    seconds_left = left / speed if speed and alive else None
    return PrepareStatus(alive, stage, len(finished), len(sizes), running, failed, speed, seconds_left)


def _workers(mark: Path) -> str:
    """The worker that has it, and how often it was begun."""
    lines = mark.read_text("utf-8").splitlines()
    host, process = lines[-1].split(" ") if lines else ("", "")
    return f"{host}, process {process}" + (f", attempt {len(lines)}" if len(lines) > 1 else "")
