"""Packing. In: the lengths of pieces. Out: blocks of exactly `seq_len` tokens, little of them padding.

Best fit, longest first: a piece goes to the block that it fills most. Blocks are then numbered by their first piece and pieces
keep their order within a block, so that blocks follow the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.dataset import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """For every piece: its block and its first token there. `order` lists pieces by block and start."""

    block: NDArray[np.int64]
    start: NDArray[np.int64]
    order: NDArray[np.int64]
    blocks: int


def pack(lengths: NDArray[np.int64], seq_len: int) -> Packing:
    """Place every piece; none is longer than `seq_len`."""
    if len(lengths) and (lengths.min() < 1 or lengths.max() > seq_len):
        raise ValueError("a piece is empty or longer than a block")
    taken = _best_fit(lengths, seq_len)
    blocks = int(taken.max()) + 1 if len(taken) else 0
    firsts = np.full(blocks, len(lengths), np.int64)
    np.minimum.at(firsts, taken, np.arange(len(lengths)))
    number = np.empty(blocks, np.int64)
    number[np.argsort(firsts)] = np.arange(blocks)
    block = number[taken]
    order = np.argsort(block, kind="stable").astype(np.int64)
    ends = np.cumsum(lengths[order])
    before = ends - lengths[order]
    opens = np.searchsorted(block[order], np.arange(blocks))
    start = np.empty(len(lengths), np.int64)
    start[order] = before - before[opens][block[order]] if blocks else 0
    return Packing(block, start, order, blocks)


def _best_fit(lengths: NDArray[np.int64], seq_len: int) -> NDArray[np.int64]:
    """Blocks with r tokens free wait in `waiting[r]`; bit r of one integer says that some do: its lowest bit is the best fit."""
    taken = np.empty(len(lengths), np.int64)
    waiting: list[list[int]] = [[] for _ in range(seq_len + 1)]
    open_bits, blocks = 0, 0
    sizes = lengths.tolist()
    for piece in np.argsort(-lengths, kind="stable").tolist():
        size = sizes[piece]
        fitting = open_bits >> size
        if fitting:
            free = size + (fitting & -fitting).bit_length() - 1
            block = waiting[free].pop()
            if not waiting[free]:
                open_bits ^= 1 << free
        else:
            free, block = seq_len, blocks
            blocks += 1
        taken[piece] = block
        if left := free - size:
            waiting[left].append(block)
            open_bits |= 1 << left
    return taken


def filled_blocks(
    packing: Packing, lengths: NDArray[np.int64], read: Callable[[int], Ints], *, seq_len: int, pad_id: int, dtype: type
) -> Iterator[Ints]:
    """The blocks in order, each filled with its pieces; `read` gives a piece's tokens."""
    edges = np.searchsorted(packing.block[packing.order], np.arange(packing.blocks + 1))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        block: Ints = np.full(seq_len, pad_id, dtype)
        for piece in packing.order[low:high].tolist():
            at = packing.start[piece]
            block[at : at + lengths[piece]] = read(piece)
        yield block
