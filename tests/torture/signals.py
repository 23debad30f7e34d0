"""Signals to a command's own process, at any moment. In: a line and a signal. Out: what was left running, or printed.

`SIGINT` goes to the whole group, as Ctrl-C does; the others to the command alone, whose workers must end with it. A stopped
command (SIGSTOP) that goes on must end as if nothing had happened.
"""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

from tests.processes import alive
from tests.torture.attempt import COMMAND, start
from tests.torture.world import OUT

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
SURVIVE = 5.0
"""Seconds after which nothing of a command may be left."""
ORDERLY = 20.0
STUDIO = "studio . --port 0 --no-open"
LINES = {
    "study": f"study --recipe study.yaml --jobs 2 --out {OUT}",
    "tune": f"tune --recipe tune.yaml --jobs 2 --out {OUT}",
    "adapt": f"adapt --recipe line.yaml --yes --jobs 2 --out {OUT}",
    "prepare": f"prepare combined --source local:texts.jsonl --model tokenizer --seq-len 64 --holdout 0 --workers 2 --out {OUT}",
    "train": f"train --recipe train.yaml --epochs 20 --out {OUT}",
    "studio": STUDIO,
    "studio export": STUDIO,
    "studio play": STUDIO,
}
PAGES = {"studio export": "/export", "studio play": "/play/run?what=fill&text=%EC%8B%9C%EB%AF%BC%EC%9D%80%20%5BMASK%5D%EB%8B%A4."}
_READY = re.compile(rb"http://[^/]+:(\d+)/")


def signals(seed: int, number: int, world: Path, folder: Path) -> tuple[str, str | None]:
    """The line of this number with its signal, and what was wrong."""
    random = Random(f"signals {seed} {number}")
    name, sign = list(LINES)[number % len(LINES)], SIGNALS[number // len(LINES) % len(SIGNALS)]
    shutil.copytree(world, folder, symlinks=True)
    return f"{LINES[name]} ({sign.name})", signalled(name, folder, sign, random.uniform(0.5, 14))


def signalled(name: str, folder: Path, sign: signal.Signals, after: float) -> str | None:
    """Start a line, send it a signal after so many seconds (the studio: as soon as it works), and look at what is left."""
    told = folder.with_name(f"{folder.name}.told")
    with told.open("wb") as stream:
        process = subprocess.Popen(
            [str(COMMAND), *shlex.split(LINES[name])], cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True, preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
        )  # fmt: skip
    visits = ExitStack()
    try:
        if name.startswith("studio"):
            _visit(visits, process, told, PAGES.get(name))
        else:
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
        held = [pid for pid in session(process.pid) if pid != process.pid]
        (os.killpg if sign == signal.SIGINT else os.kill)(process.pid, sign)
        if sign == signal.SIGINT:  # it ends in order, which on a busy machine takes its time; its workers have none
            with suppress(subprocess.TimeoutExpired):
                process.wait(ORDERLY)
        until = time.monotonic() + SURVIVE
        while time.monotonic() < until and (process.poll() is None or any(map(alive, held)) or session(process.pid)):
            time.sleep(0.05)
        left = [_named(pid) for pid in {*held, *session(process.pid)} if alive(pid)]
    except ProcessLookupError:  # it had ended before
        left = []
    finally:
        visits.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    text = told.read_text("utf-8", "replace")
    told.unlink()
    if left:
        return f"left running {SURVIVE:.0f} s after {sign.name}: {left}"
    if "Traceback" in text or "Exception" in text:
        return f"a stack after {sign.name}: {text.strip()[-400:]}"
    return None


def stopped(seed: int, number: int, world: Path, folder: Path) -> tuple[str, str | None]:
    """SIGSTOP for a while, with the clock of the disk set back meanwhile, then SIGCONT: it ends as if nothing had been."""
    random, line = (
        Random(f"stopped {seed} {number}"),
        f"prepare mlm --source local:texts.jsonl --model tokenizer --seq-len 64 --holdout 0 --out {OUT}",
    )
    shutil.copytree(world, folder, symlinks=True)
    going = start(shlex.split(line), folder)
    time.sleep(random.uniform(0, 2))
    with suppress(ProcessLookupError):
        os.killpg(going.pid, signal.SIGSTOP)
        time.sleep(random.uniform(0.1, 1))
        for path in [*(folder / OUT).rglob("*")][:: random.randrange(1, 4)]:
            with suppress(OSError):
                os.utime(path, (1.0, 1.0))
        os.killpg(going.pid, signal.SIGCONT)
    end = going.end()
    return f"{line} (SIGSTOP)", f"ended with {end.status}: {end.err[-300:]}" if end.status else None


def session(leader: int) -> list[int]:
    """The processes of a session that live."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError, IndexError):
                state, _, _, of = (path / "stat").read_text().rpartition(")")[2].split()[:4]
                found += [int(path.name)] if int(of) == leader and state != "Z" else []
    return found


def _named(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:120]
    return str(pid)


def _visit(visits: ExitStack, studio: subprocess.Popen[bytes], told: Path, page: str | None) -> None:
    """Wait for the address, ask for a page, and until a worker makes it."""
    until = time.monotonic() + 120
    while not (found := _READY.search(told.read_bytes())) and time.monotonic() < until and studio.poll() is None:
        time.sleep(0.05)
    assert found, told.read_text("utf-8", "replace")
    for asked in ("/", page) if page else ("/",):
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        visits.callback(connection.close)
        connection.request("GET", asked)
        visits.enter_context(connection.getresponse()).read(1)
    while page and len(session(studio.pid)) < 3 and time.monotonic() < until:  # beside it, the tracker of resources and a worker
        time.sleep(0.05)
