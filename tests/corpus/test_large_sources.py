"""Sources that one worker does not read alone: cut at lines, read through URLs, set aside where they kill; the same bytes."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from coref_automl.base.errors import DatasetError, SourceError, WorkError
from coref_automl.base.progress import quiet
from coref_automl.base.records import Document
from coref_automl.corpus import encode, shards
from coref_automl.corpus import files as remote
from coref_automl.corpus.inputs import survey
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.sources import check_source, inputs_of, read_input
from coref_automl.corpus.work import prepare_status
from tests.corpus.conftest import WriteRows, korean_text, rows
from tests.corpus.test_prepare import files, names, recipe
from tests.corpus.test_resume import _Killed, killed_at


def mixed(count: int) -> list[Any]:
    """Rows with and without an id, and rows that are none."""
    entries: list[Any] = []
    for number, row in enumerate(rows(count)):
        entries.append({"text": row["text"]} if number % 2 else row)
        if number % 5 == 4:
            entries.append("no object")
    return entries


def test_a_large_file_is_read_in_spans_and_every_row_keeps_its_number(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    path = write_rows("a.jsonl", mixed(30))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n", 3) + b"\n" * 25_000)  # empty lines count as lines
    chosen = recipe(tokenizer_folder, path, portion=600)
    _, parts = survey(chosen, inputs_of(chosen.sources[0]), quiet())
    assert len(parts) > 4
    assert parts[-1].span is not None
    assert parts[-1].span.end == path.stat().st_size
    (whole,) = inputs_of(chosen.sources[0])
    assert [entry for part in parts for entry in read_input(part)] == list(read_input(whole))
    prepare(chosen, tmp_path / "spans")
    manifest = prepare(replace(chosen, portion=4_000_000), tmp_path / "whole")
    assert manifest["inputs"][0]["rows"] == 36
    assert files(tmp_path / "spans") == files(tmp_path / "whole")


def test_a_file_that_is_limited_or_packed_is_one_part(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    import gzip

    path = write_rows("a.jsonl", rows(20))
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for source, changes in ((path, {"limit": 15}), (packed, {})):
        chosen = recipe(tokenizer_folder, source, portion=600, **changes)
        assert len(survey(chosen, inputs_of(chosen.sources[0]), quiet())[1]) == 1


class Flaky(MemoryFileSystem):  # type: ignore[misc]
    """An object store on a bad day: `faults` are raised one after the other, so many reads are `cut` in the middle."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[list[Exception]] = []
    cut = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("flaky://", "memory://")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb" and Flaky.faults:
            raise Flaky.faults.pop(0)
        handle = super()._open(path, mode, **options)
        if mode != "rb":
            return handle
        data = handle.getvalue()
        Flaky.cut, cut = max(0, Flaky.cut - 1), Flaky.cut
        return io.BytesIO(data[: len(data) // 2] if cut else data)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryFileSystem:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))
    Flaky.store.clear()
    Flaky.faults.clear()
    Flaky.cut = 0
    return Flaky()


def put(store: MemoryFileSystem, name: str, path: Path) -> str:
    store.pipe_file(f"/bucket/{name}", path.read_bytes())
    return f"flaky://bucket/{name}"


def test_a_source_behind_a_url_gives_the_bytes_of_a_local_one_whatever_the_store_does(
    store: MemoryFileSystem, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    path = write_rows("a.jsonl", mixed(20))
    chosen = recipe(tokenizer_folder, path, portion=600)
    prepare(chosen, tmp_path / "local")
    url = put(store, "a.jsonl", path)
    Flaky.faults[:] = [OSError("503 Slow Down"), TimeoutError("timed out")]
    Flaky.cut = 2
    prepare(replace(chosen, sources=(url,)), tmp_path / "remote")
    assert not Flaky.faults
    local, other = files(tmp_path / "local"), files(tmp_path / "remote")
    assert {name for name in local if local[name] != other[name]} == {"card.md", "manifest.json"}  # which name the source
    assert prepare(replace(chosen, sources=(url,)), tmp_path / "remote")["blocks"] > 0


@pytest.mark.parametrize("place", ["news", "news/*/a.jsonl", "news/**/*.jsonl"])
def test_documents_in_folders_behind_a_url_have_the_names_of_local_ones(
    store: MemoryFileSystem, write_rows: WriteRows, tmp_path: Path, place: str
) -> None:
    for year in ("2023", "2024"):
        (tmp_path / "news" / year).mkdir(parents=True)
        put(store, f"news/{year}/a.jsonl", write_rows(f"news/{year}/a.jsonl", [{"text": korean_text(int(year))}]))
    local, other = (
        [(entry.source, entry.id) for part in inputs_of(source) for entry in read_input(part) if isinstance(entry, Document)]
        for source in (f"local:{tmp_path}/{place}", f"flaky://bucket/{place}")
    )
    assert other == local == [("news", "2023/a-1"), ("news", "2024/a-1")]


def test_folders_globs_and_other_formats_are_read_through_urls(
    store: MemoryFileSystem, write_rows: WriteRows, tmp_path: Path
) -> None:
    for number in (10, 2):
        put(store, f"news/part{number}.jsonl", write_rows(f"part{number}.jsonl", [{"text": f"글 {number}"}]))
    table = tmp_path / "t.csv"
    table.write_text("text\n표의 글\n", "utf-8")
    put(store, "news/t.csv", table)
    for name in ("flaky://bucket/news", "flaky://bucket/news/*"):
        documents = [entry for part in inputs_of(name) for entry in read_input(part) if isinstance(entry, Document)]
        assert [(entry.id, entry.source) for entry in documents] == [("part2-1", "news"), ("part10-1", "news"), ("t-2", "news")]
    assert [entry.readable for entry in check_source("flaky://bucket/news")] == [True] * 3


@pytest.mark.parametrize(
    ("url", "faults", "said"),
    [
        ("flaky://bucket/none.jsonl", [], "matches no readable file"),
        ("flaky://bucket/a.jsonl", [PermissionError("403 Forbidden")], r"cannot be read \(403 Forbidden\); check the address"),
        ("flaky://bucket/a.jsonl", [OSError("503 Slow Down")] * 3, r"cannot be read \(503 Slow Down\)"),
        ("nonsense://bucket/a.jsonl", [], "nonsense"),
    ],
)
def test_a_store_that_refuses_is_one_sentence(
    store: MemoryFileSystem, write_rows: WriteRows, url: str, faults: list[Exception], said: str
) -> None:
    put(store, "a.jsonl", write_rows("a.jsonl", rows(2)))
    Flaky.faults[:] = faults
    with pytest.raises(SourceError, match=said):
        list(read_input(inputs_of(url)[0]))


def _deadly(original: Any) -> Any:
    def wrapped(document: Any, *rest: Any) -> Any:
        if "죽음" in getattr(document, "text", document):
            assert multiprocessing.parent_process() is not None, "it would kill the command itself"
            os.kill(os.getpid(), signal.SIGKILL)
        return original(document, *rest)

    return wrapped


def read_or_die(**job: Any) -> int:
    shards.normalise = _deadly(shards.normalise)  # type: ignore[assignment]
    return shards.read_job(**job)


def encode_or_die(**job: Any) -> int:
    encode._encode = _deadly(encode._encode)
    return encode.encode_job(**job)


@pytest.mark.journey
@pytest.mark.parametrize(("room", "name", "reason"), [("shards", "read", "read"), ("encode", "encode", "encoded")])
def test_what_kills_its_workers_is_named_and_set_aside_on_request(
    tokenizer_folder: Path,
    write_rows: WriteRows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    room: str,
    name: str,
    reason: str,
) -> None:
    from coref_automl.corpus import work as module

    entries = rows(24)
    entries[15]["text"] += " 죽음."
    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", entries), portion=400, workers=2, holdout=0.0)
    real = module.Call

    def call(shown: str, target: str, job: dict[str, Any]) -> Any:  # the fault: one document that kills whoever works on it
        wanted = target == f"coref_automl.corpus.{room}:{name}_job"
        return real(shown, f"{__name__}:{name}_or_die" if wanted else target, job)

    monkeypatch.setattr(module, "Call", call)
    with pytest.raises(WorkError, match=r"a\.jsonl, bytes .*died 4 times\. Everything else is done and stays.*--allow-missing"):
        prepare(chosen, tmp_path / "out")
    status = prepare_status(tmp_path / "out")
    assert (status.alive, status.stage, status.total - status.done) == (False, {"read": "read and clean"}.get(name, name), 1)
    assert [text for text in status.failed if "died 4 times" in text]
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "work").glob("*/*.npz")}
    manifest = prepare(replace(chosen, allow_missing=True), tmp_path / "out")
    assert len(finished) > 2
    assert len(manifest["missing"]) == 1
    assert sum(source["dropped"].get(f"could not be {reason}", 0) for source in manifest["sources"]) >= 1
    assert "d15" not in names(tmp_path / "out")
    assert {"d0", "d23"} <= set(names(tmp_path / "out"))


def test_the_status_of_a_stopped_preparation_is_read_from_its_files(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", rows(20)), portion=300)
    for module, function, call, stage in ((shards, "write_json", 9, "read and clean"), (encode, "write_json", 2, "encode")):
        with monkeypatch.context() as patch:
            killed_at(patch, module, function, call)
            with pytest.raises(_Killed):
                prepare(chosen, tmp_path / "out")
        status = prepare_status(tmp_path / "out")
        assert (status.stage, status.alive, status.seconds_left) == (stage, False, None)
        assert 0 < status.done < status.total
    prepare(chosen, tmp_path / "out")
    assert prepare_status(tmp_path / "out").stage == "finished"
    with pytest.raises(DatasetError, match="not a dataset"):
        prepare_status(tmp_path)


def test_the_status_command_prints_what_is_left(
    tokenizer_folder: Path,
    write_rows: WriteRows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from coref_automl.cli.app import run

    chosen = recipe(tokenizer_folder, write_rows("a.jsonl", rows(20)), portion=1200)
    with monkeypatch.context() as patch:
        killed_at(patch, encode, "write_json", 2)
        with pytest.raises(_Killed):
            prepare(chosen, tmp_path / "out")
    assert run(["prepare", "status", str(tmp_path / "out"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["stage"], status["done"]) == ("encode", 2)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert run(["prepare", "status", str(tmp_path / "out")]) == 0
    assert "2/" in capsys.readouterr().out
