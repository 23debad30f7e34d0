"""Held-out documents: two hundredths or 310, never over a third, the same in every order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.corpus.clean import limits, rank
from tests.corpus.held import held_out


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 0), (2, 1), (9, 3), (100, 33), (1_000, 310), (20_000, 400)])
def test_how_many_are_held_out(count: int, expected: int) -> None:
    assert len(held_out([f"d{number}" for number in range(count)])) == expected


def test_share_nothing_holds_nothing_out() -> None:
    assert held_out([f"d{number}" for number in range(1_000)], share=0) == frozenset()


@given(st.lists(st.text(max_size=8), unique=True, min_size=2, max_size=60), st.randoms())
def test_the_order_of_the_ids_does_not_matter(ids: list[str], random: Random) -> None:
    mixed = ids.copy()
    random.shuffle(mixed)
    assert held_out(ids) == held_out(mixed)


def test_sources_are_decided_apart() -> None:
    pairs = [("a", f"d{n}") for n in range(40)] + [("b", f"d{n}") for n in range(10)]
    limit_of = limits(pairs)
    assert {d for s, d in pairs if s == "a" and rank(d) <= limit_of["a"]} == held_out([f"d{n}" for n in range(40)])
    assert {d for s, d in pairs if s == "b" and rank(d) <= limit_of["b"]} == held_out([f"d{n}" for n in range(10)])
