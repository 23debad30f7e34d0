"""The work folder of a preparation. In: a recipe and its inputs. Out: work begun or resumed, run in workers, and its progress.

    work/inputs.json, parts.json      what the dataset was begun from; the parts of its sources
    work/read/0003.json               a part that was read; its shards 0003-00000, 0003-00001 ... are beside it
    work/dedup/pairs-07-00002.npy     the near-duplicates of one band and residue class
    work/encode/0003-00000.json       an encoded shard
    NAME.started, NAME.failed         one line per worker that began NAME; why it was given up

These files are written last: work resumes after them, and any machine that sees the folder can read its progress from them.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError, DatasetError, FolderError, WorkerDied, WorkError
from coref_automl.base.folders import is_done, kind_of_folder, remove
from coref_automl.base.locks import is_alive
from coref_automl.base.pool import Call, Returned, run_calls
from coref_automl.base.progress import Progress, duration
from coref_automl.base.records import Record
from coref_automl.base.say import in_words, language, say
from coref_automl.base.store import read_json, write_json, write_text
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.dedup import PLAN
from coref_automl.corpus.inputs import bytes_of
from coref_automl.corpus.manifest import ANEW, MadeFrom, Preparation, read_shard
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import Input

WORK, READ, DEDUP, ENCODE, INPUTS = "work", "read", "dedup", "encode", "inputs.json"
_PARTS = "parts.json"
_RETRIES = 3
"""Times that a call is repeated when its worker dies: a lost node is not the shard's fault."""
_RECENT = 600.0
"""Seconds over which speed is measured."""


def begun_from(out: Path) -> Preparation:
    """What an unfinished dataset was begun from; empty if nothing was begun."""
    path = out / WORK / INPUTS
    return read_stored(path, Preparation, error=DatasetError, remedy=ANEW) if path.is_file() else {}


