"""A dataset far larger than the memory that training may take: 50 million tokens, read without holding them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.progress import quiet
from coref_automl.corpus.dataset import PackedDataset, Window, write_dataset
from coref_automl.training.batches import BatchPlan, Collator, EpochSampler, MaskedRows
from coref_automl.training.masking import Masking

LENGTH, ROWS, WINDOWS = 512, 1000, 100
LIMIT = 80 << 20


def windows() -> Iterator[Window]:
    """Five million mentions in rows of two pieces; token 5 + n mod 60 in row n."""
    for window in range(WINDOWS):
        rows = np.arange(window * ROWS, (window + 1) * ROWS)
        blocks = np.broadcast_to((5 + rows % 60)[:, None], (ROWS, LENGTH))
        pieces = np.stack([np.repeat(rows, 2), np.tile([0, 256], ROWS), np.full(2 * ROWS, 256), np.arange(2 * ROWS)], axis=1)
        starts = np.tile(np.arange(4, 504, 10), ROWS)
        chains = np.tile(np.arange(50) // 5, ROWS)
        yield blocks, pieces, [np.stack([np.repeat(rows, 50), starts, starts + 2, chains], axis=1)]


@pytest.mark.journey
def test_a_dataset_of_fifty_million_tokens_is_shuffled_and_read_in_less_than_half_its_size(tmp_path: Path) -> None:
    manifest = {"pad_id": 0, "mask_id": 4, "tokenizer": "t", "tokenizer_fingerprint": "f"}
    write_dataset(tmp_path / "d", windows(), seq_len=LENGTH, dtype=np.uint16, manifest=lambda _: manifest)
    on_disk = sum(path.stat().st_size for path in (tmp_path / "d").glob("*.npy"))
    assert on_disk > 180_000_000
    masking = Masking("copy", 4, np.arange(100) < 5, np.ones(100, np.bool_))
    tracemalloc.start()
    try:
        dataset = PackedDataset.open(tmp_path / "d")
        dataset.verify(quiet())
        plan = BatchPlan.of(dataset, batch=8, seed=3)
        collator, rows = Collator.of(dataset, masking), MaskedRows(dataset, masking, seed=3)
        order = iter(EpochSampler(plan, 8, lambda: 0))
        seen = [next(order) for _ in range(64)]
        batches = [collator([rows[index] for index in seen[low : low + 8]]) for low in range(0, 64, 8)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LIMIT
    assert (len(dataset), plan.tokens_per_epoch) == (WINDOWS * ROWS, WINDOWS * ROWS * LENGTH)
    assert len(set(seen)) == 64
    assert max(seen) > 80_000 > 20_000 > min(seen)  # from all over the files
    assert all(len(dataset.row(index).mentions) == 50 and dataset.row(index).tokens[0] == 5 + index % 60 for index in seen)
    assert plan.order(0)[56:64].tolist() == seen[56:]  # what a resumed run reads at its eighth step
    assert sum(int((batch["labels"] >= 0).sum()) for batch in batches) > 0
