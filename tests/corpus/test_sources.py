"""Named sources: complete, checked before the work, and clear about what is wrong. The hub is a small pretence here."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from coref_automl.base.errors import MissingExtra, SourceError
from coref_automl.base.records import Document
from coref_automl.cli.app import run as command
from coref_automl.corpus import encode, sources
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import SOURCES, check_source, inputs_of, open_source
from tests.corpus.conftest import WriteRows, rows
from tests.corpus.test_resume import killed_at

NAMED = {
    ("wikimedia/wikipedia", "20231101.ko"),
    ("klue/klue", "mrc"),
    ("klue/klue", "ynat"),
    ("klue/klue", "sts"),
    ("klue/klue", "nli"),
    ("KorQuAD/squad_kor_v1", None),
    ("skt/kobest_v1", "hellaswag"),
    ("HPLT/HPLT2.0_cleaned", "kor_Hang"),
    ("nmixx-fin/ko-trans-us_news_retrieval", None),
    ("nmixx-fin/twice_kr_finance_news_summ", None),
    ("nmixx-fin/twice_kr_news_bqa_cls", None),
    ("nmixx-fin/twice_kr_fin_news_sent_cls", None),
    ("dev7halo/naver-news-summarization-ko-with-gen", None),
    ("AIR-Bench/qa_news_ko", None),
    ("daekeun-ml/naver-news-summarization-ko", None),
    ("thunder-research-group/SNU_Ko-LAMBADA", None),
}


class _Hub:
    """Stands where `datasets` stands: rows, or an error."""

    def __init__(self, outcome: list[dict[str, Any]] | Exception) -> None:
        self.outcome = outcome
        self.asked: list[Any] = []

    def load_dataset(self, *names: Any, **options: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((names, options))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return iter(self.outcome)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> _Hub:
    pretence = _Hub([])
    module = ModuleType("datasets")
    module.load_dataset = pretence.load_dataset  # type: ignore[attr-defined]
    module.config = ModuleType("datasets.config")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setattr(sources, "_hub_answers", lambda: True)
    return pretence


def test_every_source_of_the_published_work_has_a_name() -> None:
    assert {(source.hub, source.config) for source in SOURCES.values()} == NAMED


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SourceError, match=r"Did you mean 'kowiki'.*local:PATH"):
        inputs_of("kowikki")


def test_hub_rows_become_documents_streamed_and_with_fields_joined(hub: _Hub) -> None:
    hub.outcome = [{"sentence1": "하나", "sentence2": "둘"}, {"sentence1": "셋", "sentence2": "넷"}]
    assert [d.text for d in open_source("klue-sts")] == ["하나\n둘", "셋\n넷"]
    ((names, options),) = hub.asked
    assert names == ("klue/klue", "sts")
    assert options["streaming"] is True


def test_a_hub_row_without_a_field_is_a_flaw_of_that_field(hub: _Hub) -> None:
    hub.outcome, reasons = [{"sentence1": "하나", "sentence2": "둘"}, {"sentence1": "셋", "sentence2": None}], list[str]()
    assert [d.text for d in open_source("klue-sts", on_flaw=lambda flaw: reasons.append(flaw.reason))] == ["하나\n둘"]
    assert reasons == ["no field 'sentence2'"]


def test_a_wrong_hub_field_names_the_fields_there_are(hub: _Hub) -> None:
    hub.outcome = [{"body": "글", "id": 1}]
    with pytest.raises(SourceError, match=r"no field 'text'; its rows hold body, id"):
        list(open_source("kowiki"))


def test_a_gated_source_names_the_variable(hub: _Hub) -> None:
    hub.outcome = RuntimeError("Dataset is a gated dataset on the Hub. You must be authenticated")
    with pytest.raises(SourceError, match="HF_TOKEN"):
        list(open_source("ko-lambada"))


def test_a_hub_out_of_reach_is_one_sentence(hub: _Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.outcome = ConnectionError("Max retries exceeded")
    with pytest.raises(SourceError, match=r"cannot be reached; check the network.*local:PATH"):
        list(open_source("kowiki"))
    monkeypatch.setattr(sources, "_hub_answers", lambda: False)
    with pytest.raises(SourceError, match="cannot be reached"):
        list(open_source("kowiki"))


def test_without_the_hub_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"coref-automl\[hub\]"):
        list(open_source("kowiki"))


def test_a_check_shows_the_first_document_or_the_reason(hub: _Hub, write_rows: WriteRows, tmp_path: Path) -> None:
    good = write_rows("good.jsonl", rows(2))
    write_rows("other.jsonl", [{"body": "글"}])
    assert [c.readable for c in check_source(f"local:{good}")] == [True]
    assert check_source(f"local:{good}")[0].message.startswith(rows(1)[0]["text"][:20])
    assert [c.readable for c in check_source(f"local:{tmp_path}/*.jsonl")] == [True, False]
    assert not check_source("nothing-like-it")[0].readable


def test_a_check_fails_on_a_file_without_rows(write_rows: WriteRows, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("good.jsonl", rows(2))
    assert command(["sources", "--check", f"local:{tmp_path}"]) == 0
    (tmp_path / "empty.jsonl").touch()
    capsys.readouterr()
    assert command(["sources", "--check", f"local:{tmp_path}"]) == 1
    states = {line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if "empty.jsonl" in line}
    assert states == {"EMPTY"}
    assert [check.readable for check in check_source(f"local:{tmp_path}")] == [True, True]  # --allow-empty goes on without it


def test_flaws_are_an_error_for_those_who_do_not_count_them(write_rows: WriteRows) -> None:
    path = write_rows("a.jsonl", [{"text": "하나"}, {"title": "없음"}])
    with pytest.raises(SourceError, match="line 2"):
        list(open_source(f"local:{path}"))
    counted: list[Any] = []
    assert list(open_source(f"local:{path}", on_flaw=counted.append)) == [Document("a-1", "a", "하나")]
    assert len(counted) == 1


def test_a_hub_source_is_pinned_when_the_work_begins_and_asks_for_no_network_when_it_is_done(
    hub: _Hub, tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.outcome = rows(12)
    now = ["first"]
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: SimpleNamespace(sha=now[0]))
    chosen = PrepareRecipe(mode="mlm", sources=("kowiki",), model=str(tokenizer_folder), seq_len=64, workers=1, portion=2000)
    with monkeypatch.context() as patch:
        killed_at(patch, encode, "write_json", 1)
        with pytest.raises(BaseException, match=r"^$"):
            prepare(chosen, tmp_path / "out")
    now[0] = "second"
    hub.asked.clear()
    shutil.rmtree(tmp_path / "out" / "work" / "read")
    manifest = prepare(chosen, tmp_path / "out")
    assert manifest["inputs"][0]["bytes"] == "first"
    assert hub.asked[-1][1]["revision"] == "first"
    monkeypatch.setattr(sources, "_hub_answers", lambda: False)
    assert prepare(chosen, tmp_path / "out") == manifest
