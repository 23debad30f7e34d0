"""How far mentions reach: conventions are told, converted both ways, and scored as the file has them."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.cli.app import run as command
from coref_automl.extras.coreference.answers import answer_documents, same_noun_chains, same_string_chains
from coref_automl.extras.coreference.conventions import (
    Convention,
    convention_of,
    conversion_losses,
    convert_document,
    convert_spans,
)
from coref_automl.extras.coreference.data import read_coref
from coref_automl.extras.coreference.documents import CorefDocument, Mention, in_order, write_documents
from coref_automl.extras.coreference.evaluate import evaluate_coreference
from coref_automl.extras.coreference.model import load_model

BARE, WORDS, HEADS = Convention("bare"), Convention("words"), Convention("heads")
TEXT = "“삼성전자는 이 회사의 직원들에게 말했다.” 그는 회사가 아니라 사람이었다."


def span(form: str) -> tuple[int, int]:
    start = TEXT.index(form)
    return start, start + len(form)


@pytest.mark.parametrize(
    ("bare", "whole", "head"),
    [
        ("삼성전자", "삼성전자는", "삼성전자"),
        ("이 회사", "이 회사의", "회사"),
        ("직원들", "직원들에게", "직원들"),
        ("사람", "사람이었다", "사람"),
    ],
)
def test_edges_move_by_morphemes_and_signs_stay_outside(bare: str, whole: str, head: str) -> None:
    assert convert_spans(TEXT, [span(bare)], BARE, WORDS) == [span(whole)]
    assert convert_spans(TEXT, [span(whole)], WORDS, BARE) == [span(bare)]
    assert convert_spans(TEXT, [span(whole)], WORDS, HEADS) == convert_spans(TEXT, [span(bare)], BARE, HEADS)
    start, end = convert_spans(TEXT, [span(bare)], BARE, HEADS)[0]
    assert TEXT[start:end] == head


def test_signs_stay_on_words_where_the_file_keeps_them_there() -> None:
    assert convert_spans(TEXT, [span("삼성전자")], BARE, replace(WORDS, signs=True)) == [span("“삼성전자는")]


def test_a_file_shows_its_convention(tales: tuple[CorefDocument, ...]) -> None:
    bare = convention_of(tales)
    assert (bare.edges, bare.singletons, bare.mixed) == ("bare", True, False)
    for target in (WORDS, HEADS):
        converted = [convert_document(tale, bare, target) for tale in tales]
        assert convention_of(converted).edges == target.edges
        assert convention_of(converted, "bare").edges == "bare"
    mixed = [convert_document(tale, bare, WORDS) if index % 2 else tale for index, tale in enumerate(tales)]
    assert convention_of(mixed).mixed
    assert "mixes conventions" in convention_of(mixed).line()
    total = sum(len(tale.mentions) for tale in tales)
    counted, merged, back = conversion_losses(tales, bare, WORDS)
    assert (counted, merged) == (total, 0)
    assert back > 0.8 * total  # the tagger is not always right about invented names
    longer = sum(" " in tale.text[slice(*mention.span)] for tale in tales for mention in tale.mentions)
    assert conversion_losses(tales, bare, HEADS) == (total, 0, total - longer)


def test_a_model_of_bare_mentions_scores_a_file_of_whole_words_as_well(run: Path, tales_file: Path, tmp_path: Path) -> None:
    """Before, none of its mentions was where the file had it."""
    words = tmp_path / "words.jsonl"
    assert command(["coref", "explore", str(tales_file), "--to", "words", "--write", str(words)]) == 0
    bare, whole = (evaluate_coreference(run, str(path)) for path in (tales_file, words))
    assert "Convention: words" in whole.notes[0]
    for way in ("gold", "found", "found_heads"):
        assert whole.estimates[way]["conll"].value == pytest.approx(bare.estimates[way]["conll"].value, abs=0.02)
    assert whole.estimates["found"]["mention"].value > 0.5
    forced = evaluate_coreference(run, str(words), convention="bare")
    assert forced.estimates["found"]["mention"].value < 0.1


def test_gold_chains_have_every_mention_where_two_coincide_in_the_models_convention(run: Path) -> None:
    """`그` and `그는` are one span to a model of bare mentions."""
    mentions = in_order([Mention(0, 3, "a"), Mention(8, 9, "b"), Mention(8, 10, "a"), Mention(16, 18, "b")])
    document = CorefDocument("d", "민수는 왔다. 그는 웃었다. 그가 갔다.", mentions)
    (answer,) = answer_documents(load_model(run / "seed-0" / "model"), [document], WORDS)
    assert sorted(span for chain in answer.gold for span in chain) == sorted(mention.span for mention in mentions)


def test_the_baseline_chains_strings_and_counts_in_the_files_convention() -> None:
    text = "서울시는 회사를 샀다. 회사는 서울시의 것이다. 그는 그를 본다."
    document = CorefDocument("d", text, ())
    assert [[text[a:b] for a, b in chain] for chain in same_noun_chains(document, BARE) or ()] == [["서울시"] * 2, ["회사"] * 2]
    assert next([text[a:b] for a, b in chain] for chain in same_noun_chains(document, WORDS) or ()) == ["서울시는", "서울시의"]
    assert same_string_chains("가 나 가", [(0, 1), (2, 3), (4, 5)]) == (((0, 1), (4, 5)), ((2, 3),))


def test_decomposed_texts_are_read_in_syllables(tmp_path: Path, tales: tuple[CorefDocument, ...]) -> None:
    tale = tales[0]
    offsets = {offset: len(unicodedata.normalize("NFD", tale.text[:offset])) for m in tale.mentions for offset in m.span}
    apart = replace(
        tale,
        text=unicodedata.normalize("NFD", tale.text),
        mentions=tuple(replace(m, start=offsets[m.start], end=offsets[m.end]) for m in tale.mentions),
    )
    write_documents(tmp_path / "d.jsonl", [apart])
    data = read_coref(tmp_path / "d.jsonl")
    assert data.documents[0].mentions == tale.mentions
    assert data.documents[0].text == tale.text
    assert "NFD" in data.notes[0]
