"""Batches by token budget. In: work with lengths. Out: batches of like lengths; a batch that does not fit in memory is halved."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from coref_automl.errors import EvaluationError
from coref_automl.models.load import is_out_of_memory

CPU_BUDGET = 4096
"""Tokens of a batch on a CPU: more is slower there (page faults)."""

GPU_BUDGET = 65_536

T = TypeVar("T")
R = TypeVar("R")


def default_budget(device: str) -> int:
    return CPU_BUDGET if device.startswith("cpu") else GPU_BUDGET


def in_batches(
    work: Iterable[T], size: Callable[[T], tuple[int, int]], budget: int, run: Callable[[list[T]], R]
) -> Iterator[tuple[list[T], R]]:
    """Run `run` over the work, longest first, each batch padded to at most `budget` tokens; yields each batch with its result.

    `size` gives a unit's rows and the length of its longest row. When memory does not suffice, the budget is halved and the same
    units go on in smaller batches; a single unit that does not fit is an error.
    """
    queue = deque(sorted(work, key=lambda unit: size(unit)[1], reverse=True))
    while queue:
        batch = _take(queue, size, budget)
        try:
            result = run(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                message = f"A single window of {size(batch[0])[1]} tokens does not fit in memory; pass a smaller --seq-len."
                raise EvaluationError(message) from error
            queue.extendleft(reversed(batch))
            budget = max(1, sum(size(unit)[0] for unit in batch) * size(batch[0])[1] // 2)
            _release()
            continue
        yield batch, result


def _take(queue: deque[T], size: Callable[[T], tuple[int, int]], budget: int) -> list[T]:
    batch = [queue.popleft()]
    rows, longest = size(batch[0])
    while queue and (rows + size(queue[0])[0]) * longest <= budget:
        rows += size(queue[0])[0]
        batch.append(queue.popleft())
    return batch


def _release() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
