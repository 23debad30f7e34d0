"""Coreference: annotated texts in, chains out. The room can be called: `coref_automl.coreference("...")` resolves a text."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """The room and the function have one name, so the room can be called; what it calls is `predict.coreference`."""

    def __call__(self, text: str, *arguments: Any, **options: Any) -> Any:
        from coref_automl.coreference.predict import coreference

        return coreference(text, *arguments, **options)


sys.modules[__name__].__class__ = _Room
