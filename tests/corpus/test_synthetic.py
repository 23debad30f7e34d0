"""Invented text: exact offsets, agreeing particles, the same bytes for the same seed, every relation label."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.corpus.clean import normalise
from coref_automl.corpus.synthetic.phrasebook import REGISTERS, leads, register, relations, sections, unrelated
from coref_automl.corpus.synthetic.statements import relation_rows
from coref_automl.corpus.synthetic.templates import agree, attach, choose, render
from coref_automl.corpus.synthetic.world import FACTS, number
from coref_automl.corpus.synthetic.writer import SyntheticDocument, documents
from coref_automl.errors import RecipeError
from coref_automl.korean import ends_in_consonant

KLUE_RE_LABELS = [
    "no_relation",
    "org:dissolved",
    "org:founded",
    "org:place_of_headquarters",
    "org:alternate_names",
    "org:member_of",
    "org:members",
    "org:political/religious_affiliation",
    "org:product",
    "org:founded_by",
    "org:top_members/employees",
    "org:number_of_employees/members",
    "per:date_of_birth",
    "per:date_of_death",
    "per:place_of_birth",
    "per:place_of_death",
    "per:place_of_residence",
    "per:origin",
    "per:employee_of",
    "per:schools_attended",
    "per:alternate_names",
    "per:parents",
    "per:children",
    "per:siblings",
    "per:spouse",
    "per:other_family",
    "per:colleagues",
    "per:product",
    "per:religion",
    "per:title",
]

AFTER_CONSONANT = ("은", "을", "과", "이라고", "이라는", "이었다", "으로", "이")
AFTER_VOWEL = ("는", "를", "와", "라고", "라는", "였다", "로", "가")
PARTICLE = re.compile(rf"[’”]?({'|'.join((*AFTER_CONSONANT, *AFTER_VOWEL))})(?=[ .,])")

SSANG_SIOT = 20
seeds = st.integers(0, 10_000)


def particles_agree(text: str, end: int) -> bool:
    """Read the particle after a name and judge it by the name's last syllable alone."""
    found = PARTICLE.match(text, end)
    if not found:
        return True
    word, particle = text[end - 1], found[1]
    rieul = (ord(word) - 0xAC00) % 28 == 8
    if particle in ("으로", "로"):
        return particle == ("로" if rieul or not ends_in_consonant(word) else "으로")
    return particle in (AFTER_CONSONANT if ends_in_consonant(word) else AFTER_VOWEL)


@pytest.mark.parametrize(
    ("word", "particle", "expected"),
    [
        ("나루", "은", "나루는"),
        ("강물", "은", "강물은"),
        ("서울", "으로", "서울로"),
        ("부엌", "으로", "부엌으로"),
        ("학교", "으로서", "학교로서"),
        ("의사", "이었다", "의사였다"),
        ("시인", "이었다", "시인이었다"),
        ("나무", "이라고", "나무라고"),
        ("돌", "이라는", "돌이라는"),
        ("바다", "이에요", "바다예요"),
        ("지민", "아", "지민아"),
        ("‘등대’", "을", "‘등대’를"),
        ("한빛전자(옛 온샘)", "은", "한빛전자(옛 온샘)는"),
        ("40%", "으로", "40%로"),
        ("3", "을", "3을"),
        ("마을", "에서", "마을에서"),
    ],
)
def test_a_particle_follows_the_last_sound(word: str, particle: str, expected: str) -> None:
    assert attach(word, particle) == expected


@given(st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), min_size=1, max_size=4))
def test_particles_agree_with_every_syllable(word: str) -> None:
    closed = ends_in_consonant(word)
    assert agree(word, "은") == ("은" if closed else "는")
    assert agree(word, "이") == ("이" if closed else "가")
    assert agree(word, "이라며") == ("이라며" if closed else "라며")


def test_a_template_places_its_names_and_settles_its_choices() -> None:
    rendered = render("[어제|그제] {x:은} {y}에서 [강{:을}|산{:을}] 보았다.", {"x": "민서", "y": "가람"}.__getitem__, Random(3))
    assert [(p.path, rendered.text[p.start : p.end]) for p in rendered.placed] == [("x", "민서"), ("y", "가람")]
    assert "민서는 가람에서" in rendered.text
    assert not set("[]{}|") & set(rendered.text)
    assert {choose("[가|[나|다]]", Random(seed)) for seed in range(40)} == {"가", "나", "다"}