def begin(recipe: PrepareRecipe, made_from: MadeFrom, parts: Sequence[Input], out: Path, progress: Progress) -> None:
    """Create the work folder, or keep one of the same inputs; with --allow-missing also one that was begun without."""
    work, settings = out / WORK, recipe.settings()
    free = {"allow_missing": recipe.allow_missing, "portion": recipe.portion}
    inputs = {**made_from, "settings": settings, **free, "versions": recipe.versions()}
    stored = begun_from(out)
    if stored and {**stored, "settings": settings} not in (inputs, {**inputs, "allow_missing": False}):
        progress.note(
            "시작한 뒤 입력, --portion 또는 패키지 버전이 바뀌어 처음부터 다시 만듭니다.",
            "The inputs, --portion or versions of packages have changed since this dataset was started, so it is started again.",
        )
        remove(work)
    write_json(work / _PARTS, [{"place": part.place, "bytes": bytes_of(part)} for part in parts])
    write_json(work / INPUTS, inputs)
    for folder in (READ, DEDUP, ENCODE):
        (work / folder).mkdir(exist_ok=True)
        for path in [*(work / folder).glob("*.started"), *(work / folder).glob("*.failed")]:  # of an earlier command
            if not _is_finished(path):
                path.unlink()


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One call of a stage: its name for people, the stem of the files it writes, its arguments, and what gives it up."""

    label: str
    stem: Path
    arguments: dict[str, Any]
    skip: Callable[[], None] | None = None


def run_items(
    target: str, items: Sequence[WorkItem], recipe: PrepareRecipe, workers: int, on_value: Callable[[Any], None]
) -> None:
    """Call `target` for every item, here or in worker processes; each call writes its own files, and `on_value` gets its value.

    An item whose worker dies at every attempt stops no other; at the end it is skipped under --allow-missing, or is the error.
    """
    calls = [Call(item.label, target, item.arguments) for item in items]
    deaths: dict[int, str] = {}

    def on_return(returned: Returned) -> None:
        if isinstance(returned.error, WorkerDied):
            number = calls.index(returned.call)
            deaths[number] = f"{returned.call.name}: {returned.error}"
            write_text(items[number].stem.with_suffix(".failed"), deaths[number])
        elif isinstance(returned.error, CorefError):
            raise returned.error
        elif returned.error is not None:
            raise WorkError(f"{type(returned.error).__name__}: {returned.error}") from returned.error
        else:
            on_value(returned.value)

    devices = ("cpu",) if recipe.engine == "ray" else None
    run_calls(calls, workers=workers, devices=devices, engine=recipe.engine, retries=_RETRIES, on_return=on_return)
    skips = [items[number].skip for number in sorted(deaths)]
    if deaths and not (recipe.allow_missing and all(skips)):
        listed = "; ".join(deaths[number] for number in sorted(deaths))
        raise WorkError(
            f"{listed}. Everything else is done and stays: give the workers more memory and run the same command again, or leave "
            "it out with --allow-missing."
        )
    for skip in filter(None, skips):
        skip()


def mark_started(stem: Path) -> None:
    """Leave a line that says which worker began this."""
    if not stem.parent.is_dir():
        raise FolderError(f"{stem.parent} does not exist on {platform.node()}; choose an --out that all machines see.")
    with stem.with_suffix(".started").open("a") as handle:
        handle.write(f"{platform.node()} {os.getpid()}\n")


def failures_of(work: Path) -> list[str]:
    return [path.read_text("utf-8") for path in sorted(work.glob("*/*.failed"))]


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
    if not (work / _PARTS).is_file():
        return PrepareStatus(alive, "fingerprint inputs")
    failed = tuple(failures_of(work))
    parts = read_stored(work / _PARTS, list[_Part], error=DatasetError, remedy=ANEW)
    reading = {work / READ / f"{number:04d}": part["bytes"] for number, part in enumerate(parts)}
    if not all(map(_is_finished, reading)):
        labels = {stem: part["place"] for stem, part in zip(reading, parts, strict=True)}
        return _status(alive, "read and clean", reading, labels, failed)
    shards = {work / ENCODE / path.stem: read_shard(path)["characters"] for path in sorted((work / READ).glob("*-*.json"))}
    if not any((work / ENCODE).iterdir()):
        plan, done = work / DEDUP / PLAN, len(list((work / DEDUP).glob("pairs-*.npy")))
        total = read_json(plan)["tasks"] if plan.is_file() else 0
        return PrepareStatus(alive, "find near-duplicates", done, total, failed=failed)
    if all(map(_is_finished, shards)):
        return PrepareStatus(alive, "pack", len(shards), len(shards), failed=failed)
    return _status(alive, "encode", shards, {stem: stem.name for stem in shards}, failed)


def status_lines(status: PrepareStatus) -> list[str]:
    """The status as lines, in the language of results."""
    if status.stage == "finished":
        return [say("완료", "finished")]
    lines = [f"{in_words(status.stage)}: {status.done:,}/{status.total:,}"]
    if status.speed:
        unit = "MB/s" if status.stage == "read and clean" else say("백만 글자/초", "million characters/s")
        lines[0] += f", {status.speed / 1e6:.2f} {unit}"
    if status.seconds_left is not None:
        wait = duration(status.seconds_left, language())
        lines[0] += say(f", {wait} 남음", f", {wait} left")
    if not status.alive:
        lines.append(say("중단됨: 같은 명령을 다시 실행하면 이어서 진행합니다.", "Stopped: the same command resumes it."))
    lines += [say(f"진행 중: {name}", f"running: {name}") for name in status.running]
    return [*lines, *(say(f"실패: {reason}", f"failed: {reason}") for reason in status.failed)]


def _is_finished(stem: Path) -> bool:
    return stem.with_suffix(".json").is_file()


def _status(alive: bool, stage: str, sizes: dict[Path, int], labels: dict[Path, str], failed: tuple[str, ...]) -> PrepareStatus:
    finished = {stem: stem.with_suffix(".json").stat().st_mtime for stem in sizes if _is_finished(stem)}
    started = {stem: stem.with_suffix(".started") for stem in sizes if stem.with_suffix(".started").is_file()}
    running = tuple(f"{labels[stem]}: {_worker(path)}" for stem, path in started.items() if stem not in finished) if alive else ()
    now = time.time()
    since = max(now - _RECENT, min((path.stat().st_mtime for path in started.values()), default=now))
    recent = sum(sizes[stem] for stem, when in finished.items() if when >= since)
    speed = recent / (now - since) if recent else None
    left = sum(size for stem, size in sizes.items() if stem not in finished)
    seconds_left = left / speed if speed and alive else None
    return PrepareStatus(alive, stage, len(finished), len(sizes), running, failed, speed, seconds_left)


def _worker(started: Path) -> str:
    """The worker that began an item last, and how many have begun it."""
    lines = started.read_text("utf-8").splitlines()
    host, process = lines[-1].split(" ") if lines else ("", "")
    return f"{host}, process {process}" + (f", attempt {len(lines)}" if len(lines) > 1 else "")
