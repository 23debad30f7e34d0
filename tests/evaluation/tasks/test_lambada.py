"""LAMBADA items: the blank may stand anywhere, a particle may follow it, and bad rows are counted."""

from __future__ import annotations

import json
import sys
import types
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import MissingExtra, SourceError
from coref_automl.base.korean import KINDS, Tags
from coref_automl.base.say import in_words, speaking
from coref_automl.corpus import sources
from coref_automl.evaluation.tasks.lambada import HUB, lambada_items, open_rows, read_passage
from coref_automl.evaluation.tasks.task import Found, parse_document, read_rows
from tests.evaluation.sketch import LETTERS

ROW: dict[str, Any] = {
    "index": 7,
    "text": "강이 있다. 사람은 _을 본다.",
    "answer": "대동강",
    "candidate": "사람",
    "title": "노래",
}


def items_of(row: dict[str, Any], *nouns: tuple[int, int]) -> Found:
    (passage,), drops = read_rows([row], read_passage, "silver")
    assert not drops
    spans = np.array(nouns, np.int32).reshape(-1, 2)
    tags = Tags(spans, np.full(len(spans), KINDS.index("NNG"), np.uint8), np.array([], np.int32))
    return lambada_items(parse_document(passage.document, tags, LETTERS), passage)


def test_the_answer_stands_where_the_blank_stood_and_the_particle_stays() -> None:
    (passage,), _ = read_rows([ROW], read_passage, "silver")
    assert passage.document.text == "강이 있다. 사람은 대동강을 본다."
    assert passage.document.text[slice(*passage.gap)] == "대동강"
    assert (passage.document.id, passage.document.title) == ("silver-7", "노래")
    (item,) = items_of(ROW).items
    assert (item.answer, item.source) == ("대동강", "silver")
    assert item.antecedent is None
    assert item.distance == -1


def test_the_nearest_occurrence_is_the_antecedent() -> None:
    row = {**ROW, "text": "기차와 시장과 대동강. 사람은 _을 본다."}
    (item,) = items_of(row, (0, 2), (4, 6), (8, 11)).items
    assert item.antecedent == (8, 11)
    assert item.distance == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"text": "강이 있다."}, "no blank"), ({"text": "_과 _"}, "more than one blank"), ({"answer": "  "}, "an empty answer"),
     ({"answer": None}, "text or answer is missing"), ({"text": 3}, "text or answer is missing")],
)  # fmt: skip
def test_rows_that_are_no_passage_are_counted_by_reason(change: dict[str, Any], reason: str) -> None:
    result, drops = read_rows([{**ROW, **change}, "not JSON"], read_passage, "silver")
    assert result == []
    assert drops == Counter({reason: 1, "not JSON": 1})


@pytest.mark.parametrize("key", ["text", "answer", "candidate", "title"])
def test_a_row_with_half_a_surrogate_pair_is_counted(key: str) -> None:
    half = {**ROW, key: ROW[key] + "\ud800"}
    result, drops = read_rows([half, {**ROW, "title": "\U0001f600"}], read_passage, "silver")
    assert [passage.document.title for passage in result] == ["\U0001f600"]
    assert drops == Counter({"half of a surrogate pair": 1})
    with speaking("ko"):
        assert [in_words(reason) for reason in drops] == ["서로게이트 쌍의 절반"]


@pytest.mark.parametrize(("index", "name"), [(0, "silver-0"), (None, "silver-1"), ("", "silver-1"), ("a", "silver-a")])
def test_an_empty_index_is_none_and_zero_is_one(index: object, name: str) -> None:
    result, _ = read_rows([ROW, {**ROW, "index": index, "title": None}], read_passage, "silver")
    assert (result[1].document.id, result[1].document.title) == (name, "")


def test_passages_of_one_title_are_one_cluster_and_without_a_title_each_is_its_own() -> None:
    other = {**ROW, "text": "산이 있다. 사람은 _을 본다."}
    clusters = [items_of(row).items[0].cluster for row in (ROW, other, {**ROW, "title": None}, {**other, "title": None})]
    assert clusters[0] == clusters[1]
    assert len(set(clusters)) == 3


@given(st.text(st.sampled_from("강이 있다.각́"), max_size=12), st.text(st.sampled_from("을 본다.́"), max_size=12))
def test_composing_the_text_never_moves_the_gap(before: str, after: str) -> None:
    row = {**ROW, "text": unicodedata.normalize("NFD", before) + "_" + unicodedata.normalize("NFD", after)}
    row["answer"] = unicodedata.normalize("NFD", "대동강")
    (passage,), _ = read_rows([row], read_passage, "silver")
    assert passage.document.text[slice(*passage.gap)] == "대동강"


def test_a_local_file_is_read_with_its_columns_checked(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW, ensure_ascii=False) + "\nnot json\n", "utf-8")
    rows = list(open_rows(f"local:{path}"))
    assert rows[0] == ROW
    assert isinstance(rows[1], str)
    path.write_text('{"sentence": "강"}\n', "utf-8")
    with pytest.raises(SourceError, match="no column 'text'"):
        list(open_rows(str(path)))


def test_a_file_that_breaks_off_is_named(tmp_path: Path) -> None:
    import lzma

    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress(json.dumps(ROW).encode() * 500)[:-30])
    with pytest.raises(SourceError, match=r"rows\.jsonl\.xz breaks off"):
        list(open_rows(f"local:{path}"))


def test_the_gated_dataset_names_the_token_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("401 Client Error")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=refuse, config=types.SimpleNamespace()))
    monkeypatch.setattr(sources, "_hub_answers", lambda: True)
    with pytest.raises(SourceError, match="HF_TOKEN"):
        list(open_rows(HUB))


def test_the_hub_s_rows_are_asked_for_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str, _config: None, *, split: str, token: str | None, **_: object) -> list[dict[str, Any]]:
        asked.append((name, split, token))
        return [ROW]

    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load, config=types.SimpleNamespace()))
    monkeypatch.setattr(sources, "_hub_answers", lambda: True)
    assert list(open_rows("ko-lambada")) == [ROW]
    assert asked == [(HUB, "test", "secret")]


def test_without_the_datasets_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"coref-automl\[hub\]"):
        list(open_rows("ko-lambada"))
