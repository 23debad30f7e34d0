"""Far items: the nearest occurrence on either side, and buckets with one owner for every distance."""

from __future__ import annotations

import pytest
from hypothesis import given

from coref_automl.evaluation.tasks.far import BUCKETS, PER_BUCKET, bucket_of, far_items
from coref_automl.evaluation.tasks.task import Choices, ParsedDocument, occurrences
from tests.evaluation.sketch import Part, letters_between, parts, sketch


def far(letters: int) -> ParsedDocument:
    return sketch([("NNP", "강촌"), ("", "아" * letters + " "), ("NNP", "강촌"), ("", "에는 사람이 많다.")])


@pytest.mark.parametrize(
    ("distance", "bucket"),
    [(0, (0, 128)), (127, (0, 128)), (128, (128, 512)), (511, (128, 512)), (512, (512, 1024)), (1023, (512, 1024)),
     (1024, (1024, 1536)), (1535, (1024, 1536)), (1536, (1536, 2000)), (1999, (1536, 2000)), (2000, None), (-1, None)],
)  # fmt: skip
def test_buckets_are_half_open(distance: int, bucket: tuple[int, int] | None) -> None:
    assert bucket_of(distance) == bucket


@pytest.mark.parametrize("distance", [30, 127, 128, 511, 512, 1024, 1535, 1536, 1999])
def test_an_item_knows_how_far_its_nearest_occurrence_is(distance: int) -> None:
    (item,) = far_items(far(distance), Choices()).items
    assert (item.answer, item.distance, item.antecedent) == ("강촌", distance, (0, 2))


def test_beyond_the_last_bucket_there_is_no_item() -> None:
    result = far_items(far(2000), Choices())
    assert result.items == []
    assert result.drops == {"2000 tokens away or more": 1}


def test_an_occurrence_after_the_gap_or_inside_a_longer_word_counts() -> None:
    doc = sketch([("NNP", "강촌"), ("", "아" * 600 + " "), ("NNP", "강촌"), ("", "은 곧 헌강촌내기.")])
    (item,) = far_items(doc, Choices()).items
    assert item.antecedent is not None
    assert item.antecedent[0] > item.start
    assert item.distance < 10


def test_a_pronoun_does_not_drop_an_item() -> None:
    doc = sketch([("NNP", "강촌"), ("", "은. "), ("NP", "그"), ("", "는 "), ("NNP", "강촌")])
    assert len(far_items(doc, Choices()).items) == 1


def test_at_most_eight_nouns_of_a_document_in_one_bucket() -> None:
    words = [f"{first}{second}" for first in "가나다라" for second in "바사자차카"]
    doc = sketch([("NNG", f" {word}") for _ in range(2) for word in words])
    result = far_items(doc, Choices())
    assert len(result.items) == PER_BUCKET
    assert result.drops == {"over 8 nouns of its document in one bucket": 12}


def test_occurrences_may_overlap() -> None:
    assert occurrences("나나나", "나나") == [0, 1]


@given(parts)
def test_far_items_are_what_the_definition_says(drawn: list[Part]) -> None:
    doc = sketch(drawn)
    seen: set[tuple[tuple[int, int] | None, str]] = set()
    items = far_items(doc, Choices(1)).items
    for item in items:
        gap, size = (item.start, item.end), len(item.answer)
        others = [(at, at + size) for at in occurrences(doc.text, item.answer) if abs(at - item.start) >= size]
        assert min(letters_between(doc.text, gap, other) for other in others) == item.distance
        assert any(other < gap for other in others)
        seen.add((bucket_of(item.distance), item.answer))
    assert len(seen) == len(items)
    assert all(bucket in BUCKETS for bucket, _ in seen)
