"""The best one-to-one assignment. In: similarities of two sets. Out: the largest sum that pairs can reach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def best_total(gains: Floats) -> float:
    """The sum over the best pairing of rows with columns (the Hungarian method, by shortest augmenting paths)."""
    if not gains.size:
        return 0.0
    costs = gains.max() - (gains if gains.shape[0] <= gains.shape[1] else gains.T)
    rows, columns = costs.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)
    for row in range(rows):
        reach = np.full(columns, np.inf)
        before = np.full(columns, -1)
        done = np.zeros(columns, bool)
        current, column, length = row, -1, 0.0
        while True:
            found = length + costs[current] - row_price[current] - column_price
            nearer = ~done & (found < reach)
            reach[nearer], before[nearer] = found[nearer], column
            column = int(np.where(done, np.inf, reach).argmin())
            length, done[column] = float(reach[column]), True
            if row_of[column] < 0:
                break
            current = int(row_of[column])
        _move_prices(row_price, column_price, row_of, reach, done, row, length)
        while True:  # turn the path around: each column on it takes the row before
            earlier = int(before[column])
            row_of[column] = row if earlier < 0 else row_of[earlier]
            if earlier < 0:
                break
            column = earlier
    matched = np.flatnonzero(row_of >= 0)
    return float((gains.max() - costs[row_of[matched], matched]).sum())


def _move_prices(
    row_price: Floats,
    column_price: Floats,
    row_of: NDArray[np.int64],
    reach: Floats,
    done: NDArray[np.bool_],
    row: int,
    length: float,
) -> None:
    passed = np.flatnonzero(done & (row_of >= 0))
    row_price[row] += length
    row_price[row_of[passed]] += length - reach[passed]
    column_price[np.flatnonzero(done)] += reach[done] - length
