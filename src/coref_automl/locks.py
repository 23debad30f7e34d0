"""Who works in a folder. In: a folder. Out: the folder for this process alone while it works; others hear who has it, since when.

The lock is the operating system's and ends with its process, however that ends. `.lock.json` beside it names the holder. A folder
may be shared by machines that do not see each other's locks: there the file's age decides, since its holder keeps it young.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from coref_automl.errors import FolderError, InputError
from coref_automl.folders import HOLDER, LOCK, check_folder, claim_folder, contents, is_done, leave_empty, remove
from coref_automl.progress import duration
from coref_automl.records import Record
from coref_automl.say import say
from coref_automl.store import os_errors_as_ours, read_json, sweep, write_json

HEARTBEAT_SECONDS = 20.0
"""Seconds between two heartbeats of a holder."""

SILENT = 120.0
"""Seconds without one after which a holder on another machine counts as gone."""

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Holder(Record):
    pid: int
    host: str
    command: str
    since: str

    @classmethod
    def me(cls) -> Holder:
        words = [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv and sys.argv[0] else ["python"]
        command = shlex.join(words)
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), command if len(command) <= _SHOWN else f"{command[:_SHOWN]} ...", since)

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid} on {self.host}, since {self.since})"


@contextmanager
def claimed(folder: Path, kind: str, *, fresh: bool = False) -> Iterator[None]:
    """`claim_folder`, and nobody else writes there until the block ends. A block that fails before it wrote leaves nothing."""
    try:
        check_folder(folder, kind, fresh=fresh)
    except FolderError:
        _remove_stale(folder)
        raise
    with locked(folder):
        claim_folder(folder, kind, fresh=fresh)
        sweep(folder)
        try:
            yield
        except BaseException:
            leave_empty(folder)
            raise


@contextmanager
def locked(folder: Path, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold a folder; it is made if missing, and goes again if nothing was put into it.

    A folder in use is an error, or with `on_wait` is waited for, and `on_wait` hears why. One that is done and closed to writing
    is only read from, and needs no lock.
    """
    if is_done(folder) and not os.access(folder, os.W_OK | os.X_OK):
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = _acquired(folder, on_wait)
    over = threading.Event()
    try:
        with os_errors_as_ours(folder):
            write_json(folder / HOLDER, Holder.me().to_json())
        threading.Thread(target=_send_heartbeats, args=(folder / HOLDER, over), daemon=True).start()
        yield
    finally:
        over.set()
        for name in (HOLDER, LOCK):  # whoever opened the lock just now finds it without a name, and opens it anew
            (folder / name).unlink(missing_ok=True)
        if missing and folder.is_dir() and not contents(folder):
            remove(folder)
        lock.release()
        for path in missing[1:] if not folder.exists() else ():
            with suppress(OSError):  # the folders above it that were made for it, if nobody else uses them by now
                path.rmdir()


def holder_of(folder: Path) -> Holder | None:
    """Who says that the folder is theirs, rightly or not; None where nobody does."""
    with suppress(InputError, OSError, TypeError, ValueError, KeyError):
        return Holder.from_json(read_json(folder / HOLDER))
    return None


def is_alive(folder: Path) -> bool:
    """Has whoever works in the folder given a sign of life of late? However slow its steps are, it gives one while it runs."""
    try:
        return time.time() - (folder / HOLDER).stat().st_mtime < SILENT
    except OSError:
        return False


def _acquired(folder: Path, on_wait: Callable[[str], None] | None) -> FileLock:
    announced = False
    while True:
        with os_errors_as_ours(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / LOCK, thread_local=False)
            why = _try(lock, folder)
        if why is None:
            return lock
        if on_wait is None:
            raise FolderError(why)
        if not announced:
            on_wait(say(f"기다리는 중: {why}", f"Waiting: {why}"))
            announced = True
        time.sleep(0.2)


def _try(lock: FileLock, folder: Path) -> str | None:
    """Take the lock, or say who has it and what to do."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = holder_of(folder) or "another process"
        return f"{folder} is in use by {who}; wait for it to end, or choose another --out."
    except FileNotFoundError:  # its last holder has just removed the folder
        return f"{folder} is being removed by another process; run the same command again."
    holder = holder_of(folder)
    if holder is None or holder.host == socket.gethostname():
        return None  # what a process of this machine holds, the lock itself would have told
    silent = _age(folder)
    if silent > SILENT:
        return None
    lock.release()
    return (
        f"{folder} is in use by {holder}, whose last sign of life is {duration(max(0.0, silent))} old; wait for it to end or, if "
        f"it is gone, {duration(SILENT)} from its last sign, or choose another --out."
    )


def _remove_stale(folder: Path) -> None:
    """Remove the lock of a command that was killed when its work was done: no later one takes that folder and clears it away."""
    if not is_done(folder) or not any((folder / name).exists() for name in (LOCK, HOLDER)):
        return
    lock = FileLock(folder / LOCK, thread_local=False)
    with suppress(OSError):
        if _try(lock, folder) is None:
            for name in (HOLDER, LOCK):
                (folder / name).unlink(missing_ok=True)
            lock.release()


def _age(folder: Path) -> float:
    """Seconds since the holder's last sign of life, by the clock of the disk: two machines' clocks may differ."""
    (folder / LOCK).touch()
    return (folder / LOCK).stat().st_mtime - (folder / HOLDER).stat().st_mtime


def _send_heartbeats(path: Path, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT_SECONDS):
        with suppress(OSError):
            os.utime(path)
