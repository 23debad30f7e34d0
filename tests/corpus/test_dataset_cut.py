"""Shorter rows of the same blocks: every token stays, in order, and spans keep their tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import DatasetError
from coref_automl.corpus.dataset import PackedDataset


def dataset(lengths: list[list[int]], seq_len: int, seed: int) -> PackedDataset:
    """Blocks of pieces of the given lengths; each piece has a mention at every other token pair."""
    rng = np.random.default_rng(seed)
    tokens = np.zeros((len(lengths), seq_len), np.uint16)
    pieces, mentions = [], []
    for block, sizes in enumerate(lengths):
        at = 0
        for size in sizes:
            size = min(size, seq_len - at)
            if size <= 0:
                break
            tokens[block, at : at + size] = rng.integers(1, 60_000, size)
            pieces.append((block, at, size, len(pieces)))
            mentions += [(block, start, start + 2, 7) for start in range(at, at + size - 1, 3)]
            at += size
    shaped = [np.array(rows, np.int32).reshape(-1, 4) for rows in (pieces, mentions)]
    return PackedDataset(Path("set"), {"seq_len": seq_len, "blocks": len(lengths)}, tokens, *shaped)


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=1, max_size=4), st.sampled_from([8, 16, 32]))
def test_no_token_is_lost_and_every_span_keeps_its_tokens(lengths: list[list[int]], seq_len: int) -> None:
    whole = dataset(lengths, 32, 0)
    cut = whole.cut_to(seq_len)
    assert cut.seq_len == seq_len
    rows = [cut.row(index) for index in range(len(cut))]
    assert np.array_equal(np.concatenate([row.tokens[row.segments > 0] for row in rows]), whole.tokens[whole.tokens > 0])
    assert cut.pieces[:, 2].sum() == whole.pieces[:, 2].sum()
    assert cut.manifest["blocks"] == len(cut)
    for row in rows:
        assert row.segments.any()
        assert np.array_equal(row.segments > 0, row.tokens > 0)
        for start, end, _ in row.mentions:
            assert len(set(row.segments[start:end])) == 1
    spans = {tuple(whole.tokens[b, s:e]) for b, s, e, _ in whole.mentions}
    kept = [tuple(row.tokens[s:e]) for row in rows for s, e, _ in row.mentions]
    assert set(kept) <= spans
    inside = sum(s // seq_len == (e - 1) // seq_len for _, s, e, _ in whole.mentions)
    assert len(kept) == len(cut.mentions) == inside


def test_a_row_of_padding_alone_is_left_out() -> None:
    cut = dataset([[5], [30], [12]], 32, 0).cut_to(8)
    assert [int((cut.row(index).segments > 0).sum()) for index in range(len(cut))] == [5, 8, 8, 8, 6, 8, 4]


def test_a_length_that_does_not_divide_the_blocks_is_refused() -> None:
    with pytest.raises(DatasetError, match="--seq-len 12"):
        dataset([[10]], 32, 0).cut_to(12)
