"""Gold items: who may be hidden, who may be chosen, and what spoils an annotation."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.evaluation.tasks.gold import gold_items, is_pronoun, read_annotated
from coref_automl.evaluation.tasks.task import Found, ParsedDocument, parse_document, read_rows
from coref_automl.korean import KINDS, Tags
from tests.evaluation.sketch import LETTERS, letters_between

TEXT = "김 첨지는 아내를 보았다. 그는 아내에게 말했다. 아내는 김 첨지를 보았다."


def mention(text: str, form: str, occurrence: int, entity: str) -> dict[str, Any]:
    at = -1
    for _ in range(occurrence + 1):
        at = text.index(form, at + 1)
    return {"start": at, "end": at + len(form), "text": form, "entity": entity}


def row_of(text: str, *mentions: tuple[str, int, str], **facts: Any) -> dict[str, Any]:
    clusters: dict[str, list[dict[str, Any]]] = {}
    for form, occurrence, entity in mentions:
        clusters.setdefault(entity, []).append(mention(text, form, occurrence, entity))
    return {"doc_id": "1_0", "novel": "운수", "text": text, "clusters": list(clusters.values()), **facts}


FULL = (("김 첨지", 0, "A"), ("김 첨지", 1, "A"), ("그", 0, "A"), ("아내", 0, "B"), ("아내", 1, "B"), ("아내", 2, "B"))


def read_row(row: dict[str, Any], *nouns: tuple[int, int, str]) -> tuple[ParsedDocument, Any]:
    (gold,), drops = read_rows([row], read_annotated, "novels")
    assert not drops
    spans = np.array([noun[:2] for noun in nouns], np.int32).reshape(-1, 2)
    tags = Tags(spans, np.array([KINDS.index(noun[2]) for noun in nouns], np.uint8), np.array([], np.int32))
    return parse_document(gold.document, tags, LETTERS), gold


def items_of(row: dict[str, Any], *nouns: tuple[int, int, str], most: int = 99) -> Found:
    doc, gold = read_row(row, *nouns)
    return gold_items(doc, gold, seed=0, per_document=most)


def test_a_name_is_hidden_and_the_entities_are_the_choice() -> None:
    result = items_of(row_of(TEXT, *FULL))
    assert [item.answer for item in result.items] == ["김 첨지", "아내", "아내", "아내", "김 첨지"]
    first = result.items[0]
    assert first.candidates == (("김 첨지",), ("아내",))
    assert result.items[1].candidates == (("아내",), ("김 첨지",))
    assert (first.cluster, first.document) == ("운수", "novels-1_0")
    assert result.drops == Counter({"a pronoun": 1})


def test_the_antecedent_is_the_nearest_other_mention_a_pronoun_too() -> None:
    first = items_of(row_of(TEXT, *FULL)).items[0]
    at = TEXT.index("그는")
    assert first.antecedent == (at, at + 1)
    assert first.distance == letters_between(TEXT, (0, 4), (at, at + 1))


def test_a_nested_mention_and_the_one_around_it_are_not_hidden() -> None:
    text = "첨지의 아내가 왔다. 첨지는 아내를 보았다."
    row = row_of(text, ("첨지", 0, "A"), ("첨지의 아내", 0, "B"), ("첨지", 1, "A"), ("아내", 1, "B"))
    result = items_of(row)
    assert [(item.answer, item.start) for item in result.items] == [("첨지", 12), ("아내", 16)]
    assert result.drops["nested in another mention or around one"] == 2
    assert result.items[1].candidates[0] == ("첨지의 아내", "아내")


def test_a_group_is_neither_hidden_nor_a_choice_nor_an_antecedent() -> None:
    text = "둘은 걸었다. 갑돌이는 을순이와 걸었다. 을순이는 갑돌이와 걸었다."
    row = row_of(text, ("둘", 0, "A+B"), ("갑돌이", 0, "A"), ("갑돌이", 1, "A"), ("을순이", 0, "B"), ("을순이", 1, "B"))
    result = items_of(row)
    assert result.drops["names a group of entities"] == 1
    assert all(item.answer != "둘" and item.antecedent != (0, 1) for item in result.items)
    assert all("둘" not in forms for item in result.items for forms in item.candidates)


def test_a_surface_of_two_entities_is_neither_hidden_nor_a_choice() -> None:
    text = "형은 갑돌이다. 갑돌이와 을순이와 형은 걸었다. 을순이."
    row = row_of(
        text, ("형", 0, "A"), ("갑돌이", 0, "A"), ("갑돌이", 1, "A"), ("을순이", 0, "B"), ("형", 1, "B"), ("을순이", 1, "B")
    )
    result = items_of(row)
    assert result.drops["its surface names another entity too"] == 2
    assert all(item.candidates == ((item.answer,), *item.candidates[1:]) for item in result.items)
    assert all("형" not in forms for item in result.items for forms in item.candidates)


def test_one_entity_is_no_choice() -> None:
    result = items_of(row_of(TEXT, *FULL[:3]))
    assert result.items == []
    assert result.drops["fewer than two entities to choose from"] == 2


def test_the_only_mention_of_an_entity_is_not_hidden() -> None:
    result = items_of(row_of(TEXT, ("김 첨지", 0, "A"), ("아내", 0, "B"), ("아내", 1, "B")))
    assert result.drops["the only mention of its entity"] == 1
    assert {item.answer for item in result.items} == {"아내"}


def test_a_description_is_too_long_to_be_hidden() -> None:
    text = "눈이 크고 키가 큰 사람이 왔다. 아내는 그를 보았다. 그는 아내를 보았다."
    row = row_of(text, ("눈이 크고 키가 큰 사람", 0, "A"), ("그", 0, "A"), ("아내", 0, "B"), ("아내", 1, "B"))
    assert items_of(row).drops["over 8 characters or two words"] == 1


def test_a_text_gives_three_items_at_most_one_of_each_entity_first() -> None:
    result = items_of(row_of(TEXT, *FULL), most=2)
    assert {item.answer for item in result.items} == {"김 첨지", "아내"}
    assert result.drops["over 2 mentions of its text"] == 3


def test_the_tagger_decides_what_else_is_a_pronoun() -> None:
    text = "이분은 왔다. 우리 아내도 나 자신도."
    doc, _ = read_row(row_of(text, ("이분", 0, "A")), (0, 2, "NP"), (8, 10, "NP"), (11, 13, "NNG"))
    assert is_pronoun(doc, (0, 2))
    assert not is_pronoun(doc, (8, 13))
    at = text.index("나 자신")
    assert is_pronoun(doc, (at, at + 4))


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"clusters": [[{"start": 1, "end": 3, "text": "김 첨지", "entity": "A"}]]}, "a mention is not where its offsets say"),
     ({"clusters": [[{"start": 1, "text": "김"}]]}, "a mention without start, end and text"),
     ({"clusters": [[{"start": 2, "end": 2, "text": "", "entity": "A"}]]}, "a mention is not where its offsets say"),
     ({"clusters": [[{"start": -len(TEXT), "end": 1 - len(TEXT), "text": TEXT[0]}]]}, "a mention is not where its offsets say"),
     ({"clusters": [[{"start": math.inf, "end": 3, "text": "김"}]]}, "a mention without start, end and text"),
     ({"clusters": [None]}, "a cluster that is not a list of mentions"),
     ({"clusters": [{"start": 1, "end": 3, "text": "김"}]}, "a cluster that is not a list of mentions"),
     ({"clusters": None}, "text or clusters are missing"),
     ({"text": unicodedata.normalize("NFD", TEXT)}, "not composed (NFC), so that its offsets would move")],
)  # fmt: skip
def test_rows_that_cannot_be_trusted_are_counted_by_reason(change: dict[str, Any], reason: str) -> None:
    result, drops = read_rows([{**row_of(TEXT, *FULL), **change}, "not JSON"], read_annotated, "novels")
    assert result == []
    assert drops == Counter({reason: 1, "not JSON": 1})


def test_one_wrong_offset_spoils_its_whole_row() -> None:
    row = row_of(TEXT, *FULL)
    row["clusters"][0][0]["start"] += 1
    assert read_rows([row, row_of(TEXT, *FULL)], read_annotated, "novels")[1] == Counter(
        {"a mention is not where its offsets say": 1}
    )


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5), st.sampled_from(["A", "B", "C", "A+B"])), max_size=12))
def test_gold_items_keep_their_promises_whatever_the_annotation(drawn: list[tuple[int, int, str]]) -> None:
    text = "갑돌이와 을순이는 갑돌이네 집에서 을순이와 그를 만났다."
    clusters = [[{"start": at, "end": at + size, "text": text[at : at + size], "entity": entity}] for at, size, entity in drawn]
    doc, gold = read_row({"text": text, "clusters": clusters})
    for item in gold_items(doc, gold, seed=0, per_document=99).items:
        gap = (item.start, item.end)
        assert text[item.start : item.end] == item.answer
        owners = {entity for at, size, entity in drawn if (at, at + size) == gap}
        (owner,) = owners
        assert owner != "A+B"
        others = [(at, at + size) for at, size, entity in drawn if (at, at + size) != gap]
        assert not [span for span in others if span[0] < item.end and item.start < span[1]]
        assert item.antecedent in [(at, at + size) for at, size, entity in drawn if entity == owner]
        assert len(item.candidates) >= 2
        assert item.answer in item.candidates[0]
        surfaces = [form for forms in item.candidates for form in forms]
        assert len(surfaces) == len(set(surfaces))


@pytest.mark.parametrize("nothing", [None, ""])
def test_clusters_without_a_name_are_entities_of_their_own(nothing: str | None) -> None:
    row = row_of(TEXT, *FULL)
    for cluster in row["clusters"]:
        for mention in cluster:
            mention["entity"] = nothing
    assert {named.entity for named in read_row(row)[1].mentions} == {"0", "1"}


@pytest.mark.parametrize(
    ("ids", "name"),
    [({"doc_id": 0}, "novels-0"), ({"doc_id": "", "id": 0}, "novels-0"), ({"doc_id": None, "id": "a"}, "novels-a"),
     ({"doc_id": "", "id": ""}, "novels-1")],
)  # fmt: skip
def test_an_empty_id_is_none_and_zero_is_one(ids: dict[str, Any], name: str) -> None:
    row = {"text": TEXT, "clusters": []}
    assert [gold.document.id for gold in read_rows([{**row, "id": "first"}, {**row, **ids}], read_annotated, "novels")[0]][
        1
    ] == name
