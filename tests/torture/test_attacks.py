"""A slice of the attacks: signals to short real commands, hostile tokenizers and pickles, bombs, invented files."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from random import Random

import numpy as np
import pytest

from coref_automl.cli.app import run
from tests.extras.test_matrix import edit_json
from tests.processes import alive, until
from tests.torture import bombs, hostile
from tests.torture.attempt import Ended, fault
from tests.torture.generated import coreference_case
from tests.torture.signals import signalled
from tests.torture.world import LINES

BUSY = """
import multiprocessing, os, re, sys
from coref_automl.base.machine import end_with_parent, block_sigint

def child():
    end_with_parent()
    print(os.getpid(), flush=True)
    re.match("(a+)+$", "a" * 60 + "b")  # no other thread gets a turn

if __name__ == "__main__":
    with block_sigint():
        process = multiprocessing.get_context(sys.argv[1]).Process(target=child)
        process.start()
    process.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread watches, which needs its turn")
@pytest.mark.parametrize("kind", ["spawn", "forkserver"])
def test_a_busy_worker_ends_with_its_parent(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    parent = subprocess.Popen([sys.executable, str(script), kind], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert alive(worker)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not alive(worker), "it went on")


@pytest.mark.journey
@pytest.mark.parametrize(
    ("name", "sign"), [("studio export", signal.SIGTERM), ("studio play", signal.SIGINT), ("prepare", signal.SIGKILL)]
)
def test_nothing_is_left_running(world: Path, tmp_path: Path, name: str, sign: signal.Signals) -> None:
    pytest.importorskip("uvicorn", reason="the studio extra is not installed")
    assert signalled(name, shutil.copytree(world, tmp_path / "copy"), sign, 4.0) is None


@pytest.mark.journey
@pytest.mark.parametrize("name", ["study", "tune", "adapt"])
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_no_job_outlives_its_command(world: Path, tmp_path: Path, name: str, sign: signal.Signals) -> None:
    assert signalled(name, shutil.copytree(world, tmp_path / "copy"), sign, 15.0) is None


def ended(line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> Ended:
    words = shlex.split(line)
    capfd.readouterr()
    began = time.monotonic()
    with chdir(folder):
        status = run(words)
    out, err = capfd.readouterr()
    return Ended(tuple(words), status, out, err, time.monotonic() - began, 0.0)


@pytest.mark.parametrize("name", ["a long header of weights", "one number in base sixty", "brackets near the limit"])
def test_a_bomb_is_refused(name: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line, write = bombs.BOMBS[name]
    folder = shutil.copytree(world, tmp_path / "copy")
    write(folder)
    assert fault(ended(line, folder, capfd)) is None


@pytest.mark.parametrize("name", ["a bracket that does not close"])
def test_a_hostile_tokenizer_is_refused(name: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(world, tmp_path / "copy")
    hostile.tokenizer(folder, name)
    end = ended(hostile.READERS["re check"], folder, capfd)
    assert fault(end) is None
    assert end.status == 2


@pytest.mark.parametrize("name", ["optimizer.pt", "scaler.pt", "relation resume.pt", "pytorch_model.bin"])
def test_a_pickle_is_not_run(name: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line, write = hostile.PICKLES[name]
    folder = shutil.copytree(world, tmp_path / "copy")
    write(folder)
    end = ended(line, folder, capfd)
    assert not list(folder.rglob(hostile.OWNED))
    assert fault(end) is None
    assert end.status, end.out
    assert "weights_only" not in end.err


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _row_out_of_range(path: Path) -> None:
    pieces = np.load(path)
    pieces[0, 0] = 2**31 - 1
    np.save(path, pieces)


FOUND: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a name that no hub id has": ("compare 가나다", lambda at: None, "가나다 does not exist"),
    "a pipe among texts": (LINES["coref annotate"].text, lambda at: _pipe(at / "plain/tale.txt"), "tale.txt is a pipe"),
    "a piece of no row": (LINES["plan"].text, lambda at: _row_out_of_range(at / "data/blocks.npy"), "rows that are not there"),
    "a batch under zero": (
        LINES["tune plan"].text,
        lambda at: (at / "tune.yaml").write_text((at / "tune.yaml").read_text().replace("batch: 2", "batch: -1")),
        "batch",
    ),
    "half a surrogate pair": (
        LINES["re grid"].text,
        lambda at: (at / "grid.yaml").write_text((at / "grid.yaml").read_text().replace("- model", '- "\\ud800"')),
        "half of a surrogate pair",
    ),
    "no scheme": (
        LINES["coref evaluate"].text,
        lambda at: edit_json(at / "coreference/seed-0/model/coreference.json", schemes=[]),
        "or edited",
    ),
    "bad rows without an end": (
        "coref explore chains.jsonl",
        lambda at: (at / "chains.jsonl").write_text("{}\n" * 100_002),
        "has over 100,000 bad rows, row 1: a row needs",
    ),
    "chains over an evaluation set": (
        "coref explore chains.jsonl --write set/documents.jsonl",
        lambda at: None,
        "set/documents.jsonl exists",
    ),
    "a page over a result": ("coref predict 서울 --html runs/a/manifest.json", lambda at: None, "runs/a/manifest.json exists"),
    "a family that is a list": (
        LINES["re check"].text,
        lambda at: edit_json(at / "model/config.json", model_type=[0]),
        "config.json has no model_type",
    ),
    "no unknown entry": (
        LINES["tune plan"].text,
        lambda at: edit_json(at / "model/tokenizer_config.json", unk_token=""),
        "tokenizer_config.json: unk_token ''",
    ),
}
"""What generated cases found: the line, what was done to the world, and a part of the sentence."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_a_sentence(name: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line, write, words = FOUND[name]
    folder = shutil.copytree(world, tmp_path / "copy")
    write(folder)
    finished = {path: path.read_bytes() for name in ("runs", "set") for path in (folder / name).rglob("*") if path.is_file()}
    end = ended(line, folder, capfd)
    assert fault(end) is None
    assert end.status == 2
    assert words in end.err
    assert all(path.is_file() and path.read_bytes() == held for path, held in finished.items())


def test_invented_coreference_files_are_read_or_refused(tmp_path: Path) -> None:
    found = (coreference_case(Random(f"slice {number}"), tmp_path) for number in range(200))
    assert [each for each in found if each] == []
