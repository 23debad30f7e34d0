"""One command, watched. In: words and a folder. Out: status, words on the screen, seconds, peak memory; or that it hung or died.

A forked child of a process that has imported everything costs milliseconds where a new command costs seconds; `real=True` is the
installed command.
"""

from __future__ import annotations

import codecs
import importlib
import os
import pkgutil
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COMMAND = Path(sys.executable).with_name("coref-automl")
PATIENCE = 120.0
"""Seconds of work that a command may take; past as many of wall time it must go on computing."""
STILL = 20.0
"""Seconds without any work after which a slow command counts as hung."""
AWAKE = 0.2
"""Seconds of work in that time that show no work: a thread that keeps a lock fresh does as much."""
MEMORY = 1024.0
DEMO_MEMORY = 1536.0
"""The demo trains an encoder of eleven million parameters, whatever its inputs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `status` is negative for a signal; `cut` says that we stopped it."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str
    seconds: float
    megabytes: float
    cut: bool = False

    def line(self) -> str:
        return "coref-automl " + shlex.join(self.words)


def fault(ended: Ended, *, heavy: bool = False, memory: float = MEMORY) -> str | None:
    """What is wrong with how it ended; None if nothing is. A heavy command that was cut had its inputs accepted."""
    if ended.megabytes > (DEMO_MEMORY if ended.words[:1] == ("demo",) else memory):
        return f"took {ended.megabytes:,.0f} MB"
    if ended.cut:
        return None if heavy else f"hung: {PATIENCE:.0f} s without an end"
    if "Traceback (most recent call last)" in ended.err and "--debug" not in ended.words:
        return "a traceback: " + ended.err.strip().splitlines()[-1][:300]
    if "run it again with --debug" in ended.err:
        return "an unforeseen error: " + ended.err.strip().splitlines()[-1][:300]
    if ended.status not in (0, 1, 2):
        return f"ended with status {ended.status}: {ended.err.strip()[-300:]}"
    if ended.status and not (ended.err.strip() or ended.out.strip()):
        return f"ended with status {ended.status} and no word"
    if "Interrupted." in ended.err:
        return "says that it was interrupted, and was not"
    if ended.status and len(ended.err.strip().splitlines()[-1] if ended.err.strip() else "") > 2_000:
        return f"an error of {len(ended.err):,} characters"
    return None


def warm() -> None:
    """Import what commands import, and start no thread."""
    import torch
    import transformers  # noqa: F401
    import typer.main
    from transformers.models.bert import modeling_bert  # noqa: F401

    import coref_automl
    from coref_automl.cli.app import app

    torch.set_num_threads(1)
    codecs.lookup("utf-8-sig")  # an ordinary user may not read where root's Python lies
    for module in pkgutil.walk_packages(coref_automl.__path__, "coref_automl."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # an optional package is missing
                importlib.import_module(module.name)
    with suppress(ImportError):
        importlib.import_module("typer._adapters")  # left to the first option otherwise: half the time of a refusal
    typer.main.get_command = cache(typer.main.get_command)  # type: ignore[assignment]  # built anew for each call otherwise
    typer.main.get_command(app)


@dataclass(slots=True)
class Going:
    """A command that was started."""

    words: tuple[str, ...]
    pid: int
    log: Path
    since: float

    def end(self, patience: float = PATIENCE) -> Ended:
        """Wait for it; past its time the whole group is killed. On a busy machine a slow one is given more, while it computes."""
        cut, until, computed = False, self.since + patience, 0.0
        while True:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > until:
                before, computed = computed, _computed(self.pid)
                if before + AWAKE < computed < patience and patience >= PATIENCE:
                    until = time.monotonic() + STILL
                    continue
                cut = True
                _kill_group(self.pid)
                _, status, used = os.wait4(self.pid, 0)
                break
            time.sleep(0.005)
        seconds = time.monotonic() - self.since
        _kill_group(self.pid)  # workers that outlived it
        out, err = ((self.log / name).read_text("utf-8", "replace") for name in ("out", "err"))
        shutil.rmtree(self.log)
        return Ended(self.words, os.waitstatus_to_exitcode(status), out, err, seconds, used.ru_maxrss / 1024, cut)

    def kill(self) -> None:
        _kill_group(self.pid)


def start(
    words: list[str], folder: Path, *, real: bool = False, limit: int | None = None, first: Callable[[], object] | None = None
) -> Going:
    """Start a command in a folder. `limit`: bytes beyond which it may write no file; `first` is done in the forked child."""
    log = folder.with_name(folder.name + f".log-{time.monotonic_ns()}")
    log.mkdir()
    for name in ("out", "err"):  # a slow machine may kill the command before it has opened them
        (log / name).touch()
    since = time.monotonic()
    if real:
        with (log / "out").open("wb") as out, (log / "err").open("wb") as err:
            command = [str(COMMAND), *words]
            if limit is not None:
                command = ["bash", "-c", f"ulimit -f {max(1, limit // 1024)}; exec " + shlex.join(command)]
            process = subprocess.Popen(
                [os.fsencode(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
            process.returncode = 0  # waited for by its number, in `end`
        return Going(tuple(words), process.pid, log, since)
    pid = os.fork()
    if pid == 0:
        _child(words, folder, log, limit, first)
    return Going(tuple(words), pid, log, since)


def _child(words: list[str], folder: Path, log: Path, limit: int | None, first: Callable[[], object] | None) -> None:
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        for number, name in ((0, "/dev/null"), (1, str(log / "out")), (2, str(log / "err"))):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
        if limit is not None:
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if first is not None:
            first()
        from coref_automl.cli.app import run

        status = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _computed(pid: int) -> float:
    """Seconds of work of a command and of the workers it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
