"""The guide's commands, word for word, in a folder with tiny runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import coref_automl
from coref_automl.cli.app import run
from coref_automl.evaluation import run as evaluation_run
from tests.evaluation.tiny import freeze_tiny, save_checkpoint
from tests.masked import program

ROOT = Path(__file__).parents[2]
RUN = "runs/mlm_v2_scratch_1536"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    freeze_tiny(tmp_path / "evalsets/tiny")
    monkeypatch.setattr(evaluation_run, "bundled_eval_set", lambda: Path("evalsets/tiny"))
    for seed, step in enumerate((65, 130, 655)):
        save_checkpoint(Path(f"{RUN}/checkpoint-{step}"), seed=seed)
    save_checkpoint(Path("runs/mlm_v2_scratch_2048/checkpoint-55"), seed=9)
    return tmp_path


def shell(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A command of the guide in a shell; the bundled set is replaced by the tiny one through the environment of the test."""
    bin_folder = place / "bin"
    bin_folder.mkdir(exist_ok=True)
    if not (place / "scripts").exists():
        shutil.copytree(ROOT / "scripts", place / "scripts")
    wrapper = bin_folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{place}/start.py" "$@"\n', "utf-8")
    (place / "start.py").write_text(_START, "utf-8")
    wrapper.chmod(0o755)
    source = str(Path(coref_automl.__file__).parents[1])
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": source, "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False)


_START = """
import runpy, sys
from pathlib import Path
import coref_automl.evaluation.evalset as evalset
evalset.bundled_eval_set = lambda: Path("evalsets/tiny")
arguments = sys.argv[1:]
if arguments[0] == "-m":
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
else:
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
"""


@pytest.mark.journey
@pytest.mark.slow
def test_the_commands_of_the_guide_work_as_written(place: Path) -> None:
    shutil.rmtree(place / RUN / "checkpoint-130")  # one process less
    first = shell(f"python scripts/evaluate_checkpoint.py --checkpoint {RUN}/checkpoint-655", place)
    assert first.returncode == 0, first.stderr
    assert "mlm_v2_scratch_1536/checkpoint-655" in first.stdout
    loop = shell(
        f'for ckpt in {RUN}/checkpoint-*; do python scripts/evaluate_checkpoint.py --checkpoint "$ckpt" --seq-len 128; done',
        place,
    )
    assert loop.stdout.count("== Evaluation of a checkpoint ==") == 2
    assert "left out" in loop.stderr
    assert loop.returncode == 0
    every = shell("bash scripts/evaluate_all_mlm_v2_checkpoints.sh", place)
    assert every.returncode == 0, every.stderr
    results = next(place.glob("evaluation_results_*"))
    assert len(list(results.rglob("*_eval_results.json"))) == 3
    if program("jq") is None:
        pytest.skip("jq is not installed; its two lines are not run")
    shown = shell(f"jq '{{checkpoint, real1, real5, lambada_top1}}' {RUN}/checkpoint-655_eval_results.json", place)
    assert set(json.loads(shown.stdout)) == {"checkpoint", "real1", "real5", "lambada_top1"}
    ranked = shell(
        'find runs/mlm_v2_scratch_* -name "*_eval_results.json" -exec jq -r \'"\\(.real1)\\t\\(.checkpoint)"\' {} \\; '
        "| sort -rn | head -10",
        place,
    )
    assert len(ranked.stdout.splitlines()) == 2
    best = shell(
        'find runs/mlm_v2_scratch_* -name "*_eval_results.json" -exec jq -r \'select(.score != null) | '
        "[.score, .checkpoint] | @tsv' {} \\; | sort -t$'\\t' -k1,1gr | head -10",
        place,
    )
    assert len(best.stdout.splitlines()) == 2


def test_evaluate_prints_a_block_a_checkpoint_and_a_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", RUN, "--device", "cpu", "--by", "pieces"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("== Evaluation of a checkpoint ==") == 3
    assert shown.index("checkpoint-65\n") < shown.index("checkpoint-130\n") < shown.index("checkpoint-655\n")
    assert "copy-most-frequent" in shown
    assert "/ pieces" in shown


def test_json_is_all_that_is_printed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", f"{RUN}/checkpoint-65", "--device", "cpu", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["checkpoint"] == "mlm_v2_scratch_1536/checkpoint-65"
    assert printed == json.loads((place / RUN / "checkpoint-65_eval_results.json").read_text("utf-8"))
    page = (Path(__file__).parents[2] / "docs" / "result-schema.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)`", page.partition("## The answer")[0], re.MULTILINE) == list(printed)
    assert f"Version {printed['schema']}." in page


def test_output_dir_is_out(place: Path) -> None:
    arguments = [
        "evaluate",
        f"{RUN}/checkpoint-655",
        "--seq-len",
        "64",
        "--output-dir",
        "./my_evaluation_results",
        "--device",
        "cpu",
    ]
    assert run(arguments) == 0
    assert (place / "my_evaluation_results/mlm_v2_scratch_1536/checkpoint-655_eval_results.json").is_file()
    assert not (place / RUN / "evaluations").exists()


def test_a_broken_checkpoint_among_others_is_listed_with_status_1(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / RUN / "checkpoint-130/model.safetensors").write_bytes(b"half")
    assert run(["evaluate", RUN, "--device", "cpu"]) == 1
    shown = capsys.readouterr()
    assert "1 of 3 checkpoints could not be scored: mlm_v2_scratch_1536/checkpoint-130" in shown.err
    assert "mlm_v2_scratch_1536/checkpoint-655" in shown.out
    assert run(["evaluate", RUN, "--device", "cpu", "--json"]) == 1
    checkpoints = [json.loads(line)["checkpoint"].rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]
    assert checkpoints == ["checkpoint-65", "checkpoint-655"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["runs/nowhere/at/all"], "check the path"),
        (["runs", "--eval-set", "evalsets/none"], "prepare eval"),
        (["runs", "--by", "sauce"], "source"),
        (["runs", "--lang", "kr"], "ko"),
        (["runs", "--dtype", "bfloat"], "bfloat16"),
        (["runs", "--seq-len", "6"], "--seq-len"),
        (["runs", "--metric", "real_1"], "real1"),
    ],
)
def test_a_wrong_command_says_what_to_do(
    place: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", *arguments, "--device", "cpu"]) in (1, 2)
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


def test_an_edited_set_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = place / "evalsets/tiny/items-real.jsonl"
    items.write_text(items.read_text("utf-8").replace("도서관", "도서실"), "utf-8")
    assert run(["evaluate", RUN, "--device", "cpu"]) == 2
    assert "edited" in capsys.readouterr().err


def test_fill_shows_models_side_by_side(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ["--model", f"{RUN}/checkpoint-65", "--model", f"{RUN}/checkpoint-655"]
    assert run(["fill", "시민은 [MASK]을 찾았다.", *models, "--no-nouns", "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].split() == [f"{RUN}/checkpoint-65", f"{RUN}/checkpoint-655"]


def test_fill_without_a_sentence_says_what_to_pass(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fill", "--model", f"{RUN}/checkpoint-65"]) == 2
    assert "Pass one with a [MASK], or --data FILE --out DIR." in capsys.readouterr().err
