"""Preparation on a local Ray cluster: the bytes of one machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from tests.corpus.conftest import WriteRows, rows

pytestmark = [
    pytest.mark.journey,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # ray leaves its own sockets and pipes open
]


def test_a_cluster_makes_the_same_bytes(ray_cluster: None, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    sources = tuple(f"local:{write_rows(f'{name}.jsonl', rows(12, first=10 * at))}" for at, name in enumerate("ab"))
    local = PrepareRecipe(mode="combined", sources=sources, model=str(tokenizer_folder), seq_len=64, holdout=0.1, portion=2500)
    prepare(local, tmp_path / "local")
    prepare(replace(local, engine="ray"), tmp_path / "ray")
    prepare(replace(local, engine="ray", portion=60), tmp_path / "divided")  # a row a part, and near-duplicates by band and class
    for name in ("tokens.npy", "blocks.npy", "mentions.npy", "manifest.json", "documents.jsonl"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
        assert (tmp_path / "divided" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
