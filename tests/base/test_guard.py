"""Limits of readers: what a file claims or unpacks to is refused in a sentence before memory is asked for."""

from __future__ import annotations

import gzip
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.config import read_yaml
from coref_automl.base.errors import InputError, RecipeError
from coref_automl.base.guard import (
    LARGEST,
    LINE,
    TooLarge,
    check_packed,
    lines_of,
    read_arrays,
    read_whole,
)
from coref_automl.base.store import read_json, read_jsonl
from coref_automl.corpus.formats import READERS
from coref_automl.extras.coreference.data import inspect_coref


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "chains.conll.xz", "wb", preset=0) as handle:
        for _ in range((LARGEST >> 20) + 1):
            handle.write(b"a" * (1 << 20))
    with pytest.raises(TooLarge, match="holds more than 64 MB"):
        inspect_coref(tmp_path / "chains.conll.xz")


def test_a_whole_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    with path.open("wb") as handle:
        handle.truncate(LARGEST + 1)
    with pytest.raises(TooLarge):
        read_json(path)


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_bytes(b"{}\n" + b" " * (LINE + 1))
    with pytest.raises(TooLarge, match="a line over 16 MB"):
        list(read_jsonl(path))
    with path.open("rb") as handle:
        assert next(lines_of(path, handle)) == b"{}\n"
    assert read_whole(path)[:3] == b"{}\n"


@pytest.mark.parametrize("piece", [b"text,", b'"\n",'])
def test_a_csv_row_without_an_end_is_refused(tmp_path: Path, piece: bytes) -> None:
    with gzip.open(tmp_path / "t.csv.gz", "wb", 1) as handle:
        handle.write(b"text,more\na,1\n" + piece * (LINE // len(piece) + 2))
    rows = READERS[".csv"](tmp_path / "t.csv.gz")
    assert next(rows) == (2, {"text": "a", "more": "1"})
    with pytest.raises(OSError, match="a row over 16 MB"):
        list(rows)


def test_arrays_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "ranks.npz", a=np.zeros(300 << 20, np.int8))
    with pytest.raises(InputError, match="at most 256 MB are read"):
        read_arrays(tmp_path / "ranks.npz")


def test_packed_weights_may_not_grow(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "grows.bin", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data/0", b"\0" * (1 << 20))
    with pytest.raises(TooLarge, match="unpacks to"):
        check_packed(tmp_path / "grows.bin")
    with zipfile.ZipFile(tmp_path / "same.bin", "w") as packed:
        packed.writestr("archive/data/0", b"\0" * (1 << 20))
    check_packed(tmp_path / "same.bin")


def test_a_number_in_base_sixty_is_no_work_of_minutes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("seed: 1" + ":1" * 100_000)
    with pytest.raises(RecipeError, match="a number of more than 1,000 characters"):
        read_yaml(tmp_path / "a.yaml")
