from __future__ import annotations

import csv
import gzip
import json
import lzma
import math
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coref_automl.base.errors import MissingExtra, RelationDataError
from coref_automl.extras.relation.data import (
    inspect_relations,
    read_relations,
    sample_rows,
    sentence_key,
    split_by_sentence,
    split_name,
)
from coref_automl.extras.relation.rows import INDEX, LABELS, NO_RELATION, TYPES, LabelMask, RelationRow, pair_index

from .conftest import make_raw_rows


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as handle:
        writer = csv.DictWriter(handle, ["id", "sentence", "subject_entity", "object_entity", "label", "source"])
        writer.writeheader()
        writer.writerows({**{k: v for k, v in row.items() if k != "guid"}, "id": row["guid"]} for row in rows)


def test_every_file_format_gives_the_same_rows(tmp_path: Path) -> None:
    raw = make_raw_rows(9)
    text = json.dumps(raw, ensure_ascii=False)
    (tmp_path / "a.json").write_text(text, "utf-8")
    (tmp_path / "a.json.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in raw) + "\n", "utf-8")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    write_csv(tmp_path / "a.csv", raw)
    pq.write_table(pa.Table.from_pylist(raw), tmp_path / "a.parquet")
    expected = read_relations(str(tmp_path / "a.json")).rows
    assert len(expected) == 9
    for name in ("a.json.xz", "a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"):
        assert read_relations(str(tmp_path / name)).rows == expected
        assert split_name(str(tmp_path / name)) == "a"


def test_bad_rows_are_listed_with_number_and_reason_and_skipped_on_request(tmp_path: Path) -> None:
    raw = make_raw_rows(6)
    raw[1]["label"] = "per:nothing"
    raw[4]["subject_entity"]["end_idx"] += 1
    raw[5]["guid"] = raw[0]["guid"]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(RelationDataError, match=r"row 2 \(made-00001\).*row 5 .*inclusive.*--skip-bad"):
        read_relations(str(path))
    data = read_relations(str(path), skip_bad=True)
    assert [row.guid for row in data.rows] == ["made-00000", "made-00002", "made-00003"]
    assert [problem.row for problem in data.problems] == [2, 5, 6]


def test_many_bad_rows_are_one_readable_text_that_says_where_they_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([{**row, "label": "per:titel"} for row in make_raw_rows(8)]), "utf-8")
    with pytest.raises(RelationDataError) as error:
        read_relations(str(path))
    reason = "the label 'per:titel' is not one of KLUE's 30 (the nearest is 'per:title')"
    listed = "; ".join(f"row {number + 1} (made-{number:05d}): {reason}" for number in range(5))
    assert str(error.value) == (
        f"{path}: {listed}; and 3 more bad rows. Correct the file, or skip them: --skip-bad in re train, evaluate and "
        "predict, settings: {skip_bad: true} in a recipe of re grid or tune."
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "not one of .json"),
        ("a.json", b"{", "damaged or not json"),
        ("a.json", b'{"a": 1}', "list of rows"),
        ("a.json", b"[]", "has no rows; pass a file with at least one"),
        ("a.json.xz", b"nonsense", "damaged"),
        ("a.jsonl", b'{"sentence": "a"}\n\n{"sentence"', "row 2: not JSON"),
        ("a.jsonl", b"[1]", "row 1: not a JSON object"),
        ("a.json.gz", b"nonsense", "Cannot read .*gzip"),
        ("a.json", b'["\xff"]', r"a.json is not UTF-8 \(at byte 2\); save it as UTF-8\.$"),
        ("a.csv", b"\xff\xfe\x00", r"a.csv: row 1: not UTF-8\..* Save the file as UTF-8\.$"),
        ("a.csv", "id,sentence\n1,가나".encode("cp949"), "Save the file as UTF-8"),
        ("a.csv", b"id,text,label\n1,a,b\n", r"a.csv: The columns are 'id', 'text', 'label', and none is 'sentence'; "),
        ("a.csv", b"", "has no rows; pass a file with at least one"),
    ],
)
def test_an_unreadable_file_is_one_sentence(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RelationDataError, match=message):
        read_relations(str(tmp_path / name))
    with pytest.raises(RelationDataError, match="Cannot read"):
        read_relations(str(tmp_path / "absent.json"))


def test_all_problems_are_found_in_one_reading(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([1, {}, *make_raw_rows(2)]), "utf-8")
    data = inspect_relations(str(path))
    assert len(data.rows) == 2
    assert len(data.problems) == 2


def test_hub_rows_are_read_and_an_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(*names: Any, split: str) -> Any:
        asked.append((*names, split))
        if split == "validation":
            raise ConnectionError("no route\nand a stack")
        return [{**row, "label": LABELS.index(row["label"])} for row in make_raw_rows(3)]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    read = read_relations("hub:klue/re:train")
    assert asked == [("klue/klue", "re", "train")]
    assert (read.split, [row.label for row in read.rows]) == ("klue-re-train", [row["label"] for row in make_raw_rows(3)])
    with pytest.raises(RelationDataError, match=r"no route.*download klue-re"):
        read_relations("hub:klue/re:validation")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match="datasets"):
        read_relations("hub:klue/re:train")


