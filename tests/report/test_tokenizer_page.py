"""The page of an inspection: every character drawn once, pieces in colour, entities outlined; the same in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from coref_automl.cli.app import run
from coref_automl.models.segmentation import AnnotatedText, Span
from coref_automl.models.tokenizer_facts import examples
from coref_automl.report.tokenizer_page import _atoms
from tests.browser import console, opened, requests_of_files, show
from tests.models.test_segmentation import with_spans
from tests.models.test_vocabulary import built, each_kind


@each_kind
@given(drawn=with_spans())
def test_atoms_are_the_text_and_outlines_are_the_entities(kind: str, drawn: tuple[str, list[tuple[int, int]]]) -> None:
    text, spans = drawn
    (example,) = examples({kind: built(kind)}, [AnnotatedText(text, tuple(Span(*span, "X") for span in spans))])
    atoms = list(_atoms(example, example.readings[0]))
    assert "".join(atom.text for atom in atoms) == text
    outlined = {place for start, end in spans for place in range(start, end)}
    at = 0
    for atom in atoms:
        assert ("entity" in atom.style.split()) == (at in outlined)
        assert "piece" in atom.style.split() or atom.text.isspace()
        at += len(atom.text)
    segments = example.readings[0].segments
    assert sum("first" in atom.style.split() for atom in atoms) == len(segments)
    assert sum("last" in atom.style.split() for atom in atoms) == len(segments)


def test_a_browser_draws_the_pieces_without_an_error_or_a_request(tmp_path: Path) -> None:
    assert run(["tokenizer", "inspect", "bundled:ko-mini", "--lang", "en", "--limit", "40", "--out", str(tmp_path / "out")]) == 0
    with opened(tmp_path / "profile") as driver:
        page = show(driver, tmp_path / "out" / "tokenizers.html")
        drawn = page.execute_script(
            "return [...document.querySelectorAll('.readings')].map(one => "
            "[one.querySelectorAll('.piece').length, one.querySelectorAll('.entity.opens').length])"
        )
        assert len(drawn) == 8
        assert all(pieces > 3 and entities == 2 for pieces, entities in drawn)
        width = page.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1]
        assert not console(page)
        assert [url for url in requests_of_files(page) if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("name", ["tokenizers.html", "tokenizers.md"])
def test_text_from_the_data_stays_text(tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.txt").write_text("서울 <b>굵게</b> & <script>alert(1)</script>", "utf-8")
    assert (
        run(["tokenizer", "inspect", "bundled:ko-mini", "--data", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "out")])
        == 0
    )
    assert "<script>alert" not in (tmp_path / "out" / name).read_text("utf-8")
