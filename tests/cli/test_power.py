"""coref-automl power: what a set and a study can show, and what a difference takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set

STUDY = Path(__file__).resolve().parents[2] / "results" / "carry-over"


def answered(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["power", *arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_set_says_what_it_can_show_for_the_seeds_asked(capsys: pytest.CaptureFixture[str]) -> None:
    bundled = bundled_eval_set()
    result = answered(["--eval-set", str(bundled), "--seeds", "3", "--seeds", "8"], capsys)
    items = EvalSet.open(bundled).select(["real", "new"])
    assert [one["seeds"] for one in result["able"]] == [3, 8]
    assert {(one["items"], one["documents"]) for one in result["able"]} == {(len(items), len({item.cluster for item in items}))}
    three, eight = (entry["difference"] for entry in result["able"])
    assert three > eight > 0
    assert (result["measured"], result["plans"], result["cost"]) == (0, [], None)


def test_a_study_brings_its_own_spreads_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    result = answered([str(STUDY), "--difference", "1", "--metric", "lambada_top1"], capsys)
    assert result["measured"] == 1
    assert result["components"]["seeds"] == pytest.approx(0.003, abs=0.0015)
    assert result["cost"]["tokens"] == 11_986_098
    assert result["cost"]["training"] > 0
    assert [plan["difference"] for plan in result["plans"]] == [0.01] * len(result["plans"])
    assert run(["power", "--difference", "1", "--lang", "ko"]) == 0
    printed = capsys.readouterr().out
    assert "1점 차이를 검정력 80%로 검출하려면" in printed
    assert len(printed.splitlines()) < 24


def test_seeds_with_which_no_items_show_the_difference_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for lang, words in (
        ("en", r"With 2, 3 seeds .*no number of items.* 1-point"),
        ("ko", "시드 2, 3개로는 .*1점 차이를 검출할 수 없"),
    ):
        assert run(["power", "--difference", "1", "--seeds", "3", "--seeds", "2", "--lang", lang]) == 0
        assert re.search(words, capsys.readouterr().out)
    result = answered(["--difference", "0.3", "--against-base"], capsys)
    assert [plan["seeds"] for plan in result["plans"]] == [12]
    assert (result["difference"], result["unreachable"]) == (0.003, [2, 3, 5, 8])


def test_comparisons_and_a_base_change_what_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--eval-set", str(bundled_eval_set()), "--seeds", "5"]
    usual, corrected, base = (
        answered([*options, *more], capsys)["able"][0]["difference"] for more in ([], ["--comparisons", "6"], ["--against-base"])
    )
    assert corrected > usual > base


def test_nothing_to_plan_is_refused_with_what_to_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["power"]) == 2
    assert "--difference" in capsys.readouterr().err
    assert run(["power", "--eval-set", str(bundled_eval_set()), "--metric", "nuon1"]) == 2
    assert "noun1" in capsys.readouterr().err
