"""A tile that is skipped holds no allowed pair, and one that is not asked holds no forbidden one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask

from coref_automl.models.flex_modernbert import TILE, document_blocks, tiles


def rows(lengths: list[list[int]], width: int) -> torch.Tensor:
    """Segments of rows whose documents have these lengths; what is left of a row is padding."""
    out = np.zeros((len(lengths), width), int)
    for row, sizes in zip(out, lengths, strict=True):
        numbers = np.repeat(np.arange(1, len(sizes) + 1), sizes)[:width]
        row[: len(numbers)] = numbers
    return torch.from_numpy(out)


def pairs(segments: torch.Tensor, window: int | None) -> torch.Tensor:
    same = segments[:, :, None] == segments[:, None, :]
    place = torch.arange(segments.shape[1])
    return same if window is None else same & ((place[:, None] - place).abs() <= window)


def by_tile(allowed: torch.Tensor, value: bool) -> torch.Tensor:
    """Pairs cut into tiles (B, rows, columns, TILE, TILE), what lies outside filled with `value`."""
    missing = -allowed.shape[1] % TILE
    whole = torch.nn.functional.pad(allowed, (0, missing, 0, missing), value=value)
    return whole.unflatten(1, (-1, TILE)).unflatten(3, (-1, TILE)).transpose(2, 3)


@given(
    st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=6), min_size=1, max_size=3),
    st.integers(1, 520),
    st.sampled_from([None, 1, 64, 127, 128, 200, 300]),
)
def test_tiles_agree_with_their_pairs(lengths: list[list[int]], width: int, window: int | None) -> None:
    segments = rows(lengths, width)
    some, whole = tiles(segments, window)
    allowed = pairs(segments, window)
    assert torch.equal(some, by_tile(allowed, False).flatten(3).any(-1))
    assert not (whole & ~by_tile(allowed, False).flatten(3).all(-1)).any()


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize("width", [256, 300, 512])
def test_the_mask_is_the_librarys_own(width: int, window: int | None) -> None:
    segments = rows([[100, 50, 60], [400], [30, 128, 128]], width)
    ours = document_blocks(segments, window)
    theirs = create_block_mask(ours.mask_mod, len(segments), None, width, width, device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    for mine, other in ((ours.kv_num_blocks, theirs.kv_num_blocks), (ours.full_kv_num_blocks, theirs.full_kv_num_blocks)):
        assert torch.equal(mine.expand_as(other), other)
