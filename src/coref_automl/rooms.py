"""Packages that can be called: `coref_automl.relation` is a package of modules, and `coref_automl.relation(...)` a function."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def callable_package(package: str, function: str) -> None:
    """Make calls of a package calls of the function `MODULE.NAME`, which is imported when it is first called."""
    module, _, name = function.rpartition(".")

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), name)(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage
