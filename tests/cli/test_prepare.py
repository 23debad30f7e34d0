"""prepare and sources on the command line: exit statuses, the table, JSON alone, one sentence for what is wrong."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from coref_automl.cli.app import run
from tests.corpus.conftest import rows


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "news.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(12)), "utf-8")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from coref_automl.models.build import train_tokenizer

    folder = tmp_path_factory.mktemp("model")
    train_tokenizer([row["text"] for row in rows(12)], vocab_size=400).save_pretrained(str(folder))
    return str(folder)


def test_prepare_prints_the_table_and_json_alone(
    corpus: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "prepare",
        "mlm",
        "--source",
        f"local:{corpus}",
        "--model",
        model,
        "--seq-len",
        "64",
        "--output-dir",
        str(tmp_path / "a"),
    ]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "held out for evaluation" in shown
    assert "padding" in shown
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["in"] == 12


def test_shares_and_merge_work_from_the_command_line(corpus: Path, model: str, tmp_path: Path) -> None:
    common = ["--source", f"local:{corpus}", "--model", model, "--seq-len", "64"]
    for number in (1, 2):
        assert run(["prepare", "mlm", *common, "--shard", f"{number}/2", "--out", str(tmp_path / f"p{number}")]) == 0
    parts = [part for number in (1, 2) for part in ("--merge", str(tmp_path / f"p{number}"))]
    assert run(["prepare", "entity", *parts, "--out", str(tmp_path / "m")]) == 2
    assert run(["prepare", "mlm", *parts, "--out", str(tmp_path / "m")]) == 0
    assert run(["prepare", "mlm", *common, "--out", str(tmp_path / "w")]) == 0
    assert (tmp_path / "m" / "tokens.npy").read_bytes() == (tmp_path / "w" / "tokens.npy").read_bytes()


@pytest.mark.parametrize(
    ("extra", "status", "said"),
    [
        (["--source", "local:/no/such/file"], 2, "names no file"),
        (["--source", "kowikki"], 2, "Did you mean 'kowiki'"),
        ([], 2, "needs --source"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    extra: list[str], status: int, said: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["prepare", "mlm", *extra, "--model", model, "--out", str(tmp_path / "out")]) == status
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_empty_source_exits_with_one(corpus: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "nothing.jsonl"
    empty.write_text("", "utf-8")
    command = ["prepare", "mlm", "--source", f"local:{corpus}", "--source", f"local:{empty}", "--model", model]
    assert run([*command, "--out", str(tmp_path / "out")]) == 1
    assert "nothing (an empty file)" in capsys.readouterr().err
    assert run([*command, "--out", str(tmp_path / "out"), "--allow-empty"]) == 0


def test_sources_lists_and_checks(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sources"]) == 0
    listed = capsys.readouterr().out
    assert "wikimedia/wikipedia" in listed
    assert "HF_TOKEN" in listed
    assert run(["sources", "--check", f"local:{corpus}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["readable"] is True
    assert run(["sources", "--check", f"local:{corpus}", "--field", "body"]) == 1
    assert "no field 'body'" in capsys.readouterr().out


def test_the_script_of_the_guide_prepares(corpus: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).parents[2] / "scripts" / "dataset_preparation_mlm_v2.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--source", f"local:{corpus}", "--model", model, "--seq-len", "64"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(script), run_name="__main__")
    assert stopped.value.code == 0
    assert (tmp_path / "prepared_datasets" / "mlm_v2_64" / "DONE").exists()
