"""check_table: what a table of checkpoints shows without its items, and the report of the first tables kept in docs/."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_table import TableRow, csv_page, findings, main, read_table, unpaired, unpaired_tests, write
from scipy import stats

from coref_automl.base.errors import InputError
from coref_automl.base.say import Say
from coref_automl.report.page import Table
from coref_automl.statistics.closed_forms import wilson

DOCS = Path(__file__).parents[2] / "docs"
STUDY = DOCS / "kf-deberta-study" / "checkpoints.csv"
HEAD = "family,seq_len,checkpoint,epoch,real1,real5,lambada_top1,real_samples,lambada_samples"


@pytest.fixture(scope="module")
def rows() -> list[TableRow]:
    return read_table(STUDY)


def test_the_composite_is_recomputed_and_twenty_rows_are_wrong(rows: list[TableRow]) -> None:
    wrong = [row for row in rows if row.wrong]
    assert len(wrong) == 20
    assert {row.family for row in wrong} == {"mlm_v2"}
    assert rows[0].score == pytest.approx(0.4 * 0.6558 + 0.3 * 0.8167 + 0.3 * 0.3567)


def test_peak_over_fitting_and_length_are_not_shown(rows: list[TableRow]) -> None:
    tests = unpaired_tests(rows)
    peak = next(t for t in tests if t.question == "peak over first" and t.a.checkpoint == "checkpoint-390")
    assert peak.a.epoch == 3
    assert not peak.shown
    assert not any(t.shown for t in tests if t.question in ("peak over last", "length against length"))


def test_combined_learns_visibly_at_1536_and_not_at_2048(rows: list[TableRow]) -> None:
    by_length = {t.a.seq_len: t for t in unpaired_tests(rows) if t.question == "first to last" and t.a.family == "combined"}
    assert by_length[1536].p == pytest.approx(0.005, abs=0.0006)
    assert by_length[1536].shown
    assert not by_length[2048].shown


def test_findings_name_the_unlike_items_and_the_identical_rows(rows: list[TableRow]) -> None:
    text = "\n".join(findings(rows, Say("en")))
    assert "wrong in 20 rows" in text
    assert "2,400 items @1,536, 3,200 items @2,048" in text
    assert "checkpoint-650 and checkpoint-655 have identical numbers" in text


def test_the_kept_report_is_what_the_table_gives(tmp_path: Path) -> None:
    """Written by: python scripts/check_table.py checkpoints.csv --lang en --target real1=0.68,real5=0.83 --out DIR"""
    out = tmp_path / "out"
    assert main([str(STUDY), "--lang", "en", "--target", "real1=0.68,real5=0.83", "--out", str(out)]) == 0
    assert (out / "report.md").read_text("utf-8") == (DOCS / "kf-deberta-study.md").read_text("utf-8")
    assert (out / "report.html").is_file()


def test_a_table_is_reported_in_korean_too(tmp_path: Path) -> None:
    write(STUDY, tmp_path / "out", lang="ko")
    assert "종합 점수가 20개 행에서 틀렸습니다" in (tmp_path / "out" / "report.md").read_text("utf-8")


def test_a_table_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "gone.csv"), "--out", str(tmp_path / "out")]) == 2
    assert "There is no table at" in capsys.readouterr().err


def test_unpaired_agrees_with_the_chi_square_test() -> None:
    a, b = wilson(1602, 2400), wilson(1510, 2400)
    difference, p = unpaired(a, b)
    table = [[1602, 798], [1510, 890]]
    assert p == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue, rel=1e-9)
    assert difference.value == pytest.approx(92 / 2400)
    assert difference.low > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row"),
        (HEAD, "no row"),
        ("family,checkpoint\na,b\n", "lacks the column 'seq_len'"),
        (f"{HEAD}\na,512,c-1,1,x,0.5,0.5,10,10\n", "line 2 holds something that is not a number"),
        (f"{HEAD}\na,512,c-1,1,63.2,0.5,0.5,10,10\n", "shares between 0 and 1"),
        (f"{HEAD}\na,512,c-1,1,0.5,0.5,0.5,0,10\n", "n 0 cannot be"),
        (f"{HEAD}\na,512,c-1,1,0.5,0.5,0.5,nan,10\n", "real_samples is nan; it must be a finite number"),
        (f"{HEAD}\na,inf,c-1,1,0.5,0.5,0.5,10,10\n", "seq_len is inf"),
        (f"{HEAD}\na,512,c-1,nan,0.5,0.5,0.5,10,10\n", "epoch is nan"),
        (f"{HEAD},stated_score\na,512,c-1,1,0.5,0.5,0.5,10,10,nan\n", "stated_score is nan"),
    ],
)
def test_a_bad_table_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        read_table(path)


def test_a_table_without_stated_composites_has_no_wrong_ones(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD}\na,512,c-1,1,0.5,0.6,0.3,100,100\na,512,c-2,2,0.9,0.95,0.3,100,100\n", "utf-8")
    rows = read_table(path)
    assert not any(row.wrong for row in rows)
    page = csv_page(rows, Say("en"), source="t.csv", target={})
    table = next(section for section in page.sections if section.id == "rows").blocks[1]
    assert isinstance(table, Table)
    assert {(line[-3].text, line[-1].text) for line in table.rows} == {("–", "")}
    assert [t.question for t in unpaired_tests(rows) if t.shown] == ["first to last", "peak over first"]
