"""A file of rows, answered: in order, in blocks, resumable to the same bytes, and nothing begun where a row is wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import InputError, InputsChanged
from coref_automl.base.progress import quiet
from coref_automl.base.store import read_jsonl
from coref_automl.corpus.batch import Answered, answer_texts

TEXTS = [f'글 {number}, "쉼표"와\n줄' for number in range(50)]


def lengths(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    return ({"length": len(text), "list": [text[:1]]} for text in texts)


def write(path: Path, texts: Sequence[Any]) -> str:
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    with path.open("w", encoding="utf-8", newline="") as handle:
        if path.suffix == ".csv":
            table = csv.DictWriter(handle, ["id", "text"])
            table.writeheader()
            table.writerows(rows)
        else:
            handle.writelines(json.dumps(row) + "\n" for row in rows)
    return str(path)


def answered(data: str, out: Path, answer: Any = lengths, model: str = "a", **options: Any) -> Answered:
    given = {"column": "text", "batch_size": 8, **options}
    return answer_texts(data, out, "test answers", answer, {"weights": model}, progress=quiet(), **given)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_killed_command_resumes_to_the_same_bytes(tmp_path: Path, kind: str) -> None:
    data = write(tmp_path / f"in.{kind}", TEXTS)
    whole = Path(answered(data, tmp_path / "whole").path).read_bytes()
    calls, seen = [0], list[str]()

    def dies(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        calls[0] += 1
        if calls[0] in (3, 5):
            raise KeyboardInterrupt
        seen.extend(texts)
        return lengths(texts)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            answered(data, tmp_path / "out", dies)
        with (tmp_path / "out" / f"answers.{kind}").open("ab") as handle:
            handle.write(b'torn, "half')
    answers = answered(data, tmp_path / "out", dies)
    assert Path(answers.path).read_bytes() == whole
    assert seen == TEXTS  # none twice
    assert (answers.rows, answers.skipped) == (50, 0)
    assert answered(data, tmp_path / "out", None) == answers  # finished work is not done again


def test_answers_keep_the_columns_of_their_rows(tmp_path: Path) -> None:
    table = Path(answered(write(tmp_path / "in.csv", TEXTS), tmp_path / "a").path)
    with table.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["text"], int(row["length"]), json.loads(row["list"])) for row in rows] == [(t, len(t), [t[:1]]) for t in TEXTS]
    lines = Path(answered(write(tmp_path / "in.jsonl", TEXTS), tmp_path / "b").path).read_text("utf-8").splitlines()
    assert json.loads(lines[7]) == {"id": 7, "text": TEXTS[7], "length": len(TEXTS[7]), "list": ["글"]}


def test_rows_that_are_hardly_korean_are_counted_once_and_on_every_run(tmp_path: Path) -> None:
    data = write(tmp_path / "in.jsonl", ["영수는 웃었다.", "Obama was born in Hawaii.", "서울", "He wrote a book."])
    for _ in range(2):
        answers = answered(data, tmp_path / "out", batch_size=1)
        assert (answers.rows, answers.foreign) == (4, 2)
        assert "Hangul: 2." in answers.lines()[-1]
    assert answered(write(tmp_path / "ko.jsonl", TEXTS), tmp_path / "ko").foreign == 0


def test_a_table_without_the_column_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"columns are 'id', 'text', and none is '본문'.*--column"):
        answered(write(tmp_path / "in.csv", TEXTS), tmp_path / "out", column="본문")


def test_other_rows_or_another_model_are_refused_and_nothing_is_written_over(tmp_path: Path) -> None:
    data = write(tmp_path / "in.jsonl", TEXTS)
    answers = Path(answered(data, tmp_path / "out").path)
    before = answers.read_bytes()
    with pytest.raises(InputsChanged, match="other bytes of the rows"):
        answered(write(tmp_path / "other.jsonl", TEXTS[1:]), tmp_path / "out")
    with pytest.raises(InputsChanged, match="other bytes of the weights"):
        answered(data, tmp_path / "out", model="b")
    assert answers.read_bytes() == before


def test_a_bad_row_is_said_before_any_work_or_skipped_and_counted(tmp_path: Path) -> None:
    data = write(tmp_path / "in.jsonl", [*TEXTS, None, "끝", 3])
    with pytest.raises(InputError, match=r"row 51 \(50\): no text under 'text'.*and 1 more.*--skip-bad"):
        answered(data, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()
    answers = answered(data, tmp_path / "out", skip_bad=True)
    assert (answers.rows, answers.skipped, [problem.row for problem in answers.problems]) == (51, 2, [51, 53])


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """At most one block is held: the answers of a block are on disk before the next one is asked for."""
    data, out, read = write(tmp_path / "in.jsonl", TEXTS), tmp_path / "out", list[int]()

    def counts(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        path = out / "answers.jsonl"
        read.append(len(path.read_text("utf-8").splitlines()))
        assert len(texts) <= 8
        return lengths(texts)

    answered(data, out, counts)
    assert read == [0, 8, 16, 24, 32, 40, 48]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("in.csv", b"id,body\n1,a\n", "The columns are 'id', 'body', and none is 'text'"),
        ("in.jsonl", b"", "has no rows"),
        ("in.docx", b"x", "is not one of"),
        ("in.jsonl.gz", b"not gzip", "in.jsonl.gz"),
        ("missing.jsonl", None, "Cannot read"),
        ("in.csv", "id,text\n1,한글\n".encode("cp949"), "not UTF-8"),
    ],
)
def test_what_is_no_file_of_rows_is_one_sentence(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        answered(str(tmp_path / name), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_answers_that_were_removed_are_not_finished_before_the_last_is_back(tmp_path: Path) -> None:
    data, calls = write(tmp_path / "in.jsonl", TEXTS), iter(range(2))
    whole = Path(answered(data, tmp_path / "out").path).read_bytes()

    def dies(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return lengths(texts)

    (tmp_path / "out" / "answers.jsonl").unlink()
    with pytest.raises(KeyboardInterrupt):
        answered(data, tmp_path / "out", dies)
    assert Path(answered(data, tmp_path / "out").path).read_bytes() == whole


def test_half_a_surrogate_pair_in_another_column_leaves_the_answers_utf_8(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "\\ud800", "text": "글"}\n{"id": "b", "text": "글"}\n', "utf-8")
    answers = answered(str(tmp_path / "in.jsonl"), tmp_path / "out")
    assert [row["id"] for row in read_jsonl(Path(answers.path))] == ["?", "b"]


def test_columns_that_json_has_no_type_for_are_kept_as_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": TEXTS[:2], "day": [date(2024, 5, 1)] * 2}), tmp_path / "in.parquet")
    answers = answered(str(tmp_path / "in.parquet"), tmp_path / "out")
    assert [row["day"] for row in read_jsonl(Path(answers.path))] == ["2024-05-01"] * 2
