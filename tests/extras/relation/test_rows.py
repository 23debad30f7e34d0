from __future__ import annotations

from typing import Any

import pytest

from coref_automl.extras.relation.rows import LABELS, BadRow, Entity, parse_row

from .conftest import raw_row

GOOD = raw_row("a-1", ("", "비틀즈", "가 ", "조지 해리슨", "을 불렀다."), ("ORG", "PER"), "org:members")


def parse(raw: Any, **options: Any) -> Any:
    return parse_row(raw, number=1, labels=LABELS, **options)


def changed(**parts: Any) -> dict[str, Any]:
    return {**GOOD, **parts}


def subject(**parts: Any) -> dict[str, Any]:
    return changed(subject_entity={**GOOD["subject_entity"], **parts})


def test_inclusive_end_becomes_exclusive() -> None:
    row = parse(GOOD)
    assert row.subject == Entity("비틀즈", 0, 3, "ORG")
    assert row.sentence[row.object.start : row.object.end] == "조지 해리슨"


@pytest.mark.parametrize(
    "cell",
    [
        "{'word': '비틀즈', 'start_idx': 0, 'end_idx': 2, 'type': 'ORG'}",
        '{"word": "비틀즈", "start_idx": 0, "end_idx": 2, "type": "ORG"}',
        {"word": "비틀즈", "start_idx": "0", "end_idx": "2", "type": "ORG"},
    ],
)
def test_a_cell_that_spells_a_dict_is_read(cell: Any) -> None:
    assert parse(changed(subject_entity=cell)) == parse(GOOD)


def test_a_word_with_quotes_and_commas_survives_a_dict_cell() -> None:
    word = 'O\'Brien, "Bob"'
    raw = raw_row("q", ("", word, " 는 ", "서울", "에 산다."), ("PER", "LOC"), "per:place_of_residence")
    assert parse({**raw, "subject_entity": repr(raw["subject_entity"])}).subject.word == word


@pytest.mark.parametrize("prefix", ["subject_", "subject_entity_", "subject_entity."])
def test_flat_columns_are_read(prefix: str) -> None:
    flat = {key: value for key, value in GOOD.items() if key != "subject_entity"}
    flat |= {prefix + key: str(value) for key, value in GOOD["subject_entity"].items()}
    assert parse(flat) == parse(GOOD)


def test_a_hub_row_with_a_label_number_is_read_in_klue_order() -> None:
    assert parse(changed(label=29)).label == "per:title"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (changed(sentence=""), "missing or empty"),
        (changed(sentence="  "), "missing or empty"),
        (changed(sentence="가" * 10_000), "10,000 characters"),
        (changed(sentence=GOOD["sentence"] + "\ud83d"), "character 17 of the text is half of a surrogate pair"),
        (changed(label="org:member"), r"\(the nearest is 'org:members'\)$"),
        (changed(label="PER:TITLE"), r"\(the nearest is 'per:title'\)$"),
        (changed(label="?"), r"not one of KLUE's 30 \(the nearest is '[^']+'\)$"),
        (changed(label=None), "label is missing"),
        (changed(label=30), "not one of KLUE's 30, which as numbers go from 0 to 29$"),
        (subject(end_idx=3), "end_idx is inclusive"),
        (subject(start_idx=1, end_idx=3), "which is at 0..2"),
        (subject(start_idx=-3, end_idx=-1), "outside the sentence"),
        (subject(end_idx=500), "outside the sentence"),
        (subject(word="롤링 스톤스"), "does not occur"),
        (subject(word=" "), "no 'word'|is blank"),
        (subject(type="PERSON"), "not one of PER, ORG"),
        (subject(start_idx="zero"), "not a whole number"),
        (subject(start_idx=0.5), "not a whole number"),
        (subject(type=None), "has no 'type'"),
        (changed(subject_entity=GOOD["object_entity"]), "same span"),
        (changed(subject_entity="비틀즈"), "is not a dict"),
        (changed(subject_entity="[1, 2]"), "is not a dict"),
        (changed(subject_entity=None), "no subject_entity"),
        (["not", "a", "row"], "list, not an object"),
    ],
)
def test_a_bad_row_says_why(raw: Any, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        parse(raw)


def test_crossing_spans_are_refused_and_nested_ones_are_not() -> None:
    sentence = "서울대학교병원은 크다."
    inner = {"word": "서울", "start_idx": 0, "end_idx": 1, "type": "LOC"}
    outer = {"word": "서울대학교", "start_idx": 0, "end_idx": 4, "type": "ORG"}
    crossing = {"word": "대학교병원", "start_idx": 2, "end_idx": 6, "type": "ORG"}
    assert parse(changed(sentence=sentence, subject_entity=outer, object_entity=inner)).object.word == "서울"
    with pytest.raises(BadRow, match="cross"):
        parse(changed(sentence=sentence, subject_entity=outer, object_entity=crossing))


def test_a_row_to_predict_needs_no_label() -> None:
    assert parse(changed(label=100), labelled=False).label is None
