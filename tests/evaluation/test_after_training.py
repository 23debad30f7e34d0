"""Scoring works, and gives the same, in the process that trains: the Trainer has set torch's precision by then."""

from __future__ import annotations

import pytest
import torch

from coref_automl.evaluation.scorer import Scorer
from tests.evaluation.tiny import collect, documents, items, loaded, noun_table


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has the old settings alone")
def test_items_are_scored_after_the_trainer_chose_tf32() -> None:
    def scores() -> dict[str, object]:
        ready = loaded("tiny", "wordpiece")
        return dict(collect(Scorer(ready, noun_table("wordpiece"), seq_len=ready.seq_len).score(items(), documents())))

    usual = scores()
    before = torch.backends.fp32_precision
    torch.backends.fp32_precision = "tf32"
    try:
        assert scores() == usual
    finally:
        torch.backends.fp32_precision = before
