"""Far items: the nearest occurrence on either side, whole words alone, and buckets with one owner for every distance."""

from __future__ import annotations

import pytest
from hypothesis import given

from coref_automl.evaluation.tasks.eligible import Eligible
from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of, far_items
from coref_automl.evaluation.tasks.task import Choices, ParsedDocument, is_apart, occurrences
from tests.evaluation.sketch import Part, letters_between, parts, sketch

KEEP: Part = ("NNG", " 한강")
TAIL: Part = ("", "에는 늘 사람이 참 많다.")
SHARED: list[Part] = [("NNG", "능금"), ("", "도 "), ("NNG", "자두"), ("", "도 "), ("NNG", "앵두"), ("", "도 함께 있던 ")]
"""Nouns of the sentences on both sides: what an antecedent far away is found by."""
_BETWEEN = " {}. 그 뒤에 다시 거기 "


def gap_of(letters: int) -> Part:
    """That many letters: the end of a sentence that cannot hold a gap, and the beginning of one that may."""
    return "", _BETWEEN.format("아" * (letters - len("".join(_BETWEEN.format("").split()))))


def far(letters: int, *more: Part) -> ParsedDocument:
    size = len("".join("".join(text for _, text in SHARED).split()))
    return sketch([*SHARED, ("NNP", "강촌"), gap_of(letters - size), *SHARED, ("NNP", "강촌"), TAIL, *more, KEEP])


@pytest.mark.parametrize(
    ("distance", "bucket"),
    [(0, (0, 128)), (127, (0, 128)), (128, (128, 512)), (511, (128, 512)), (512, (512, 1024)), (1023, (512, 1024)),
     (1024, (1024, 1536)), (1535, (1024, 1536)), (1536, (1536, 2000)), (1999, (1536, 2000)), (2000, None), (-1, None)],
)  # fmt: skip
def test_buckets_are_half_open(distance: int, bucket: tuple[int, int] | None) -> None:
    assert bucket_of(distance) == bucket


@pytest.mark.parametrize("distance", [30, 127, 128, 511, 512, 1024, 1535, 1536, 1999])
def test_an_item_knows_how_far_its_nearest_occurrence_is(distance: int) -> None:
    doc = far(distance)
    (item,) = far_items(doc, Choices()).items
    start = doc.text.index("강촌")
    assert (item.answer, item.distance, item.antecedent, item.before) == ("강촌", distance, (start, start + 2), True)


def test_beyond_the_last_bucket_there_is_no_item() -> None:
    result = far_items(far(2000), Choices())
    assert result.items == []
    assert result.drops["2000 tokens away or more"] == 2


def test_an_occurrence_behind_the_gap_counts_and_is_told_apart() -> None:
    doc = sketch([*SHARED, ("NNP", "강촌"), ("", "을 보았다. " + "아" * 600 + " "), *SHARED, ("NNP", "강촌"), ("", "."), KEEP])
    (item,) = far_items(doc, Choices()).items
    assert item.antecedent is not None
    assert item.antecedent[0] > item.start
    assert item.before is False


def test_a_nearer_occurrence_inside_a_longer_word_drops_the_item() -> None:
    doc = sketch([("NNP", "강촌"), gap_of(600), ("", "헌강촌내기 "), ("NNP", "강촌"), TAIL, KEEP])
    result = far_items(doc, Choices())
    assert result.items == []
    assert result.drops["nearest occurrence inside a longer word"] == 1
    glued = sketch([("NNP:GLUED", "강촌"), gap_of(600), ("NNP", "강촌"), TAIL, KEEP])
    assert far_items(glued, Choices()).drops["nearest occurrence inside a longer word"] == 1


def test_a_nearest_mention_among_others_drops_the_item() -> None:
    """No farther mention is taken instead: a name beside the other fits as well."""
    listed: list[Part] = [("NNP", "강촌"), ("", ", "), ("NNP", "북촌"), ("", "이 있다. ")]
    result = far_items(
        sketch([*SHARED, ("NNP", "강촌"), gap_of(60), *listed, ("", "그때 "), ("NNP", "강촌"), TAIL, KEEP]), Choices()
    )
    assert result.items == []
    assert result.drops["antecedent in an enumeration or a bracket"] == 2


def test_an_occurrence_that_overlaps_the_gap_is_no_antecedent() -> None:
    doc = sketch([("NNP", "나나"), ("", "나 "), KEEP])
    assert far_items(doc, Choices()).drops["occurs once"] == 1


def test_a_pronoun_does_not_drop_an_item_but_is_recorded() -> None:
    doc = sketch([("NNP", "강촌"), ("", "은. "), ("NP", "그"), gap_of(40), ("NNP", "강촌"), TAIL, KEEP])
    (item,) = far_items(doc, Choices()).items
    assert item.pronoun_between
    assert not far_items(far(40), Choices()).items[0].pronoun_between


def test_occurrences_may_overlap() -> None:
    assert occurrences("나나나", "나나") == [0, 1]


@given(parts)
def test_far_items_are_what_the_definition_says(drawn: list[Part]) -> None:
    doc = sketch(drawn)
    eligible = Eligible(doc, Choices())
    words = {mention.span: mention for mention in eligible.words}
    seen: set[tuple[tuple[int, int] | None, str]] = set()
    for item in far_items(doc, Choices(1)).items:
        gap, size = (item.start, item.end), len(item.answer)
        others = [(at, at + size) for at in occurrences(doc.text, item.answer) if abs(at - item.start) >= size]
        assert bucket_of(min(letters_between(doc.text, gap, other) for other in others)) == bucket_of(item.distance)
        assert item.antecedent in words
        assert eligible.reason_against(words[gap], item.distance, far=True) is None
        assert all(is_apart(group[0], item.answer) for group in item.candidates[1:])
        seen.add((bucket_of(item.distance), item.answer))
    assert len(seen) == len(far_items(doc, Choices(1)).items)
    assert all(bucket in BUCKETS for bucket, _ in seen)
