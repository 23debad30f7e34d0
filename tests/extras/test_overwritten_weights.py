"""Weights that are replaced by others of equal size, with the time put back, give new answers in the same process."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import coref_automl as ca
from coref_automl.base.errors import ModelError
from coref_automl.evaluation.targets import has_bytes
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.models.model_files import weights_fingerprint
from tests.extras.coreference.conftest import encoder_folder as encoder_folder
from tests.extras.coreference.conftest import run as run
from tests.extras.coreference.conftest import split_file as split_file
from tests.extras.coreference.conftest import tales as tales
from tests.extras.coreference.conftest import tales_file as tales_file
from tests.extras.test_matrix import do_coreference, do_relation

TEXT = "민수는 노인을 만났다. 그는 노인에게 물었다."


def overwrite(path: Path) -> None:
    """Write other weights in place, as `cp -p` and `rsync -t` do."""
    before = path.stat()
    save_file({name: 0.5 * value for name, value in load_file(path).items()}, path, {"format": "pt"})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.fixture
def own(home: Path, tmp_path: Path) -> Path:
    copy = shutil.copytree(home, tmp_path / "home")
    for path in copy.rglob("*.safetensors"):  # as training writes its own, so that equal weights have equal sizes
        save_file(load_file(path), path, {"format": "pt"})
    return copy


def chains(run: Path) -> Any:
    resolved: Any = ca.coreference(TEXT, run)  # type: ignore[operator]
    return resolved.chains, resolved.singles, resolved.links


@pytest.mark.parametrize("file", ["head.safetensors", "model.safetensors"])
def test_a_coreference_model_answers_with_its_new_weights(run: Path, tmp_path: Path, file: str) -> None:
    own = shutil.copytree(run, tmp_path / "run")
    weights = models_of(own)[0] / file
    save_file(load_file(weights), weights, {"format": "pt"})
    before = chains(own)
    overwrite(weights)
    after = chains(own)
    assert after != before
    assert after == chains(shutil.copytree(own, tmp_path / "copy"))


def test_a_low_rank_head_notices_that_its_encoder_was_replaced(own: Path) -> None:
    do_coreference(own, rank=2)
    chains(own / "out")
    overwrite(own / "model/model.safetensors")
    with pytest.raises(ModelError, match="has different weights"):
        chains(own / "out")


@pytest.mark.parametrize("file", ["head.safetensors", "model.safetensors"])
def test_a_relation_model_answers_with_its_new_weights(own: Path, tmp_path: Path, file: str) -> None:
    do_relation(own)
    row = {"sentence": "이순신은 서울에서 태어났다.", "subject": "이순신", "object": "서울"}
    row |= {"subject_type": "PER", "object_type": "LOC"}

    def ranked(run: Path) -> Any:
        return json.dumps(ca.predict_relations(run, row, device="cpu").ranked)

    (weights,) = (own / "out").glob(f"seed-0/model/{file}")
    save_file(load_file(weights), weights, {"format": "pt"})
    before = ranked(own / "out")
    overwrite(weights)
    after = ranked(own / "out")
    assert after != before
    assert after == ranked(shutil.copytree(own / "out", tmp_path / "copy"))


def test_a_model_is_not_taken_for_the_one_that_it_replaced(own: Path) -> None:
    known = weights_fingerprint(str(own / "model"))
    assert has_bytes(own / "model", known)
    overwrite(own / "model/model.safetensors")
    assert not has_bytes(own / "model", known)
