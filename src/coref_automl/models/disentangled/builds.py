"""Kernels are built side by side. In: a pass that would launch them. Out: builds under way in threads, which launches wait for.

Triton builds a kernel and compiles its launcher (with a C compiler) at the first launch, one after the other. `rehearse` runs a
pass whose launches are only noted, and then has all of them built in threads: Triton's passes and both compilers release the
interpreter's lock. What fails here fails again, and aloud, at the launch, which builds whatever is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor

MOST_THREADS = 6
"""The first part of a build holds the lock: with more threads all of them end it late."""
Wanted = dict[tuple[Any, ...], Callable[[], Any]]
"""Builds by kernel, types of its arguments, and options."""
_noted: ContextVar[Wanted | None] = ContextVar("noted", default=None)
_rehearsed: set[Hashable] = set()
_under_way: dict[Any, list[Future[Any]]] = {}


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """What starts a kernel with its arguments; in a rehearsal, what notes them."""
    noted = _noted.get()
    if noted is not None:
        return partial(_note, noted, kernel, grid)
    for build in _under_way.pop(kernel, ()) if _under_way else ():
        build.exception()  # waits
    return kernel[grid]  # type: ignore[no-any-return]


def rehearse(key: Hashable, device: torch.device, work: Callable[[], Any]) -> None:
    """Have the kernels of `work` built, once for a key; its launches start nothing, so what it computes is noise."""
    if key in _rehearsed:
        return
    _rehearsed.add(key)
    wanted: Wanted = {}
    before = _noted.set(wanted)
    try:
        with contextlib.suppress(Exception):
            work()
    finally:
        _noted.reset(before)
    ready: Any = (torch.cuda.set_device, (device,)) if device.type == "cuda" else ()
    pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "kernel-build", *ready)
    with contextlib.suppress(RuntimeError):  # no thread can be started
        for (kernel, *_), build in sorted(wanted.items(), key=lambda item: -len(item[0])):  # many arguments, much to build
            _under_way.setdefault(kernel, []).append(pool.submit(build))
    pool.shutdown(wait=False)


def _note(noted: Wanted, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Tensors are noted as their types, so that none is kept alive: Triton then takes them to be aligned, as new ones are."""
    given = [x.dtype if isinstance(x, Tensor) else x for x in arguments]
    kinds = (x if isinstance(x, torch.dtype) else type(x) for x in given)
    noted.setdefault((kernel, *kinds, *options.items()), partial(_build, kernel, *given, grid=grid, **options))


def _build(kernel: Any, *given: Any, **options: Any) -> None:
    built = kernel.warmup(*given, **options)
    getattr(built, "run", None)  # compiles the launcher and loads the kernel
