"""A folder with a whole model and an adapter is refused by every command: which of the two it is depends on what is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import coref_automl as ca
from coref_automl.base.errors import ModelError
from coref_automl.cli.app import run
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.extras.relation.recipe import model_of
from tests.extras.test_matrix import do_coreference, do_relation

SENTENCE = (
    "{} has a LoRA adapter (adapter_config.json); merge it into its base (merge_and_unload), save the result into a folder of "
    "its own (save_pretrained), and pass that."
)
COMMANDS = {
    "fill": "fill [MASK] --model both",
    "fill a file": "fill --data gaps.jsonl --model both --out out",
    "evaluate": "evaluate both --eval-set evalset --out out",
    "prepare": "prepare mlm --source local:texts.jsonl --model both --seq-len 64 --out out",
    "prepare eval": "prepare eval --source local:texts.jsonl --model both --out out",
    "train": "train --model both --dataset dataset --out out",
    "adapt": "adapt --model both --source local:texts.jsonl --out out",
    "tune": "tune --model both --dataset dataset --eval-set evalset --out out",
    "coref train": "coref train --model both --data tales.jsonl --out out",
    "coref predict": "coref predict 민수는 --base both",
    "re train": "re train --model both --train train.json --dev dev.json --out out",
    "tokenizer inspect": "tokenizer inspect both",
    "publish": "publish both --repo owner/name --dry-run",
}


def leave_adapter(folder: Path) -> None:
    """What `merge_and_unload().save_pretrained` leaves in the adapter's own folder."""
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}', "utf-8")
    (folder / "adapter_model.safetensors").write_bytes(bytes(8))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_adapter_beside_a_model_is_refused(
    command: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in home.iterdir():
        (tmp_path / path.name).symlink_to(path)
    leave_adapter(shutil.copytree(home / "model", tmp_path / "both"))
    rows = [{"text": f"{number}번째 글. 서울에서 부산까지 기차를 탔다. " * 40} for number in range(8)]
    for name, lines in (("texts", rows), ("gaps", [{"text": "[MASK] 간다."}])):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(COMMANDS[command].split()) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"coref-automl: {SENTENCE.format('both')}"
    assert not (tmp_path / "out").exists()


def test_an_adapter_beside_a_model_is_refused_in_python(home: Path, tmp_path: Path) -> None:
    leave_adapter(shutil.copytree(home / "model", tmp_path / "both"))
    both = str(tmp_path / "both")
    for call in (ca.load, ca.path, lambda model: ca.fill("[MASK] 간다.", model)):
        with pytest.raises(ModelError) as caught:
            call(both)
        assert str(caught.value) == SENTENCE.format(both)


def test_an_adapter_left_in_a_runs_own_model_is_refused(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(home, tmp_path / "home")
    for train, predict in (
        (do_coreference, ["coref", "predict", "민수는 노인을 만났다.", "--model"]),
        (do_relation, ["re", "predict"]),
    ):
        train(copy)
        out = copy / "out"
        model = models_of(out)[0] if train is do_coreference else model_of(out / "seed-0")
        words = [*predict, str(out)]
        if train is do_relation:
            row = json.loads((copy / "dev.json").read_text("utf-8"))[0]
            data = copy / "ask.json"
            data.write_text(json.dumps([row], ensure_ascii=False), "utf-8")
            words += ["--data", str(data), "--out", str(copy / "answers")]
        leave_adapter(model)
        assert run(words) == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"coref-automl: {SENTENCE.format(model)}"
        shutil.rmtree(out)
