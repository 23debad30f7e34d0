"""compare and report on the command line."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from coref_automl.extras.pages import charts
from coref_automl.report.printout import compare
from coref_automl.report.terminal import in_colour, width
from tests.comparison.conftest import Model, make_scores, write_evaluation


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for number, model in enumerate([Model("base", 0, -1.0), Model("run", 100, 0.4), Model("run", 200, 0.5)]):
        write_evaluation(tmp_path / "runs", model, make_scores(model, documents=40, own=number))
    return tmp_path / "runs"


def test_compare_prints_a_table_and_a_recommendation(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "the reference" in shown
    assert "better" in shown
    assert "Use checkpoint-" in shown
    assert "Next time, train" in shown
    assert shown.rstrip().endswith(f"Report: coref-automl report {runs} --out report")


def test_without_a_base_compare_names_what_it_took_as_the_reference(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(runs / "evaluations")
    assert run(["compare", str(runs)]) == 0
    text = capsys.readouterr().out
    assert "No base model was evaluated here, so checkpoint-" in text
    assert "is the reference; --reference NAME takes another." in text


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_table_fits_the_terminal_and_its_verdicts_have_colours(runs: Path, columns: int) -> None:
    table = compare(runs, lang="en")
    plain, bright = table.printed(columns), table.printed(columns, colour=True)
    assert max(map(len, plain.splitlines()[1 : -len(table.notes) or None])) <= columns
    assert "\x1b[" not in plain
    assert "\x1b[32mbetter\x1b[0m" in bright


def test_no_colour_where_none_is_wanted_or_none_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert not in_colour()
    assert width() is None
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", Terminal())
    assert in_colour()
    monkeypatch.setenv("COLUMNS", "12")
    assert width() == 40
    monkeypatch.setenv("NO_COLOR", "1")
    assert not in_colour()


def test_compare_json_is_the_result_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs), "--json", "--metric", "score", "--margin", "3"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["metric"] == "score"
    answer = stored["answer"]
    assert (answer["margin"], answer["action"]) == (0.03, "use checkpoint")
    assert answer["keep"]["path"] == answer["highest_path"]
    assert answer["questions"][0]["lead"]["verdict"] == "better"
    assert set(answer["next_time"]) >= {"how", "tokens", "share", "loss"}
    assert [row["comparison"] is None for row in stored["rows"]] == [True, False, False]


def test_report_writes_three_files_and_prints_the_page(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "runtime", lambda: None)
    out = tmp_path / "out"
    assert run(["report", str(runs), "--output-dir", str(out), "--lang", "en"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "report.html")
    assert {path.name for path in out.iterdir()} >= {"report.html", "report.md", "results.csv"}
    assert run(["report", str(runs), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(out / "report.html")


def test_common_compares_models_of_which_one_was_also_scored_on_a_second_set(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def compared(*options: str) -> dict[str, Any]:
        assert run(["compare", str(runs), *options, "--json"]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    shared = compared()["rows"]
    more = Model("run", 100, 0.4)
    write_evaluation(runs, more, make_scores(more, documents=40, set_name="b"), set_name="b")
    result = compared("--common")
    assert result["rows"] == shared
    assert "items that all have" in result["notes"][-1]
    assert compared("--common", "--eval-set", "a")["rows"] == shared
    assert compared("--eval-set", "items-a")["rows"] == shared
    assert run(["compare", str(runs), "--common", "--eval-set", "c"]) == 2
    assert "No evaluation on the set 'c' here." in capsys.readouterr().err
    assert run(["compare", str(runs), "--common", "--eval-set", "b"]) == 2
    assert "Only checkpoint-100 has been evaluated here" in capsys.readouterr().err


def test_common_is_not_stopped_by_a_base_of_another_set(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base was not given: it was scored with the one checkpoint that was scored on a second set."""
    monkeypatch.chdir(runs)
    shutil.rmtree(runs / "evaluations")
    for model in (Model("base", 0, -1.0), Model("run", 100, 0.4)):
        write_evaluation(runs, model, make_scores(model, documents=40, set_name="b"), set_name="b")
    assert run(["compare", "run", "--common", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["checkpoint-100", "checkpoint-200"]
    assert run(["compare", ".", "--common"]) == 2
    assert "Pass --eval-set to compare the evaluations of one set." in capsys.readouterr().err
    assert run(["compare", ".", "--common", "--eval-set", "a"]) == 0


def test_common_takes_a_model_scored_on_two_overlapping_sets_over_both(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Set a in two parts: what one model was scored on in two folders, the others were in one."""
    whole = make_scores(Model("run", 200, 0.5), documents=40, own=2)
    shutil.rmtree(runs / "run/evaluations/a-128/checkpoint-200")
    for name, part in (("first", whole[: len(whole) // 2]), ("second", whole[len(whole) // 3 :])):
        write_evaluation(runs, Model("run", 200, 0.5), part, set_name=name)
    assert run(["compare", str(runs), "--common", "--metric", "score", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in result["rows"]] == ["base", "checkpoint-100", "checkpoint-200"]
    assert "(0 left out)" in result["notes"][-1]


DAMAGES = ("{", "null", '{"a": 1}', '{"fingerprints": null}', "\x00")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_evaluation_among_others_is_named_and_left_out(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(charts, "runtime", lambda: None)
    (runs / "elsewhere").mkdir()
    (runs / "elsewhere" / "result.json").write_text(damage, "utf-8")  # no evaluation: nothing is said of it
    damaged = runs / "run/evaluations/a-128/checkpoint-100/result.json"
    damaged.write_text(damage, "utf-8")
    assert run(["compare", str(runs), "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in stored["rows"]] == ["base", "checkpoint-200"]
    assert len(notes := [note for note in stored["notes"] if note.startswith("Left out: ")]) == 1
    assert str(damaged) in notes[0]
    for lang, message in (("en", "Left out:"), ("ko", "제외:")):
        assert run(["report", str(runs), "--out", str(tmp_path / lang), "--lang", lang]) == 0
        page = (tmp_path / lang / "report.md").read_text("utf-8").replace("\\", "")
        assert f"{message} {damaged}" in page


def test_a_damaged_evaluation_that_was_asked_for_is_an_error(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = runs / "run/evaluations/a-128/checkpoint-100"
    other = Model("run", 100, 0.4)
    write_evaluation(runs, other, make_scores(other, documents=40, set_name="b"), set_name="b")
    (inside / "result.json").write_text("{", "utf-8")
    alone = tmp_path / "alone" / "deep"
    shutil.copytree(inside, alone)
    for path, named in ((runs / "run/checkpoint-100", inside), (inside, inside), (tmp_path / "alone", alone)):
        for command in (["compare"], ["report", "--out", str(tmp_path / "out")]):
            assert run([*command, str(runs), str(path)]) == 2
            assert f"{named / 'result.json'} is not JSON" in capsys.readouterr().err
    assert run(["archive", str(runs), "--out", str(tmp_path / "out")]) == 2  # what is kept is kept whole
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "nowhere"], "nowhere does not exist"),
        (["report", "nowhere", "--out", "x"], "nowhere does not exist"),
        (["compare", "nowhere", "--margin", "200"], "such as 2"),
    ],
)
def test_wrong_commands_exit_2_with_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_the_printed_report_is_of_the_same_set_metric_and_margin(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--metric", "real1", "--margin", "1", "--eval-set", "a"]
    assert run(["compare", str(runs), *given]) == 0
    assert f"coref-automl report {runs} {' '.join(given)} --out report" in capsys.readouterr().out
