"""Real items: which mention is hidden, what its antecedent is, and how many of a document are asked."""

from __future__ import annotations

from hypothesis import given

from coref_automl.evaluation.tasks.eligible import Eligible
from coref_automl.evaluation.tasks.real import REACH, real_items
from coref_automl.evaluation.tasks.task import Choices, ParsedDocument, is_apart
from coref_automl.records import ClozeItem
from tests.evaluation.sketch import NOUNS, Part, letters_between, parts, sketch

TWICE: list[Part] = [
    ("NNP", "서울"), ("", "은 오래된 도시로 "), ("NNG", "한강"), ("", "에 닿고 "),
    ("NNP", "서울"), ("", "에는 넓은 공원도 있다."),
]  # fmt: skip


def only(doc: ParsedDocument) -> ClozeItem:
    (item,) = real_items(doc, Choices()).items
    return item


def test_the_second_mention_is_hidden_and_the_first_is_the_antecedent() -> None:
    doc = sketch(
        [*TWICE, ("NNP", " 서울"), ("", "도 그렇게 그때 거기 있다."), ("NNP", " 서울"), ("", "만 여전히 그때 거기 있다.")]
    )
    item, second = real_items(doc, Choices()).items
    start = doc.text.index("서울", 2)
    assert second.start == doc.text.index("서울", start + 1)  # a noun gives two gaps at most
    assert (item.start, item.end, item.answer, item.tag) == (start, start + 2, "서울", "NNP")
    assert item.antecedent == (0, 2)
    assert item.distance == letters_between(doc.text, (0, 2), (start, start + 2))
    assert item.cluster == item.document == "document"
    assert (item.before, item.copyable, item.pronoun_between) == (True, False, False)


def test_a_later_mention_is_hidden_where_the_second_does_not_fit() -> None:
    doc = sketch([("NNP", "서울"), ("", "은 크다. "), ("NNP", "서울"), ("", " 시내의 "), *TWICE[2:]])
    item = only(doc)
    assert item.start == doc.text.rindex("서울")
    assert item.antecedent == (doc.text.index("서울", 1), doc.text.index("서울", 1) + 2)


def test_the_nearest_mention_that_names_the_thing_is_the_antecedent() -> None:
    tale: list[Part] = [
        ("NNG", "과수원"),
        ("", "은 크다. 마침내 "),
        ("NNG", "황실"),
        ("", " "),
        ("NNG", "과수원"),
        ("", "도 생겼다. "),
    ]
    item = only(sketch([*tale, ("", "거기서 오래 "), ("NNG", "과수원"), ("", "을 다시 가꾸었다.")]))
    assert item.antecedent == (0, 3)


def test_a_pronoun_between_the_two_mentions_drops_the_noun() -> None:
    result = real_items(sketch([*TWICE[:2], ("NP", "그"), *TWICE[1:]]), Choices())
    assert result.items == []
    assert result.drops["a pronoun between the two mentions"] == 1


def test_the_antecedent_may_be_400_tokens_away_and_no_more() -> None:
    def spaced(letters: int) -> ParsedDocument:
        filler = "은 여기 있다. " + "아" * (letters - 8) + " "
        return sketch(
            [("NNP", "서울"), ("", filler), ("NNG", "한강"), ("", "에 닿은 "), ("NNP", "서울"), ("", "에는 넓은 공원도 있다.")]
        )

    doc = spaced(REACH)
    start = doc.text.rindex("서울")
    room = letters_between(doc.text, (0, 2), (start, start + 2))
    assert only(spaced(REACH - (room - REACH))).distance == REACH
    result = real_items(spaced(REACH - (room - REACH) + 1), Choices())
    assert result.items == []
    assert result.drops[f"earlier mention over {REACH} tokens away"] == 1


def test_names_are_drawn_before_common_nouns_and_the_seed_chooses() -> None:
    parts: list[Part] = []
    for who in ("누가", "아무나", "모두"):
        for place, noun in enumerate(("파하강", "가나담", "거너덤", "라마밥", "러머범", "사아잔", "서어전", "차카탄")):
            parts += [("NNP" if place % 2 else "NNG", noun), ("", f"에서 {who}{place} 또 무엇을{place} 했다. ")]
    doc = sketch(parts)
    result = real_items(doc, Choices(per_document=10))
    tags = [item.tag for item in result.items]
    assert (tags.count("NNP"), tags.count("NNG")) == (8, 2)  # of four names two gaps each
    assert result.drops["over 10 gaps of its document"] == 6
    assert real_items(doc, Choices(per_document=10)) == result
    drawn = [real_items(doc, Choices(seed, per_document=3)).items for seed in range(8)]
    assert len({tuple(item.answer for item in items) for items in drawn}) > 1


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
    doc = sketch(drawn)
    result = real_items(doc, Choices(3, 12))
    eligible = Eligible(doc, Choices())
    words = {mention.span: mention for mention in eligible.words}
    repeated = [form for form in NOUNS if sum(mention.form == form for mention in words.values()) > 1]
    others = {mention.form for mention in words.values()} - set(NOUNS)  # nouns written together
    repeated += [form for form in others if sum(mention.form == form for mention in words.values()) > 1]
    assert len({item.answer for item in result.items}) <= len(repeated) <= len(result.items) + sum(result.drops.values())
    for item in result.items:
        gap = (item.start, item.end)
        named = [word for word in words.values() if word.form == item.answer and eligible.reason_against_antecedent(word) is None]
        earlier = max(word.span for word in named if word.span < gap)
        assert item.antecedent == earlier
        assert eligible.reason_against(words[gap]) is None
        assert letters_between(doc.text, earlier, gap) <= REACH
        assert " 그" not in doc.text[earlier[1] : item.start].replace(" 그 길로", "")
        assert item.candidates[0] == (item.answer,)
        assert all(len(group) == 1 and is_apart(group[0], item.answer) for group in item.candidates[1:])
