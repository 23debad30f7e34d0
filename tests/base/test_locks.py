"""One command at a time in a folder: the second hears who has it, a killed one holds nothing, half-written files go."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coref_automl.base import locks
from coref_automl.base.locks import claimed, holder_of, locked
from coref_automl.cli.app import run
from tests.corpus.conftest import rows
from tests.extras.relation.conftest import make_raw_rows

MINI = "bundled:ko-mini"
ROOT = Path(__file__).parents[2]
ARCHIVED = ROOT / "results" / "experiment" / "combined-512-s110"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read: texts, relation rows, a dataset, a grid."""
    folder = tmp_path_factory.mktemp("inputs")
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows(8))
    (folder / "texts.jsonl").write_text("".join(lines), "utf-8")
    (folder / "relations.json").write_text(json.dumps(make_raw_rows(40), ensure_ascii=False), "utf-8")
    chains = ({"doc_id": row["id"], "text": row["text"], "clusters": [[{"start": 0, "end": 3}]]} for row in rows(8))
    (folder / "chains.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chains), "utf-8")
    (folder / "grid.yaml").write_text(f"models: [{MINI}]\ntrain: {folder / 'relations.json'}\nepochs: [1]\n", "utf-8")
    common = [
        "prepare",
        "mlm",
        "--source",
        f"local:{folder / 'texts.jsonl'}",
        "--model",
        MINI,
        "--seq-len",
        "64",
        "--holdout",
        "0",
    ]
    assert run([*common, "--out", str(folder / "dataset")]) == 0
    return folder


COMMANDS = {
    "prepare mlm": ("dataset", "--source local:{0}/texts.jsonl --model {1} --seq-len 64"),
    "prepare eval": ("evalset", "--source local:{0}/texts.jsonl --model {1} --all-documents"),
    "tokenizer learn": ("tokenizer", "--source local:{0}/texts.jsonl --vocab-size 1000 --no-nouns"),
    "train": ("run", "--model {1} --dataset {0}/dataset --device cpu"),
    "tune": ("study", "--model {1} --dataset {0}/dataset --trials 1 --device cpu"),
    "re train": ("relation run", "--model {1} --train {0}/relations.json --device cpu"),
    "coref train": ("coreference run", "--model {1} --data {0}/chains.jsonl --holdout 0.3 --device cpu"),
    "re grid": ("relation grid", "--recipe {0}/grid.yaml"),
    "re explore": ("relation exploration", "{0}/relations.json"),
    "adapt": ("experiment", "--model {1} --source local:{0}/texts.jsonl"),
    "demo": ("experiment", "--quick"),
    "report": ("report", "{2}"),
    "archive": ("archive", "{2}"),
}
"""Every command that fills a folder, with the kind of folder it fills."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_in_use_is_refused_with_who_and_since_when(
    command: str, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, options = COMMANDS[command]
    out = tmp_path / "out"
    words = [word.format(inputs, MINI, ARCHIVED) for word in options.split()]
    with claimed(out, kind):
        before = sorted(out.iterdir())
        assert run([*command.split(), *words, "--out", str(out)]) == 2
        text = capsys.readouterr().err
        assert f"{out} is in use by `" in text, text
        assert f"(process {os.getpid()} on " in text
        assert ", since 20" in text
        assert "choose another --out" in text
        assert sorted(out.iterdir()) == before


def in_another_process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def writing(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of writing a file."""
    code = (
        "import sys; from pathlib import Path; from coref_automl.base.store import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as handle:\n"
        "    print('half', file=handle); print('ready', flush=True); sys.stdin.read()"
    )
    with _ready(in_another_process(code, str(path))) as process:
        yield process


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that works in a folder."""
    code = (
        "import sys; from pathlib import Path; from coref_automl.base.locks import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('ready', flush=True); sys.stdin.read()"
    )
    with _ready(in_another_process(code, str(folder))) as process:
        yield process


@contextmanager
def _ready(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_half_written_files_of_a_killed_process_go_and_those_of_a_live_one_stay(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["re", "explore", str(inputs / "relations.json"), "--out", str(out)]
    assert run(command) == 0
    with writing(out / "explore.md") as process:
        (half,) = out.glob(".*.part")
        assert run(command) == 0
        assert half.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert half.exists()
        assert run(command) == 0
    assert {path.name for path in out.iterdir()} == {".coref-automl", "explore.html", "explore.md", "explore.json"}


def test_the_lock_of_a_command_that_was_killed_when_its_work_was_done_goes(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder is finished, so the next command refuses it and never holds its lock."""
    out = tmp_path / "out"
    command = [
        "tokenizer",
        "learn",
        "--source",
        f"local:{inputs / 'texts.jsonl'}",
        "--vocab-size",
        "1000",
        "--no-nouns",
        "--out",
        str(out),
    ]
    assert run(command) == 0
    with holding(out) as process:
        assert run(command) == 2
        assert (out / ".lock").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (out / ".lock").exists()
    capsys.readouterr()
    assert run(command) == 2
    assert "holds a finished tokenizer" in capsys.readouterr().err
    assert not list(out.glob(".lock*"))


@pytest.mark.journey
def test_a_second_prepare_is_refused_while_the_first_runs_and_goes_on_after_it_was_killed(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = tmp_path / "many.jsonl", tmp_path / "out"
    texts.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(400)), "utf-8")
    command = ["prepare", "mlm", "--source", f"local:{texts}", "--model", MINI, "--seq-len", "64", "--workers", "1"]
    command += ["--exact-only", "--out", str(out)]
    first = subprocess.Popen([sys.executable, "-m", "coref_automl.cli", *command], stdout=subprocess.DEVNULL)
    while holder_of(out) is None and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # or it might finish on a fast machine
    assert run(command) == 2
    text = capsys.readouterr().err
    assert f"(process {first.pid} on " in text
    assert "prepare mlm --source" in text
    first.kill()
    first.wait()
    assert (out / ".lock.json").is_file()
    assert run(command) == 0
    assert not [path for path in out.iterdir() if ".lock" in path.name or ".part" in path.name]


