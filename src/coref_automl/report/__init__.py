"""Report: records in, pages out. The room can be called: `coref_automl.report(runs, "report")` writes a report."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """The room and the function share a name, so the room is callable; it calls `checkpoint_report.report`."""

    def __call__(self, *paths: Any, **options: Any) -> Any:
        from coref_automl.report.checkpoint_report import report

        return report(*paths, **options)


sys.modules[__name__].__class__ = _Room
