"""Preparation on a Ray cluster of this machine: the bytes of one process, whatever dies; a cluster that cannot serve is named."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prepare_scale
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


Nodes = Callable[..., Any]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Adds machines of one core to a cluster that RAY_ADDRESS names."""
    utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed (pip install 'coref-automl[scale]')")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield lambda **options: cluster.add_node(num_cpus=1, **options)
    cluster.shutdown()


def command(tokenizer: Path, source: Path, out: Path) -> list[str]:
    options = ["--source", f"local:{source}", "--model", str(tokenizer), "--seq-len", "64", "--engine", "ray", "--out", str(out)]
    return [sys.executable, "-m", "coref_automl.cli", "prepare", "mlm", *options]


def said(words: list[str], folder: Path) -> str:
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, "LANG": "en_US.UTF-8"})
    assert ended.returncode in (1, 2)
    return ended.stderr


def test_a_machine_without_the_package_is_a_sentence_with_the_way_to_ship_it(
    nodes: Nodes, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    lacking = tmp_path / "lacking/coref_automl/__init__.py"  # stands before the installed one, and is none
    lacking.parent.mkdir(parents=True)
    lacking.write_text("raise ModuleNotFoundError(\"No module named 'coref_automl'\", name='coref_automl')\n", "utf-8")
    nodes(env_vars={"PYTHONPATH": str(lacking.parents[1])})
    printed = said(command(tokenizer_folder, write_rows("a.jsonl", rows(4)), tmp_path / "out"), tmp_path)
    assert "A machine of the cluster has no coref-automl" in printed
    assert "ray job submit" in printed
    assert "Traceback" not in printed


def test_a_folder_that_machines_do_not_see_is_named(
    nodes: Nodes, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a folder of one process alone needs unshare")
    nodes()
    (hidden := tmp_path / "hidden").mkdir()
    words = command(tokenizer_folder, write_rows("a.jsonl", rows(4)), hidden / "out")
    for start, step in (
        (".", "choose an --out that all machines see"),
        ("hidden/here", "start the command in a folder all machines see"),
    ):
        script = f'mount -t tmpfs none hidden && mkdir -p {start} && cd {start} && exec "$@"'
        alone = ["unshare", "-m", "sh", "-c", script, "sh", *words]
        printed = said(alone, tmp_path)
        assert f"{hidden}" in printed
        assert step in printed


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_ten_random_kills_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "as the cluster says")
    killed, same = prepare_scale.kills(tmp_path, Namespace(megabytes=[10.0], kills=10, seed=7, engine=engine))
    assert killed["worker"] + killed["node"] == 10
    assert killed["driver"] == 1
    assert same
