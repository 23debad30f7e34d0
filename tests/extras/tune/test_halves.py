"""The halves of an evaluation set are whole, whatever happened while they were written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from coref_automl.evaluation.evalset import EvalSet, half_set
from tests.extras.tune.conftest import World


class _Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def remove_tables(folder: Path) -> None:
    for path in folder.glob("nouns-*.npy"):
        path.unlink()


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("nouns-*.npy")}


def test_a_noun_table_whose_copying_was_killed_is_copied_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: int) -> None:
        raise _Killed

    whole = EvalSet.open(world.evalset)
    with monkeypatch.context() as patch:
        half_set(whole, tmp_path / "select", "select")
        remove_tables(tmp_path / "select")
        patch.setattr(os, "fsync", killed)
        with pytest.raises(_Killed):
            half_set(whole, tmp_path / "select", "select")
    assert not tables(tmp_path / "select")
    half_set(whole, tmp_path / "select", "select")
    assert tables(tmp_path / "select") == tables(world.evalset) != {}


def test_a_noun_table_that_was_built_again_is_copied_again(world: World, tmp_path: Path) -> None:
    whole = EvalSet.open(shutil.copytree(world.evalset, tmp_path / "whole"))
    half_set(whole, tmp_path / "select", "select")
    (path,) = whole.folder.glob("nouns-*.npy")
    np.save(path, ~np.load(path))
    half_set(whole, tmp_path / "select", "select")
    assert tables(tmp_path / "select") == tables(whole.folder) != tables(world.evalset)
