"""Kernels are built side by side before the first launch, each once; what fails there fails at the launch, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from deberta_kernels import builds
from deberta_kernels.builds import launch, rehearse

CPU = torch.device("cpu")


class Kernel:
    """Notes what Triton would be asked for."""

    def __init__(self, build: Callable[[], object] = lambda: None) -> None:
        self.build, self.built, self.started = build, [], []  # type: ignore[var-annotated]

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **_options: Any) -> None:
        self.build()
        self.built.append(arguments)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments, **_options: self.started.append((grid, len(self.built), arguments))


@pytest.fixture(autouse=True)
def _unrehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_rehearsed", set())


def test_builds_run_at_the_same_time_and_a_launch_waits_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    both = threading.Barrier(2)  # passed by nobody alone
    first, second = Kernel(lambda: both.wait(20)), Kernel(lambda: both.wait(20))
    rehearse("key", CPU, lambda: [launch(kernel, (1,))(torch.ones(3), 5) for kernel in (first, second)])
    launch(first, (2,))(1)
    launch(second, (3,))(1)
    assert (first.started, second.started) == ([((2,), 1, (1,))], [((3,), 1, (1,))])
    assert first.built == [(torch.float32, 5)]  # no tensor is kept alive


def test_a_kernel_is_built_once_for_the_same_types_and_options() -> None:
    kernel = Kernel()

    def work() -> None:
        for number in (5, 7, 0.5, 0.7):
            launch(kernel, (1,))(number, SIGN=1)
        launch(kernel, (1,))(5, SIGN=-1)

    for _ in range(2):
        rehearse("key", CPU, work)
    launch(kernel, (1,))()
    assert sorted(kernel.built) == [(0.5,), (5,), (5,)]


def test_what_fails_in_a_rehearsal_is_left_to_the_launch() -> None:
    def fails() -> None:
        raise RuntimeError("no memory")

    kernel = Kernel(fails)
    rehearse("a build", CPU, lambda: launch(kernel, (1,))(1))
    rehearse("the pass", CPU, fails)
    launch(kernel, (4,))(2)
    assert kernel.started == [((4,), 0, (2,))]


def test_where_no_thread_can_be_started_launches_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    kernel = Kernel()
    monkeypatch.setattr(threading.Thread, "start", refused)
    rehearse("key", CPU, lambda: launch(kernel, (1,))(1))
    launch(kernel, (4,))(2)
    assert kernel.started == [((4,), 0, (2,))]
