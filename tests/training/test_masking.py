"""Which positions carry labels, for each objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.records import Objective
from coref_automl.training.masking import (
    IGNORED,
    OBJECTIVES,
    Masking,
    ObjectiveKind,
    _sampled,
    later_mentions,
    length_rates,
    mask_row,
    row_rng,
)

PAD, CLS, SEP, MASK = 0, 1, 2, 3
SPECIAL = np.zeros(100, dtype=bool)
SPECIAL[:4] = True
STARTS = np.zeros(100, dtype=bool)
STARTS[4:60] = True  # 60..99 continue a word


@dataclass(frozen=True)
class Row:
    tokens: np.ndarray
    segments: np.ndarray
    mentions: np.ndarray


def settings(objective: str = "mlm", **changes: object) -> Masking:
    return replace(Masking(objective, MASK, SPECIAL, STARTS), **changes)  # type: ignore[arg-type]


def row(*lengths: int, total: int = 64, mentions: list[tuple[int, int, int]] | None = None, seed: int = 0) -> Row:
    """Document pieces of the given lengths, [CLS] and [SEP] included, then padding."""
    rng = np.random.default_rng(seed)
    tokens, segments = np.full(total, PAD), np.zeros(total, dtype=np.int64)
    at = 0
    for number, length in enumerate(lengths, 1):
        tokens[at : at + length] = rng.integers(4, 100, length)
        tokens[at], tokens[at + length - 1] = CLS, SEP
        segments[at : at + length] = number
        at += length
    found = np.array(mentions, dtype=np.int32) if mentions else np.zeros((0, 3), dtype=np.int32)
    return Row(tokens, segments, found)


CHAINED = [(2, 4, 0), (10, 12, 0), (20, 21, 1), (30, 32, 0), (40, 41, 1), (45, 46, 1)]


def many(source: Row, chosen: Masking, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rows = [mask_row(source, chosen, row_rng(0, epoch, 5)) for epoch in range(count)]
    return np.stack([ids for ids, _ in rows]), np.stack([labels for _, labels in rows])


@given(
    objective=st.sampled_from(get_args(Objective)),
    whole=st.booleans(),
    everything=st.booleans(),
    seed=st.integers(0, 2**40),
    first=st.integers(3, 40),
    second=st.integers(3, 20),
)
def test_labels_are_the_original_tokens_and_never_special_or_padding(
    objective: str, whole: bool, everything: bool, seed: int, first: int, second: int
) -> None:
    source = row(first, second, seed=seed % 1000)
    chosen = settings(objective, whole_word=whole, replace_all=everything, min_prob=0.1, max_prob=0.5)
    ids, labels = mask_row(source, chosen, row_rng(seed, 1, 2))
    is_target = labels != IGNORED
    assert (labels[is_target] == source.tokens[is_target]).all()
    assert not SPECIAL[source.tokens[is_target]].any()
    assert not is_target[source.segments == 0].any()
    assert (ids[~is_target] == source.tokens[~is_target]).all()
    assert is_target.any()


def test_the_same_seed_epoch_and_row_give_the_same_mask_and_others_do_not() -> None:
    source = row(60)
    again = [mask_row(source, settings(), row_rng(7, 3, 11))[1].tolist() for _ in range(2)]
    assert again[0] == again[1]
    others = [(8, 3, 11), (7, 4, 11), (7, 3, 12)]
    assert all(mask_row(source, settings(), row_rng(*key))[1].tolist() != again[0] for key in others)


def test_the_rate_follows_the_real_length_of_the_piece() -> None:
    rates = length_rates(row(16, 32).segments, 0.1, 0.5)
    assert rates[0] == pytest.approx(0.1 + 0.4 * 16 / 64)
    assert rates[20] == pytest.approx(0.1 + 0.4 * 32 / 64)
    _, labels = many(row(16), settings(min_prob=0.1, max_prob=0.5))
    short = (labels[:, 1:15] != IGNORED).mean()
    _, labels = many(row(64), settings(min_prob=0.1, max_prob=0.5))
    full = (labels[:, 1:63] != IGNORED).mean()
    assert short == pytest.approx(0.2, abs=0.03)
    assert full == pytest.approx(0.5, abs=0.03)


def test_drawn_rates_differ_from_piece_to_piece_and_cover_the_range() -> None:
    source = row(400, 400, total=800)
    _, labels = many(source, settings(drawn=True, min_prob=0.0, max_prob=0.4))
    is_target = labels != IGNORED
    first, second = is_target[:, source.segments == 1].mean(axis=1), is_target[:, source.segments == 2].mean(axis=1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    for rates in (first, second):
        assert rates.min() < 0.03
        assert rates.max() > 0.36
        assert np.mean(rates) == pytest.approx(0.2, abs=0.03)


def test_a_rate_of_zero_hides_nothing() -> None:
    _, labels = many(row(64), settings(min_prob=0.0, max_prob=0.0), 20)
    assert (labels == IGNORED).all()


def test_whole_words_are_hidden_whole() -> None:
    source = row(64)
    _, labels = many(source, settings(whole_word=True, min_prob=0.3, max_prob=0.3))
    is_target = labels != IGNORED
    follows = np.flatnonzero((source.tokens >= 60) & ~SPECIAL[np.roll(source.tokens, 1)])
    assert len(follows)
    assert (is_target[:, follows] == is_target[:, follows - 1]).all()
    assert is_target[:, 1:63].mean() == pytest.approx(0.3, abs=0.05)


def test_a_word_does_not_reach_over_the_border_of_two_documents() -> None:
    source = row(20, 20)
    _, labels = many(source, settings(whole_word=True, min_prob=0.5, max_prob=0.5))
    is_target = labels != IGNORED
    assert (is_target[:, 18] != is_target[:, 21]).any()


def test_entity_hides_later_mentions_whole_and_never_the_first() -> None:
    source = row(60, mentions=CHAINED)
    ids, labels = many(source, settings("entity", background=0.1))
    is_target = labels != IGNORED
    assert not is_target[:, [2, 3, 20]].any()
    for start, end, _ in [(10, 12, 0), (30, 32, 0), (40, 41, 1), (45, 46, 1)]:
        span = is_target[:, start:end]
        assert (span.all(axis=1) == span.any(axis=1)).all()
        assert span.all(axis=1).mean() == pytest.approx(0.3, abs=0.12)
        assert (ids[:, start:end][span] == MASK).all()
    inside = np.zeros(64, dtype=bool)
    for start, end, _ in CHAINED:
        inside[start:end] = True
    outside = ~inside & (source.segments > 0) & ~SPECIAL[source.tokens]
    assert is_target[:, outside].mean() == pytest.approx(0.1, abs=0.02)


def test_every_entity_row_with_a_chain_hides_at_least_one_mention() -> None:
    source = row(60, mentions=[(2, 4, 0), (10, 12, 0)])
    _, labels = many(source, settings("entity", entity_rate=0.01, background=0.0))
    assert (labels[:, 10:12] != IGNORED).all()
    assert (labels != IGNORED).sum(axis=1).tolist() == [2] * 300


def test_an_entity_rate_of_zero_leaves_the_background_alone() -> None:
    _, labels = many(row(60, mentions=CHAINED), settings("entity", entity_rate=0.0, background=0.1))
    assert (labels[:, 10:12] == IGNORED).all()


def test_nouns_leaves_no_mention_of_a_hidden_noun_visible() -> None:
    source = row(40, 24, mentions=[*CHAINED[:4], (30, 32, 0), (45, 46, 2), (52, 53, 2)])
    source.tokens[[2, 10, 30]], source.tokens[[3, 11, 31]] = 5, 61  # one form
    source.tokens[[20, 25]], source.tokens[[45, 52]] = 7, 8
    source.tokens[[50, 57]], source.tokens[[51, 58]] = 5, 61  # in the second document, in no chain
    ids, labels = many(source, settings("nouns", background=0.05, entity_rate=0.5))
    hidden, whole = 0, np.column_stack([source.tokens[:-1], source.tokens[1:]])
    for shown, targets in zip(ids, labels, strict=True):
        for form in ((5, 61), (7,), (8,)):
            places = [at for at in range(63) if tuple(whole[at, : len(form)]) == form]
            seen = [at for at in places if tuple(shown[at : at + len(form)]) == form]
            gone = [at for at in places if (targets[at : at + len(form)] != IGNORED).all()]
            if len(form) == 2 or form == (8,):  # 7 stands in no chain and is background
                assert not (seen and gone)
                hidden += bool(gone)
    assert hidden > 100
    expected = 0.5 * (2 + 2 + 1)  # the later mentions of the forms, at the entity rate
    mentioned = np.isin(source.tokens, (5, 61, 8))
    assert (labels[:, mentioned] != IGNORED).sum(axis=1).mean() == pytest.approx(expected, rel=0.25)


def test_nouns_hides_as_many_tokens_as_entity() -> None:
    rng = np.random.default_rng(3)
    starts = np.arange(2, 250, 4)
    ends, numbers = starts + 1 + rng.integers(2, size=62), rng.integers(0, 15, 62)
    chained = [(int(start), int(end), int(chain)) for start, end, chain in zip(starts, ends, numbers, strict=True)]
    source = row(256, total=256, mentions=chained)
    source.tokens[1:255] = np.arange(254) + 100
    special = np.zeros(400, dtype=bool)
    special[:4] = True
    shares = {}
    for objective in ("entity", "nouns"):
        chosen = replace(settings(objective), special=special, starts=~special)
        shares[objective] = (many(source, chosen)[1] != IGNORED).mean()
    assert shares["nouns"] == pytest.approx(shares["entity"], rel=0.05)


def test_nouns_depends_on_seed_epoch_and_row_alone() -> None:
    source = row(60, mentions=CHAINED)
    masks = {key: mask_row(source, settings("nouns"), row_rng(*key))[1].tolist() for key in [(7, 3, 11), (8, 3, 11), (7, 4, 11)]}
    assert mask_row(source, settings("nouns"), row_rng(7, 3, 11))[1].tolist() == masks[7, 3, 11]
    assert len({tuple(mask) for mask in masks.values()}) == 3


def test_combined_mixes_rows_by_ratio() -> None:
    source = row(60, mentions=CHAINED)
    chosen = settings("combined", ratio=0.25, background=0.0, min_prob=0.2, max_prob=0.2)
    _, labels = many(source, chosen, 600)
    first_hidden = (labels[:, [2, 3, 20]] != IGNORED).any(axis=1)
    mention_only = (labels[:, [5, 6, 7, 8, 13, 14, 15, 16, 17, 18]] == IGNORED).all(axis=1) & ~first_hidden
    assert mention_only.mean() == pytest.approx(0.25 + 0.75 * 0.8**13, abs=0.06)


def test_combined_rows_without_a_chain_are_mlm() -> None:
    _, labels = many(row(64), settings("combined", ratio=1.0, background=0.0, min_prob=0.2, max_prob=0.2))
    assert (labels != IGNORED)[:, 1:63].mean() == pytest.approx(0.2, abs=0.03)


def test_the_mixture_is_for_mlm_positions_and_mentions_stay_masked() -> None:
    source = row(60, mentions=CHAINED)
    ids, labels = many(source, settings("entity", background=0.3, replace_all=False))
    inside = np.zeros(64, dtype=bool)
    for start, end, _ in CHAINED:
        inside[start:end] = True
    is_target = labels != IGNORED
    assert (ids[:, inside][is_target[:, inside]] == MASK).all()
    outside = ids[:, ~inside][is_target[:, ~inside]]
    kept = outside == labels[:, ~inside][is_target[:, ~inside]]
    assert (outside == MASK).mean() == pytest.approx(0.8, abs=0.04)
    assert kept.mean() == pytest.approx(0.1, abs=0.03)
    assert not SPECIAL[outside[outside != MASK]].any()


def test_later_mentions_do_not_depend_on_the_order_given() -> None:
    mentions = np.array(CHAINED, dtype=np.int32)
    assert later_mentions(mentions[::-1]).tolist() == later_mentions(mentions).tolist()
    assert len(later_mentions(mentions)) == 4


def test_every_objective_of_a_recipe_has_its_line() -> None:
    assert tuple(OBJECTIVES) == get_args(Objective)


def test_an_objective_with_a_share_of_its_own_takes_that_share_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mlm", ObjectiveKind("a new line", 0.2))
    source = row(60, mentions=CHAINED)
    _, labels = many(source, settings(ratio=0.9, min_prob=0.0, max_prob=0.0, background=0.0))
    assert (labels != IGNORED).any(axis=1).mean() == pytest.approx(0.2, abs=0.06)


def test_a_mention_that_is_drawn_because_none_was_has_a_rate_above_zero() -> None:
    rng, later = np.random.default_rng(0), np.arange(3)
    found = np.concatenate([_sampled(later, np.array([0.02, 0.0, 0.06]), rng) for _ in range(2000)])
    shares = np.bincount(found, minlength=3) / len(found)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0.75, abs=0.03)
