"""Run many jobs. In: jobs that name a function. Out: one outcome a job, in the order of the jobs; nothing is lost.

Engines: `local` processes (one a device), or `ray` over a cluster. A job's function is named as "package.module:function" and its
arguments and result are plain JSON values, so that the same job runs here, in another process, or on another machine.
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal

from coref_automl.errors import MissingExtra

Engine = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: a value, or the error of its last attempt."""

    job: Job
    value: Any = None
    error: str | None = None
    attempts: int = 1


def devices_here() -> list[str]:
    """The devices that jobs can be spread over: every visible GPU, or the CPU once."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{index}" for index in range(count)] or ["cpu"]
