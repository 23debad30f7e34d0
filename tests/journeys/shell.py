"""The commands as a person types them. In: a line. Out: exit status and words on the screen, or a process to interrupt."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

COMMAND = Path(sys.executable).with_name("coref-automl")
PATIENCE = 3600.0
"""Seconds for one command: half a minute each on two free cores, and many times that on busy ones."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What a finished command leaves: its status, and what it printed to either side."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Shell:
    """A terminal in a folder."""

    folder: Path

    def __call__(self, line: str, *, status: int = 0) -> Screen:
        """Type a line, wait, and look at it: the status is the expected one and no stack is on the screen."""
        done = subprocess.run(self._words(line), cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == status, f"{line}\nstatus {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr, done.stderr
        return Screen(done.returncode, done.stdout, done.stderr)

    def interrupted(self, line: str, when: Callable[[], bool], by: signal.Signals) -> Screen:
        """Type a line and send it a signal as soon as something can be seen on disk."""
        log = self.folder / "interrupted.log"
        with log.open("w") as err:
            process = subprocess.Popen(
                self._words(line), cwd=self.folder, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True
            )
            try:
                wait_until(lambda: when() or process.poll() is not None, line)
                assert process.poll() is None, f"{line} ended before it could be interrupted: {log.read_text()[-2000:]}"
                process.send_signal(by)
                out, _ = process.communicate(timeout=PATIENCE)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return Screen(process.returncode, out, log.read_text("utf-8"))

    def _words(self, line: str) -> list[str]:
        first, *rest = shlex.split(line)
        assert first == "coref-automl", line
        return [str(COMMAND), *rest]


def wait_until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited in vain for: {what}"
        time.sleep(0.02)
