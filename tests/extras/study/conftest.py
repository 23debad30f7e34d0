"""A tiny study: an encoder of one's own, a dataset and an evaluation set made by the commands, annotated tales."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from coref_automl.base.config import from_mapping
from coref_automl.base.store import write_json
from coref_automl.cli.app import run as command
from coref_automl.corpus.sources import bundled_rows
from coref_automl.extras.coreference.documents import write_documents
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.study.run import run_experiment
from coref_automl.models.build import build_masked_lm, train_tokenizer
from tests.extras.coreference.conftest import tale
from tests.extras.tune.inline import InlineLauncher

LENGTH = 64
ONE: dict[str, Any] = {"seeds": 1, "methods": {"mlm": {}}}


@dataclass(frozen=True)
class Bench:
    """Everything a study names, in one folder."""

    home: Path

    def values(self, out: Path, **changes: Any) -> dict[str, Any]:
        told: dict[str, Any] = {
            "model": str(self.home / "model"),
            "methods": {"mlm": {}, "entity": {}},
            "out": str(out),
            "lengths": [LENGTH],
            "seeds": 2,
            "datasets": [str(self.home / "dataset")],
            "train": {"max_tokens": 2_000, "batch": 8, "learning_rate": 1e-3, "checkpoints": 2, "log_every": 1},
            "evaluate": {"sets": [str(self.home / "evalset")]},
            "device": "cpu",
            "lang": "en",
        }
        return told | changes

    def recipe(self, out: Path, **changes: Any) -> ExperimentRecipe:
        return from_mapping(ExperimentRecipe, self.values(out, **changes), "test")

    def file(self, path: Path, out: Path, **changes: Any) -> Path:
        path.write_text(yaml.safe_dump(self.values(out, **changes)), "utf-8")
        return path

    @property
    def relation(self) -> dict[str, Any]:
        rows = {"train": str(self.home / "train.json"), "dev": str(self.home / "dev.json")}
        return {**rows, "shares": [0.5, 1.0], "seeds": 1, "settings": {"epochs": 1, "holdout": 0.2}}

    @property
    def coreference(self) -> dict[str, Any]:
        return {"data": str(self.home / "tales.jsonl"), "folds": 2, "settings": {"epochs": 1, "size": 16}}


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    home = tmp_path_factory.mktemp("study")
    tokenizer = train_tokenizer((row["text"] for row in islice(bundled_rows("synthetic"), 20)), vocab_size=1_200)
    build_masked_lm("tiny", tokenizer, seq_len=128, seed=0).save_pretrained(home / "model")
    tokenizer.save_pretrained(home / "model")
    texts = ["--source", "bundled:synthetic", "--model", str(home / "model"), "--limit", "16", "--holdout", "0.4"]
    sizes = ["--per-source", "16", "--task", "real", "--seed", "0"]
    assert command(["prepare", "eval", *texts, *sizes, "--out", str(home / "evalset")]) == 0
    named = ["--seq-len", str(LENGTH), "--eval-set", str(home / "evalset"), "--exact-only"]
    assert command(["prepare", "combined", *texts, *named, "--out", str(home / "dataset")]) == 0
    write_documents(home / "tales.jsonl", [tale(number) for number in range(6)])
    write_json(home / "train.json", list(islice(bundled_rows("relations"), 80)))
    write_json(home / "dev.json", list(islice(bundled_rows("relations-dev"), 40)))
    return Bench(home)


@pytest.fixture(scope="session")
def finished(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of one method and one seed with relation extraction, run to its end. Read only."""
    out = tmp_path_factory.mktemp("finished") / "study"
    run_experiment(bench.recipe(out, **ONE, relation=bench.relation), launcher=InlineLauncher())
    return out


@pytest.fixture
def moved(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change, where `recipe` goes on with it."""
    return shutil.copytree(finished, tmp_path / "study")


@pytest.fixture
def recipe(bench: Bench, tmp_path: Path) -> Callable[..., ExperimentRecipe]:
    return lambda **changes: bench.recipe(tmp_path / "study", **changes)
