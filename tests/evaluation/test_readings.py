"""Reading a set: marks are kept, reading goes on where it stopped, and two readers are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coref_automl.cli.app import app, load_commands
from coref_automl.errors import EvalSetError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.readings import agree, marks_of, passage_of, path_of
from tests.evaluation.tiny import TEXTS, freeze_tiny, item


def read(folder: Path, keys: str, *more: str) -> str:
    load_commands(("evaluate",))
    done = CliRunner().invoke(app, ["evalset", "read", str(folder), *more], input="".join(f"{key}\n" for key in keys))
    assert done.exit_code == 0, done.output
    return done.output


def test_marks_are_kept_and_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    evalset = freeze_tiny(tmp_path / "set", tasks=("real",))
    assert "not read yet" in read(evalset.folder, "")
    read(evalset.folder, "ffaq", "--reader", "kim", "--sample", "6")
    assert sorted(marks_of(evalset.folder)["kim"].values()) == ["ambiguous", "fair", "fair"]
    printed = read(evalset.folder, "fff", "--reader", "kim", "--sample", "6")
    assert "[1/3]" in printed
    assert len(marks_of(evalset.folder)["kim"]) == 6
    assert EvalSet.open(evalset.folder).fingerprint == evalset.fingerprint


def test_two_readers_are_compared_and_an_item_is_fair_where_both_say_so(tmp_path: Path) -> None:
    evalset = freeze_tiny(tmp_path / "set", tasks=("real",))
    read(evalset.folder, "ffff", "--reader", "kim", "--sample", "4")
    assert "agreement 50.0% (kappa 0.00)" in read(evalset.folder, "ffal", "--reader", "lee", "--sample", "4")
    (reading,) = json.loads(read(evalset.folder, "", "--json"))
    assert (reading["fair"]["value"], reading["fair"]["n"], reading["agreement"], reading["kappa"]) == (0.5, 4, 0.5, 0.0)
    assert reading["fair"]["low"] < 0.5 < reading["fair"]["high"]


def test_kappa_is_agreement_beyond_chance() -> None:
    assert agree([("f", "f"), ("a", "a")]) == (1.0, 1.0)
    assert agree([("f", "f"), ("f", "a"), ("a", "f"), ("a", "a")]) == (0.5, 0.0)


def test_a_passage_shows_gap_and_antecedent() -> None:
    assert passage_of(item("1", "강변"), TEXTS[1]).startswith(
        "김서연은 도서관에서 공부하였다. 도서관은 《강변》에 있다. 【강변】의"
    )
    far = item("1", "강변", text="강변" + " 아" * 400 + " 강변에")
    assert "\n  ... 《강변》 아" in passage_of(far, "강변" + " 아" * 400 + " 강변에")


def test_a_reader_s_name_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(EvalSetError, match="cannot name a reader"):
        path_of(tmp_path, "../kim")
