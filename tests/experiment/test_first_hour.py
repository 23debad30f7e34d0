"""The mistakes of a first hour: each is one sentence with what to do, and leaves nothing half-made behind."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zipfile
from itertools import islice
from pathlib import Path

import pytest

from coref_automl.cli.app import run
from coref_automl.corpus.sources import bundled_rows
from tests.experiment.test_adapt import model

__all__ = ["model"]  # the fixture


def texts(path: Path, count: int = 24, *, english: bool = False) -> Path:
    rows = list(islice(bundled_rows("synthetic"), count))
    if english:
        rows = [{**row, "text": "The quick brown fox jumps over the lazy dog. " * 40} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.write(texts(path.with_name("inside.jsonl")))
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def decoder(folder: Path, model: str) -> Path:
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}), "utf-8")
    return folder


def adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "klue/bert-base"}', "utf-8")
    (folder / "adapter_model.safetensors").write_bytes(b"\0" * 8)
    return folder


def sentence_transformer(folder: Path, model: str) -> Path:
    shutil.copytree(model, folder / "0_Transformer")
    (folder / "modules.json").write_text("[]", "utf-8")
    return folder


MISTAKES = {
    "no write permission": "Cannot write /proc/adapted .*; choose another --out",
    "an empty file": r"no document|no text|empty",
    "a zip instead of text": "is a zip archive or an office document; unpack it",
    "a zip named jsonl": "is a zip archive or an office document; unpack it",
    "English text": "Hangul",
    "a decoder model": "'gpt2', which is not supported; choose a model of one of these",
    "a LoRA adapter": "is a LoRA adapter; merge it into its base .* and pass that folder",
    "a sentence-transformer": "is a sentence-transformers model; pass .*0_Transformer",
    "3 documents": r"more|add texts|Add texts",
    "a full disk": "The disk is full while writing .*; free some space and run the same command again",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_is_one_sentence_and_leaves_nothing(
    mistake: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, start, out = tmp_path / "in.jsonl", Path(model), tmp_path / "adapted"
    if mistake == "no write permission":
        texts(source)
        out = Path("/proc/adapted")
    elif mistake == "an empty file":
        empty(source)
    elif mistake.startswith("a zip"):
        source = zipped(tmp_path / ("in.zip" if mistake.endswith("text") else "in.jsonl"))
    elif mistake == "English text":
        texts(source, english=True)
    elif mistake == "3 documents":
        texts(source, 3)
    else:
        texts(source)
        start = {
            "a decoder model": lambda: decoder(tmp_path / "m", model),
            "a LoRA adapter": lambda: adapter(tmp_path / "m"),
            "a sentence-transformer": lambda: sentence_transformer(tmp_path / "m", model),
        }.get(mistake, lambda: start)()
    if mistake == "a full disk":

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
    status = run(["adapt", "--model", str(start), "--source", f"local:{source}", "--out", str(out), "--seq-len", "128"])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("coref-automl: ")]
    assert status in (1, 2)
    assert len(said) == 1
    assert re.search(MISTAKES[mistake], said[0]), said[0]
    monkeypatch.undo()
    assert not out.exists() or not list((out / "runs").glob("*"))
    if mistake not in ("3 documents",):
        assert not out.exists(), sorted(out.rglob("*"))


def test_a_path_with_blanks_and_korean_is_as_good_as_any(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = texts(tmp_path / "내 글 모음" / "기사 1.jsonl"), tmp_path / "결과 폴더"
    line = ["prepare", "mlm", "--source", f"local:{source}", "--model", model, "--seq-len", "128", "--out", str(out), "--json"]
    assert run(line) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["documents"]
