"""Bad input is counted under a reason or refused with file and line; never lost in silence, never a crash."""

from __future__ import annotations

import json
import lzma
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import SourceError
from coref_automl.corpus import formats
from coref_automl.corpus.clean import normalise
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.files import Flaw, files_of, read_file
from coref_automl.corpus.prepare import prepare
from tests.corpus.conftest import WriteRows, korean_text, rows
from tests.corpus.test_prepare import names, recipe


def flaws(path: Path, **options: Any) -> list[tuple[str, str]]:
    return [(f.where, f.reason) for f in read_file(path, name="n", **options) if isinstance(f, Flaw)]


def lines(entries: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in entries).encode()


def truncated(tmp_path: Path) -> Path:
    """Cut off within the second of two streams, so that the first rows can be read."""
    path = tmp_path / "cut.jsonl.xz"
    path.write_bytes(lzma.compress(lines(rows(6))) + lzma.compress(lines(rows(6, first=6)))[:-40])
    return path


def test_a_truncated_file_is_refused_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"cut\.jsonl\.xz breaks off after line \d+.*; download it again \(prepare .* --allow-missing\)"
    ):
        list(read_file(truncated(tmp_path), name="n"))


def test_with_allow_missing_the_readable_part_is_kept_and_the_rest_counted(tokenizer_folder: Path, tmp_path: Path) -> None:
    path = truncated(tmp_path)
    with pytest.raises(SourceError, match="breaks off"):
        prepare(recipe(tokenizer_folder, path, holdout=0.0), tmp_path / "out")
    manifest = prepare(recipe(tokenizer_folder, path, holdout=0.0, allow_missing=True), tmp_path / "out2")
    assert manifest["sources"][0]["dropped"] == {"the file breaks off": 1}
    assert names(tmp_path / "out2")[:6] == [f"d{number}" for number in range(6)]


def test_what_breaks_in_a_worker_process_is_said_the_same_way(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    sources = (write_rows("a.jsonl", rows(3, first=20)), truncated(tmp_path))
    with pytest.raises(SourceError, match=r"^\S*cut\.jsonl\.xz breaks off after line \d+"):
        prepare(recipe(tokenizer_folder, *sources, workers=2), tmp_path / "out")


def test_a_truncated_zstandard_file_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    packed = pyarrow.compress(lines(rows(300)), codec="zstd", asbytes=True)
    (tmp_path / "a.jsonl.zst").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SourceError, match="breaks off"):
        list(read_file(tmp_path / "a.jsonl.zst", name="n"))


def test_lines_that_are_not_utf8_or_not_json_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = lines(rows(1))
    path.write_bytes(good + b'{"text": "\xff\xfe"}\n' + b"{broken\n" + "{}".encode("utf-16") + b"\n" + good)
    assert flaws(path) == [("a.jsonl, line 2", "not UTF-8"), ("a.jsonl, line 3", "not JSON"), ("a.jsonl, line 4", "not UTF-8")]


def test_deeply_nested_json_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"[" * 200_000 + b"\n" + lines(rows(1)))
    assert [reason for _, reason in flaws(path)] == ["not JSON"]


def test_a_very_long_line_is_counted_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LONGEST", 1 << 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * (5 << 20) + b'"}\n' + lines(rows(2)))
    entries = list(read_file(path, name="n"))
    assert [type(entry).__name__ for entry in entries] == ["Flaw", "Document", "Document"]
    assert isinstance(entries[0], Flaw)
    assert entries[0].reason == "a line over 1 MB"


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    for name, raw in (("a.jsonl", b""), ("b.jsonl.xz", lzma.compress(b"")), ("c.txt", b"\n\n"), ("d.csv", b"id,text\n")):
        (tmp_path / name).write_bytes(raw)
        assert flaws(tmp_path / name) == [(name, "an empty file")]


def test_csv_with_broken_bytes_and_missing_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('id,text\n1,"여러\n줄"\n2,'.encode() + b"\xff\xfe\n3\n")
    assert flaws(path) == [("a.csv, line 4", "not UTF-8"), ("a.csv, line 5", "no field 'text'")]


