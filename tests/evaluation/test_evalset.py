"""Frozen sets: what is written reads back, what was edited is refused, and noun tables come from the folder or from Kiwi."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base.errors import EvalSetError
from coref_automl.base.records import ClozeItem, Document
from coref_automl.evaluation.answers import save_table, table_path
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set, check, freeze
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.vocabulary import entry_words
from tests.evaluation.tiny import tokenizer_of

NOUNS = ("서울", "한강")
DOCUMENT = Document("d1", "wiki", "서울은 크다. 한강과 서울.", "서울")
ITEM = ClozeItem(
    id="i1",
    task="real",
    document="d1",
    cluster="d1",
    source="wiki",
    start=12,
    end=14,
    answer="서울",
    tag="NNP",
    antecedent=(0, 2),
    distance=6,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chosen = tmp_path / "wiki"
    freeze(chosen, [(DOCUMENT, NOUNS)], {"real": [ITEM]}, {"settings": {}, "tasks": {}})
    return chosen


def test_a_frozen_set_reads_back_equal(folder: Path) -> None:
    evalset = EvalSet.open(folder)
    assert evalset.name == "wiki"
    assert evalset.documents == {"d1": DOCUMENT.text}
    assert evalset.nouns == {"d1": NOUNS}
    assert evalset.items == {"real": (ITEM,)}
    assert evalset.fingerprint == evalset.manifest["fingerprint"]
    assert EvalSet.open(str(folder)).fingerprint == evalset.fingerprint


def test_the_fingerprint_names_bytes_and_not_the_folder(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "renamed"
    folder.rename(other)
    assert EvalSet.open(other).name == "renamed"
    again = tmp_path / "again"
    freeze(again, [(DOCUMENT, NOUNS)], {"real": [ITEM]}, {"settings": {"seed": 3}})
    assert EvalSet.open(again).fingerprint == EvalSet.open(other).fingerprint


@pytest.mark.parametrize("name", ["items-real.jsonl", "documents.jsonl"])
def test_an_edited_file_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(path.read_text("utf-8").replace("wiki", "news"), "utf-8")
    with pytest.raises(EvalSetError, match="was edited after it was frozen"):
        EvalSet.open(folder)


def test_a_cut_off_file_is_refused(folder: Path) -> None:
    path = folder / "items-real.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EvalSetError, match="edited"):
        EvalSet.open(folder)


def test_items_of_a_task_that_was_not_frozen_are_refused(folder: Path) -> None:
    (folder / "items-new.jsonl").write_text("", "utf-8")
    with pytest.raises(EvalSetError, match="edited"):
        EvalSet.open(folder)


def test_a_task_whose_items_were_removed_is_refused(folder: Path) -> None:
    (folder / "items-real.jsonl").unlink()
    with pytest.raises(EvalSetError, match="edited"):
        EvalSet.open(folder)


def test_a_folder_without_a_set_gives_the_command_that_makes_one(tmp_path: Path) -> None:
    for folder, said in ((tmp_path, "build one"), (tmp_path / "nothing", "does not exist")):
        with pytest.raises(EvalSetError, match=f"{said}.*coref-automl prepare eval --source SOURCE --model MODEL --out"):
            EvalSet.open(folder)


@pytest.mark.parametrize(
    "manifest",
    [
        {"kind": "dataset"},
        [],
        {"kind": "evalset", "schema": 0},
        {"kind": "evalset", "schema": 1, "version": 3, "fingerprint": ""},
        "not json",
    ],
)
def test_another_kind_of_folder_is_refused(folder: Path, manifest: Any) -> None:
    (folder / "manifest.json").write_text(manifest if manifest == "not json" else json.dumps(manifest), "utf-8")
    with pytest.raises(EvalSetError):
        EvalSet.open(folder)


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"start": 11}, "another text"), ({"answer": "부산"}, "another text"), ({"document": "d2"}, "no document"),
     ({"antecedent": (11, 13)}, "antecedent"), ({"antecedent": (0, 99)}, "antecedent"),
     ({"antecedent": None}, "distance"), ({"distance": -1}, "distance"), ({"task": "new"}, "task")],
)  # fmt: skip
def test_an_item_that_breaks_a_promise_is_never_frozen(change: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(EvalSetError, match=fault):
        freeze(tmp_path / "set", [(DOCUMENT, NOUNS)], {"real": [replace(ITEM, **change)]}, {})
    assert not (tmp_path / "set").exists()


def test_an_id_occurs_once() -> None:
    with pytest.raises(EvalSetError, match="twice"):
        check([DOCUMENT], {"real": [ITEM, ITEM]})
    with pytest.raises(EvalSetError, match="one id"):
        check([DOCUMENT, DOCUMENT], {})


def test_a_noun_table_is_built_once_and_kept_in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of("wordpiece")
    table = EvalSet.open(folder).noun_table(tokenizer)
    words = entry_words(tokenizer)
    assert table.shape == (len(words),)
    nouns = {word for word, is_noun in zip(words, table, strict=True) if is_noun}
    assert {"공장", "도서관", "시민"} <= nouns
    assert all(word is not None and len(word) >= 2 for word in nouns)
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    assert EvalSet.open(folder).noun_table(tokenizer).tolist() == table.tolist()
    assert EvalSet.open(folder).items == {"real": (ITEM,)}


def test_without_kiwi_a_missing_table_gives_the_command_that_builds_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    with pytest.raises(EvalSetError, match=f"coref-automl prepare eval --model MODEL --out {folder}"):
        EvalSet.open(folder).noun_table(tokenizer_of("wordpiece"))


def test_a_table_that_cannot_be_saved_still_serves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coref_automl.base.errors import StorageError
    from coref_automl.evaluation import answers

    def refuse(*_: object) -> None:
        raise StorageError("read-only")

    monkeypatch.setattr(answers, "atomic_write", refuse)
    assert EvalSet.open(folder).noun_table(tokenizer_of("wordpiece")).any()


@pytest.mark.parametrize("damage", ["short", "cut", "kind"])
def test_a_damaged_table_is_refused_with_what_to_do(folder: Path, damage: str) -> None:
    tokenizer = tokenizer_of("wordpiece")
    name = tokenizer_fingerprint(tokenizer)
    save_table(folder, name, np.zeros(3, np.bool_))
    path = table_path(folder, name)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    if damage == "kind":
        np.save(path, np.zeros(len(entry_words(tokenizer)), np.int8))
    with pytest.raises(EvalSetError, match="delete it"):
        EvalSet.open(folder).noun_table(tokenizer)


def test_the_bundled_set_is_part_of_the_package() -> None:
    import coref_automl

    assert bundled_eval_set().is_relative_to(Path(coref_automl.__file__).parent)


def test_the_bundled_set_has_a_thousand_of_each_half_that_the_bundled_model_counts() -> None:
    from coref_automl.evaluation.windows import Lengths, maker_for
    from coref_automl.models.load import load_tokenizer

    evalset, maker = EvalSet.open(bundled_eval_set()), maker_for(load_tokenizer("bundled:ko-mini"), Lengths.of(256, 2048))
    assert {task: len(evalset.items[task]) for task in ("real", "new")} == {"real": 1000, "new": 1000}
    windows = [maker.window(item, evalset.documents[item.document]) for item in evalset.select(["real", "new"])]
    assert all(window.entry is not None and not window.out_of_reach for window in windows)
    sources = {item.source for item in evalset.items["real"]}
    readme = (bundled_eval_set() / "README.md").read_text("utf-8")
    assert all(source in readme for source in sources)