def test_a_holder_on_another_machine_is_believed_while_it_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other machine's lock is not seen from here; what it wrote is."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    command = ["report", str(ARCHIVED), "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "node-7")
        with claimed(out, "report"):
            shutil.copytree(out, elsewhere)
    (elsewhere / ".lock").unlink()
    shutil.copytree(elsewhere, out)
    assert run(command) == 2
    text = capsys.readouterr().err
    assert "on node-7, since" in text
    assert "last sign of life" in text
    old = time.time() - locks.SILENT - 1
    os.utime(out / ".lock.json", (old, old))
    assert run(command) == 0


def test_a_holder_keeps_its_sign_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.01)
    with locked(tmp_path / "out"):
        sign = tmp_path / "out" / ".lock.json"
        os.utime(sign, (0, 0))
        until = time.monotonic() + 10
        while sign.stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert sign.stat().st_mtime > 0


def test_a_block_that_fails_before_it_wrote_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError), claimed(tmp_path / "a" / "b", "report"):
        raise ValueError
    assert not (tmp_path / "a").exists()


def test_a_finished_folder_that_is_closed_to_writing_needs_no_lock(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with locked(inputs / "dataset"):
        assert not (inputs / "dataset" / ".lock").exists()


def test_an_evaluation_that_another_process_makes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.evaluation.tiny import freeze_tiny, save_checkpoint

    monkeypatch.chdir(tmp_path)
    freeze_tiny(Path("evalsets/tiny"))
    save_checkpoint(Path("runs/a/checkpoint-65"), seed=1)
    is_locked, waited, sleep = threading.Event(), threading.Event(), time.sleep

    def hold() -> None:
        with locked(Path("runs/a/evaluations/tiny-128/checkpoint-65")):
            is_locked.set()
            assert waited.wait(600)

    def slept(seconds: float) -> None:
        waited.set()
        sleep(seconds)

    monkeypatch.setattr("coref_automl.base.locks.time.sleep", slept)

    other = threading.Thread(target=hold)
    other.start()
    is_locked.wait()
    assert run(["evaluate", "runs/a", "--eval-set", "evalsets/tiny", "--device", "cpu", "--dtype", "float32"]) == 0
    other.join()
    assert "Waiting: runs/a/evaluations/tiny-128/checkpoint-65 is in use by" in capsys.readouterr().err
    assert {path.name for path in Path("runs/a/evaluations/tiny-128/checkpoint-65").iterdir()} == {
        "items.jsonl", "result.json", "DONE",
    }  # fmt: skip
