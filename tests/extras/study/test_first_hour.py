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
from types import SimpleNamespace

import pytest

from coref_automl.cli.app import run
from coref_automl.corpus.sources import bundled_rows
from coref_automl.models.load import load_encoder
from tests.extras.study.test_adapt import model

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


def encoder(folder: Path, model: str) -> Path:
    """The newer layout of sentence-transformers: an encoder without a mask head, and modules.json beside it."""
    load_encoder(model)[0].save_pretrained(folder)
    for path in Path(model).glob("tokenizer*"):
        shutil.copy(path, folder)
    (folder / "modules.json").write_text("[]", "utf-8")
    return folder


MISTAKES = {
    "no write permission": "Cannot write /proc/adapted .*; choose another --out",
    "an empty file": r"no document|no text|empty",
    "a zip instead of text": "is a zip archive or an office document; unpack it",
    "a zip named jsonl": "is a zip archive or an office document; unpack it",
    "English text": "Hangul",
    "a decoder model": "'gpt2', which is not supported; choose a model of one of these",
    "a LoRA adapter": "has a LoRA adapter .*; merge it into its base .* a folder of its own .*, and pass that",
    "a sentence-transformer": "is a sentence-transformers model; pass .*0_Transformer",
    "no mask head": r"has no trained mask head .* Pass a checkpoint with one\.$",
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
            "no mask head": lambda: encoder(tmp_path / "m", model),
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


ZIP = "is a zip archive or an office document; unpack it"
FOREIGN = {
    "decoder": lambda folder, model: decoder(folder, model),
    "adapter": lambda folder, _: adapter(folder),
    "sentence": lambda folder, model: sentence_transformer(folder, model),
}
OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "train": (
        "train --model {model} --dataset {data} --out {out}",
        dict.fromkeys(
            ("empty", "zip", "english", "three"), "is a file, not a prepared dataset; run: coref-automl prepare combined --source"
        ),
    ),
    "evaluate": (
        "evaluate {model} --eval-set {data} --out {out}",
        dict.fromkeys(
            ("empty", "zip", "english", "three"), "is a file, not an evaluation set; run: coref-automl prepare eval --source"
        ),
    ),
    "score": (
        "evaluate {model} --out {out}",
        {
            "decoder": r"decoder is of the family 'gpt2', which is not supported; choose",
            "adapter": "has a LoRA adapter .*; merge it into its base",
            "closed": "choose another --out",
        },
    ),
    "prepare": (
        "prepare mlm --source local:{data} --model {model} --seq-len 128 --out {out}",
        {"empty": "an empty file", "zip": ZIP, "english": "under 50% Hangul", "closed": "choose another --out"},
    ),
    "fill": (
        "fill --data {data} --model {model} --out {out}",
        {
            "empty": "in.jsonl has no rows; pass a file with at least one",
            "zip": ZIP,
            "english": r"row 1 .*: The sentence has no gap; write",
            "decoder": "'gpt2', which is not supported; choose",
            "adapter": "has a LoRA adapter .*; merge it into its base",
            "sentence": "is a sentence-transformers model; pass .*0_Transformer",
        },
    ),
    "coref predict": (
        "coref predict --data {data} --out {out}",
        {"empty": "in.jsonl has no rows; pass a file with at least one", "zip": ZIP, "closed": "choose another --out"},
    ),
    "coref": (
        "coref predict 글 --model {model}",
        dict.fromkeys(FOREIGN, "is not a coreference run, nor one seed's model; make one with: coref-automl coref train --model"),
    ),
    "re predict": (
        "re predict {model} --data {data} --out {out}",
        dict.fromkeys(FOREIGN, "is not a relation run, nor one seed's model .*; make a run with: coref-automl re train --model"),
    ),
}
"""Commands, the mistakes one can make with them, and what they say to each."""


@pytest.mark.parametrize(("command", "mistake"), [(command, one) for command in OTHERS for one in OTHERS[command][1]])
def test_every_command_answers_a_first_mistake_in_one_sentence(
    command: str, mistake: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, said = OTHERS[command]
    data, out = tmp_path / "in.jsonl", Path("/proc/out") if mistake == "closed" else tmp_path / "out"
    if mistake in ("empty", "zip"):
        {"empty": empty, "zip": zipped}[mistake](data)
    else:
        texts(data, 3, english=mistake == "english")
    start = FOREIGN[mistake](tmp_path / mistake, model) if mistake in FOREIGN else model
    status = run([word.format(model=start, data=data, out=out) for word in line.split()])
    told = [row for row in capsys.readouterr().err.splitlines() if row.startswith("coref-automl: ") or "Traceback" in row]
    assert status in (1, 2)
    assert len(told) == 1
    assert re.search(said[mistake], told[0]), told[0]
    assert not out.exists()


@pytest.mark.parametrize("command", ["adapt", "train", "tune"])
def test_checkpoints_that_do_not_fit_on_the_disk_are_refused_before_training(
    command: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, data, out = texts(tmp_path / "in.jsonl"), tmp_path / "data", tmp_path / "out"
    line = ["--source", f"local:{source}", "--seq-len", "128"] if command == "adapt" else ["--dataset", str(data)]
    if command != "adapt":
        prepare = ["prepare", "combined", "--source", f"local:{source}", "--model", model, "--seq-len", "128", "--out", str(data)]
        assert run(prepare) == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    assert run([command, "--model", model, *line, "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert re.search(r"checkpoints in .*out would take about [\d.]+ GB, and the disk has 0\.0 GB free; free some space", told)
    assert not list(out.rglob("checkpoint-*"))
    assert command == "adapt" or not out.exists()  # what adapt prepared serves the next call


def test_a_path_with_blanks_and_korean_is_as_good_as_any(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = texts(tmp_path / "내 글 모음" / "기사 1.jsonl"), tmp_path / "결과 폴더"
    line = ["prepare", "mlm", "--source", f"local:{source}", "--model", model, "--seq-len", "128", "--out", str(out), "--json"]
    assert run(line) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["documents"]


@pytest.mark.parametrize(
    "line", [["fill", "Seoul is the [MASK] of Korea."], ["coref", "predict", "John met his mother. She smiled."]]
)
def test_an_english_text_is_answered_with_a_word_about_it(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line) == 0
    assert "Hardly any of this text is Hangul" in capsys.readouterr().err
    assert run(["fill", "이 BERT 모델은 [MASK]이다."]) == 0
    assert "Hangul" not in capsys.readouterr().err
