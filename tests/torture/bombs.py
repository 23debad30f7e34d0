"""Small files that claim or become much, one per reader, and lines just below the limit. Peak memory stays under a gigabyte."""

from __future__ import annotations

import bz2
import gzip
import lzma
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.torture.world import LINES, OUT

MB = 1 << 20
NEAR = 16 * MB - 4_096
"""Bytes of a line just below the longest that is read."""
WALL = 6 << 30
"""Where the bomb's own process ends, so that the machine does not."""
_PREPARE = f"prepare mlm --source local:t.jsonl.gz --model tokenizer --seq-len 64 --out {OUT}"
_SENTENCE = "시민은 서울에서 새로운 도서관을 찾았다. "
_CLOZE = '{"index": 1, "title": "t", "text": "%s _", "answer": "서울", "candidate": "부산"}\n'
_CHAIN = '{"doc_id": "a", "text": "%s", "clusters": [[{"start": 0, "end": 2, "entity": "A"}]]}\n'
_RELATION = (
    '{"guid": "a", "sentence": "%s", "subject_entity": {"word": "시민", "start_idx": 0, "end_idx": 1, "type": "PER"}, '
    '"object_entity": {"word": "서울", "start_idx": 4, "end_idx": 5, "type": "LOC"}, "label": "no_relation"}\n'
)


def _near(unit: str) -> str:
    return unit * (NEAR // len(unit.encode()) - 100)


def _row(path: str, shape: str, unit: str) -> Callable[[Path], object]:
    return lambda at: (at / path).write_text(shape % _near(unit), "utf-8")


def _packed(path: str, opener: Callable[..., object], piece: bytes, megabytes: int = 200) -> Callable[[Path], object]:
    def write(at: Path) -> None:
        quick = {"preset": 0} if opener is lzma.open else {"compresslevel": 1}
        with opener(at / path, "wb", **quick) as handle:  # type: ignore[attr-defined]
            for _ in range(megabytes):
                handle.write((piece * (MB // len(piece) + 1))[:MB])

    return write


def _long(pattern: str, piece: bytes, megabytes: int) -> Callable[[Path], object]:
    def write(at: Path) -> None:
        with next(at.glob(pattern)).open("ab") as handle:
            for _ in range(megabytes):
                handle.write((piece * (MB // len(piece) + 1))[:MB])

    return write


def _zipped(pattern: str, name: str, megabytes: int, header: bytes = b"") -> Callable[[Path], object]:
    def write(at: Path) -> None:
        path = next(at.glob(pattern))
        path.unlink()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open(name, "w", force_zip64=True) as handle:
            handle.write(header)
            for _ in range(megabytes):
                handle.write(b"\0" * MB)

    return write


def _ranks(at: Path) -> None:
    path = next(at.glob("kept/**/ranks.npz"))
    with np.load(path) as held:
        np.savez_compressed(path, **{name: np.zeros(400 * MB, np.int8) if name == "rank" else held[name] for name in held})


def _header(at: Path) -> None:
    path = at / "model/model.safetensors"
    head = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}' + b" " * (90 * MB) + b"}"
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"\0\0\0\0")


def _pickled(at: Path) -> None:
    (at / "model/model.safetensors").unlink()
    with zipfile.ZipFile(at / "model/pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        with packed.open("archive/data/0", "w", force_zip64=True) as handle:
            for _ in range(1_500):
                handle.write(b"\0" * MB)


def _parquet(at: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000, np.int32)), pa.array([_near(_SENTENCE)]))
    parquet.write_table(pa.table({"text": column}), at / "texts.parquet")


BOMBS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "xz without a line end": ("coref explore chains.jsonl.xz", _packed("chains.jsonl.xz", lzma.open, b"a")),
    "xz of empty objects": ("coref explore chains.jsonl.xz", _packed("chains.jsonl.xz", lzma.open, b"{}\n")),
    "gz of columns": ("coref explore chains.conll.gz", _packed("chains.conll.gz", gzip.open, b"a b c d\n")),
    "bz2 of CoNLL-U": ("coref explore chains.conllu.bz2", _packed("chains.conllu.bz2", bz2.open, b"1\ta\n")),
    "gz of texts": (_PREPARE, _packed("t.jsonl.gz", gzip.open, b"[")),
    "gz of a list": ("re explore r.json.gz --check --model model", _packed("r.json.gz", gzip.open, b"[],")),
    "a CSV row without an end": ("sources local:t.csv.gz --check", _packed("t.csv.gz", gzip.open, b"text,")),
    "a CSV row of many lines": ("sources local:t.csv.gz --check", _packed("t.csv.gz", gzip.open, b'"\n",')),
    "an open quotation mark": ("re explore r.csv.gz --check --model model", _packed("r.csv.gz", gzip.open, b'"a\n')),
    "a long result": (LINES["compare"].text, _long("runs/a/evaluations/*/*/result.json", b'"a",', 300)),
    "long scores": (LINES["compare"].text, _long("runs/a/evaluations/*/*/items.jsonl", b"[1,", 300)),
    "scores of one line": (LINES["archive"].text, _long("runs/a/evaluations/*/*/items.jsonl", b"9", 60)),
    "a long manifest": (LINES["plan"].text, _long("data/manifest.json", b"{", 200)),
    "a long set": (LINES["evaluate"].text, _long("set/items-real.jsonl", b" ", 200)),
    "long documents": (LINES["evaluate"].text, _long("set/documents.jsonl", b"a", 200)),
    "ranks that unpack": (LINES["compare kept"].text, _ranks),
    "a long header of weights": (LINES["plan"].text, _header),
    "pickled weights that unpack": (LINES["plan"].text, _pickled),
    "a long tokenizer": (LINES["plan"].text, _long("model/tokenizer.json", b" ", 200)),
    "a long config": (LINES["plan"].text, _long("model/config.json", b" ", 200)),
    "numbers in base sixty": (LINES["plan"].text, _long("train.yaml", b"1:1:", 1)),
    "one number in base sixty": (LINES["plan"].text, lambda at: (at / "train.yaml").write_text("seed: 1" + ":1" * 400_000)),
    "a mark without an end": (LINES["compare"].text, _long("runs/a/.coref-automl", b"run", 400)),
    "parquet of one long text": ("sources local:texts.parquet --check", _parquet),
    "a cloze near the limit": (LINES["prepare eval"].text, _row("cloze.jsonl", _CLOZE, _SENTENCE)),
    "a cloze of one word near the limit": (LINES["prepare eval"].text, _row("cloze.jsonl", _CLOZE, "가나다라")),
    "a text near the limit": (LINES["prepare mlm"].text, _row("texts.jsonl", '{"text": "%s"}\n', _SENTENCE)),
    "a text of one word near the limit": (LINES["prepare entity"].text, _row("texts.jsonl", '{"text": "%s"}\n', "가나다라")),
    "a text to learn from near the limit": (LINES["tokenizer"].text, _row("texts.jsonl", '{"text": "%s"}\n', "가나다라")),
    "chains near the limit": (LINES["coref explore"].text, _row("chains.jsonl", _CHAIN, _SENTENCE)),
    "a sentence near the limit": (LINES["re check"].text, _row("relations.jsonl", _RELATION, _SENTENCE)),
    "digits near the limit": (LINES["sources"].text, _row("texts.jsonl", '{"text": %s}\n', "9")),
    "brackets near the limit": (LINES["sources"].text, _row("texts.jsonl", '{"text": %s}\n', "[],")),
}  # fmt: skip
"""What is written into a copy of the world, and the line that reads it."""


def wall() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (WALL, WALL))
