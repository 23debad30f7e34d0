"""re report: what stored predictions say of the five reasons for markers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.cli.app import run
from coref_automl.extras.relation.data import RelationData, read_relations
from coref_automl.extras.relation.metrics import micro_f1
from coref_automl.extras.relation.reasons import (
    Answers,
    Outcomes,
    Reasons,
    f1_values,
    find_answers,
    judge_reasons,
    sentence_groups,
    token_groups,
)
from coref_automl.extras.relation.rows import INDEX, LABELS, Entity, RelationRow

from .conftest import raw_row

VARIANTS = {
    "none": ["--scheme", "none"],
    "plain": ["--scheme", "plain"],
    "typed": ["--scheme", "typed"],
    "typed + hard mask": ["--scheme", "typed", "--label-mask", "hard"],
    "typed + hard negatives 0.5": ["--scheme", "typed", "--hard-negatives", "0.5"],
}
labels = st.lists(st.integers(0, len(LABELS) - 1), min_size=3, max_size=30)


@pytest.fixture(scope="module")
def runs(encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five variants; of typed markers the seeds are in two folders."""
    out = tmp_path_factory.mktemp("runs")
    same = ["--model", str(encoder_folder), "--train", str(relation_file), "--dev", str(dev_file), "--device", "cpu"]
    same += ["--epochs", "1", "--holdout", "0.2", "--max-length", "64", "--lr", "1e-3", "--no-keep-weights"]
    for number, (name, options) in enumerate(VARIANTS.items()):
        if name == "typed":
            assert run(["re", "train", *same, *options, "--seeds", "1", "--out", str(out / "typed-0")]) == 0
            more = ["--seeds", "1", "--seed", "1"]
            assert run(["re", "train", *same, *options, *more, "--out", str(out / "typed-1")]) == 0
        else:
            assert run(["re", "train", *same, *options, "--seeds", "2", "--out", str(out / f"run-{number}")]) == 0
    return out


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["re", "report", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_runs_that_differ_in_seed_alone_are_one_variant(runs: Path, dev_file: Path) -> None:
    outcomes = find_answers([runs], read_relations(str(dev_file)))
    assert [answers.variant for answers in outcomes.answers] == list(VARIANTS)
    assert {len(answers.by_seed) for answers in outcomes.answers} == {2}
    assert len(outcomes.experiments) == 1
    typed = outcomes.answers[2]
    assert typed.runs == ("typed-0", "typed-1")
    rows = json.loads((runs / "typed-1" / "re_results.json").read_text("utf-8"))
    assert 100 * f1_values(outcomes.gold, typed.predicted)[1].mean() == pytest.approx(rows["micro_f1"])


def test_a_copy_of_a_run_adds_no_seed(runs: Path, dev_file: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "typed-1", tmp_path / "backup")
    outcomes = find_answers([runs, runs.resolve(), tmp_path], read_relations(str(dev_file)))
    assert {len(answers.by_seed) for answers in outcomes.answers} == {2}
    assert any("backup repeats" in reason for reason in outcomes.left_out)


def test_the_report_has_scores_and_all_five_reasons(runs: Path, dev_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = reported(capsys, str(runs), "--data", str(dev_file))
    assert [variant["variant"] for variant in report["variants"]] == list(VARIANTS)
    (reasons,) = report["reasons"]
    tested = {finding["reason"] for finding in reasons["findings"]} | set(reasons["missing"])
    assert tested == {1, 2, 3, 4, 5}
    third = [(finding["a"], finding["b"], finding["metric"]) for finding in reasons["findings"] if finding["reason"] == 3]
    assert third == [
        ("typed", "plain", "micro_f1"),
        ("typed", "plain", "impossible"),
        ("typed + hard mask", "typed", "micro_f1"),
        ("typed + hard mask", "typed", "impossible"),
    ]
    impossible = next(
        finding for finding in reasons["findings"] if finding["a"] == "typed + hard mask" and finding["metric"] == "impossible"
    )
    assert impossible["values"][0] == 0


@pytest.mark.parametrize(("lang", "words"), [("en", "The five reasons for entity markers"), ("ko", "다섯 가지 이유")])
def test_the_report_speaks_both_languages(
    runs: Path, dev_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: str, words: str
) -> None:
    assert run(["re", "report", str(runs), "--data", str(dev_file), "--lang", lang, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert words in printed
    for name in ("relation.html", "relation.md"):
        assert words in (tmp_path / "out" / name).read_text("utf-8")
    assert json.loads((tmp_path / "out" / "relation.json").read_text("utf-8"))["rows"] == 40


def test_one_variant_is_told_by_its_score_and_nothing_is_said_of_choosing(runs: Path, dev_file: Path, tmp_path: Path) -> None:
    assert (
        run(["re", "report", str(runs / "run-0"), "--data", str(dev_file), "--lang", "ko", "--out", str(tmp_path / "out")]) == 0
    )
    page, text = ((tmp_path / "out" / f"relation.{kind}").read_text("utf-8") for kind in ("html", "md"))
    assert '<h1 class="headline">none: micro-F1 ' in page
    assert "변형 1가지" not in page
    assert 'class="limits"' not in page
    assert "알 수 없는 것" not in text


def test_a_run_without_predictions_for_the_rows_is_named_and_the_others_stand(
    runs: Path, dev_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "run-0", tmp_path / "mine")
    shutil.rmtree(tmp_path / "mine" / "seed-0" / "predictions")
    shutil.rmtree(tmp_path / "mine" / "seed-1" / "predictions")
    report = reported(capsys, str(runs / "run-1"), str(tmp_path / "mine"), "--data", str(dev_file))
    assert [variant["variant"] for variant in report["variants"]] == ["plain"]
    assert "no predictions for these rows" in report["notes"][0]
    assert report["reasons"] == []


def test_other_rows_no_runs_and_a_lost_tokenizer_are_told(
    runs: Path, relation_file: Path, dev_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["re", "report", str(runs), "--data", str(relation_file)]) == 2
    assert "no predictions for these rows" in capsys.readouterr().err
    assert run(["re", "report", str(tmp_path), "--data", str(dev_file)]) == 2
    assert "No relation run under" in capsys.readouterr().err
    shutil.copytree(runs / "run-0", tmp_path / "moved")
    result = tmp_path / "moved" / "re_results.json"
    result.write_text(json.dumps({**json.loads(result.read_text("utf-8")), "model": str(tmp_path / "gone")}), "utf-8")
    report = reported(capsys, str(tmp_path / "moved"), "--data", str(dev_file))
    assert "Reason 5 is not tested" in report["notes"][0]
    (tmp_path / "moved" / "rows.npz").unlink()
    assert run(["re", "report", str(tmp_path / "moved"), "--data", str(dev_file)]) == 2
    assert "moved has no rows.npz" in capsys.readouterr().err


@given(gold=labels, data=st.data())
def test_the_mean_over_rows_is_micro_f1(gold: list[int], data: st.DataObject) -> None:
    known = np.array(gold)
    predicted = np.array([data.draw(st.lists(st.integers(0, 29), min_size=len(gold), max_size=len(gold))) for _ in range(2)])
    values = f1_values(known, predicted)
    assert 100 * values.mean(axis=1) == pytest.approx([micro_f1(known, of_run) for of_run in predicted], abs=1e-9)


def made_rows(count: int) -> tuple[RelationRow, ...]:
    """Rows of two labels and two type pairs in unlike shares."""
    kinds = [("no_relation", "PER", "ORG"), ("no_relation", "ORG", "PER"), ("per:employee_of", "PER", "ORG")]
    rows = []
    for number in range(count):
        label, a, b = kinds[number % 7 % 3]
        text = f"김철수 {number} 삼성전자"
        last = Entity("삼성전자", len(text) - 4, len(text), b)
        rows.append(RelationRow(f"r{number}", text, Entity("김철수", 0, 3, a), last, label))
    return tuple(rows)


def outcomes_of(predicted: dict[str, np.ndarray], rows: tuple[RelationRow, ...]) -> Outcomes:
    answers = tuple(
        Answers((name,), "bundled:ko-mini", "x", name, "off", 0.0, dict(enumerate(np.asarray(some, np.int64))))
        for name, some in predicted.items()
    )
    return Outcomes(RelationData("made", rows), answers, ())


def judged(gain: float, *, seeds: int = 3) -> Reasons:
    """600 rows, a third of them long: plain is wrong more often than typed by so much on those; none by more."""
    rows = made_rows(600)
    gold = np.array([INDEX[row.label or ""] for row in rows])
    among = np.arange(600) % 3 == 0
    wrong = {"none": 0.6, "plain": 0.4, "typed": 0.4}
    predicted = {}
    for name, share in wrong.items():
        draws = np.random.default_rng(len(name)).random((seeds, 600))
        less = np.where(among, gain, 0.0) if name == "typed" else 0.0
        predicted[name] = np.where(draws < share - less, (gold + 1) % 30, gold)
    outcomes = outcomes_of(predicted, rows)
    return judge_reasons(outcomes, outcomes.answers, {"long": among, "same types": among})


def test_a_gain_is_shown_and_reasons_without_runs_are_listed() -> None:
    reasons = judged(0.3)
    assert [finding.sign for finding in reasons.findings if (finding.about, finding.a) == ("long", "typed")] == [1]
    assert reasons.missing == (5,)


def test_no_gain_is_no_difference_shown_and_one_seed_shows_nothing() -> None:
    reasons = judged(0.0)
    assert {finding.sign for finding in reasons.findings if finding.a == "typed" and finding.metric == "micro_f1"} == {0}
    assert {finding.sign for finding in judged(0.3, seeds=1).findings} == {0}


def test_false_relations_are_better_when_fewer() -> None:
    rows = made_rows(300)
    gold = np.array([INDEX[row.label or ""] for row in rows])
    draws = np.random.default_rng(0).random((3, 300))
    predicted = {
        "none": np.where(draws < 0.6, 18, gold),
        "plain": np.where(draws[::-1] < 0.1, 18, gold),
        "typed": np.where(draws < 0.1, 18, gold),
    }
    outcomes = outcomes_of(predicted, rows)
    reasons = judge_reasons(outcomes, outcomes.answers, {})
    (fewer,) = [finding for finding in reasons.findings if (finding.reason, finding.a) == (4, "plain")]
    assert fewer.here.difference < 0
    assert fewer.sign == 1


def test_rows_of_a_group(fresh_tokenizer: Any) -> None:
    raw_rows = [
        raw_row("a", ("", "이순신", "은 ", "서울", "에서 태어났다."), ("PER", "LOC"), "per:place_of_birth"),
        raw_row("b", ("", "이순신", "과 ", "김철수", "는 졸업했다."), ("PER", "PER"), "per:colleagues"),
        raw_row("c", ("아주 긴 글이다. " * 9, "이순신", "은 ", "서울", "에 있다."), ("PER", "LOC"), "no_relation"),
    ]
    rows = [
        RelationRow(
            raw["guid"],
            raw["sentence"],
            *(
                Entity(entity["word"], entity["start_idx"], entity["end_idx"] + 1, entity["type"])
                for entity in (raw["subject_entity"], raw["object_entity"])
            ),
            raw["label"],
        )
        for raw in raw_rows
    ]
    groups = sentence_groups(rows)
    assert groups["same types"].tolist() == [False, True, False]
    assert groups["long"].tolist() == [False, False, True]
    groups = token_groups(rows, fresh_tokenizer())
    assert {name: group.shape for name, group in groups.items()} == {"fragmented": (3,), "glued": (3,)}
