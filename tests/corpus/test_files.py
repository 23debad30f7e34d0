"""Every kind of local file gives the same documents, in order."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from pathlib import Path

import pytest

from coref_automl.base.errors import SourceError
from coref_automl.base.records import Document
from coref_automl.corpus.files import Flaw, files_of, name_of, read_file
from coref_automl.corpus.sources import open_source
from tests.corpus.conftest import WriteRows, korean_text, rows


def documents(path: Path, **options: object) -> list[Document]:
    entries = list(read_file(path, name="n", **options))  # type: ignore[arg-type]
    assert all(isinstance(entry, Document) for entry in entries), entries
    return [entry for entry in entries if isinstance(entry, Document)]


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz", ".bz2", ".zst"])
def test_json_lines_read_the_same_however_packed(write_rows: WriteRows, suffix: str) -> None:
    plain = write_rows("a.jsonl", rows(5, source="s"))
    raw = plain.read_bytes()
    packed = plain.with_name(f"a.jsonl{suffix}")
    if suffix == ".zst":
        pyarrow = pytest.importorskip("pyarrow")
        packed.write_bytes(pyarrow.compress(raw, codec="zstd", asbytes=True))
    elif suffix:
        packed.write_bytes({".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix](raw))
    entries = documents(packed)
    assert [(d.id, d.source, d.text) for d in entries] == [(r["id"], "s", r["text"]) for r in rows(5)]


def test_csv_and_parquet_and_text_files_are_read(tmp_path: Path) -> None:
    entries = rows(3)
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, fieldnames=["id", "title", "text"])
        writer.writeheader()
        writer.writerows(entries)
    assert [d.text for d in documents(tmp_path / "a.csv")] == [row["text"] for row in entries]

    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(entries), tmp_path / "a.parquet")
    assert [d.text for d in documents(tmp_path / "a.parquet")] == [row["text"] for row in entries]

    (tmp_path / "b.txt").write_text("첫 줄\n\n둘째 줄", "utf-8")
    assert [(d.text, d.source) for d in documents(tmp_path / "b.txt")] == [("첫 줄\n\n둘째 줄", "n")]


def test_a_folder_gives_its_known_files_in_natural_order(tmp_path: Path) -> None:
    for name in ("part-10.txt", "part-2.txt", "notes.pdf"):
        (tmp_path / name).write_text("글", "utf-8")
    assert [path.name for path in files_of(str(tmp_path))] == ["part-2.txt", "part-10.txt"]
    assert [path.name for path in files_of(str(tmp_path / "part-*.txt"))] == ["part-2.txt", "part-10.txt"]
    assert name_of(str(tmp_path)) == name_of(str(tmp_path / "*.txt")) == tmp_path.name
    assert name_of(str(tmp_path / "part-2.txt")) == "part-2"


def test_nothing_to_read_is_said_with_the_known_kinds(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"matches no readable file.*\.jsonl"):
        files_of(str(tmp_path / "none-*.jsonl"))


def test_another_field_can_be_named(write_rows: WriteRows) -> None:
    path = write_rows("a.jsonl", [{"document": "본문", "id": 7}])
    assert documents(path, field="document") == [Document("7", "n", "본문")]


def test_rows_without_id_are_named_by_file_and_line(write_rows: WriteRows) -> None:
    path = write_rows("news.jsonl", [{"text": "하나"}, {"text": "둘"}])
    assert [d.id for d in documents(path)] == ["news-1", "news-2"]


def test_a_wrong_field_names_the_fields_there_are(write_rows: WriteRows) -> None:
    with pytest.raises(SourceError, match=r"no field 'text'.*hold id, body.*--field"):
        list(read_file(write_rows("a.jsonl", [{"id": 1, "body": "글"}]), name="n"))


def test_half_a_surrogate_in_a_title_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "\\ud800x", "text": "글"}\n', "utf-8")
    (document,) = documents(path)
    document.id.encode("utf-8")


def test_a_flaw_carries_file_and_line(write_rows: WriteRows) -> None:
    path = write_rows("a.jsonl", [{"text": "하나"}, {"title": "없음"}, {"text": 3}, ["목록"]])
    flaws = [entry for entry in read_file(path, name="n") if isinstance(entry, Flaw)]
    assert [(f.where, f.reason) for f in flaws] == [
        ("a.jsonl, line 2", "no field 'text'"),
        ("a.jsonl, line 3", "the field 'text' is not text"),
        ("a.jsonl, line 4", "not a JSON object"),
    ]


@pytest.mark.parametrize("place", ["news", "news/*/*.txt", "news/**/*.txt"])
def test_files_of_one_name_in_several_folders_are_documents_of_one_source(tmp_path: Path, place: str) -> None:
    for number, year in enumerate(("2019", "2020")):
        (tmp_path / "news" / year).mkdir(parents=True)
        (tmp_path / "news" / year / "text.txt").write_text(korean_text(number), "utf-8")
    found = [entry for entry in open_source(f"local:{tmp_path}/{place}") if isinstance(entry, Document)]
    assert [document.id for document in found] == ["2019/text-1", "2020/text-1"]
    assert {document.source for document in found} == {"news"}


def test_a_csv_that_ends_inside_a_quotation_mark_is_a_flaw(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,첫째\n2,"열림\n3,다음\n4,다음2\n', "utf-8")
    first, second = read_file(path, name="a")
    assert isinstance(first, Document)
    assert isinstance(second, Flaw)
    assert (first.text, second.reason) == ("첫째", "a quotation mark that opens a field and does not end it")
    for text in ("", "\n\n", "id,text\n", "id,text\n\n\n"):
        path.write_text(text, "utf-8")
        assert [entry for entry in read_file(path, name="a") if isinstance(entry, Document)] == []
    path.write_text("id,text\n1,첫째\n\n\n2,끝", "utf-8")
    assert [document.text for document in documents(path)] == ["첫째", "끝"]


def test_a_link_to_a_file_is_named_by_the_folder_that_it_is_in(write_rows: WriteRows, tmp_path: Path) -> None:
    """As git-annex, DVC and the cache of the hub keep files: two links of one name must not share their ids."""
    for name in ("x", "y"):
        (tmp_path / "news" / name).mkdir(parents=True)
        (tmp_path / "news" / name / "a.jsonl").symlink_to(write_rows(f"{name}.jsonl", [{"text": korean_text(1)}]))
    assert [document.id for document in open_source(f"local:{tmp_path}/news")] == ["x/a-1", "y/a-1"]
