"""Evaluation sets, built and read. In: sources and tasks. Out: a frozen `EvalSet`. The door to this room's item modules."""

from __future__ import annotations

from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set

__all__ = ["EvalSet", "bundled_eval_set"]
