"""Pruning. In: the trials that have reached a quarter of their budget. Out: why one of them is pruned, or None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coref_automl.tuning.recipe import REPORTS

RUNGS = (1, 2)
"""Quarters of the budget at which trials are pruned: the better half goes on."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A trial at one quarter of its budget: its score on `select` and, where the task has one, its mean reciprocal rank there."""

    number: int
    objective: str
    value: float
    mrr: float | None = None


def reason_to_prune(trial: Rung, others: Sequence[Rung], step: int) -> str | None:
    """Say why a trial is pruned at this quarter; None if it goes on. `others` are all trials that have reached it so far.

    Trials of one objective are ranked by mean reciprocal rank, which tells them apart with half the items; objectives are
    compared by the score itself, because their ranks below the first differ.
    """
    if step not in RUNGS:
        return None
    rivals = [other for other in others if other.objective == trial.objective]
    ranks = {rung.number: rung.value if rung.mrr is None else rung.mrr for rung in (*rivals, trial)}
    if not _in_better_half(trial.number, ranks):
        return f"not in the better half of its objective at {step}/{REPORTS} of the budget"
    leads = all(trial.value >= rival.value for rival in rivals)  # the best of an objective goes on, whatever others reach
    if not leads and not _in_better_half(trial.number, {rung.number: rung.value for rung in (*others, trial)}):
        return f"not in the better half of all trials at {step}/{REPORTS} of the budget"
    return None


def _in_better_half(number: int, values: Mapping[int, float]) -> bool:
    """Is it in the better half, rounded down, with ties won by the earlier trial?"""
    order = sorted(values, key=lambda trial: (-values[trial], trial))
    return order.index(number) < max(1, len(order) // 2)
