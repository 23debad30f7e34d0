"""The tasks. Each is one file in this folder and one name in `_FILES`; to add one, copy the most similar file.

`lambada` reads annotated files, the others the texts of `--source`. Everything else follows from TASKS:
`prepare eval --task NAME` builds the items, `evaluate` scores them, and a task without metrics of
its own in `evaluation/metrics.py` gets NAME1.
"""

from __future__ import annotations

from importlib import import_module

from coref_automl.evaluation.tasks.task import ClozeTask

_FILES = ("real", "new", "choice", "far", "lambada")
"""In the order of a set's files; each module has a TASK."""

_FOUND = (import_module(f"{__name__}.{name}").TASK for name in _FILES)
TASKS: dict[str, ClozeTask] = {task.name: task for task in _FOUND}
