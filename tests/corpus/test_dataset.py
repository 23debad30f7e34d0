"""A packed dataset opens whole or says what is wrong with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.errors import DatasetError, FolderError
from coref_automl.corpus.dataset import PackedDataset, smallest_type, write_dataset
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.models.load import load_tokenizer
from tests.corpus.conftest import WriteRows, rows


def written(folder: Path) -> Path:
    tokens = np.arange(24).reshape(3, 8)
    pieces = np.array([[0, 0, 4, 0], [0, 4, 3, 1], [2, 0, 8, 2]])
    mentions = np.array([[0, 1, 2, 0], [0, 5, 6, 1], [2, 3, 5, 0]])
    manifest = {"pad_id": 0, "tokenizer": "t", "tokenizer_fingerprint": "abc"}
    halves = [(iter(tokens[:2]), pieces[:2], [mentions[:2]]), (iter(tokens[2:]), pieces[2:], [mentions[2:]])]
    write_dataset(folder, halves, seq_len=8, dtype=np.uint16, manifest=lambda _: manifest)
    return folder


def test_rows_come_back_with_segments_and_mentions(tmp_path: Path) -> None:
    dataset = PackedDataset.open(written(tmp_path / "d"))
    assert (len(dataset), dataset.seq_len, dataset.pieces[:, 2].sum()) == (3, 8, 15)
    row = dataset.row(0)
    assert row.tokens.tolist() == list(range(8))
    assert row.segments.tolist() == [1, 1, 1, 1, 2, 2, 2, 0]
    assert row.mentions.tolist() == [[1, 2, 0], [5, 6, 1]]
    assert dataset.row(1).segments.tolist() == [0] * 8
    assert dataset.row(2).mentions.tolist() == [[3, 5, 0]]
    with pytest.raises(IndexError):
        dataset.row(3)


def test_tokens_are_mapped_and_not_read(tmp_path: Path) -> None:
    assert isinstance(PackedDataset.open(written(tmp_path / "d")).tokens, np.memmap)


def test_the_fingerprint_names_the_bytes(tmp_path: Path) -> None:
    first, second = PackedDataset.open(written(tmp_path / "a")), PackedDataset.open(written(tmp_path / "b"))
    assert first.fingerprint == second.fingerprint


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    dataset = PackedDataset.open(written(tmp_path / "d"))
    dataset.check_tokenizer("abc")
    with pytest.raises(DatasetError, match="tokenizer of t"):
        dataset.check_tokenizer("xyz")


def test_what_is_no_dataset_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="does not exist"):
        PackedDataset.open(tmp_path / "none")
    with pytest.raises(DatasetError, match="not a prepared dataset"):
        PackedDataset.open(tmp_path)
    folder = written(tmp_path / "d")
    (folder / "DONE").unlink()
    with pytest.raises(DatasetError, match="unfinished"):
        PackedDataset.open(folder)


@pytest.mark.parametrize("name", ["tokens.npy", "blocks.npy", "mentions.npy"])
def test_a_damaged_array_is_noticed(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path / "d")
    (folder / name).write_bytes((folder / name).read_bytes()[:-8])
    with pytest.raises(DatasetError, match="damaged"):
        PackedDataset.open(folder)


def test_a_manifest_of_another_shape_is_noticed(tmp_path: Path) -> None:
    folder = written(tmp_path / "d")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    (folder / "manifest.json").write_text(json.dumps({**manifest, "seq_len": 16}), "utf-8")
    with pytest.raises(DatasetError, match="damaged"):
        PackedDataset.open(folder)


def test_a_folder_of_something_else_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x", "utf-8")
    with pytest.raises(FolderError):
        written(tmp_path)


def test_the_type_of_tokens_is_the_smallest_that_holds_them() -> None:
    assert smallest_type(65_536) is np.uint16
    assert smallest_type(65_537) is np.uint32


def test_ids_with_gaps_are_stored_whole(tmp_path: Path, tokenizer_folder: Path, write_rows: WriteRows) -> None:
    """The highest id decides how wide they are stored, not the number of entries."""
    folder = Path(shutil.copytree(tokenizer_folder, tmp_path / "tokenizer"))
    rules = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    rules["model"]["vocab"] = {entry: n if n < 300 else n + 70_000 for entry, n in rules["model"]["vocab"].items()}
    (folder / "tokenizer.json").write_text(json.dumps(rules, ensure_ascii=False), "utf-8")
    source = f"local:{write_rows('a.jsonl', rows(6))}"
    prepare(
        PrepareRecipe(mode="combined", sources=(source,), model=str(folder), workers=1, seq_len=128, holdout=0.0),
        tmp_path / "out",
    )
    stored = set(np.unique(PackedDataset.open(tmp_path / "out").tokens).tolist())
    assert max(stored) > 70_000
    assert stored <= set(load_tokenizer(str(folder)).get_vocab().values())
