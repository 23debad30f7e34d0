"""The bundled texts: enough of them, of the right length, each its own, and fit to hide words in."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest

from coref_automl.base.korean import PRONOUN, Tagger, ends_in_consonant, is_hangul
from coref_automl.corpus.chains import chains, mentions
from coref_automl.corpus.clean import normalise
from coref_automl.corpus.sources import bundled_rows, passages
from coref_automl.extras.relation.rows import LABELS

GENRES = {"news", "encyclopaedia", "biography", "business", "sports", "history", "tale", "interview"}
RUN = 30
FORMS = {
    particle: pair
    for pair in (
        ("은", "는"),
        ("이", "가"),
        ("을", "를"),
        ("과", "와"),
        ("으로", "로"),
        ("이라고", "라고"),
        ("이라며", "라며"),
        ("이었다", "였다"),
        ("이었던", "였던"),
        ("이었고", "였고"),
        ("이었기", "였기"),
        ("이었다는", "였다는"),
        ("이었다고", "였다고"),
    )
    for particle in pair
}


def runs(text: str) -> set[str]:
    return {text[at : at + RUN] for at in range(len(text) - RUN + 1)}


def test_there_are_passages_of_every_genre_and_length_fits() -> None:
    documents = passages()
    counts = Counter(document.source for document in documents)
    assert set(counts) == GENRES
    assert min(counts.values()) >= 10
    assert len(documents) >= 120
    assert all(300 <= len(document.text) <= 900 for document in documents)
    assert all(normalise(document.text) == document.text for document in documents)
    assert all(document.title and document.id.startswith(document.source) for document in documents)


def test_there_are_cloze_passages_with_one_blank_each() -> None:
    rows = list(bundled_rows("cloze"))
    assert len(rows) >= 190
    for row in rows:
        assert list(row) == ["index", "title", "text", "answer", "candidate"]
        assert row["text"].count("_") == 1
        assert 80 <= len(row["text"]) <= 250
        assert normalise(row["text"]) == row["text"]
        assert len(row["answer"]) >= 2
        assert is_hangul(row["answer"] + row["candidate"])
        assert row["answer"] not in row["candidate"]
        assert row["candidate"] not in row["answer"]
        assert row["candidate"] in row["text"]


def test_answers_are_varied_and_mostly_said_before() -> None:
    rows = list(bundled_rows("cloze"))
    said = [row["answer"] in row["text"].split("_")[0] for row in rows]
    assert sum(said) / len(said) >= 0.9
    assert max(Counter(row["answer"] for row in rows).values()) <= 2


def test_ids_titles_and_texts_are_their_own() -> None:
    ids = [document.id for document in passages()]
    titles = [document.title for document in passages()] + [row["title"] for row in bundled_rows("cloze")]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    assert [row["index"] for row in bundled_rows("cloze")] == list(range(len(list(bundled_rows("cloze")))))


def test_no_two_texts_share_a_run_of_thirty_characters() -> None:
    texts = [document.text for document in passages()] + [row["text"] for row in bundled_rows("cloze")]
    seen: Counter[str] = Counter()
    for text in texts:
        seen.update(runs(text))
    assert [run for run, count in seen.items() if count > 1] == []


def test_the_particle_after_the_blank_agrees_with_the_answer() -> None:
    checked = 0
    for row in bundled_rows("cloze"):
        after = re.match(r"[가-힣]*", row["text"].split("_")[1])
        assert after is not None
        if after[0] in FORMS:
            heard = ends_in_consonant(row["answer"])
            rieul = (ord(row["answer"][-1]) - 0xAC00) % 28 == 8
            assert after[0] == FORMS[after[0]][0 if heard and not (rieul and "로" in after[0]) else 1], row
            checked += 1
    assert checked > 0.6 * len(list(bundled_rows("cloze")))


@pytest.mark.parametrize(("name", "least", "most"), [("synthetic", 1_500, 6_000), ("synthetic-short", 600, 1_400)])
def test_generated_documents_are_of_six_registers_and_read_clean(name: str, least: int, most: int) -> None:
    rows = list(bundled_rows(name))
    assert len(rows) == len({row["id"] for row in rows}) == len({row["text"] for row in rows}) == 500
    assert len({row["source"] for row in rows}) == 6
    assert all(least <= len(row["text"]) <= most for row in rows)
    assert all(normalise(row["text"]) == row["text"] for row in rows)


def test_the_first_thirty_relation_rows_hold_every_label_once() -> None:
    for name in ("relations", "relations-dev"):
        assert Counter(row["label"] for row in islice(bundled_rows(name), 30)) == Counter(LABELS)


def test_every_passage_has_three_nouns_to_hide() -> None:
    documents = passages()
    for document, tags in zip(documents, Tagger(threads=1).tag([d.text for d in documents]), strict=True):
        repeated = chains(mentions(document.text, tags), cap=None)
        between = tags.spans[tags.kinds == PRONOUN].tolist()
        fit = [a.form for a, b, *_ in repeated if not any(a.end <= start < b.start for start, _ in between)]
        assert len(fit) >= 3, document.id


def test_every_answer_is_a_noun() -> None:
    answers = [row["answer"] for row in bundled_rows("cloze")]
    nouns = Tagger(threads=1).are_nouns(answers)
    assert sum(nouns) / len(answers) > 0.95
