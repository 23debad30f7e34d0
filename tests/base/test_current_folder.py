"""Worker processes read relative paths as their parent does, wherever it was started and wherever it went since."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.errors import FolderError
from coref_automl.base.launch import LocalLauncher
from coref_automl.base.pool import Call, Returned, run_calls
from coref_automl.cli.app import run
from tests.base.test_job import job_at
from tests.base.test_pool import die_once
from tests.corpus.conftest import rows
from tests.processes import until

HERE = "tests.base.test_current_folder"
PREPARE = """
for workers, out in ((1, "one"), (2, "two"), (2, os.path.abspath("three"))):
    recipe = ca.PrepareRecipe(
        mode="mlm", sources=("local:texts.jsonl",), model="bundled:ko-mini", seq_len=64, near_duplicates=False,
        holdout=0.0, workers=workers,
    )
    ca.prepare(recipe, out)
"""
LAUNCH = """
from coref_automl.base.job import Job
from coref_automl.base.launch import LocalLauncher
running = LocalLauncher(1, ["cpu"]).start(Job("tests.base.test_current_folder:where", "one", "job", {}), 0)
while running.alive:
    time.sleep(0.05)
"""
START = "import os, sys, time\nos.chdir({0!r})\nimport coref_automl as ca\n"


def where(_job: object = None) -> dict[str, str]:
    return {"folder": str(Path.cwd())}


def die_once_it_went(to: str, mark: str) -> dict[str, str]:
    until(Path(to).exists, "the parent's change of folder")
    die_once(mark)
    return where()


def script(folder: Path, work: str, *, guarded: bool) -> None:
    """Run a script in a folder: it starts in `first`, and changes to `second` before its work."""
    for number, name in enumerate(("first", "second")):
        (folder / name).mkdir()
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows(8, first=100 * number)]
        (folder / name / "texts.jsonl").write_text("".join(lines), "utf-8")
    lines = ['os.chdir("../second")', *work.strip().splitlines()]
    if guarded:
        lines = ['if __name__ == "__main__":', *(f"    {line}" for line in lines)]
    (folder / "script.py").write_text(START.format(str(folder / "first")) + "\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment, check=True)
    assert [path.name for path in (folder / "first").iterdir()] == ["texts.jsonl"]


@pytest.mark.parametrize("guarded", [True, False])
def test_two_workers_prepare_the_texts_of_the_folder_that_one_process_does(tmp_path: Path, guarded: bool) -> None:
    script(tmp_path, PREPARE, guarded=guarded)
    tokens, *others = (np.load(tmp_path / "second" / name / "tokens.npy") for name in ("one", "two", "three"))
    assert tokens.size
    assert all(np.array_equal(tokens, other) for other in others)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_launched_job_works_in_the_folder_of_its_command(tmp_path: Path, guarded: bool) -> None:
    script(tmp_path, LAUNCH, guarded=guarded)
    outcome = json.loads((tmp_path / "second/job/outcome.json").read_text("utf-8"))
    assert outcome["facts"] == {"folder": str(tmp_path / "second")}


def test_a_worker_that_is_replaced_works_in_the_folder_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    monkeypatch.chdir(first)

    def go_elsewhere(_returned: Returned) -> None:
        os.chdir(second)
        (second / "here").touch()

    dying = Call("dying", f"{HERE}:die_once_it_went", {"to": str(second / "here"), "mark": str(tmp_path / "mark")})
    returned = run_calls([Call("one", f"{HERE}:where", {}), dying], workers=2, on_return=go_elsewhere)
    assert Path.cwd() == second
    assert [one.value for one in returned] == [{"folder": str(first)}] * 2
    assert returned[1].attempts == 2


def test_a_deleted_current_folder_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    sentence = "The current folder was deleted; change to one that exists"
    with pytest.raises(FolderError, match=sentence):
        run_calls([Call("a", f"{HERE}:where", {}), Call("b", f"{HERE}:where", {})], workers=2)
    with pytest.raises(FolderError, match=sentence):
        LocalLauncher(1, ["cpu"]).start(job_at(tmp_path / "job"), 0)
    assert run(["compare", "../runs"]) == 2
    assert capsys.readouterr().err == f"coref-automl: {sentence}, and run it again.\n"