def test_bundled_rows_hold_every_label_and_no_bad_row() -> None:
    train, dev = inspect_relations("bundled:relations"), inspect_relations("bundled:relations-dev")
    assert not train.problems
    assert not dev.problems
    assert {row.label for row in train.rows} == {row.label for row in dev.rows} == set(LABELS)
    with pytest.raises(RelationDataError, match="bundled:relations-dev"):
        read_relations("bundled:nothing")


def test_no_sentence_is_on_both_sides_of_the_split(rows: tuple[RelationRow, ...]) -> None:
    doubled = (*rows, *(RelationRow(f"{r.guid}-b", " " + r.sentence, r.subject, r.object, r.label) for r in rows))
    kept, held_out = split_by_sentence(doubled, 0.2)
    assert {sentence_key(row.sentence) for row in kept}.isdisjoint(sentence_key(row.sentence) for row in held_out)
    assert len(kept) + len(held_out) == len(doubled)
    assert 0.1 < len(held_out) / len(doubled) < 0.35
    assert split_by_sentence(doubled[::-1], 0.2)[1] == held_out[::-1]


def test_too_few_rows_to_hold_out_is_an_error(rows: tuple[RelationRow, ...]) -> None:
    with pytest.raises(RelationDataError, match="too few"):
        split_by_sentence(rows[:1], 0.1)


def test_a_sample_is_the_same_rows_whatever_their_order(rows: tuple[RelationRow, ...]) -> None:
    some = sample_rows(rows, 10)
    assert len(some) == 10
    assert {row.guid for row in sample_rows(rows[::-1], 10)} == {row.guid for row in some}
    assert [row.guid for row in some] == sorted(row.guid for row in some)


def test_labels_stand_in_klue_order() -> None:
    assert len(set(LABELS)) == 30
    assert [LABELS[i] for i in (0, 1, 10, 12, 18, 29)] == [
        "no_relation",
        "org:dissolved",
        "org:top_members/employees",
        "per:date_of_birth",
        "per:employee_of",
        "per:title",
    ]


def test_a_hard_mask_forbids_what_train_never_showed_for_a_pair(rows: tuple[RelationRow, ...]) -> None:
    mask = LabelMask.learn(rows, "hard", support=2)
    born = next(row for row in rows if row.label == "per:place_of_birth")
    assert not mask.forbids(rows).any()
    assert mask.bias[pair_index(born), INDEX["per:place_of_birth"]] == 0
    assert mask.bias[pair_index(born), INDEX["org:founded"]] < -1e3
    assert (mask.bias[:, NO_RELATION] == 0).all()
    unseen = TYPES.index("NOH") * 6 + TYPES.index("NOH")
    assert (mask.bias[unseen] == 0).all()
    wrong = RelationRow("x", born.sentence, born.subject, born.object, "org:founded")
    assert mask.forbids([wrong]).tolist() == [True]


def test_support_decides_what_counts_as_shown(rows: tuple[RelationRow, ...]) -> None:
    count = sum(row.label == "per:place_of_birth" for row in rows)
    assert not LabelMask.learn(rows, "hard", support=count).forbids(rows).any()
    assert LabelMask.learn(rows, "hard", support=count + 1).forbids(rows).sum() >= count


def test_a_soft_mask_is_the_log_share_of_the_pair(rows: tuple[RelationRow, ...]) -> None:
    mask = LabelMask.learn(rows, "soft", smoothing=1.0)
    born = next(row for row in rows if row.label == "per:place_of_birth")
    pair = pair_index(born)
    seen = [row.label for row in rows if pair_index(row) == pair]
    share = (seen.count("per:place_of_birth") + 1) / (len(seen) + 30)
    assert mask.bias[pair, INDEX["per:place_of_birth"]] == pytest.approx(math.log(share), abs=1e-5)
    assert not mask.forbids(rows).any()


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("hub:klue/re:validation", ("klue/klue", "re", "validation")),
        ("hub:someone/relations:test", ("someone/relations", None, "test")),
        ("hub:someone/relations", ("someone/relations", None, "train")),
        ("hub:someone/relations/news:dev", ("someone/relations", "news", "dev")),
    ],
)
def test_a_hub_dataset_is_owner_and_name(
    name: str, asked: tuple[str, str | None, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from coref_automl.cli.app import run

    heard: list[tuple[str, str | None, str]] = []

    def load_dataset(repository: str, config: str | None, *, split: str) -> Any:
        heard.append((repository, config, split))
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert run(["re", "explore", name, "--check"]) == 2
    assert heard == [asked]
    assert f"{name} cannot be fetched (no network)" in capsys.readouterr().err
