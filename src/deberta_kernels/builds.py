"""Parallel builds of kernels. In: a pass that launches them. Out: builds in threads, for which launches wait.

Triton builds a kernel and compiles its launcher (with a C compiler) at the first launch, one after the other. `rehearse` runs a
pass whose launches are only recorded, and builds their kernels in threads: Triton's passes and both compilers release the GIL.
A build that fails here is repeated by the launch, which raises the error.
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
"""The first part of a build holds the GIL: more threads would delay all of them."""
Builds = dict[tuple[Any, ...], Callable[[], Any]]
"""Builds by kernel, types of its arguments, and options."""
_recorded: ContextVar[Builds | None] = ContextVar("recorded", default=None)
_rehearsed: set[Hashable] = set()
_running: dict[Any, list[Future[Any]]] = {}


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """Return the launcher of a kernel; in a rehearsal, one that records the arguments."""
    recorded = _recorded.get()
    if recorded is not None:
        return partial(_record, recorded, kernel, grid)
    for build in _running.pop(kernel, ()) if _running else ():
        build.exception()  # waits
    return kernel[grid]  # type: ignore[no-any-return]


def rehearse(key: Hashable, device: torch.device, work: Callable[[], Any]) -> None:
    """Build the kernels that `work` launches, once per key; they do not run, so its results are meaningless."""
    if key in _rehearsed:
        return
    _rehearsed.add(key)
    builds: Builds = {}
    token = _recorded.set(builds)
    try:
        with contextlib.suppress(Exception):
            work()
    finally:
        _recorded.reset(token)
    initializer: Any = (torch.cuda.set_device, (device,)) if device.type == "cuda" else ()
    pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "kernel-build", *initializer)
    with contextlib.suppress(RuntimeError):  # no thread can be started
        for (kernel, *_), build in sorted(builds.items(), key=lambda item: -len(item[0])):  # many arguments: a long build
            _running.setdefault(kernel, []).append(pool.submit(build))
    pool.shutdown(wait=False)


def _record(recorded: Builds, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Record tensors by their dtypes, which keeps none alive; Triton then assumes them aligned, as new tensors are."""
    arguments = tuple(x.dtype if isinstance(x, Tensor) else x for x in arguments)
    types = (x if isinstance(x, torch.dtype) else type(x) for x in arguments)
    recorded.setdefault((kernel, *types, *options.items()), partial(_build, kernel, *arguments, grid=grid, **options))


def _build(kernel: Any, *arguments: Any, **options: Any) -> None:
    built = kernel.warmup(*arguments, **options)
    getattr(built, "run", None)  # compiles the launcher and loads the kernel
