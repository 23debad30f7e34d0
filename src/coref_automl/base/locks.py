"""Locks on folders: one process writes at a time; the error for any other names the holder and how long it has held the lock.

The lock is the operating system's and ends with its process, however that ends; `.lock.json` beside it names the holder. Machines
that share a folder may not see each other's locks: there the age of that file decides, which its holder touches as a heartbeat.
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

from coref_automl.base.errors import FolderError, InputError
from coref_automl.base.folders import HOLDER, LOCK, check_folder, claim_folder, contents, is_done, remove, remove_if_unused
from coref_automl.base.progress import duration
from coref_automl.base.records import Record
from coref_automl.base.say import say
from coref_automl.base.store import os_errors_as_ours, read_json, sweep, write_json

HEARTBEAT_SECONDS = 20.0
SILENT = 120.0
"""Seconds without a heartbeat after which a holder on another machine counts as gone."""
_MAX_COMMAND = 120


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
        return cls(
            os.getpid(), socket.gethostname(), command if len(command) <= _MAX_COMMAND else f"{command[:_MAX_COMMAND]} ...", since
        )

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid} on {self.host}, since {self.since})"


@contextmanager
def claimed(folder: Path, kind: str, *, fresh: bool = False) -> Iterator[None]:
    """Claim and lock a folder for the block. If the block fails before it has written anything, the folder is removed."""
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
            remove_if_unused(folder)
            raise


@contextmanager
def locked(folder: Path, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Lock a folder for the block; create it if missing, and remove it afterwards if it is still empty.

    A folder in use is an error; `on_wait` is called with it, and the folder waited for. Finished read-only folders need no lock.
    """
    if is_done(folder) and not os.access(folder, os.W_OK | os.X_OK):
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = _acquire(folder, on_wait)
    released = threading.Event()
    try:
        with os_errors_as_ours(folder):
            write_json(folder / HOLDER, Holder.me().to_json())
        threading.Thread(target=_send_heartbeats, args=(folder / HOLDER, released), daemon=True).start()
        yield
    finally:
        released.set()
        for name in (HOLDER, LOCK):  # from 3.20.4 on filelock opens a lock anew that was unlinked meanwhile
            (folder / name).unlink(missing_ok=True)
        if missing and folder.is_dir() and not contents(folder):
            remove(folder)
        lock.release()
        for path in missing[1:] if not folder.exists() else ():
            with suppress(OSError):  # parents created for it, unless others use them by now
                path.rmdir()


def holder_of(folder: Path) -> Holder | None:
    """The holder that the folder names, which may be gone; None if it names none."""
    with suppress(InputError, OSError, TypeError, ValueError, KeyError):
        return Holder.from_json(read_json(folder / HOLDER))
    return None


def is_alive(folder: Path) -> bool:
    """Is the last heartbeat of the folder's holder recent? Heartbeats do not depend on how slow its work is."""
    try:
        return time.time() - (folder / HOLDER).stat().st_mtime < SILENT
    except OSError:
        return False


def _acquire(folder: Path, on_wait: Callable[[str], None] | None) -> FileLock:
    announced = False
    while True:
        with os_errors_as_ours(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / LOCK, thread_local=False)
            refusal = _try(lock, folder)
        if refusal is None:
            return lock
        if on_wait is None:
            raise FolderError(refusal)
        if not announced:
            on_wait(say(f"기다리는 중: {refusal}", f"Waiting: {refusal}"))
            announced = True
        time.sleep(0.2)


def _try(lock: FileLock, folder: Path) -> str | None:
    """Take the lock, or return a sentence on who has it and what to do."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = holder_of(folder) or "another process"
        return f"{folder} is in use by {who}; wait for it to end, or choose another --out."
    except FileNotFoundError:  # its last holder is removing the folder
        return f"{folder} is being removed by another process; run the same command again."
    holder = holder_of(folder)
    if holder is None or holder.host == socket.gethostname():
        return None  # of this machine: if it were alive, the lock would have been refused
    silent = _seconds_since_heartbeat(folder)
    if silent > SILENT:
        return None
    lock.release()
    return (
        f"{folder} is in use by {holder}, whose last sign of life is {duration(max(0.0, silent))} old; wait for it to end or, if "
        f"it is gone, {duration(SILENT)} from its last sign, or choose another --out."
    )


def _remove_stale(folder: Path) -> None:
    """Remove the lock that a killed command left in a finished folder, where no later command would lock and clear it."""
    if not is_done(folder) or not any((folder / name).exists() for name in (LOCK, HOLDER)):
        return
    lock = FileLock(folder / LOCK, thread_local=False)
    with suppress(OSError):
        if _try(lock, folder) is None:
            for name in (HOLDER, LOCK):
                (folder / name).unlink(missing_ok=True)
            lock.release()


def _seconds_since_heartbeat(folder: Path) -> float:
    """Seconds since the holder's last heartbeat, by the clock of the disk: clocks of machines may differ."""
    (folder / LOCK).touch()
    return (folder / LOCK).stat().st_mtime - (folder / HOLDER).stat().st_mtime


def _send_heartbeats(path: Path, released: threading.Event) -> None:
    while not released.wait(HEARTBEAT_SECONDS):
        with suppress(OSError):
            os.utime(path)
