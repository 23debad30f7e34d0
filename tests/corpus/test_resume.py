"""A killed run goes on from its last finished shard, and machines that share the work give the bytes of one."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import FolderError
from coref_automl.base.korean import kiwi_version
from coref_automl.corpus import encode, pack, shards
from coref_automl.corpus import recipe as recipes
from coref_automl.corpus.prepare import prepare
from tests.corpus.conftest import WriteRows, rows
from tests.corpus.test_prepare import files, recipe


class _Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def killed_at(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, call: int) -> None:
    """The n-th call of a function is the last thing that happens."""
    real, calls = getattr(module, name), iter(range(call))

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise _Killed
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, wrapped)


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [(shards, "write_json", 2), (shards, "write_jsonl", 3), (encode, "write_json", 1), (pack, "write_dataset", 0)],
)
def test_an_interrupted_run_goes_on_and_gives_the_same_bytes(
    tokenizer_folder: Path,
    write_rows: WriteRows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    call: int,
) -> None:
    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", rows(20)), portion=2500)
    prepare(chosen, tmp_path / "whole")
    with monkeypatch.context() as patch:
        killed_at(patch, module, name, call)
        with pytest.raises(_Killed):
            prepare(chosen, tmp_path / "resumed")
    finished = sorted((tmp_path / "resumed" / "work" / "read").glob("*-*.json"))
    stamps = [path.stat().st_mtime_ns for path in finished]
    prepare(chosen, tmp_path / "resumed")
    assert files(tmp_path / "whole") == files(tmp_path / "resumed")
    assert not (tmp_path / "resumed" / "work").exists()
    assert len(stamps) == len(finished)


def test_finished_shards_are_not_read_again(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", rows(20)), portion=2500)
    with monkeypatch.context() as patch:
        killed_at(patch, shards, "write_jsonl", 3)
        with pytest.raises(_Killed):
            prepare(chosen, tmp_path / "out")
    cleaned: list[str] = []
    real = shards.normalise
    monkeypatch.setattr(shards, "normalise", lambda text: (cleaned.append(text), real(text))[1])
    prepare(chosen, tmp_path / "out")
    assert 0 < len(cleaned) < 20


@pytest.mark.journey
@pytest.mark.slow
def test_a_run_killed_by_the_system_resumes(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", rows(400)), portion=20_000)
    code = "import sys; from coref_automl.cli.app import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "prepare", "mlm", "--source", chosen.sources[0], "--seq-len", "64"]
    command += ["--model", chosen.model, "--out", str(tmp_path / "out")]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and not list((tmp_path / "out").glob("work/read/*.jsonl")):
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    prepare(chosen, tmp_path / "out")
    prepare(chosen, tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def of_equal_size() -> list[dict[str, Any]]:
    return [{**row, "text": row["text"].replace("서울", "부산")} for row in rows(20)]


@pytest.mark.parametrize("changed", [lambda: rows(25, first=30), of_equal_size])
def test_changed_inputs_begin_anew(
    tokenizer_folder: Path,
    write_rows: WriteRows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[], list[dict[str, Any]]],
) -> None:
    path = write_rows("a.jsonl", rows(20))
    chosen = recipe(tokenizer_folder, path, portion=2500)
    with monkeypatch.context() as patch:
        killed_at(patch, encode, "write_json", 1)
        with pytest.raises(_Killed):
            prepare(chosen, tmp_path / "out")
    write_rows("a.jsonl", changed())
    prepare(chosen, tmp_path / "out")
    prepare(chosen, tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_what_another_version_of_the_tagger_began_is_begun_anew(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, read = recipe(tokenizer_folder, write_rows("a.jsonl", rows(20)), mode="entity", portion=2500), list[str]()
    with monkeypatch.context() as patch:
        killed_at(patch, encode, "write_json", 1)
        patch.setattr(recipes, "kiwi_version", lambda: "kiwi0")
        with pytest.raises(_Killed):
            prepare(chosen, tmp_path / "out")
    real = shards.normalise
    monkeypatch.setattr(shards, "normalise", lambda text: (read.append(text), real(text))[1])
    assert prepare(chosen, tmp_path / "out")["versions"]["kiwi"] == kiwi_version()
    assert len(read) == 20


def test_a_shard_that_reading_does_not_count_is_not_taken(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", rows(20)), portion=2500)
    prepare(chosen, tmp_path / "whole")
    with monkeypatch.context() as patch:
        killed_at(patch, encode, "write_json", 0)
        with pytest.raises(_Killed):
            prepare(chosen, tmp_path / "out")
    read = tmp_path / "out" / "work" / "read"
    stray = f"0000-{len(list(read.glob('0000-*.jsonl'))):05d}"  # as a worker of an earlier, killed command once wrote it
    for path in read.glob("0000-00000.*"):
        shutil.copyfile(path, path.with_name(path.name.replace("0000-00000", stray)))
    for path in read.glob("0000*"):
        shutil.copyfile(path, path.with_name(path.name.replace("0000", "0001", 1)))
    prepare(chosen, tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_an_unfinished_folder_of_other_settings_is_refused(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows("a.jsonl", rows(8))
    with monkeypatch.context() as patch:
        killed_at(patch, encode, "write_json", 0)
        with pytest.raises(_Killed):
            prepare(recipe(tokenizer_folder, path), tmp_path / "out")
    with pytest.raises(FolderError, match=r"begun with min_hangul 0\.5, and this command has min_hangul 0\.4"):
        prepare(recipe(tokenizer_folder, path, min_hangul=0.4), tmp_path / "out")
