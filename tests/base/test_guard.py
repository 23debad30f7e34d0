"""Limits of readers: what a file claims or unpacks to is refused in a sentence before memory is asked for."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.config import read_yaml
from coref_automl.base.errors import InputError, ModelError, RecipeError
from coref_automl.base.guard import (
    LARGEST,
    LINE,
    TooLarge,
    check_packed,
    failure_in_subprocess,
    lines_of,
    parse_json,
    read_arrays,
    read_whole,
)
from coref_automl.base.store import read_json, read_jsonl
from coref_automl.corpus.formats import READERS
from coref_automl.extras.coreference.data import inspect_coref
from coref_automl.models.tokenizer_files import check_rules


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "chains.conll.xz", "wb", preset=0) as handle:
        for _ in range((LARGEST >> 20) + 1):
            handle.write(b"a" * (1 << 20))
    with pytest.raises(TooLarge, match="holds more than 64 MB"):
        inspect_coref(tmp_path / "chains.conll.xz")


def test_json_that_becomes_too_many_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b"[" + b"[]," * 8_000_000 + b"[]]")
    with pytest.raises(InputError, match=r"is not JSON \(over 600 MB once read\)"):
        read_json(path)
    assert parse_json('[[], {}, "가"]'.encode()) == [[], {}, "가"]
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


def test_a_program_apart_ends_in_time_and_within_its_memory() -> None:
    assert failure_in_subprocess("pass") == ""
    assert failure_in_subprocess("while True: pass", seconds=0.5) == "no answer in 0 s"
    assert "4" in failure_in_subprocess("raise SystemExit(4)")
    if sys.platform == "linux":
        assert failure_in_subprocess("b'a' * (2 << 30)") == "MemoryError"


def _split(pattern: str) -> dict[str, object]:
    return {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}}


_DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 30}


@pytest.mark.parametrize(
    ("rules", "fails"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, False),
        (_split("(ab)+"), False),
        (_split("(a+)+$"), True),
        ({"normalizer": {"type": "Sequence", "normalizers": [_DOUBLED] * 9}}, True),
    ],
)
def test_rules_that_fail_on_a_plain_text_are_refused(tmp_path: Path, rules: dict[str, object], fails: bool) -> None:
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    whole = {"version": "1.0", "added_tokens": [], "model": {**model, "vocab": {"[UNK]": 0, "a": 1}}, **rules}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    with pytest.raises(ModelError, match="fails on a plain text") if fails else nullcontext():
        check_rules("it", tmp_path)