@given(seeds)
@settings(max_examples=15)
def test_every_mention_is_where_it_is_said_to_be(seed: int) -> None:
    for made in documents(6, seed):
        text = made.document.text
        spans = sorted(span for chain in made.chains for span in chain)
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
        assert len({text[start:end] for chain in made.chains for start, end in chain}) == len(made.chains)
        for chain in made.chains:
            assert len(chain) >= 2
            assert len({text[start:end] for start, end in chain}) == 1
            assert list(chain) == sorted(chain)
            assert all(particles_agree(text, end) for _, end in chain)


@given(seeds)
@settings(max_examples=10)
def test_documents_keep_their_length_and_read_clean(seed: int) -> None:
    for made in documents(6, seed):
        text = made.document.text
        assert 1500 <= len(text) <= 6000
        assert normalise(text) == text
        assert not set("[]{}|#") & set(text)
        assert len(made.chains) >= 10
    assert all(800 <= len(made.document.text) <= 1500 for made in documents(6, seed, least=800, most=1500))


def test_the_same_seed_gives_the_same_bytes_however_many_are_asked_for() -> None:
    first, second = list(documents(12, 5)), list(documents(7, 5))
    assert first[:7] == second
    assert [d.document.text for d in documents(6, 6)] != [d.document.text for d in documents(6, 5)]
    assert relation_rows(80, 5)[:50] == relation_rows(50, 5)


def test_all_registers_take_turns_and_can_be_chosen() -> None:
    assert [d.document.source for d in documents(6, 0)] == [f"synthetic-{name}" for name in REGISTERS]
    assert {d.document.source for d in documents(4, 0, registers=("tale",))} == {"synthetic-tale"}
    with pytest.raises(RecipeError, match="news"):
        next(documents(1, 0, registers=("new",)))
    with pytest.raises(RecipeError, match="600"):
        next(documents(1, 0, least=1000, most=1100))


def names_of(made: SyntheticDocument) -> set[str]:
    return {made.document.text[chain[0][0] : chain[0][1]] for chain in made.chains}


def test_no_two_documents_tell_of_the_same_people() -> None:
    seen = Counter(name for made in documents(120, 1) for name in names_of(made) if len(name) == 3)
    texts = [made.document.text for made in documents(120, 1)]
    assert len(set(texts)) == 120
    assert len(seen) > 700
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=다\.) |\n", text) if len(sentence) > 30]
    assert len(set(sentences)) / len(sentences) > 0.97


def test_facts_do_not_change_within_a_document() -> None:
    born = re.compile(r"(\S+)[은는] (\d+년[^.]*?) \S+에서 (?:태어난|\S+ \S+ \S+ 태어났다)")
    for made in documents(60, 9, registers=("biography", "encyclopaedia")):
        told: defaultdict[str, set[str]] = defaultdict(set)
        for name, date in born.findall(made.document.text):
            told[name].add(date)
        assert all(len(dates) == 1 for dates in told.values())


ONE_ONLY = (
    "per:date_of_birth",
    "per:place_of_birth",
    "per:schools_attended",
    "per:title",
    "org:place_of_headquarters",
    "org:founded",
)


@given(seeds)
@settings(max_examples=10)
def test_relations_of_a_document_are_exact_and_do_not_contradict(seed: int) -> None:
    for made in documents(6, seed):
        text = made.document.text
        told: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for relation in made.relations:
            assert relation.label in KLUE_RE_LABELS
            subject, found = (text[slice(*span)] for span in (relation.subject, relation.object))
            assert subject
            assert found
            assert "\n" not in text[min(relation.subject[0], relation.object[0]) : max(relation.subject[1], relation.object[1])]
            told[relation.label, subject].add(found)
        assert all(len(values) == 1 for (label, _), values in told.items() if label in ONE_ONLY)
    assert any(made.relations for made in documents(6, seed))


