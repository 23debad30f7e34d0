from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from coref_automl.extras.relation.markers import MarkedRow
from coref_automl.extras.relation.model import RowTensors, apply_label_mask, scoring_order, training_order
from coref_automl.extras.relation.techniques import hard_negatives, label_loss, margins

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 0.0]])
GOLD = torch.tensor([0, 2])


def test_label_smoothing_moves_the_target_by_its_share() -> None:
    log_p = torch.log_softmax(LOGITS, -1)
    plain = -(log_p[0, 0] + log_p[1, 2]) / 2
    assert float(label_loss(LOGITS, GOLD)) == pytest.approx(float(plain))
    smooth = 0.9 * plain + 0.1 * (-log_p.mean())
    assert float(label_loss(LOGITS, GOLD, 0.1)) == pytest.approx(float(smooth))


def test_smoothing_gives_all_possible_labels_the_same() -> None:
    log_p = torch.log_softmax(LOGITS, -1)
    each = -0.9 * log_p[[0, 1], GOLD] - 0.1 * log_p.mean(-1)
    assert float(label_loss(LOGITS, GOLD, 0.1)) == pytest.approx(float(each.mean()))
    masked = torch.cat([LOGITS, torch.full((2, 1), -1e4)], 1)
    assert float(label_loss(masked, GOLD, 0.1)) == pytest.approx(float(each.mean()))


def test_a_forbidden_label_has_no_probability_and_no_gradient() -> None:
    bias = torch.tensor([[0.0, 0.0, -1e4], [0.0, 0.0, -1e4]])
    assert torch.softmax(apply_label_mask(LOGITS, bias), -1)[:, 2].tolist() == [0.0, 0.0]
    logits = LOGITS.clone().requires_grad_()
    label_loss(apply_label_mask(logits, bias, torch.tensor([0, 0])), torch.tensor([0, 0])).backward()
    assert logits.grad is not None
    assert logits.grad[:, 2].tolist() == [0.0, 0.0]
    assert logits.grad[0, 1] != 0


def test_a_gold_label_that_the_mask_forbids_still_has_a_finite_loss() -> None:
    bias = torch.tensor([[0.0, 0.0, -1e4], [0.0, 0.0, -1e4]])
    assert math.isfinite(float(label_loss(apply_label_mask(LOGITS, bias, GOLD), GOLD)))
    assert float(label_loss(apply_label_mask(LOGITS, bias, GOLD), GOLD)) < 10


def test_the_hardest_negatives_are_those_where_a_relation_looks_best() -> None:
    gold = np.array([0, 0, 5, 0, 0])
    logits = torch.tensor([[1.0, 3.0], [1.0, 0.0], [0.0, 9.0], [1.0, 2.0], [4.0, 0.0]])
    assert margins(logits).tolist() == [2.0, -1.0, 9.0, 1.0, -4.0]
    assert hard_negatives(gold, margins(logits).numpy(), 0.5).tolist() == [0, 3]
    assert hard_negatives(gold, margins(logits).numpy(), 0.0).tolist() == []
    unseen = np.array([np.nan, -1.0, 9.0, 1.0, -4.0])
    assert hard_negatives(gold, unseen, 1.0).tolist() == [1, 3, 4]


def marked_rows() -> list[MarkedRow]:
    return [MarkedRow(np.arange(1, 2 + n, dtype=np.int32), 1, 2) for n in (4, 9, 2, 6)]


def test_a_batch_is_padded_to_its_own_longest_row() -> None:
    tensors = RowTensors(marked_rows(), pad=0, device="cpu")
    ids, mask, starts = tensors.batch(tensors.batch_rows([np.array([2, 0])])[0])
    assert ids.tolist() == [[1, 2, 3, 0, 0], [1, 2, 3, 4, 5]]
    assert mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert starts.tolist() == [[1, 2], [1, 2]]
    fixed = RowTensors(marked_rows(), pad=0, device="cpu", fixed=16)
    assert fixed.batch(fixed.batch_rows([np.array([2])])[0])[0].shape == (1, 16)


def test_an_epoch_holds_every_row_once_and_differs_by_epoch() -> None:
    lengths = np.random.default_rng(0).integers(5, 90, 1000)
    orders = [training_order(lengths, np.arange(1000), 16, np.random.default_rng((0, epoch))) for epoch in (0, 1)]
    for order in orders:
        assert sorted(np.concatenate(order).tolist()) == list(range(1000))
        padding = 1 - sum(lengths[batch].sum() for batch in order) / sum(len(b) * lengths[b].max() for b in order)
        assert padding < 0.1
    assert [b.tolist() for b in orders[0]] != [b.tolist() for b in orders[1]]


def test_scoring_batches_stay_under_their_tokens() -> None:
    lengths = np.array([3, 50, 7, 20, 200])
    order = scoring_order(lengths, 60)
    assert sorted(np.concatenate(order).tolist()) == [0, 1, 2, 3, 4]
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 60 for batch in order)