def test_parquet_values_that_python_cannot_hold_cost_no_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    times = {
        "nanoseconds": pyarrow.array([1, 2], pyarrow.timestamp("ns")),
        "far": pyarrow.array([2**61] * 2, pyarrow.timestamp("us")),
    }
    bytes_as_text = pyarrow.Array.from_buffers(pyarrow.string(), 2, pyarrow.array([b"ab", b"\xff"], pyarrow.binary()).buffers())
    parquet.write_table(pyarrow.table({"text": [korean_text(1), korean_text(2)], **times}), tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"text": bytes_as_text}), tmp_path / "b.parquet")
    assert [getattr(entry, "text", "") for entry in read_file(tmp_path / "a.parquet", name="n")] == [
        korean_text(1),
        korean_text(2),
    ]
    assert flaws(tmp_path / "b.parquet") == [("b.parquet, line 2", "not UTF-8")]


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(SourceError, match=r"a\.parquet breaks off"):
        list(read_file(path, name="n"))


def test_a_document_with_a_literal_mask_keeps_its_text_and_gets_no_mask_token(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    text = korean_text(1) + " 이 글에는 [MASK]라는 말과 [SEP]라는 말이 있다."
    path = write_rows("a.jsonl", [{"id": "mask", "text": text}, *rows(3, first=5)])
    manifest = prepare(recipe(tokenizer_folder, path, holdout=0.0), tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert "mask" in names(tmp_path / "out")
    assert not (dataset.tokens == manifest["mask_id"]).any()
    assert (dataset.tokens == manifest["sep_id"]).sum() == len(dataset.pieces)


def test_emoji_old_hangul_and_decomposed_text_come_through(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    odd = [
        {"id": "emoji", "text": korean_text(1) + " 👨‍👩‍👧 😀" * 20},
        {"id": "old", "text": "나랏〮말ᄊᆞ미 듕귁에 달아 문자와로 서로 사맛디 아니할쎄. " * 10},
        {"id": "nfd", "text": unicodedata.normalize("NFD", korean_text(2))},
    ]
    path = write_rows("a.jsonl", [*odd, {"id": "nfc", "text": korean_text(2)}])
    manifest = prepare(recipe(tokenizer_folder, path, mode="combined", holdout=0.0), tmp_path / "out")
    assert names(tmp_path / "out") == ["emoji", "old", "nfd"]
    assert manifest["sources"][0]["dropped"] == {"exact duplicate": 1}
    assert normalise(odd[2]["text"]) == normalise(korean_text(2))


def test_every_row_is_accounted_for(tokenizer_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    extra = b'{"text": 5}\n{"title": "x"}\nnonsense\n{"text": ""}\n{"text": "short"}\n'
    path.write_bytes(lines(rows(4)) + extra)
    (source,) = prepare(recipe(tokenizer_folder, path), tmp_path / "out")["sources"]
    assert source["in"] == 9
    assert source["dropped"] == {
        "empty after cleaning": 1,
        "held out for evaluation": source["dropped"]["held out for evaluation"],
        "no field 'text'": 1,
        "not JSON": 1,
        "the field 'text' is not text": 1,
        "under 200 characters": 1,
    }
    assert source["kept"] + sum(source["dropped"].values()) == 9


def test_a_row_with_more_fields_than_columns_is_no_document(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,나는 서울에 갔다, 그리고 돌아왔다.\n2,둘째\n", "utf-8")
    assert flaws(path) == [("a.csv, line 2", "more fields than columns")]


def test_a_quotation_mark_that_swallows_lines_of_a_tsv_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('id\ttext\n1\t"안녕 하고 말했다.\n2\t둘째 문서다.\n3\t셋째 "문서다.\n4\t넷째다.\n', "utf-8")
    assert [reason for _, reason in flaws(path)] == ["a quotation mark that opens a field and does not end it"]


def test_capital_letters_in_a_suffix_are_read(tmp_path: Path) -> None:
    (tmp_path / "A.JSONL").write_bytes(lines(rows(2)))
    assert [file.name for file in files_of(str(tmp_path))] == ["A.JSONL"]
    assert len(list(read_file(tmp_path / "A.JSONL", name="n"))) == 2
