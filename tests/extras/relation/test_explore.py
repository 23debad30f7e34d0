from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.say import speaking
from coref_automl.cli.app import run
from coref_automl.extras.relation.data import inspect_relations
from coref_automl.extras.relation.explore import entity_distance, explore
from coref_automl.extras.relation.page import write_exploration
from coref_automl.extras.relation.rows import Entity, RelationRow

from .conftest import make_raw_rows, raw_row


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    return path


def test_counts_repeats_conflicts_and_shift_are_found(tmp_path: Path) -> None:
    raw = make_raw_rows(40)
    again = {**raw[0], "guid": "again"}
    conflicting = {**raw[1], "guid": "other", "label": "no_relation"}
    first = inspect_relations(str(write(tmp_path / "a.json", [*raw, again, conflicting])))
    second = inspect_relations(
        str(write(tmp_path / "b.json", [row for row in make_raw_rows(60, start=38) if row["label"] == "no_relation"]))
    )
    exploration = explore([first, second])
    a, b = exploration.splits
    assert a.rows == 42
    assert sum(a.labels.values()) == 42
    assert a.labels["per:place_of_birth"] == 11
    assert a.duplicates == 2
    assert [conflict.guids for conflict in a.conflicts] == [("made-00001", "other")]
    assert b.labels["no_relation"] == b.rows
    assert exploration.label_shift == pytest.approx(1 - a.labels["no_relation"] / 42)
    assert exploration.shared_rows == exploration.shared_sentences == 1
    assert any("total variation distance of labels" in line for line in exploration.lines())
    assert not any(line.endswith("...") for line in exploration.lines())  # four labels occur, and all are listed
    with speaking("ko"):
        assert "b의 행 1개는 a에도 있는 문장 1개에서 나왔습니다." in exploration.lines()


def test_a_longer_span_at_the_same_place_is_another_question(tmp_path: Path) -> None:
    raw = raw_row("a", ("", "일본 제국 육군", "은 ", "도쿄", "에 있었다."), ("ORG", "LOC"), "org:place_of_headquarters")
    shorter = {
        **raw,
        "guid": "b",
        "label": "no_relation",
        "subject_entity": {**raw["subject_entity"], "word": "일본 제국", "end_idx": 4},
    }
    same = {**raw, "guid": "c", "label": "no_relation"}
    (facts,) = explore([inspect_relations(str(write(tmp_path / "a.json", [raw, shorter, same])))]).splits
    assert facts.duplicates == 1
    assert [(conflict.guids, conflict.subject, conflict.object) for conflict in facts.conflicts] == [
        (("a", "c"), "일본 제국 육군", "도쿄")
    ]


def test_distance_is_between_the_entities_and_negative_when_nested() -> None:
    sentence = "서울대학교는 부산에 없다."
    school, city, part = Entity("서울대학교", 0, 5, "ORG"), Entity("부산", 7, 9, "LOC"), Entity("서울", 0, 2, "LOC")
    assert entity_distance(RelationRow("a", sentence, school, city)) == 2
    assert entity_distance(RelationRow("a", sentence, city, school)) == 2
    assert entity_distance(RelationRow("a", sentence, school, part)) == -1


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_page_holds_every_label_and_asks_no_network(relation_file: Path, dev_file: Path, tmp_path: Path, lang: Any) -> None:
    exploration = explore([inspect_relations(str(relation_file)), inspect_relations(str(dev_file))])
    page = write_exploration(exploration, tmp_path / "out", lang=lang).read_text("utf-8")
    assert "per:place_of_birth" in page
    assert 'src="http' not in page
    assert "made_dev" in (tmp_path / "out" / "explore.md").read_text("utf-8")


def test_check_lists_every_problem_and_fails(encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = make_raw_rows(6)
    raw[2]["subject_entity"]["start_idx"] += 1
    raw[4]["label"] = "per:birth"
    path = write(tmp_path / "bad.json", raw)
    assert run(["re", "explore", str(path), "--check", "--model", str(encoder_folder)]) == 2
    shown = capsys.readouterr().out
    assert "row 3 (made-00002)" in shown
    assert "row 5 (made-00004)" in shown
    assert "typed: 4 rows checked, 0 errors" in shown
    good = write(tmp_path / "good.json", make_raw_rows(6))
    assert run(["re", "explore", str(good), "--check", "--model", str(encoder_folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [check["problems"] for check in printed["checks"]] == [[], []]
