"""Six aspects of a run, as measured values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coref_automl.base.records import ItemScore
from coref_automl.base.say import Say
from coref_automl.comparison.reader import open_results
from coref_automl.evaluation.metrics import halves
from coref_automl.extras.pages.sections import appendix, read_subject
from coref_automl.report.page import Points, Table, tokens
from tests.comparison.conftest import Model, make_scores, write_evaluation


def scores(share: dict[str, float], documents: int) -> list[ItemScore]:
    """Items of which this share is hit in each half, the same ones first for every model."""
    drawn = make_scores(Model("any", 1, 0.0), documents=documents, tasks=("real",), own=0)
    out = []
    for half in ("select", "confirm"):
        in_half = [score for score, of in zip(drawn, halves(drawn), strict=True) if of == half]
        out += [replace(score, rank=1 if (at + 0.5) / len(in_half) < share[half] else 9) for at, score in enumerate(in_half)]
    return out


def test_the_six_aspects_are_measured(tmp_path: Path) -> None:
    shares = ({"select": 0.5, "confirm": 0.5}, {"select": 0.9, "confirm": 0.6}, {"select": 0.7, "confirm": 0.2})
    for step, share in zip((100, 200, 400), shares, strict=True):
        write_evaluation(tmp_path, Model("run", step, 0.0), scores(share, 60))
    subject = read_subject(open_results([str(tmp_path)]), Say("en"))
    section = appendix.aspects(subject)
    assert section is not None
    table, meaning = section.blocks
    assert isinstance(table, Table)
    assert isinstance(meaning, Points)
    assert len(meaning.items) == len(table.head) - 1 == 6
    (line,) = table.rows
    run, initial, best, speed, data, stability, efficiency = (cell.text for cell in line)
    peak, last = (entry for entry in subject.entries if entry.step in (200, 400))
    assert run == "run"
    assert best.endswith(f"{100 * subject.choice.candidates[peak].value.value:.1f}%")
    assert speed == f"{100 * peak.tokens / last.tokens:.0f}%" == "50%"
    assert data == tokens(peak.recorded_tokens)
    assert stability.startswith("+39.7 [")  # on the half that did not choose
    assert (initial, efficiency) == ("–", "–")  # no base was evaluated


def test_a_run_that_ends_at_its_peak_says_so(tmp_path: Path) -> None:
    for step, share in ((100, 0.5), (200, 0.9)):
        write_evaluation(tmp_path, Model("run", step, 0.0), scores({"select": share, "confirm": share}, 30))
    section = appendix.aspects(read_subject(open_results([str(tmp_path)]), Say("en")))
    assert section is not None
    assert isinstance(table := section.blocks[0], Table)
    assert table.rows[0][5].text == "the last is the peak"
    assert table.rows[0][3].text == "100%"
