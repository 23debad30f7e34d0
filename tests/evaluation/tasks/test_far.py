"""Far items: the nearest occurrence on either side, tagged or not, and buckets with one owner for every distance."""

from __future__ import annotations

import pytest
from hypothesis import given

from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of, far_items, occurrences
from coref_automl.evaluation.tasks.task import ReadDocument, is_apart
from tests.evaluation.sketch import Part, letters_between, parts, sketch

KEEP: Part = ("NNG", " 한강")


def gap_of(letters: int) -> Part:
    return "", " " + "아" * letters


def answers(read: ReadDocument) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for item in far_items(read, seed=0).items:
        found.setdefault(item.answer, []).append(item.distance)
    return found


@pytest.mark.parametrize(
    ("distance", "bucket"),
    [(0, (0, 128)), (127, (0, 128)), (128, (128, 512)), (511, (128, 512)), (512, (512, 1024)), (1023, (512, 1024)),
     (1024, (1024, 1536)), (1535, (1024, 1536)), (1536, (1536, 2000)), (1999, (1536, 2000)), (2000, None), (-1, None)],
)  # fmt: skip
def test_buckets_are_half_open(distance: int, bucket: tuple[int, int] | None) -> None:
    assert bucket_of(distance) == bucket


@pytest.mark.parametrize("distance", [0, 127, 128, 511, 512, 1024, 1535, 1536, 1999])
def test_an_item_knows_how_far_its_nearest_occurrence_is(distance: int) -> None:
    far = sketch([("NNP", "서울"), gap_of(distance), ("NNP", " 서울"), KEEP])
    assert answers(far) == {"서울": [distance]}


def test_beyond_the_last_bucket_there_is_no_item() -> None:
    found = far_items(sketch([("NNP", "서울"), gap_of(2000), ("NNP", " 서울"), KEEP]), seed=0)
    assert found.items == []
    assert found.drops["2000 tokens away or more"] == 2


def test_an_occurrence_after_the_gap_counts_like_one_before() -> None:
    read = sketch([("NNP", "서울"), gap_of(600), ("NNP", " 서울"), gap_of(3), ("NNP", " 서울"), KEEP])
    by_place = {item.start: item for item in far_items(read, seed=0).items}
    assert {item.distance for item in by_place.values()} <= {600, 3}
    first = by_place.get(0)
    assert first is None or first.antecedent == (604, 606)
    assert all(item.distance == 3 for place, item in by_place.items() if place > 0)


def test_an_untagged_occurrence_inside_another_word_is_the_nearest() -> None:
    read = sketch([("NNP", "서울"), gap_of(600), ("", " 헌서울내기"), gap_of(2), ("NNP", " 서울"), KEEP])
    near = {item.start: item for item in far_items(read, seed=0).items}[len(read.text) - len(" 한강") - 2]
    assert read.text[slice(*near.antecedent)] == "서울"  # type: ignore[misc]
    assert near.distance == 4


def test_an_occurrence_that_overlaps_the_gap_is_no_antecedent() -> None:
    read = sketch([("NNG", "나나"), ("", "나 "), KEEP])
    assert far_items(read, seed=0).drops["occurs once"] == 2


def test_a_pronoun_does_not_drop_an_item_but_is_recorded() -> None:
    read = sketch([("NNP", "서울"), ("NP", " 그"), gap_of(5), ("NNP", " 서울"), KEEP])
    (item,) = far_items(read, seed=0).items
    assert item.pronoun_between
    bare = sketch([("NNP", "서울"), gap_of(5), ("NNP", " 서울"), ("NP", " 그"), KEEP])
    assert not far_items(bare, seed=0).items[0].pronoun_between


def test_one_mention_of_a_noun_is_hidden_in_a_bucket() -> None:
    read = sketch([("NNP", " 서울"), ("", "은")] * 6 + [KEEP])
    assert answers(read) == {"서울": [1]}


def test_occurrences_may_overlap() -> None:
    assert occurrences("나나나", "나나") == [0, 1]


@given(parts)
def test_far_items_are_what_the_definition_says(drawn: list[Part]) -> None:
    read = sketch(drawn)
    found = far_items(read, seed=1)
    spans = {mention.span: mention for mention in read.mentions}
    by_bucket: dict[tuple[int, int], list[str]] = {bucket: [] for bucket in BUCKETS}
    for item in found.items:
        gap = (item.start, item.end)
        assert read.text[item.start : item.end] == item.answer == spans[gap].form
        assert not (item.start and read.text[item.start - 1].isalnum())
        size = len(item.answer)
        others = [
            (at, at + size)
            for at in range(len(read.text))
            if read.text.startswith(item.answer, at) and (at + size <= item.start or at >= item.end)
        ]
        assert item.distance == min(letters_between(read.text, gap, other) for other in others)
        assert item.antecedent in others
        assert letters_between(read.text, gap, item.antecedent) == item.distance
        assert all(is_apart(group[0], item.answer) for group in item.candidates[1:])
        bucket = bucket_of(item.distance)
        assert bucket is not None
        by_bucket[bucket].append(item.answer)
    for nouns in by_bucket.values():
        assert len(nouns) == len(set(nouns)) <= 3
    assert far_items(read, seed=1) == found
