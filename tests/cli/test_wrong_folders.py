"""A folder of another kind, an unknown name, a source without documents: one sentence, the next step, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coref_automl.base.folders import claim_folder
from coref_automl.cli.app import run
from coref_automl.evaluation.evalset import bundled_eval_set

MINI = "bundled:ko-mini"
SMALL = ["--source", "bundled:passages", "--model", MINI, "--seq-len", "64"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "dataset"
    assert run(["prepare", "mlm", *SMALL, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Said:
    return Said(capsys, tmp_path / "out")


class Said:
    """What a refused command says; it exits 2 unless told otherwise, and leaves no output folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str], out: Path) -> None:
        self._capsys = capsys
        self.out = out

    def __call__(self, *arguments: str | Path, status: int = 2) -> str:
        assert run([*map(str, arguments), "--out", str(self.out)]) == status
        assert not self.out.exists()
        return self._capsys.readouterr().err


def test_a_group_of_commands_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Usage: ")
    assert "See coref-automl" not in err


def test_verbs_are_listed_in_the_order_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    listed = [line.split()[0] for line in out.split("Commands:\n")[1].splitlines() if line.startswith("  ") and line[2] != " "]
    assert [verb for verb in listed if verb in ("demo", "evaluate", "prepare", "train")] == [
        "demo", "prepare", "train", "evaluate",
    ]  # fmt: skip


def test_a_dataset_is_no_evaluation_set(dataset: Path, said: Said) -> None:
    message = f"{dataset} is not an evaluation set"
    assert message in said("prepare", "mlm", *SMALL, "--eval-set", dataset)
    assert message in said("train", "--model", MINI, "--dataset", dataset, "--eval-set", dataset)
    assert f"{message}, it holds a dataset; build one" in said("evaluate", MINI, "--eval-set", dataset)


def test_an_evaluation_set_is_no_dataset(said: Said) -> None:
    err = said("train", "--model", MINI, "--dataset", bundled_eval_set())
    assert err.startswith(f"coref-automl: {bundled_eval_set()} is not a prepared dataset, it is an evaluation set; make one:")


def test_a_claimed_folder_is_named_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim_folder(tmp_path / "set", "evalset")
    assert run(["tokenizer", "learn", "--source", "bundled:passages", "--out", str(tmp_path / "set")]) == 2
    assert "holds an evaluation set and is left alone; choose another --out" in capsys.readouterr().err


def test_what_no_run_can_use_is_refused_before_a_step(dataset: Path, said: Said) -> None:
    metric = ("--eval-set", bundled_eval_set(), "--metric", "real11")
    assert "Did you mean 'real1'?" in said("train", "--model", MINI, "--dataset", dataset, *metric)
    shape = ("--model", "new:tinny", "--tokenizer", MINI)
    assert "Unknown shape 'tinny'" in said("train", *shape, "--dataset", dataset)


def test_a_source_without_documents_leaves_no_folder(tmp_path: Path, said: Said) -> None:
    (tmp_path / "empty.jsonl").write_text("", "utf-8")
    (tmp_path / "broken.jsonl").write_text('{"text": "x"\nnot json\n', "utf-8")
    model = ("--model", MINI)
    assert "contribute no document" in said("prepare", "mlm", "--source", f"local:{tmp_path}/empty.jsonl", *model, status=1)
    assert "not JSON 2" in said("prepare", "eval", "--source", f"local:{tmp_path}/broken.jsonl", *model)


def test_a_dataset_of_other_settings_is_named_with_both_values(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "mlm", *SMALL[:-1], "128", "--out", str(dataset)]) == 2
    assert "was begun with seq_len 64, and this command has seq_len 128; pass the same" in capsys.readouterr().err


def test_bundled_texts_keep_their_licence(dataset: Path) -> None:
    sources = json.loads((dataset / "manifest.json").read_text("utf-8"))["sources"]
    assert {source["licence"] for source in sources} == {"written for this project, MIT"}


@pytest.mark.parametrize(("option", "value"), [("--dtype", "int8"), ("--device", "cuda:99")])
def test_what_no_checkpoint_can_be_scored_with_is_said_once(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", MINI, MINI, option, value]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unknown_key_of_a_study_is_named_before_a_missing_one(tmp_path: Path, said: Said) -> None:
    (tmp_path / "study.yaml").write_text("modles: [x]\n", "utf-8")
    assert "Did you mean 'models'?" in said("tune", "--recipe", tmp_path / "study.yaml")
