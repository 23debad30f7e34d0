"""Import transformers' models for a forward pass alone. In: nothing. Out: 4 s of import on a slow core, in place of 7.

The library imports torch's compiler for a few decorators, distributed tensors for sharded models, SciPy's optimizers for object
detection, and scans all installed packages and, twice, all of its model files. A process that loads a model, predicts and ends
needs none of that.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def light_imports() -> Iterator[None]:
    """Load models in this block with the light imports; for commands that only predict."""
    if "transformers" in sys.modules:
        yield
        return
    _import_library()
    try:
        yield
    finally:
        _remove_stand_ins()


def _import_library() -> None:
    import torch

    distributed, packages = torch.distributed.is_available, importlib.metadata.packages_distributions
    scipy = sys.modules.get("scipy")
    try:
        torch.distributed.is_available = lambda: False
        importlib.metadata.packages_distributions = dict  # the library then looks up packages by name
        sys.modules["scipy"] = None  # type: ignore[assignment]  # makes its import fail
        from transformers.utils import import_utils

        import_utils.is_torch_distributed_available()  # these two cache their first answer
        import_utils.is_scipy_available()
    finally:
        torch.distributed.is_available, importlib.metadata.packages_distributions = distributed, packages
        del sys.modules["scipy"]
        sys.modules |= {"scipy": scipy} if scipy else {}
    library = sys.modules["transformers"]
    models = ModuleType("transformers.models")  # a plain package, without lazy names for all of its modules
    models.__path__ = [f"{folder}/models" for folder in library.__path__]
    sys.modules |= {models.__name__: models, **{name: _StandIn(name) for name in _STAND_INS}}


def _no_decorator(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    return function or _no_decorator


_COMPILER, _TRACING = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
_STAND_INS: dict[str, dict[str, Callable[..., Any]]] = {
    _COMPILER: dict.fromkeys(("assume_constant_result", "allow_in_graph", "disable"), _no_decorator),
    _TRACING: {"TransformGetItemToIndex": lambda: _real(_TRACING, "TransformGetItemToIndex")()},
}
"""Names of the compiler that models import: decorators, and a class that few kinds of masks use."""


class _StandIn(ModuleType):
    """Stands in for a module of the compiler while models are imported; any other name imports the module itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _STAND_INS[self.__name__].get(name) or _real(self.__name__, name)


def _real(module: str, name: str) -> Any:
    _remove_stand_ins()
    return getattr(importlib.import_module(module), name)


def _remove_stand_ins() -> None:
    for name in _STAND_INS:
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]
