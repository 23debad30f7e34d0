"""The processes that share a run. In: what a launcher started. Out: the word of the first one, however long it takes.

Collectives of the training group give up after minutes (NCCL after ten), which is right inside a step and wrong while the first
process scores a checkpoint. Waiting has a group of its own, over sockets: it lasts, and a process that dies ends it at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = timedelta(days=30)


class Crew:
    """One process or several; alone, nothing is waited for."""

    def __init__(self, processes: int, device: str) -> None:
        self._group: Any = None
        if processes > 1:
            import torch.distributed
            from accelerate import PartialState

            PartialState(cpu=not device.startswith("cuda"))
            self._group = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)

    def word_of_the_first(self, value: T) -> T:
        """What the first process passes; the values of the others are not looked at."""
        if self._group is None:
            return value
        import torch.distributed

        told = [value]
        torch.distributed.broadcast_object_list(told, src=0, group=self._group)
        return told[0]

    def wait(self) -> None:
        """Go on when every process has come this far."""
        if self._group is not None:
            import torch.distributed

            torch.distributed.barrier(group=self._group)
