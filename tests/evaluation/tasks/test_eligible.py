"""What may be hidden: every reason against a mention, one sentence each."""

from __future__ import annotations

import unicodedata

import pytest

from coref_automl.evaluation.tasks.eligible import Eligible, frequent_nouns, rivals
from coref_automl.evaluation.tasks.nouns import LIGHT, Collocations, listed
from coref_automl.evaluation.tasks.real import real_items
from coref_automl.evaluation.tasks.task import Choices, parse_document
from coref_automl.korean import Tagger
from coref_automl.records import Document
from tests.evaluation.sketch import LETTERS, Part, sketch

LEAD: list[Part] = [
    ("NNP", "한빛전자"), ("", "는 어제 "), ("NNG", "도자기"), ("", "를 팔았다. 늘 "), ("NNG", "도자기"), ("", "만 곱다. "),
    ("NNG", "도자기"), ("", "도 그때 컸다. 그리고 아주 조용히 "),
]  # fmt: skip
"""A name, and a common noun often enough to be a thing the document is about."""


def counted(texts: list[tuple[str, str]]) -> Choices:
    """Choices that know these other documents of the source."""
    return Choices(usage={"sketches": Collocations.count(texts)})


def reason(*gap: Part, far: bool = False) -> str | None:
    """Why the last mention of these parts is not hidden."""
    doc = sketch([*LEAD, *gap])
    return Eligible(doc, Choices()).reason_against(doc.mentions[-1], far=far)


