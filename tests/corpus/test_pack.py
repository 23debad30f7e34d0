"""Packing: no piece lost, none overlapping, order kept, little padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.corpus.pack import filled_blocks, pack

_LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=120)


@given(_LENGTHS)
def test_every_piece_lies_whole_in_one_block_and_none_overlap(lengths: list[int]) -> None:
    packing = pack(np.array(lengths), 64)
    cover = np.zeros((packing.blocks, 64), int)
    for piece, length in enumerate(lengths):
        start = packing.start[piece]
        assert start + length <= 64
        cover[packing.block[piece], start : start + length] += 1
    assert cover.max() == 1
    assert cover.sum() == sum(lengths)
    filled = cover.sum(1)
    assert all((cover[row, :count] == 1).all() for row, count in enumerate(filled))  # padding is at the end alone


@given(_LENGTHS)
def test_blocks_and_pieces_follow_the_corpus(lengths: list[int]) -> None:
    packing = pack(np.array(lengths), 64)
    firsts = [int(np.flatnonzero(packing.block == block)[0]) for block in range(packing.blocks)]
    assert firsts == sorted(firsts)
    for block in range(packing.blocks):
        members = np.flatnonzero(packing.block == block)
        assert (np.diff(packing.start[members]) > 0).all()
    assert sorted(packing.order.tolist()) == list(range(len(lengths)))


@given(_LENGTHS)
def test_no_two_blocks_would_go_into_one(lengths: list[int]) -> None:
    packing = pack(np.array(lengths), 64)
    filled = sorted(np.bincount(packing.block, weights=lengths).tolist())
    assert len(filled) < 2 or filled[0] + filled[1] > 64


def test_a_piece_goes_where_it_fits_best() -> None:
    packing = pack(np.array([50, 40, 14, 24]), 64)
    assert packing.blocks == 2
    assert packing.block.tolist() == [0, 1, 0, 1]


@given(_LENGTHS)
def test_blocks_hold_the_tokens_of_their_pieces(lengths: list[int]) -> None:
    sizes = np.array(lengths)
    packing = pack(sizes, 64)
    blocks = list(
        filled_blocks(packing, sizes, lambda piece: np.full(lengths[piece], piece + 1), seq_len=64, pad_id=0, dtype=np.uint16)
    )
    counts = np.bincount(np.concatenate(blocks), minlength=len(lengths) + 1)
    assert counts[1:].tolist() == lengths
    assert all(len(block) == 64 for block in blocks)


def test_nothing_packs_to_nothing() -> None:
    assert pack(np.array([], np.int64), 64).blocks == 0


def test_a_piece_longer_than_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than a block"):
        pack(np.array([65]), 64)
