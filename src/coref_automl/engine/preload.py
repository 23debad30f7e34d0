"""What the server of jobs imports before it forks any: heavy libraries, once. If the command ends meanwhile, so does it."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading


def _watch(command: int, over: threading.Event) -> None:
    while not over.wait(0.5):
        if os.getppid() != command:
            os._exit(70)


if sys.argv[:1] == ["-c"]:  # as the server is started
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(os.getppid(), over), daemon=True)
    watching.start()
    for name in ("torch", "transformers", "coref_automl.training.run", "coref_automl.relation.train"):
        importlib.import_module(name)
    over.set()
    watching.join()  # what forks has one thread
    atexit.register(os._exit, 0)  # it takes seconds to take the libraries down in order
