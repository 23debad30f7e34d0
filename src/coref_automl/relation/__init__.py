"""Relation extraction with typed entity markers: the end of the argument. `coref_automl.relation(...)` trains and scores."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """The room and the function have one name, so the room can be called; what it calls is `train.relation`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from coref_automl.relation.train import relation

        return relation(*arguments, **options)


sys.modules[__name__].__class__ = _Room
