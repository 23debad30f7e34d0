"""Two editions of the bundled encoder under one name: what the earlier one made is compared and resumed rightly, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coref_automl.cli.app import run
from coref_automl.models import model_files
from tests.evaluation.tiny import TEXTS, freeze_tiny, save_checkpoint

TRAIN = [
    "train",
    "--model",
    "bundled:ko-mini",
    "--dataset",
    "data",
    "--seq-len",
    "32",
    "--batch",
    "2",
    "--device",
    "cpu",
    "--out",
]
EVALUATE = ["evaluate", "runs/old", "--eval-set", "evalsets/tiny", "--device", "cpu"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of the earlier edition with its evaluations, made by the commands; then the bundled encoder is another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_files, "_ASSETS", tmp_path / "assets")
    freeze_tiny(tmp_path / "evalsets/tiny", ("wordpiece", "pairs"))
    save_checkpoint(tmp_path / "assets/ko-mini", seed=3)
    rows = [{"id": f"{at}", "text": f"{at}번째. {text}"} for at, text in enumerate(TEXTS * 4)]
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    prepare = ["prepare", "mlm", "--source", "local:texts.jsonl", "--model", "bundled:ko-mini", "--seq-len", "32"]
    assert run([*prepare, "--holdout", "0", "--min-characters", "10", "--workers", "1", "--out", "data"]) == 0
    assert run([*TRAIN, "runs/old", "--epochs", "1", "--checkpoints", "1"]) == 0
    assert run(EVALUATE) == 0
    shutil.move(tmp_path / "assets/ko-mini", tmp_path / "third")
    capsys.readouterr()
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    heard = capsys.readouterr()
    return heard.out + heard.err


def test_a_run_of_another_edition_is_not_resumed_nor_set_beside_its_base(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_checkpoint(root / "assets/ko-mini", seed=4)  # the same tokenizer, other weights
    assert run([*TRAIN, "runs/old", "--epochs", "2", "--checkpoints", "1"]) != 0
    assert "runs/old was begun with other bytes of the weights" in said(capsys)
    stored = {path: path.read_bytes() for path in Path().rglob("result.json")}
    assert run(EVALUATE) == 0
    assert "base model" in said(capsys)  # the one that was scored when the run was: nothing is scored anew
    assert {path: path.read_bytes() for path in Path().rglob("result.json")} == stored
    for path in stored:
        shutil.rmtree(path.parent)
    assert run(EVALUATE) == 0
    assert "bundled:ko-mini is left out of the tables: its weights have changed since" in said(capsys)
    shutil.rmtree(root / "assets/ko-mini")
    shutil.copytree(root / "third", root / "assets/ko-mini")
    assert run(EVALUATE) == 0
    assert "left out" not in said(capsys)


def test_an_edition_with_another_tokenizer_takes_no_data_of_the_earlier_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(root / "assets/ko-mini", kind="pairs", seed=4)
    assert run([*TRAIN, "runs/new", "--epochs", "1"]) != 0
    assert "tokenizer" in said(capsys)


def test_checkpoints_of_both_editions_are_scored_with_their_own_tokenizers(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(root / "assets/ko-mini", kind="pairs", seed=4)
    command = ["evaluate", "third", "bundled:ko-mini", "--eval-set", "evalsets/tiny", "--device", "cpu"]
    assert run([*command, "--out", "both"]) == 0
    results = [json.loads(path.read_text("utf-8")) for path in Path("both").rglob("result.json")]
    fingerprints = [result["fingerprints"] for result in results]
    assert len({parts["weights"] for parts in fingerprints}) == len({parts["tokenizer_files"] for parts in fingerprints}) == 2
