"""Passages: the last noun of the last sentence, named earlier and not nearby."""

from __future__ import annotations

from coref_automl.evaluation.tasks.passage import passage_items
from coref_automl.evaluation.tasks.task import Choices
from tests.evaluation.sketch import Part, sketch

FIRST: list[Part] = [("NNP", "한빛전자"), ("", "는 오래전에 문을 열었다. ")]
MIDDLE: list[Part] = [
    ("", "그때는 모두 즐거웠고 아무도 떠나지 않았다. 그러다 "),
    ("NNG", "도자기"),
    ("", "가 팔리지 않아 조용했다. "),
]
LAST: list[Part] = [("", "마침내 오랜 시간이 지나서 "), ("NNP", "한빛전자"), ("", "는 문을 닫았다.")]


def test_a_passage_ends_with_the_sentence_of_its_gap() -> None:
    doc = sketch([*FIRST, *MIDDLE, *LAST, ("", " 뒤에 남은 이야기는 없다.")])
    result = passage_items(doc, Choices())
    ((item,), (passage,)) = result.items, result.passages
    assert passage.text == doc.text[: doc.text.index(" 뒤에")]
    assert passage.text[item.start : item.end] == item.answer == "한빛전자"
    assert item.antecedent == (0, 4)
    assert item.document == passage.id != doc.document.id
    assert item.cluster == doc.document.id


def test_an_answer_in_its_own_sentence_or_nearby_is_not_asked() -> None:
    near = passage_items(sketch([*MIDDLE, ("", "그렇다. "), *FIRST, *LAST[1:]]), Choices())
    assert near.items == []
    twice = passage_items(sketch([*FIRST, *MIDDLE, *FIRST[:1], ("", "에서 "), *LAST]), Choices())
    assert twice.items == []
    assert twice.drops["occurs in the last sentence"] == 1


def test_only_the_last_noun_of_a_sentence_is_asked() -> None:
    doc = sketch([*FIRST, *MIDDLE, *LAST[:2], ("", "는 "), ("NNG", "창문"), ("", "을 늘 닫았다.")])
    assert passage_items(doc, Choices()).items == []


def test_nouns_of_the_verb_and_light_nouns_are_not_the_last_word() -> None:
    doc = sketch(
        [*FIRST, *MIDDLE, *LAST[:2], ("", "는 "), ("NNG", "당시"), ("", " 문을 "), ("NNG:VERBAL", "폐쇄"), ("", "하였다.")]
    )
    assert [item.answer for item in passage_items(doc, Choices()).items] == ["한빛전자"]


def test_a_common_noun_is_not_asked() -> None:
    doc = sketch([("NNG", "도자기"), ("", "는 오래전에 늘 있었다. "), *MIDDLE, *LAST[:1], ("NNG", "도자기"), ("", "도 닫았다.")])
    result = passage_items(doc, Choices())
    assert (result.items, result.drops["not a name"]) == ([], 3)


def test_what_is_a_name_elsewhere_in_the_document_is_asked() -> None:
    """The tagger calls one word a name in one sentence and a common noun in the next."""
    first: list[Part] = [("NNP", "티르피츠"), ("", "는 오래전에 떠났다. "), ("NNG", "티르피츠"), ("", "도 그랬다. ")]
    doc = sketch([*first, *MIDDLE, *LAST[:1], ("NNG", "티르피츠"), ("", "는 문을 닫았다.")])
    assert [(item.answer, item.tag) for item in passage_items(doc, Choices()).items] == [("티르피츠", "NNG")]


def test_an_antecedent_far_away_needs_a_noun_in_common() -> None:
    rest: Part = ("", "그날은 " + "아무 일도 없이 조용히 " * 20 + "지나갔다. ")
    result = passage_items(sketch([*FIRST, *MIDDLE, rest, *LAST]), Choices())
    assert result.drops["shares fewer than 1 nouns with a sentence that names it"] == 1
    repeated: list[Part] = [("NNG", "도자기"), ("", "만 남기고 "), *LAST]
    assert (
        len(passage_items(sketch([*FIRST[:1], ("", "는 "), *MIDDLE[1:2], *FIRST[1:], *MIDDLE, rest, *repeated]), Choices()).items)
        == 1
    )


def test_a_short_text_gives_none() -> None:
    result = passage_items(sketch([*FIRST, *LAST]), Choices())
    assert result.items == []
    assert result.drops["fewer than 4 sentences"] >= 1
