"""Real items: each rule of the definition, one by one, and all of them together against a plain reading of the definition."""

from __future__ import annotations

from hypothesis import given

from coref_automl.evaluation.tasks.real import REACH, real_items
from coref_automl.evaluation.tasks.task import ReadDocument, is_apart
from coref_automl.records import ClozeItem
from tests.evaluation.sketch import NOUNS, Part, letters_between, parts, sketch

TWICE: list[Part] = [("NNP", "서울"), ("", "은 "), ("NNG", "한강"), ("", "과 "), ("NNP", "서울"), ("", "이다.")]


def only(read: ReadDocument) -> ClozeItem:
    (item,) = real_items(read, seed=0).items
    return item


def test_the_second_mention_is_hidden_and_the_first_is_the_antecedent() -> None:
    read = sketch([*TWICE, ("NNP", " 서울"), ("", "도.")])
    item = only(read)
    assert (item.start, item.end, item.answer, item.tag) == (8, 10, "서울", "NNP")
    assert item.antecedent == (0, 2)
    assert item.distance == letters_between(read.text, (0, 2), (8, 10)) == 4
    assert item.cluster == item.document == "document"
    assert not item.pronoun_between


def test_a_pronoun_between_the_two_mentions_drops_the_noun() -> None:
    found = real_items(sketch([*TWICE[:2], ("NP", "그"), *TWICE[1:]]), seed=0)
    assert found.items == []
    assert found.drops["a pronoun between the two mentions"] == 1


def test_a_pronoun_before_or_after_does_no_harm() -> None:
    assert only(sketch([("NP", "그"), ("", "는 "), *TWICE, ("NP", " 그"), ("", "는.")])).answer == "서울"


def test_the_first_mention_may_be_400_tokens_away_and_no_more() -> None:
    def spaced(letters: int) -> ReadDocument:
        return sketch([("NNP", "서울"), ("", " " + "아" * (letters - 2) + " "), ("NNG", "한강"), ("NNP", " 서울")])

    assert only(spaced(REACH)).distance == REACH
    found = real_items(spaced(REACH + 1), seed=0)
    assert found.items == []
    assert found.drops[f"first mention over {REACH} tokens away"] == 1


def test_a_second_mention_inside_a_word_drops_the_noun() -> None:
    found = real_items(sketch([("NNP", "서울"), ("", " 새"), ("NNP", "서울"), ("NNG", " 한강"), ("NNP", " 서울")]), seed=0)
    assert found.items == []
    assert found.drops["begins inside a word"] == 1


def test_nouns_written_together_are_hidden_as_one() -> None:
    read = sketch([("NNP", "서울"), ("NNG", "시청"), ("", "은 "), ("NNP", "서울"), ("NNG", "시청"), ("", "과 "), ("NNG", "한강")])
    assert only(read).answer == "서울시청"


def test_a_document_gives_three_nouns_at_most_and_the_seed_chooses_them() -> None:
    read = sketch([("NNG", f" {noun}") for noun in NOUNS] * 2)
    found = real_items(read, seed=0)
    assert len(found.items) == 3
    assert found.drops["over 3 nouns of its document"] == len(NOUNS) - 3
    assert real_items(read, seed=0) == found
    chosen = {tuple(item.answer for item in real_items(read, seed=seed).items) for seed in range(8)}
    assert len(chosen) > 1


def test_a_noun_without_another_to_choose_from_is_dropped() -> None:
    found = real_items(sketch([("NNP", "서울"), ("", "은 "), ("NNP", "서울"), ("NNG", " 서울역")]), seed=0)
    assert found.items == []
    assert found.drops == {"no other noun to choose from": 1}


def test_candidates_are_nouns_of_the_document_that_neither_contain_the_answer_nor_lie_in_it() -> None:
    item = only(sketch([*TWICE, ("NNG", " 서울역"), ("NNG", " 기차"), ("", " 버스")]))
    assert item.candidates[0] == ("서울",)
    assert sorted(item.candidates[1:]) == [("기차",), ("한강",)]


def test_twenty_candidates_are_enough() -> None:
    many = [("NNG", f" {first}{second}") for first in "가나다라마" for second in "바사자차카타"]
    item = only(sketch([*TWICE, *many]))
    assert len(item.candidates) == len(set(item.candidates)) == 20


def test_an_item_s_id_names_its_text_and_its_span_and_not_its_document() -> None:
    one, other = only(sketch(TWICE, name="one")), only(sketch(TWICE, name="other"))
    longer = only(sketch([*TWICE, ("", " 끝.")]))
    assert one.id == other.id
    assert one.document != other.document
    assert longer.id != one.id


@given(parts)
def test_real_items_are_what_the_definition_says(drawn: list[Part]) -> None:
    read = sketch(drawn)
    fit = {}
    for mention in read.mentions:
        same = [other for other in read.mentions if other.form == mention.form]
        if len(same) < 2 or mention is not same[1]:
            continue
        between = read.text[same[0].end : mention.start]
        if (
            letters_between(read.text, same[0].span, mention.span) <= 400
            and " 그" not in between
            and not (mention.start and read.text[mention.start - 1].isalnum())
            and any(is_apart(other.form, mention.form) for other in read.mentions)
        ):
            fit[mention.form] = (same[0].span, mention.span)
    found = real_items(read, seed=3)
    assert {item.answer for item in found.items} <= set(fit)
    assert len(found.items) == min(3, len(fit))
    repeated = {m.form for m in read.mentions if sum(other.form == m.form for other in read.mentions) > 1}
    assert len(found.items) + sum(found.drops.values()) == len(repeated)
    for item in found.items:
        assert fit[item.answer] == (item.antecedent, (item.start, item.end))
        assert read.text[item.start : item.end] == item.answer
        assert item.candidates[0] == (item.answer,)
        assert all(len(group) == 1 and is_apart(group[0], item.answer) for group in item.candidates[1:])
        assert {group[0] for group in item.candidates} <= {mention.form for mention in read.mentions}
