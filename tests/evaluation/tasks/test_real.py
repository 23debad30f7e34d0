"""Real, new and real-choice items: which mention is hidden, what its antecedent is, and how many of a document are asked."""

from __future__ import annotations

from hypothesis import given

from coref_automl.base.records import ClozeItem
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.new import new_items
from coref_automl.evaluation.tasks.real import REACH, repeated
from coref_automl.evaluation.tasks.task import Choices, ParsedDocument, begins_word, occurrences
from tests.evaluation.sketch import Part, letters_between, parts, sketch

TWICE: list[Part] = [("NNP", "서울"), ("", "은 "), ("NNG", "한강"), ("", "에 닿고 "), ("NNP", "서울"), ("", "은 넓다.")]


def only(doc: ParsedDocument) -> ClozeItem:
    (item,) = repeated(doc, Choices()).items
    return item


def test_the_second_mention_is_hidden_and_the_one_before_is_the_antecedent() -> None:
    doc = sketch([*TWICE, ("NNP", " 서울"), ("", "도 있다.")])
    item = only(doc)
    start = doc.text.index("서울", 2)
    assert (item.start, item.end, item.answer, item.tag) == (start, start + 2, "서울", "NNP")
    assert item.antecedent == (0, 2)
    assert item.distance == letters_between(doc.text, (0, 2), (start, start + 2))
    assert item.cluster == doc.identity
    assert len(item.cluster) == 16


def test_a_later_mention_is_hidden_where_the_second_does_not_fit() -> None:
    inside = sketch([("NNP", "서울"), ("", "은 새"), ("NNP", "서울"), ("", "이다. "), ("NNP", "서울"), ("", "은 넓다.")])
    item = only(inside)
    assert item.start == inside.text.rindex("서울")
    assert item.antecedent == (inside.text.index("서울", 1), inside.text.index("서울", 1) + 2)
    pronoun = sketch([*TWICE[:2], ("NP", " 그"), *TWICE[1:], ("NNP", " 서울")])
    assert only(pronoun).start == pronoun.text.rindex("서울")


def test_a_pronoun_between_the_two_mentions_drops_the_noun() -> None:
    result = repeated(sketch([*TWICE[:2], ("NP", "그"), *TWICE[1:]]), Choices())
    assert result.items == []
    assert result.drops == {"a pronoun between the two mentions": 1}


def test_the_antecedent_may_be_400_tokens_away_and_no_more() -> None:
    def spaced(letters: int) -> ParsedDocument:
        return sketch([("NNP", "서울"), ("", "아" * letters + " "), ("NNP", "서울")])

    assert only(spaced(REACH)).distance == REACH
    result = repeated(spaced(REACH + 1), Choices())
    assert result.items == []
    assert result.drops == {f"earlier mention over {REACH} tokens away": 1}


def test_at_most_so_many_of_a_document_by_lot() -> None:
    words = [f"{first}{second}" for first in "가나다라" for second in "바사자차카"]
    doc = sketch([("NNG", f" {word}") for _ in range(2) for word in words])
    result = repeated(doc, Choices())
    assert len(result.items) == 12
    assert result.drops == {"over 12 gaps of its document": 8}
    assert repeated(doc, Choices()) == result
    drawn = [repeated(doc, Choices(seed, per_document=3)).items for seed in range(8)]
    assert len({tuple(item.answer for item in items) for items in drawn}) > 1


def test_an_item_s_id_names_its_task_its_text_and_its_span_and_not_its_document() -> None:
    one, other = only(sketch(TWICE, name="one")), only(sketch(TWICE, name="other"))
    longer = only(sketch([*TWICE, ("", " 끝.")]))
    (choice,) = TASKS["real-choice"].find(sketch(TWICE), None, Choices()).items
    assert one.id == other.id
    assert one.document != other.document
    assert len({one.id, longer.id, choice.id}) == 3
    assert (choice.start, choice.antecedent) == (one.start, one.antecedent)


def test_a_new_noun_stands_once_and_begins_a_word() -> None:
    doc = sketch([("NNP", "서울"), ("", "역과 "), ("NNP", "서울"), ("NNG", " 한강"), ("", "의 새"), ("NNG", "기차")])
    result = new_items(doc, Choices())
    assert [(item.answer, item.antecedent, item.distance) for item in result.items] == [("한강", None, -1)]
    assert result.drops == {"occurs again": 2, "begins inside a word": 1}


@given(parts)
def test_items_are_what_the_definition_says(drawn: list[Part]) -> None:
    doc = sketch(drawn)
    spans = {mention.span for mention in doc.mentions}
    real, new = repeated(doc, Choices(3)).items, new_items(doc, Choices(3)).items
    assert len({item.answer for item in real}) == len(real)
    for item in real:
        assert item.antecedent in spans
        assert item.antecedent is not None
        assert item.antecedent[1] <= item.start
        assert doc.text[slice(*item.antecedent)] == item.answer
        assert letters_between(doc.text, item.antecedent, (item.start, item.end)) <= REACH
        assert not doc.pronoun_between(item.antecedent, (item.start, item.end))
    for item in new:
        assert occurrences(doc.text, item.answer) == [item.start]
    for item in (*real, *new):
        assert (item.start, item.end) in spans
        assert begins_word(doc.text, item.start)