@pytest.mark.parametrize(
    ("why", "gap"),
    [
        (None, [("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("begins inside a word", [("", "새"), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("part of a longer word", [("NNP:GLUED", "한빛전자"), ("", "적인 문을 닫았다.")]),
        ("a verbal noun", [("NNG:VERBAL", "질타격"), ("", "하고는 곧 문을 닫았다.")]),
        ("a light noun", [("NNG", "경우"), ("", "에는 늘 문을 닫았다.")]),
        ("a noun of very many documents", [("NNG", "정부"), ("", "가 곧 문을 닫았다.")]),
        ("fewer than 3 times in its document", [("NNG", "수염"), ("", "이 곧 문을 닫았다.")]),
        ("not in a prose sentence", [("NNP", "한빛전자"), ("", "가 문을 닫음")]),
        ("coordinated with another noun", [("NNP:JOINED", "한빛전자"), ("", "와 그가 문을 닫았다.")]),
        ("coordinated with another noun", [("", "그 및 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("stands in an enumeration, a bracket or a title",
         [("NNG", "자개장"), ("", ", "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        (None, [("", "그때, "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        (None, [("NNG", "당시"), ("", " "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("fewer than 3 times in its document", [("NNP", "실용신안"), ("NNG", "등록"), ("", "이 곧 문을 닫았다.")]),
        ("a term, not a name", [("NNP", "배임죄"), ("", "가 문을 닫았다.")]),
        ("whoever holds a role", [("NNP", "외무대신"), ("", "이 문을 닫았다.")]),
        ("whoever holds a role",
         [("NNG", "조합원"), ("", "이 "), ("NNG", "조합원"), ("", "도 "), ("NNG", "조합원"), ("", "을 닫았다.")]),
        ("part of a term of several words",
         [("", "고고 "), ("NNP", "한빛전자"), ("", "는 또 고고 "), ("NNP", "한빛전자"), ("", "를 닫았다.")]),
        ("a variant of it is in the document", [("NNP", "한빛전지"), ("", "가 문을 닫았다.")]),
        ("a variant of it is in the document", [("NNP", "포항"), ("", "에서 나와 "), ("NNP", "포항시"), ("", "가 문을 닫았다.")]),
        ("stands in an enumeration, a bracket or a title", [("NNP", "한빛전자"), ("", "(HB)가 문을 닫았다.")]),
        ("no particle behind it", [("NNP", "한빛전자"), ("", " 큰 문을 닫았다.")]),
        ("part of a term of several words", [("NNG", "도자기"), ("", " "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("part of a term of several words", [("", "JR "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("part of a term of several words", [("", "제28조 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        (None, [("", "그해 3월에 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("no particle behind it", [("", "거기 있던 것은 늘 "), ("NNP", "한빛전자"), ("", ".")]),
        ("another one of its kind", [("", "다른 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("a predicate or a role", [("NNG:COPULA", "도자기"), ("", "이며 문을 닫았다.")]),
        ("a predicate or a role", [("NNP", "한빛전자"), ("", "로 문을 닫았다.")]),
        ("part of a longer word", [("NNP", "한빛전자"), ("", "두기를 문을 닫았다.")]),
        ("an owner among other names",
         [("NNP", "포항"), ("", "에서 온 "), ("NNP", "김유신"), ("", "이 "), ("NNP", "한빛전자"), ("", "의 문을 닫았다.")]),
        (None, [("NNP", "김유신"), ("", "이 "), ("NNP", "한빛전자"), ("", "의 문을 닫았다.")]),
        ("part of a term of several words", [("", "2002. 3. 12.자 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("part of a term of several words", [("NNG", "홈"), ("", " "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("stands in an enumeration, a bracket or a title", [("", "'"), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")]),
        ("described by a clause or an owner of its own", [("", "고운 "), ("NNG:CLAUSE", "도자기"), ("", "가 문을 닫았다.")]),
        ("described by a clause or an owner of its own", [("", "그의 "), ("NNG", "도자기"), ("", "가 문을 닫았다.")]),
        ("a longer or shorter term of its kind is in the document",
         [("NNG", "백자도자기"), ("", "만 "), ("NNG", "도자기"), ("", "를 닫았다.")]),
        ("another noun stands in the same place", [("NNP", "자개장"), ("", "를 팔았다. 그리고 조용히 쉬었다.")]),
        ("another noun stands in the same place", [("", "는 어제 "), ("NNP", "자개장"), ("", "를 두고 곧 나섰다.")]),
    ],
)  # fmt: skip
def test_a_mention_is_not_hidden_for_a_reason(why: str | None, gap: list[Part]) -> None:
    assert reason(*gap) == why


def test_of_two_counterparts_in_a_document_neither_is_hidden() -> None:
    assert reason(("NNP", "원고"), ("", "는 문을 닫았고 "), ("NNP", "피고"), ("", "만 거기 남았다.")) == (
        "its counterpart is in the document"
    )


def test_a_far_common_noun_has_three_syllables_and_a_sentence_to_be_found_by() -> None:
    assert reason(("NNG", "도자기"), ("", "가 문을 닫았다."), far=True) is None
    often = [("NNG", "수염"), ("", "이 곧 문을 닫았다. "), ("NNG", "수염"), ("", "은 이제 안다. ")]
    assert reason(*often, ("NNG", "수염"), ("", "만 혼자 문을 닫았다.")) is None
    assert reason(*often, ("NNG", "수염"), ("", "만 혼자 문을 닫았다."), far=True) == "a common noun of two syllables"
    doc = sketch([*LEAD, ("NNG", "자개장"), ("", "이 문을 닫자 "), ("NNP", "한빛전자"), ("", "도 닫았다.")])
    gap = doc.mentions[-1]
    eligible = Eligible(doc, Choices())
    assert (eligible.shared(gap), eligible.reason_against(gap, 127, far=True)) == (0, None)
    assert eligible.reason_against(gap, 128, far=True) == "shares fewer than 1 nouns with a sentence that names it"
    eligible = Eligible(
        sketch([*LEAD, ("NNG", "도자기"), ("", "만 남기고 "), ("NNP", "한빛전자"), ("", "도 닫았다.")]), Choices()
    )
    gap = eligible.doc.mentions[-1]
    assert (eligible.shared(gap), eligible.reason_against(gap, 128, far=True)) == (1, None)
    assert eligible.reason_against(gap, 512, far=True) == "shares fewer than 3 nouns with a sentence that names it"


def test_short_answers_are_not_asked() -> None:
    doc = sketch([*LEAD, ("NNP", "서울"), ("", "이 문을 닫았다.")])
    assert Eligible(doc, Choices(min_syllables=3)).reason_against(doc.mentions[-1]) == "fewer than 3 syllables"
    assert Eligible(doc, Choices(min_syllables=2)).reason_against(doc.mentions[-1]) is None


def test_a_noun_of_many_documents_of_its_source_is_not_asked() -> None:
    """Where a hundred were counted: a name in more than 0.5% of them, a common noun in any."""
    name = sketch([*LEAD, ("NNP", "한빛전자"), ("", "가 문을 닫았다.")])
    noun = sketch([*LEAD, ("NNG", "도자기"), ("", "가 문을 닫았다.")])
    texts = [(str(number), "여기에는 아무것도 없다.") for number in range(200)]
    once, twice = [*texts[1:], ("a", "그 한빛전자의 도자기는")], [*texts[2:], ("a", "그 한빛전자의"), ("b", "이 한빛전자가")]
    many = "a noun of many documents of its source"
    assert Eligible(name, counted(once)).reason_against(name.mentions[-1]) is None
    assert Eligible(name, counted(twice)).reason_against(name.mentions[-1]) == many
    assert Eligible(name, counted(twice[101:])).reason_against(name.mentions[-1]) is None
    assert Eligible(noun, counted(once)).reason_against(noun.mentions[-1]) == many
    assert Eligible(noun, counted(texts)).reason_against(noun.mentions[-1]) is None
    decomposed = [(identity, unicodedata.normalize("NFD", text)) for identity, text in twice]
    assert Eligible(name, counted(decomposed)).reason_against(name.mentions[-1]) == many


def test_part_of_a_longer_name_is_no_antecedent() -> None:
    doc = sketch(
        [("NNP", "토론토"), ("", " "), ("NNP", "블루제이스"), ("", "가 이겼다. "), ("NNP", "토론토"), ("", " 시민이 웃었다.")]
    )
    eligible = Eligible(doc, Choices())
    assert [eligible.reason_against_antecedent(mention) for mention in doc.mentions] == [
        "antecedent in a longer name",
        None,
        None,
    ]


def test_a_name_among_others_is_no_antecedent_and_an_earlier_mention_is_taken() -> None:
    joined: list[Part] = [("NNP:JOINED", "티르피츠"), ("", "와 "), ("NNP", "자개장"), ("", "이 컸다. ")]
    listed: list[Part] = [("", "그때 "), ("NNP", "티르피츠"), ("", ", "), ("NNP", "자개장"), ("", "이 컸다. ")]
    doc = sketch([*joined, *listed, ("NNP", "티르피츠"), ("", "는 닫았다.")])
    eligible = Eligible(doc, Choices())
    assert [eligible.reason_against_antecedent(mention) for mention in doc.mentions] == [
        *["antecedent beside another noun"] * 2,
        *["antecedent in an enumeration or a bracket"] * 2,
        None,
    ]
    first, *_, last = doc.mentions
    assert (eligible.antecedent([first, last]), eligible.antecedent([first])) == (last, first)


def test_what_other_documents_write_beside_the_neighbour_is_guessable() -> None:
    doc = sketch([*LEAD, ("", "주식회사의 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")])
    gap = doc.mentions[-1]
    texts = [(name, "모두가 주식회사의 한빛전자를 안다.") for name in ("one", "two")]
    assert Eligible(doc, counted(texts)).reason_against(gap) == "guessable from its neighbours"
    assert Eligible(doc, counted(texts[:1])).reason_against(gap) is None
    decomposed = [(identity, unicodedata.normalize("NFD", text)) for identity, text in texts]
    assert Eligible(doc, counted(decomposed)).reason_against(gap) == "guessable from its neighbours"
    own = [("document", texts[0][1]), texts[1]]
    assert Eligible(doc, counted(own)).reason_against(gap) is None
    rare = [*texts, *((str(number), "이 주식회사의 사람은 많다.") for number in range(30))]
    assert Eligible(doc, counted(rare)).reason_against(gap) is None


def test_the_answer_beside_the_same_word_elsewhere_is_copyable() -> None:
    doc = sketch([("", "옛날 그 "), *LEAD, ("", "떠나온 그 "), ("NNP", "한빛전자"), ("", "가 문을 닫았다.")])
    assert Eligible(doc, Choices()).copyable(doc.mentions[-1])
    assert not Eligible(doc, Choices()).copyable(doc.mentions[1])


def test_the_lists_hold_what_the_documentation_names() -> None:
    assert {"관계", "사이", "때문", "오늘", "킬로미터"} <= listed(LIGHT)
    assert "피고" in rivals()["원고"]
    assert frequent_nouns()["사용"][1] >= 25


def test_the_tagger_s_words_are_kept_apart() -> None:
    """With Kiwi: verbal nouns, suffixes and lists are no items; a name is."""
    text = (
        "세종대왕은 한글을 지정하였다. 국제적인 지정은 자주 어렵다. 김유신은 경주에서 자랐다. "
        "그때 사람들이 모두 말하기를 김유신은 늘 말이 없었다고 한다."
    )
    doc = parse_document(Document("kiwi", "texts", text), next(Tagger().tag([text])), LETTERS)
    assert [item.answer for item in real_items(doc, Choices()).items] == ["김유신"]
    assert Eligible(doc, Choices()).reason_against(next(m for m in doc.mentions if m.form == "지정")) == "a verbal noun"
