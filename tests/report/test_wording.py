"""The words of a claim: its sentence is made of its parts, and numbers agree with their nouns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coref_automl.base.records import Estimate
from coref_automl.base.say import Say
from coref_automl.comparison.claims import BASE, Claim, Documents
from coref_automl.report.wording import ClaimText

CLAIM = Claim(
    question="base",
    a="entity 2,048",
    b=BASE,
    outcome="noun1",
    documents="all",
    count=400,
    seeds=(3, 1),
    difference=Estimate(0.022, 0.013, 0.031, 900),
    test="crossed",
    verdict="better",
    values=(0.463, 0.441),
    correction="holm",
    family=3,
)


def test_a_sentence_is_made_as_its_module_says() -> None:
    text = ClaimText(CLAIM, Say("en"))
    assert text.sentence() == (
        "Noun@1 44.1 → 46.3%, entity 2,048 - base: +2.2 [+1.3, +3.1], better "
        "(3 seeds, all 400 documents, corrected for 3 (Holm))."
    )
    assert (text.outcome(), text.levels(), text.about()) == ("Noun@1", "44.1 → 46.3%", "entity 2,048 - base")
    assert text.phrase() == f"{text.change()}, {text.verdict()}"
    assert text.basis() == f"({text.seeds()}, {text.documents()}, {text.correction()})"
    unknown = ClaimText(replace(CLAIM, verdict="not shown", detectable=0.018, against=("before correction",)), Say("en"))
    assert unknown.verdict() == f"{unknown.verdict_word()}{unknown.caveat()}"
    assert unknown.verdict() == "not shown (detectable: 1.8 points), significant before correction only"


@pytest.mark.parametrize(
    ("documents", "one", "two"),
    [
        ("all", "1 document", "all 2 documents"),
        ("confirm", "1 document held back from choosing", "2 documents held back from choosing"),
        ("rows", "1 sentence", "all 2 sentences"),
        ("texts", "1 text", "2 texts"),
    ],
)
def test_one_document_is_singular(documents: Documents, one: str, two: str) -> None:
    claim = replace(CLAIM, documents=documents)
    assert [ClaimText(replace(claim, count=count), Say("en")).documents() for count in (1, 2)] == [one, two]
    assert ClaimText(replace(claim, count=1), Say("ko")).documents().count("1") == 1
