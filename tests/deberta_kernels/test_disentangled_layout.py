"""Where the kernels of disentangled attention find things: rows by distance, bands without overlaps, bounds of documents."""

from __future__ import annotations

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from deberta_kernels.layout import BLOCK, CLASS, NEVER, Band, Distances, band_of, bounds_of, geometry

CPU = torch.device("cpu")
SIDES = st.sampled_from([16, 32, 64])
ENDS = st.one_of(st.integers(0, 300), st.just(NEVER))
DISTANCES = st.builds(Distances, st.one_of(st.just(-1), st.integers(2, 40)), st.integers(1, 80)).filter(lambda d: d.ordered)


@settings(max_examples=60, deadline=None)
@given(distances=DISTANCES, length=st.integers(1, 90))
def test_rows_are_those_of_the_library(distances: Distances, length: int) -> None:
    states = torch.zeros(1, length, 1)
    library = build_relative_position(states, states, bucket_size=distances.buckets, max_position=distances.longest)[0]
    rows = torch.clamp(library + distances.span, 0, 2 * distances.span - 1)
    position = torch.arange(length)
    assert torch.equal(distances.rows(length, CPU)[position[:, None] - position[None, :] + length].long(), rows)


@settings(max_examples=60, deadline=None)
@given(distances=DISTANCES, beyond=st.integers(0, 100))
def test_starts_and_ends_of_rows(distances: Distances, beyond: int) -> None:
    reach = 2 * distances.longest + 2 + beyond
    computed, last = geometry(distances, reach, CPU), 2 * distances.span - 1
    row = dict(zip(range(-reach, reach + 1), computed.rows.tolist(), strict=True))
    starts = computed.starts.tolist()
    assert len(starts) == last + 2
    assert (starts[0], starts[-1]) == (-reach, reach + 1)
    for number in range(last + 1):
        assert all(row[distance] == number for distance in range(starts[number], starts[number + 1]))
    assert computed.high == min((d for d in row if all(row[e] == last for e in range(d, reach + 1))), default=NEVER)
    assert computed.low == min((-d for d in row if all(row[e] == 0 for e in range(-reach, d + 1))), default=NEVER)


@settings(max_examples=200, deadline=None)
@given(buckets=st.integers(1, 300), longest=st.integers(2, 600))
def test_settings_whose_buckets_turn_back_are_known(buckets: int, longest: int) -> None:
    distances = Distances(buckets, longest)
    assume(distances.ordered)
    assert bool((distances.rows(2 * longest + 1100, CPU).diff() >= 0).all())
    assert not Distances(buckets, buckets // 2 + 1).ordered


def columns_of(band: Band, row: int, whole: int) -> range:
    """The columns that the kernels write for a row."""
    word = row // CLASS * CLASS
    return range(max(0, word - band.reach), min(whole, word + band.reach))


@settings(max_examples=80, deadline=None)
@given(
    length=st.integers(1, 500),
    high=ENDS,
    low=ENDS,
    tiles=st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=3, unique=True).map(tuple),
)
def test_every_tile_near_the_diagonal_lies_within_its_rows(
    length: int, high: int, low: int, tiles: tuple[tuple[int, int], ...]
) -> None:
    band, whole = band_of(length, high, low, tiles), -(-length // BLOCK) * BLOCK
    for height, width in tiles:
        for behind, ahead in ((high, low), (low, high)):  # queries x keys, keys x queries
            for top in range(0, whole, height):
                for left in range(0, whole, width):
                    if top - (left + width - 1) >= behind or left - (top + height - 1) >= ahead:
                        continue  # beyond the last bucket from corner to corner
                    for row in (top, top + height - 1):
                        columns = columns_of(band, row, whole)
                        assert left in columns
                        assert left + width - 1 in columns


@settings(max_examples=80, deadline=None)
@given(length=st.integers(1, 1200), high=ENDS, low=ENDS, tile=st.tuples(SIDES, SIDES))
def test_no_two_rows_of_a_band_share_a_place(length: int, high: int, low: int, tile: tuple[int, int]) -> None:
    band, whole = band_of(length, high, low, (tile,)), -(-length // BLOCK) * BLOCK
    free = 0
    for row in range(whole):
        columns = columns_of(band, row, whole)
        assert row * band.stride + band.offset + columns[0] >= free
        free = row * band.stride + band.offset + columns[-1] + 1
    assert free <= band.size
    assert all(number % CLASS == 0 for number in (band.reach, band.stride, band.offset, band.size))
    assert band.words == (band.reach // CLASS, band.stride // CLASS, band.offset // CLASS)


def test_a_band_is_narrow_only_where_that_saves_room() -> None:
    tiles = ((64, 32),)
    assert band_of(2048, 511, 512, tiles).stride < 2048
    assert band_of(512, 511, 512, tiles).stride == 512
    assert band_of(2048, NEVER, NEVER, tiles).stride == 2048


@st.composite
def rows_of_documents(draw: st.DrawFn) -> torch.Tensor:
    """Runs of documents and padding in any order, a document's parts too: whole, with holes, interleaved, of one token."""
    length = draw(st.integers(1, 150))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        row: list[int] = []
        while len(row) < length:
            row += [draw(st.integers(0, min(6, length)))] * draw(st.integers(1, 70))
        rows.append(row[:length])
    return torch.tensor(rows)


@settings(max_examples=60, deadline=None)
@given(segments=rows_of_documents())
def test_bounds_are_where_documents_begin_and_end(segments: torch.Tensor) -> None:
    bounds, length = bounds_of(segments), segments.shape[1]
    assert all(x.dtype == torch.int32 and x.is_contiguous() for x in bounds.tensors())
    assert torch.equal(bounds.segments.long(), segments)
    for number, row in enumerate(segments.tolist()):
        expected = []
        for document in row:
            positions = [position for position, other in enumerate(row) if other == document]
            whole = positions == list(range(positions[0], positions[-1] + 1))
            expected.append((positions[0], positions[-1] + 1, positions[0] if whole else length) if document else (0, 0, length))
        computed = torch.stack([bounds.first[number], bounds.last[number], bounds.inner[number]], 1).tolist()
        assert [tuple(position) for position in computed] == expected
        for block in range(-(-length // BLOCK)):
            seen = [expected[position] for position in range(block * BLOCK, min(length, (block + 1) * BLOCK)) if row[position]]
            low = min((first for first, _, _ in seen), default=0) // BLOCK * BLOCK
            high = -(-max((last for _, last, _ in seen), default=0) // BLOCK) * BLOCK
            assert (int(bounds.block_first[number, block]), int(bounds.block_last[number, block])) == (low, high)
