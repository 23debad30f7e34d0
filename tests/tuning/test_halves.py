"""The halves of an evaluation set are whole, whatever happened while they were written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO, Any

import pytest

from coref_automl.evaluation.evalset import EvalSet
from coref_automl.tuning.halves import half_set
from tests.tuning.conftest import World


class _Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("nouns-*.npy")}


def test_a_noun_table_whose_copying_was_killed_is_copied_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(source: IO[bytes], copy: IO[bytes], *_: Any) -> None:
        copy.write(source.read(20))
        copy.flush()
        raise _Killed

    whole = EvalSet.open(world.evalset)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", killed)
        with pytest.raises(_Killed):
            half_set(whole, tmp_path / "select", "select")
    assert not tables(tmp_path / "select")
    half_set(whole, tmp_path / "select", "select")
    assert tables(tmp_path / "select") == tables(world.evalset) != {}


def test_a_noun_table_that_an_earlier_version_left_truncated_is_copied_again(world: World, tmp_path: Path) -> None:
    whole = EvalSet.open(world.evalset)
    half_set(whole, tmp_path / "select", "select")
    for path in (tmp_path / "select").glob("nouns-*.npy"):
        path.write_bytes(path.read_bytes()[:20])
    half_set(whole, tmp_path / "select", "select")
    assert tables(tmp_path / "select") == tables(world.evalset)
