"""prepare and sources on the command line: exit statuses, the table, JSON alone, one sentence for what is wrong."""

from __future__ import annotations

import json
import runpy
import shutil
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


@pytest.mark.parametrize(
    ("extra", "status", "said"),
    [
        (["--source", "local:/no/such/file"], 2, "matches no readable file"),
        (["--source", "kowikki"], 2, "Did you mean 'kowiki'"),
        ([], 2, "Missing: --source"),
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
    assert max(map(len, listed.splitlines())) <= 100
    assert "647,897" in listed
    assert run(["sources", "--check", f"local:{corpus}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["readable"] is True
    assert run(["sources", "--check", f"local:{corpus}", "--field", "body"]) == 1
    assert "no field 'body'" in capsys.readouterr().out
    assert run(["sources", "--check", str(corpus)]) == 1
    assert f"Did you mean local:{corpus}?" in capsys.readouterr().out


def test_sources_of_many_files_are_checked_in_few_lines_and_bad_ones_all_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.jsonl").write_text('{"text": "글"}\n' if number != 20 else '{"body": 1}\n', "utf-8")
    run(["sources", "--check", f"local:{tmp_path}", "--lang", "en"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert "20.jsonl" in lines[5]
    assert lines[6] == f"readable  24 more files of local:{tmp_path}"


def test_the_script_of_the_guide_prepares(corpus: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).parents[2] / "scripts" / "dataset_preparation_mlm_v2.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--source", f"local:{corpus}", "--model", model, "--seq-len", "64"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(script), run_name="__main__")
    assert stopped.value.code == 0
    assert (tmp_path / "prepared_datasets" / "mlm_v2_64" / "DONE").exists()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of one's own, to be changed."""
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(12)), "utf-8")
    return path


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_finished_folder_whose_source_changed_is_refused_and_left_alone(
    texts: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["prepare", "mlm", "--source", f"local:{texts}", "--model", model, "--seq-len", "64", "--out", str(out)]
    assert run(command) == 0
    before = bytes_of(out)
    content = texts.read_bytes()
    texts.write_bytes(content.replace("서울".encode(), "부산".encode()))  # of the same size
    assert run(command) == 2
    assert f"{out} is finished, but mine.jsonl has changed since it was made; choose another --out, or remove" in (
        capsys.readouterr().err
    )
    assert bytes_of(out) == before
    texts.write_bytes(content)
    assert run(command) == 0


def test_a_file_that_joins_or_leaves_a_folder_of_sources_is_a_change(
    texts: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(texts.read_bytes())
    command = ["prepare", "mlm", "--source", f"local:{folder}", "--model", model, "--seq-len", "64", "--exact-only"]
    assert run([*command, "--out", str(tmp_path / "one")]) == 0
    (folder / "b.jsonl").write_text(json.dumps(rows(1, first=40)[0], ensure_ascii=False) + "\n", "utf-8")
    assert run([*command, "--out", str(tmp_path / "one")]) == 2
    assert "b.jsonl is new since" in capsys.readouterr().err
    assert run([*command, "--out", str(tmp_path / "two")]) == 0
    (folder / "b.jsonl").unlink()
    assert run([*command, "--out", str(tmp_path / "two")]) == 2
    assert "b.jsonl is gone since" in capsys.readouterr().err


def test_a_tokenizer_or_evaluation_set_that_changed_is_noticed_in_a_finished_folder(
    texts: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from coref_automl.models.build import train_tokenizer

    own = tmp_path / "own"
    shutil.copytree(model, own)
    for seed in (0, 1):
        evaluation = ["prepare", "eval", "--source", f"local:{texts}", "--model", model, "--task", "real", "--seed", str(seed)]
        assert run([*evaluation, "--all-documents", "--limit", str(2 + seed), "--out", str(tmp_path / f"set-{seed}")]) == 0
    shutil.copytree(tmp_path / "set-0", tmp_path / "set")
    command = ["prepare", "mlm", "--source", f"local:{texts}", "--model", str(own), "--seq-len", "64", "--holdout", "0"]
    command += ["--eval-set", str(tmp_path / "set"), "--out", str(tmp_path / "out")]
    assert run(command) == 0
    shutil.rmtree(tmp_path / "set")
    shutil.copytree(tmp_path / "set-1", tmp_path / "set")
    assert run(command) == 2
    assert "the evaluation set set has changed since" in capsys.readouterr().err
    train_tokenizer([row["text"] for row in rows(5)], vocab_size=300).save_pretrained(str(own))
    assert run(command) == 2
    assert "the tokenizer has changed since" in capsys.readouterr().err


def test_one_bad_line_costs_a_file_of_named_sources_that_line_alone(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in (*rows(6, source="news"), *rows(6, first=6, source="novels"))]
    for position in (0, 3, 9, 12):
        path = tmp_path / f"mixed-{position}.jsonl"
        path.write_text("\n".join([*lines[:position], "{broken", '{"title": "no text"}', *lines[position:]]) + "\n", "utf-8")
        command = ["prepare", "mlm", "--source", f"local:{path}", "--model", model, "--seq-len", "64", "--holdout", "0"]
        assert run([*command, "--out", str(tmp_path / f"out-{position}"), "--json"]) == 0
        result = {source["name"]: source for source in json.loads(capsys.readouterr().out)["sources"]}
        assert {name: source["kept"] for name, source in result.items()} == {"news": 6, "novels": 6}
        assert result["novels" if position > 6 else "news"]["dropped"] == {"no field 'text'": 1, "not JSON": 1}
    evaluation = ["prepare", "eval", "--source", f"local:{tmp_path / 'mixed-0.jsonl'}", "--model", model, "--task", "real"]
    assert run([*evaluation, "--all-documents", "--out", str(tmp_path / "set"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["documents"]) == {"news", "novels"}