def spans_are_exact(row: dict[str, Any]) -> bool:
    entities = (row["subject_entity"], row["object_entity"])
    return all(row["sentence"][e["start_idx"] : e["end_idx"] + 1] == e["word"] for e in entities)


@given(seeds)
@settings(max_examples=10)
def test_relation_rows_have_exact_spans_and_agreeing_particles(seed: int) -> None:
    for row in relation_rows(150, seed):
        assert list(row) == ["guid", "sentence", "subject_entity", "object_entity", "label", "source"]
        assert spans_are_exact(row)
        subject, found = row["subject_entity"], row["object_entity"]
        assert subject["end_idx"] < found["start_idx"] or found["end_idx"] < subject["start_idx"]
        assert all(particles_agree(row["sentence"], e["end_idx"] + 1) for e in (subject, found))
        assert normalise(row["sentence"]) == row["sentence"]
        assert not set("[]{}|#") & set(row["sentence"])
        if row["label"] != "no_relation":
            assert (subject["type"], found["type"]) == relations()[row["label"]].kinds


def test_the_first_thirty_rows_hold_every_label_once() -> None:
    assert sorted(row["label"] for row in relation_rows(30, 4)) == sorted(KLUE_RE_LABELS)
    rows = relation_rows(3000, 4)
    counts = Counter(row["label"] for row in rows)
    assert set(counts) == set(KLUE_RE_LABELS)
    assert min(counts.values()) > 30
    assert 0.3 < counts["no_relation"] / 3000 < 0.4
    assert {row["object_entity"]["type"] for row in rows} == {"PER", "ORG", "LOC", "DAT", "POH", "NOH"}
    assert len({row["guid"] for row in rows}) == 3000
    assert len({row["sentence"] for row in rows}) > 2990


def test_types_alone_do_not_tell_no_relation() -> None:
    rows = relation_rows(3000, 2)
    kinds = {
        name: {(r["subject_entity"]["type"], r["object_entity"]["type"]) for r in rows if pick(r)}
        for name, pick in (
            ("none", lambda r: r["label"] == "no_relation"),
            ("some", lambda r: r["label"] != "no_relation"),
        )
    }
    assert kinds["some"] <= kinds["none"]


def test_every_pattern_can_be_joined_and_names_both_entities() -> None:
    for relation in relations().values():
        assert len(relation.patterns) >= 5
        for pattern in relation.patterns:
            stem, ending = _said(pattern)[-2:]
            assert ending == "다"
            assert stem == "이" or (ord(stem) - 0xAC00) % 28 == SSANG_SIOT
            assert len(re.findall(r"\{s[:}]", pattern)) == len(re.findall(r"\{o[:}]", pattern)) == 1
    assert all(pattern.count("{o") == 1 for pair in unrelated() for pattern in pair.patterns)
    assert all(leads())
    assert all(len(register(name).scenes) >= 8 for name in REGISTERS)


def test_templates_ask_only_for_what_a_world_can_tell() -> None:
    letters = set("xyzoqlmtupdgkbr")
    for name in REGISTERS:
        told = register(name)
        for sentence in (line for scenes in (told.openings, told.scenes, told.endings) for scene in scenes for line in scene):
            for path in re.findall(r"\{([^{}:]+)", sentence):
                if path.startswith("#"):
                    assert number(path[1:], Random(0), 1990)
                    continue
                role, *facts = path.split(".")
                assert role in letters
                assert set(facts) <= set(FACTS)


def test_a_particle_written_after_a_choice_fits_every_wording() -> None:
    lines = [line for name in (*REGISTERS, "relations", "unrelated") for _, told in sections(name) for line in told]
    for line in lines:
        for wordings, particle in re.findall(
            r"\[([^\[\]]*)\](은|는|을|를|과|와|으로|로|이었|였|이라고|라고)(?![가-힣]*\})", line
        ):
            for wording in wordings.split("|"):
                if wording and not wording.endswith("}"):
                    open_form = {"는": "은", "를": "을", "와": "과", "로": "으로", "였": "이었", "라고": "이라고"}.get(
                        particle, particle
                    )
                    assert agree(wording, open_form) == particle, line


def _said(pattern: str) -> str:
    return render(pattern, lambda path: "가람", Random(0)).text
