"""The names that the evaluation guide promises under `coref_automl.tune`."""

from __future__ import annotations

from coref_automl.evaluation.guide import (
    build_eval_from_lambada,
    build_real_coref_eval_set,
    detect_seq_len_from_checkpoint,
    eval_lambada_topk,
    eval_real_coref_top1,
    eval_real_coref_top5,
)

__all__ = [
    "build_eval_from_lambada",
    "build_real_coref_eval_set",
    "detect_seq_len_from_checkpoint",
    "eval_lambada_topk",
    "eval_real_coref_top1",
    "eval_real_coref_top5",
]
