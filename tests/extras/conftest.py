"""One tiny home for every command: a pretrained encoder, its dataset and evaluation set, relation rows, annotated tales."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coref_automl.extras.coreference.documents import write_documents
from coref_automl.models.build import build_masked_lm
from coref_automl.models.load import load_tokenizer
from tests.extras.coreference.conftest import tale
from tests.extras.relation.conftest import make_raw_rows
from tests.extras.tune.conftest import World
from tests.extras.tune.conftest import world as world


@pytest.fixture(scope="session")
def home(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("home")
    tokenizer = load_tokenizer(str(world.tokenizer))
    build_masked_lm("tiny", tokenizer, seq_len=64).save_pretrained(str(folder / "model"))
    tokenizer.save_pretrained(str(folder / "model"))
    shutil.copytree(world.dataset, folder / "dataset")
    shutil.copytree(world.evalset, folder / "evalset")
    for name, start in (("train", 0), ("dev", 40)):
        rows = json.dumps(make_raw_rows(40 if name == "train" else 16, start), ensure_ascii=False)
        (folder / f"{name}.json").write_text(rows, "utf-8")
    write_documents(folder / "tales.jsonl", [tale(number) for number in range(6)])
    return folder
