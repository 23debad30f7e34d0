"""The hub for real: models and datasets over its protocol, with and without a token, and with a connection that breaks."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.conftest import rows
from tests.evaluation.tiny import freeze_tiny, save_checkpoint
from tests.extras.relation.conftest import make_raw_rows
from tests.hub import Hub, Repository, commands, files_in, serving

TOKEN, OTHER = "hf_granted", "hf_another"
WEIGHTS = "model.safetensors"
LAMBADA = "thunder-research-group/SNU_Ko-LAMBADA"
needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="datasets is not installed (pip install 'coref-automl[hub]')"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return files_in(save_checkpoint(tmp_path_factory.mktemp("model") / "tiny", seed=1))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as served:
        yield served


@pytest.fixture
def place(tmp_path: Path) -> Path:
    freeze_tiny(tmp_path / "set")
    return tmp_path


def evaluate(name: str, out: str) -> list[str]:
    return ["evaluate", name, "--eval-set", "set", "--device", "cpu", "--out", out, "--json"]


@pytest.mark.journey
def test_a_model_is_fetched_once_and_then_needs_no_hub(place: Path, hub: Hub, model: dict[str, bytes]) -> None:
    """A connection that breaks once on the way is no matter."""
    hub.models["owner/tiny"] = Repository(model, cuts={WEIGHTS: 1})
    (first,) = commands(hub, place, evaluate("owner/tiny", "first"))
    assert first.status == 0, first.err
    fetched = [path for method, path, _ in hub.asked if method == "GET" and path == f"/storage/models/owner/tiny/{WEIGHTS}"]
    assert len(fetched) == 2
    save_checkpoint(place / "here", seed=1)
    hub.close()
    again, local = commands(hub, place, evaluate("owner/tiny", "second"), evaluate("here", "third"))
    assert again.status == local.status == 0, again.err + local.err
    for same in (again, local):
        assert json.loads(same.out)["estimates"] == json.loads(first.out)["estimates"]


@pytest.mark.journey
def test_what_the_hub_does_not_give_is_said_in_a_sentence(place: Path, hub: Hub, model: dict[str, bytes]) -> None:
    hub.models |= {
        "owner/gated": Repository(model, tokens=(TOKEN,)),
        "owner/broken": Repository(model, cuts={WEIGHTS: 1_000}),
        "owner/bare": Repository({"README.md": b"nothing"}),
    }
    names = ("gated", "gated", "gated", "nothing", "broken", "bare")
    lines = [evaluate(f"owner/{name}", name) for name in names]
    stranger, refused, granted, nothing, broken, bare = commands(
        hub, place, *lines, tokens=(None, OTHER, TOKEN, None, None, None)
    )
    assert granted.status == 0, granted.err
    for done in (stranger, refused, nothing, broken, bare):
        assert done.status == 2, done.err
    for done in (stranger, refused):
        assert "owner/gated is gated: accept its terms on the hub, run `hf auth login`, and try again." in done.err
    assert "owner/nothing is neither a folder here nor a model on the hub; check the name." in nothing.err
    assert "owner/broken is not a folder here, and the hub " in broken.err
    assert "owner/bare on the hub has no model (it has no config.json); check the name." in bare.err


@pytest.mark.journey
def test_adapt_takes_a_model_of_the_hub(tmp_path: Path, hub: Hub) -> None:
    from coref_automl.models.model_files import resolve

    hub.models["owner/mini"] = Repository(files_in(Path(resolve("bundled:ko-mini"))))
    (tmp_path / "texts.jsonl").write_text(_jsonl(rows(24)).decode(), "utf-8")
    line = ["adapt", "--model", "owner/mini", "--source", "local:texts.jsonl", "--seq-len", "64", "--epochs", "1"]
    line += ["--objective", "mlm", "--out", "out"]
    (adapted,) = commands(hub, tmp_path, line)
    assert adapted.status == 0, adapted.err
    assert list((tmp_path / "out").rglob("report.html"))


@needs_datasets
def test_named_sources_and_relation_rows_of_the_hub(place: Path, hub: Hub) -> None:
    save_checkpoint(place / "model", seed=1)
    contexts = [{"guid": str(number), "title": row["title"], "context": row["text"]} for number, row in enumerate(rows(12))]
    relations = make_raw_rows(40)
    card = _card({"mrc": "mrc/train-*", "re": "re/train-*"})
    hub.datasets["klue/klue"] = Repository(
        {"README.md": card, "mrc/train-00000.parquet": _parquet(contexts), "re/train-00000.parquet": _parquet(_as_hub(relations))}
    )
    hub.datasets["owner/rows"] = Repository({"train.jsonl": _jsonl(_as_hub(relations))})
    prepare = [
        "prepare",
        "mlm",
        "--source",
        "klue-mrc",
        "--model",
        "model",
        "--seq-len",
        "64",
        "--holdout",
        "0",
        "--workers",
        "1",
    ]
    train = ["re", "train", "--model", "model", "--scheme", "typed", "--seeds", "1", "--epochs", "1", "--device", "cpu"]
    lines = [
        ["sources", "--check", "klue-mrc", "naver-news"],
        [*prepare, "--out", "data", "--json"],
        [*train, "--train", "hub:klue/re:train", "--out", "short", "--json"],
        [*train, "--train", "hub:owner/rows:train", "--out", "long", "--json"],
        [*train, "--train", "hub:owner/rows:validation", "--out", "split"],
        [*train, "--train", "hub:owner/nothing:train", "--out", "nothing"],
    ]
    check, data, short, long, split, nothing = commands(hub, place, *lines)
    assert check.status == 1
    assert "readable      klue-mrc [context] " in check.out
    assert "NOT READABLE  naver-news" in check.out
    assert data.status == 0, data.err
    manifest = json.loads(data.out)
    assert hub.datasets["klue/klue"].commit in json.dumps(manifest)
    assert short.status == long.status == 0, short.err + long.err
    assert json.loads(short.out)["n"] == json.loads(long.out)["n"]
    for refused, name in ((split, "hub:owner/rows:validation"), (nothing, "hub:owner/nothing:train")):
        assert refused.status == 2
        assert f"{name} cannot be fetched" in refused.err


@needs_datasets
def test_ko_lambada_asks_for_a_token_and_is_read_with_one(place: Path, hub: Hub) -> None:
    save_checkpoint(place / "model", seed=1)
    passages = [
        {
            "index": number,
            "title": f"제목 {number}",
            "text": row["text"].replace("건물", "_", 1)[:200],
            "answer": "건물",
            "candidate": "서울",
        }
        for number, row in enumerate(rows(6))
    ]
    hub.datasets[LAMBADA] = Repository({"test.parquet": _parquet(passages)}, tokens=(TOKEN,))
    line = ["prepare", "eval", "--lambada", "ko-lambada", "--model", "model", "--out", "cloze"]
    stranger, refused, granted = commands(hub, place, line, line, line, tokens=(None, OTHER, TOKEN))
    for done in (stranger, refused):
        assert done.status == 2
        assert "accept its terms on the hub and set HF_TOKEN" in done.err
    assert granted.status == 0, granted.err
    assert "6 items, frozen" in granted.out


@needs_datasets
def test_a_source_that_breaks_off_is_no_short_source(place: Path, hub: Hub) -> None:
    """Rows that did not arrive are an error, never the end of the source; the same command goes on once they do."""
    save_checkpoint(place / "model", seed=1)
    articles = [{"document": row["text"]} for row in rows(60)]
    hub.datasets["daekeun-ml/naver-news-summarization-ko"] = Repository(
        {"train.jsonl": _jsonl(articles)}, cuts={"train.jsonl": 10_000}
    )
    prepare = [
        "prepare",
        "mlm",
        "--source",
        "naver-news",
        "--model",
        "model",
        "--seq-len",
        "64",
        "--holdout",
        "0",
        "--workers",
        "1",
    ]
    line = [*prepare, "--exact-only", "--out", "data", "--json"]
    (broken,) = commands(hub, place, line)
    assert broken.status == 2, broken.out + broken.err
    assert "naver-news (daekeun-ml/naver-news-summarization-ko) cannot be re" in broken.err
    assert sum(path.endswith("/train.jsonl") and method == "GET" for method, path, _ in hub.asked) < 60  # not for ever
    hub.datasets["daekeun-ml/naver-news-summarization-ko"].cuts.clear()
    (whole,) = commands(hub, place, line)
    assert whole.status == 0, whole.err
    assert json.loads(whole.out)["documents"] == 60


def _jsonl(entries: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()


def _parquet(entries: list[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(entries), written)
    return written.getvalue()


def _card(configs: dict[str, str]) -> bytes:
    """A dataset's README: its configurations and where their files are."""
    listed = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {path}\n" for name, path in configs.items()
    )
    return f"---\nconfigs:\n{listed}---\n# made for a test\n".encode()


def _as_hub(relations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """KLUE-RE as the hub holds it: labels are names here, as in the files."""
    return [{name: value for name, value in row.items() if name != "source"} for row in relations]
