"""Which rows a step sees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.corpus.dataset import PackedDataset
from coref_automl.training.batches import BLANK, BatchPlan, EpochSampler, micro_batch


def plan(rows: int = 10, batch: int = 4, seed: int = 3) -> BatchPlan:
    return BatchPlan(np.arange(1, rows + 1, dtype=np.int64), batch, seed)


def test_every_epoch_shows_every_row_once_in_an_order_of_its_own() -> None:
    first, second = plan().order(0), plan().order(1)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist()
    assert first.tolist() == plan().order(0).tolist()


def test_the_sampler_takes_its_epoch_from_the_step_count() -> None:
    """Three steps an epoch; a run resumed at step 4 is in epoch 1, whatever a fresh loader would count."""
    chosen = plan()
    drawn = list(EpochSampler(chosen, 4, lambda: 4))
    assert [index // 10 for index in drawn[:10]] == [1] * 10
    assert [index % 10 for index in drawn[:10]] == chosen.order(1).tolist()
    assert drawn[10:] == [BLANK, BLANK]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 60))
def test_tokens_after_a_step_are_the_sum_over_its_rows(rows: int, batch: int, steps: int) -> None:
    chosen = plan(rows, batch)
    seen = 0
    for step in range(steps):
        epoch, within = divmod(step, chosen.steps_per_epoch)
        seen += int(chosen.lengths[chosen.order(epoch)[within * batch : (within + 1) * batch]].sum())
    assert chosen.tokens_after(steps) == seen


def test_lengths_count_real_tokens(opened: PackedDataset) -> None:
    chosen = BatchPlan.of(opened, batch=4, seed=0)
    assert chosen.tokens_per_epoch == opened.pieces[:, 2].sum()
    assert [int((opened.row(row).segments > 0).sum()) for row in range(len(opened))] == chosen.lengths.tolist()


@pytest.mark.parametrize(
    ("batch", "wanted", "processes", "size"), [(128, 32, 1, 32), (12, 5, 1, 4), (128, 100, 2, 64), (7, 4, 1, 1), (6, 100, 3, 2)]
)
def test_a_micro_batch_divides_the_share_of_a_process(batch: int, wanted: int, processes: int, size: int) -> None:
    assert micro_batch(batch, wanted, processes) == size
