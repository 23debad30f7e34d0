"""Imported by the fork server before it forks: heavy libraries, once. The server ends with the command that started it."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading


def _watch_parent(command: int, imported: threading.Event) -> None:
    while not imported.wait(0.5):
        if os.getppid() != command:
            os._exit(70)


if sys.argv[:1] == ["-c"]:  # as the server is started
    imported = threading.Event()
    watcher = threading.Thread(target=_watch_parent, args=(os.getppid(), imported), daemon=True)
    watcher.start()
    for name in ("torch", "transformers.trainer"):
        importlib.import_module(name)
    imported.set()
    watcher.join()  # fork only from a single-threaded process
    atexit.register(os._exit, 0)  # skip orderly teardown: it takes seconds
