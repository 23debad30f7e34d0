"""Both READMEs say the same: the same sections, commands, figures and links, each in its language."""

from __future__ import annotations

import re

from tests.pages.markdown import ROOT, blocks, links

ENGLISH, KOREAN = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.ko.md"))


def commands(text: str) -> list[str]:
    lines = [line.split("#")[0].strip() for _, block in blocks(text) for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_same_commands_stand_in_both() -> None:
    assert commands(ENGLISH) == commands(KOREAN)
    assert {"make demo", "make test"} <= set(commands(ENGLISH))


def test_the_way_from_make_to_the_commands_is_told_where_they_are_printed() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\ndemo:")[1].split("\n\n")[0]
    assert recipe.splitlines()[-1].endswith(". $(BIN)/activate'")
    assert all(". .venv/bin/activate" in text for text in (ENGLISH, KOREAN))


def test_the_same_figures_stand_in_both() -> None:
    english, korean = (sorted(re.findall(r"[-+\d.]+ \[[-+\d.]+, [-+\d.]+\]", text)) for text in (ENGLISH, KOREAN))
    assert english == korean


def test_the_same_pages_are_named_in_both() -> None:
    english, korean = ([link.replace(".ko.", ".") for link in links(text)] for text in (ENGLISH, KOREAN))
    assert english == korean


def test_both_have_the_same_sections_and_three_sentences_of_results() -> None:
    english, korean = (re.findall(r"^#+ ", text, re.MULTILINE) for text in (ENGLISH, KOREAN))
    assert english == korean
    assert [len(re.findall(r"^- ", text, re.MULTILINE)) for text in (ENGLISH, KOREAN)] == [3, 3]


def test_they_are_short() -> None:
    assert all(len(text.splitlines()) < 80 for text in (ENGLISH, KOREAN))
