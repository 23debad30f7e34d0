"""Which rows a step sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.corpus.dataset import PackedDataset
from coref_automl.training.batches import PAD_ROW, BatchPlan, EpochSampler, micro_batch, visits


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
    indices = list(EpochSampler(chosen, 4, lambda: 4))
    assert [index // 10 for index in indices[:10]] == [1] * 10
    assert [index % 10 for index in indices[:10]] == chosen.order(1).tolist()
    assert indices[10:] == [PAD_ROW, PAD_ROW]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 60))
def test_tokens_after_a_step_are_the_sum_over_its_rows(rows: int, batch: int, steps: int) -> None:
    chosen = plan(rows, batch)
    seen = 0
    for step in range(steps):
        epoch, within = divmod(step, chosen.steps_per_epoch)
        seen += int(chosen.lengths[chosen.order(epoch)[within * batch : (within + 1) * batch]].sum())
    assert chosen.tokens_after(steps) == seen


def mixed(weights: list[float], rows: int = 10, batch: int = 4) -> BatchPlan:
    return replace(plan(rows, batch), weights=np.array(weights) / np.mean(weights))


def test_weights_say_how_often_a_row_comes_and_every_visit_is_masked_by_itself() -> None:
    chosen = mixed([1, 1, 1, 1, 1, 2, 2, 2, 2, 0])
    counts = np.array([np.bincount(chosen.order(epoch), minlength=10) for epoch in range(300)])
    assert (counts.sum(1) == 10).all()
    assert counts.mean(0) == pytest.approx(chosen.weights, abs=0.1)
    assert (np.abs(counts - chosen.weights) < 1).all()  # rounded up or down, never further
    assert all(len(set(visits(chosen, epoch))) == 10 for epoch in range(300))
    indices = [index for step in (0, 3) for index in EpochSampler(chosen, 1, lambda step=step: step)]
    assert len(set(indices)) == 20  # no epoch repeats the indices, and so the masks, of another
    assert chosen.order(7).tolist() == mixed([1, 1, 1, 1, 1, 2, 2, 2, 2, 0]).order(7).tolist()


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=30), st.integers(1, 8), st.integers(0, 40))
def test_tokens_of_a_mix_are_those_of_its_rows(weights: list[float], batch: int, steps: int) -> None:
    chosen = mixed(weights, len(weights), batch)
    seen = sum(
        int(chosen.lengths[chosen.order(epoch)[low : low + batch]].sum())
        for epoch, low in ((step // chosen.steps_per_epoch, step % chosen.steps_per_epoch * batch) for step in range(steps))
    )
    assert chosen.tokens_after(steps) == seen


def test_a_curriculum_goes_from_short_documents_to_long_ones_and_then_at_random() -> None:
    lengths = np.arange(10, 0, -1, dtype=np.float64)
    chosen = replace(plan(), contexts=lengths, sorted_rows=6)
    first, second = chosen.order(0), chosen.order(1)
    assert (np.diff(lengths[first[:6]]) > 0).all()
    assert sorted(first[:6]) == sorted(plan().order(0)[:6])  # the rows of the run are the same, in another order
    assert first[6:].tolist() == plan().order(0)[6:].tolist()
    assert second.tolist() == plan().order(1).tolist()


def test_lengths_count_real_tokens(opened: PackedDataset) -> None:
    chosen = BatchPlan.of(opened, batch=4, seed=0)
    assert chosen.tokens_per_epoch == opened.pieces[:, 2].sum()
    assert [int((opened.row(row).segments > 0).sum()) for row in range(len(opened))] == chosen.lengths.tolist()


@pytest.mark.parametrize(
    ("batch", "most", "processes", "size"), [(128, 32, 1, 32), (12, 5, 1, 4), (128, 100, 2, 64), (7, 4, 1, 1), (6, 100, 3, 2)]
)
def test_a_micro_batch_divides_the_share_of_a_process(batch: int, most: int, processes: int, size: int) -> None:
    assert micro_batch(batch, most, processes) == size
