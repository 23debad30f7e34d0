"""When a trial is cut. In: its newest report and the storage. Out: a reason, or None.

Two rules. Successive halving (Optuna's) keeps the better half at a quarter and at a half of the budget. And a trial that the
paired test on `select` shows to be worse than the best trial at the same point is cut there, whatever its rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.statistics.intervals import sign_flip_ps
from coref_automl.statistics.resampling import Part
from coref_automl.tuning.halves import decode_hits
from coref_automl.tuning.problem import Report
from coref_automl.tuning.recipe import REPORTS

ALPHA = 0.05 / REPORTS
"""A trial is looked at eight times: the looks share the five percent."""

RECOMMENDED = "recommended"
"""Where a trial comes from: recommended settings are the reference of the verdict and are never cut."""


def halving(prune: bool, counts: Callable[[Any], bool]) -> Any:
    """Optuna's pruner: rungs at two and four eighths, the better half goes on. Only trials that count stand on the rungs."""
    import optuna

    if not prune:
        return optuna.pruners.NopPruner()

    class Halving(optuna.pruners.SuccessiveHalvingPruner):
        def prune(self, study: Any, trial: Any) -> bool:
            seen: Any = _Counted(study, counts)
            return super().prune(seen, trial)

    return Halving(min_resource=2, reduction_factor=2)


class _Counted:
    """A study as the pruner should see it: an interrupted trial and the one that runs its settings again are one."""

    def __init__(self, study: Any, counts: Callable[[Any], bool]) -> None:
        self._study, self._counts = study, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def get_trials(self, *arguments: Any, **options: Any) -> list[Any]:
        return [trial for trial in self._study.get_trials(*arguments, **options) if self._counts(trial)]


def reason_to_cut(
    trial: Any, report: Report, trials: Sequence[Any], clusters: Sequence[NDArray[np.str_]], *, prune: bool, seed: int
) -> str | None:
    """Why this trial ends here. `trials` are Optuna's frozen trials; every report is told to the pruner, cut or not."""
    halved = trial.should_prune()
    if not prune or report.step >= REPORTS or trial.user_attrs.get("origin") == RECOMMENDED:
        return None
    best = best_at(report.step, trials, without=trial.number)
    if best is not None and report.hits:
        p, behind = paired_p(report.hits, best.user_attrs[f"hits-{report.step}"], clusters, seed=seed)
        if behind > 0 and p < ALPHA:
            return (
                f"worse than trial {best.number} at {report.step}/{REPORTS} of the budget: "
                f"{100 * behind:.1f} points, p {p:.4f} (paired test on select)"
            )
    if halved:
        return f"not in the better half at {report.step}/{REPORTS} of the budget (successive halving)"
    return None


def best_at(step: int, trials: Sequence[Any], *, without: int) -> Any | None:
    """The best of the other trials at the same point of the budget, if any reported its hits there."""
    there = [
        other
        for other in trials
        if other.number != without and step in other.intermediate_values and f"hits-{step}" in other.user_attrs
    ]
    return max(there, key=lambda other: (other.intermediate_values[step], -other.number), default=None)


def paired_p(
    mine: Sequence[str], theirs: Sequence[str], clusters: Sequence[NDArray[np.str_]], *, seed: int
) -> tuple[float, float]:
    """(two-sided p of no difference, how far mine lies behind)."""
    parts = [
        Part(theirs_one - mine_one, cluster)
        for mine_one, theirs_one, cluster in zip(decode_hits(mine), decode_hits(theirs), clusters, strict=True)
    ]
    behind = float(sum(np.mean(np.asarray(part.values)) for part in parts))
    return float(sign_flip_ps(parts, seed=seed)[0]), behind
