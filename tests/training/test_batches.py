"""Batches carry the rows' masks whoever makes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from coref_automl.corpus.dataset import PackedDataset
from coref_automl.training.batches import PAD_ROW
from coref_automl.training.masking import IGNORED, Masking


@pytest.fixture
def masking() -> Masking:
    special = np.arange(85) < 5
    return Masking("combined", 4, special, ~special, min_prob=0.2, max_prob=0.2)


def test_asked_positions_and_labels_belong_together(opened: PackedDataset, masking: Masking) -> None:
    from coref_automl.training.batches import Collator, MaskedRows

    rows = MaskedRows(opened, masking, 7)
    drawn = [rows[index] for index in (3, 5, len(opened) + 3)]
    batch = Collator(0.2)(drawn)
    labels = np.stack([row.labels for row in drawn]).reshape(-1)
    is_target = batch["labels"] != IGNORED
    assert (labels[batch["positions"][is_target].numpy()] == batch["labels"][is_target].numpy()).all()
    assert int(is_target.sum()) == (labels != IGNORED).sum()
    assert drawn[0][2].tolist() != drawn[2][2].tolist()  # the same row in the next epoch


def test_the_list_of_positions_keeps_its_size(opened: PackedDataset, masking: Masking) -> None:
    from coref_automl.training.batches import Collator, MaskedRows, expected_share

    rows = MaskedRows(opened, masking, 7)
    collate = Collator(expected_share(opened, masking) * 1.5)
    sizes = {len(collate([rows[epoch * len(opened) + at] for at in range(6)])["labels"]) for epoch in range(20)}
    assert len(sizes) == 1
    assert len(collate([rows[PAD_ROW]] * 6)["labels"]) in sizes


def test_a_layout_leaves_padding_out_and_nearly_always_has_one_size(make_dataset: Callable[..., Path], masking: Masking) -> None:
    from coref_automl.training.batches import Collator, MaskedRows

    opened = PackedDataset.open(make_dataset(rows=64, padding=12))
    collate, rows = Collator.of(opened, masking), MaskedRows(opened, masking, 7)
    draw, sizes = np.random.default_rng(0), []
    for _ in range(50):
        batch = collate([rows[int(at)] for at in draw.choice(len(opened), 16)])
        starts, kept, segments = (batch[name].numpy() for name in ("starts", "kept", "segments"))
        real = int((segments > 0).sum())
        assert (segments.reshape(-1)[kept[:real]] > 0).all()
        documents = [segments.reshape(-1)[kept[low:high]] for low, high in pairwise(starts) if high > low]
        assert all(len(np.unique(document)) == 1 for document in documents)
        assert sum(bool(document[0]) for document in documents) == int(segments.max(1).sum())
        assert real <= len(kept) == starts[-1] <= segments.size
        sizes.append((len(starts), len(kept)))
    assert len(set(sizes)) <= 3
    assert sum(size == min(sizes) for size in sizes) > 40
    assert min(sizes)[1] < 16 * opened.seq_len


def test_the_expected_share_is_that_of_the_rows_for_drawn_rates_too(opened: PackedDataset, masking: Masking) -> None:
    from coref_automl.training.batches import MaskedRows, expected_share

    for drawn in (False, True):
        settings = replace(masking, objective="mlm", drawn=drawn, min_prob=0.0, max_prob=0.6)
        rows = MaskedRows(opened, settings, 7)
        share = np.mean([(rows[at][2] != IGNORED).mean() for at in range(60 * len(opened))])
        assert share < expected_share(opened, settings) < 1.25 * share  # a little more: [CLS] and [SEP] are never asked


def test_a_blank_row_asks_nothing(opened: PackedDataset, masking: Masking) -> None:
    from coref_automl.training.batches import MaskedRows

    assert (MaskedRows(opened, masking, 7)[PAD_ROW][2] == IGNORED).all()


def test_a_worker_process_gets_the_same_rows_from_a_small_message(
    opened: PackedDataset, masking: Masking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.training.batches import MaskedRows

    monkeypatch.chdir(opened.folder.parent)
    relative = PackedDataset.open(Path(opened.folder.name))
    for dataset in (opened, opened.cut_to(16), relative):
        monkeypatch.chdir(opened.folder.parent)
        rows = MaskedRows(dataset, masking, 7)
        sent = pickle.dumps(rows)
        assert len(sent) < 4000
        monkeypatch.chdir(tmp_path)  # as a worker that starts elsewhere
        for mine, theirs in zip(rows[1], pickle.loads(sent)[1], strict=True):
            assert mine.tolist() == theirs.tolist()


def test_falling_rates_fall_with_the_steps_of_the_run(opened: PackedDataset, masking: Masking) -> None:
    from coref_automl.training.batches import BatchPlan, MaskedRows

    falling = replace(masking, objective="mlm", falling=True, min_prob=0.1, max_prob=0.5)
    plan = BatchPlan.of(opened, batch=1, seed=3)
    last = 4 * plan.steps_per_epoch
    rows = MaskedRows(opened, falling, 7, plan, last)
    order = [(epoch, int(row)) for epoch in range(4) for row in plan.order(epoch)]
    seen = [rows._progress(row + epoch * plan.rows) for epoch, row in order]
    assert seen == [step / last for step in range(last)]
    assert [falling.at(share).max_prob for share in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.3, 0.1])
    shares = [np.mean([(rows[row + epoch * plan.rows].labels != IGNORED).mean() for row in range(plan.rows)]) for epoch in (0, 3)]
    assert shares[0] > shares[1]
    again = MaskedRows(opened, falling, 7, plan, last)[plan.rows]
    assert (again.ids == rows[plan.rows].ids).all()
