"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import resource
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import FolderError, InputError, StorageError
from coref_automl.base.fingerprints import fingerprint, fingerprint_files
from coref_automl.base.folders import check_folder, claim_folder, is_done, kind_of_folder, mark_done, natural_order, short_names
from coref_automl.base.store import JsonlAppender, atomic_write, read_json, read_jsonl, write_json, write_jsonl


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"old": True})

    def killed_in_the_middle() -> None:
        with atomic_write(path) as handle:
            handle.write("half of the n")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        killed_in_the_middle()
    assert read_json(path) == {"old": True}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("code", "message"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "choose another --out")])
def test_the_systems_refusal_becomes_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=message):
        write_json(tmp_path / "a.json", {})
    assert not (tmp_path / "a.json").exists()


def test_what_cannot_be_read_while_a_file_is_written_is_not_the_files_fault(tmp_path: Path) -> None:
    def rows() -> Iterator[str]:
        yield (tmp_path / "gone").read_text("utf-8")

    with pytest.raises(FileNotFoundError, match="gone"):
        write_jsonl(tmp_path / "rows.jsonl", rows())
    assert not list(tmp_path.iterdir())


def test_what_the_system_does_not_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for read in (read_json, lambda path: list(read_jsonl(path))):
        with pytest.raises(InputError, match=r"cannot be read \(Not a directory\)"):
            read(tmp_path / "file" / "rows")


def test_damaged_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{", "utf-8")
    with pytest.raises(InputError, match=r"bad\.json is not JSON"):
        read_json(tmp_path / "bad.json")
    with pytest.raises(InputError, match="does not exist"):
        read_json(tmp_path / "none.json")


@given(st.lists(st.text(max_size=20), max_size=8), st.integers(0, 60))
def test_a_torn_last_line_is_left_out_and_overwritten(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "rows.jsonl"
    with JsonlAppender(path) as rows:
        rows.append(texts)
    raw = path.read_bytes()
    path.write_bytes(raw[: max(0, len(raw) - cut)])
    remaining = list(read_jsonl(path))
    assert remaining == texts[: len(remaining)]
    with JsonlAppender(path) as rows:
        rows.append(texts[len(remaining) :])
    assert list(read_jsonl(path)) == texts
    assert path.read_bytes() == raw


@pytest.mark.parametrize("torn", [b"", b'{"a": 2', b"x" * 3_000_000])
def test_a_large_file_is_appended_to_without_reading_it(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as handle:
        handle.seek(64 << 20)
        handle.write(b"\n" + torn)
    tracemalloc.start()
    try:
        with JsonlAppender(path) as rows:
            rows.append(["next"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert path.stat().st_size == (64 << 20) + 1 + len(b'"next"\n')


def test_a_disk_that_fills_up_under_appended_rows_is_one_sentence(tmp_path: Path) -> None:
    before, path = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "rows.jsonl"

    def append() -> None:
        with JsonlAppender(path) as rows:
            rows.append(["first"])
            rows.append(["x" * 200])  # less than a buffer, which is flushed again as the file is closed

    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(StorageError, match=r"rows\.jsonl grows beyond the largest file"):
            append()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(read_jsonl(path)) == ["first"]


def test_a_bad_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\nnot json\n{"a": 2}\n', "utf-8")
    with pytest.raises(InputError, match="line 2"):
        list(read_jsonl(tmp_path / "rows.jsonl"))


def test_a_folder_is_claimed_once_and_by_one_kind(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    claim_folder(folder, "run")
    claim_folder(folder, "run")
    assert kind_of_folder(folder) == "run"
    with pytest.raises(FolderError, match="holds a run"):
        claim_folder(folder, "dataset")
    mark_done(folder)
    assert is_done(folder)
    with pytest.raises(FolderError, match="finished run"):
        claim_folder(folder, "run", fresh=True)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(FolderError, match="is a file"):
        claim_folder(tmp_path / "file", "run")


def test_threads_that_claim_a_new_folder_together_all_have_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            list(pool.map(lambda _, at=tmp_path / str(number): claim_folder(at, "run"), range(8)))
    assert {path.name for path in tmp_path.glob("*/*")} == {".coref-automl"}


def test_fingerprints_name_values_and_bytes(tmp_path: Path) -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    for name, text in (("one", "same"), ("two", "same"), ("three", "other")):
        (tmp_path / name).write_text(text, "utf-8")
    assert fingerprint_files([tmp_path / "one"]) == fingerprint_files([tmp_path / "two"])
    assert fingerprint_files([tmp_path / "one"]) != fingerprint_files([tmp_path / "three"])


@pytest.mark.parametrize(
    ("left", "right"), [((b"a\0", b"b"), (b"a", b"\0b")), ((b"a\0b",), (b"a", b"b")), ((b"", b"a"), (b"a", b""))]
)
def test_bytes_that_move_from_one_file_to_the_next_change_the_fingerprint(
    tmp_path: Path, left: tuple[bytes, ...], right: tuple[bytes, ...]
) -> None:
    prints = set()
    for side, stored in (("left", left), ("right", right)):
        (tmp_path / side).mkdir()
        for number, content in enumerate(stored):
            (tmp_path / side / str(number)).write_bytes(content)
        prints.add(fingerprint_files(sorted((tmp_path / side).iterdir())))
    assert len(prints) == 2


def test_short_names_are_unique_names_of_folders() -> None:
    folders = [Path("/kowiki"), Path("/data/kowiki"), Path("/"), Path("../.."), Path("/a-b/c"), Path("/x/b/c"), Path("/a/b/c")]
    names = short_names(folders)
    assert len(set(names.values())) == len(folders)
    assert all(name and "/" not in name and name not in (".", "..") for name in names.values())
    assert names[Path("/kowiki")] == "kowiki"


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["checkpoint-655", "checkpoint-65", "checkpoint-131", "base"]
    assert sorted(names, key=natural_order) == ["base", "checkpoint-65", "checkpoint-131", "checkpoint-655"]
    assert sorted(["run10②", "run9②"], key=natural_order) == ["run9②", "run10②"]
    assert sorted(["a1", "a01"], key=natural_order) == sorted(["a01", "a1"], key=natural_order)  # whatever the folder lists first


def test_a_place_that_cannot_be_written_to_is_refused_by_the_look_ahead_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    finished = tmp_path / "finished"
    claim_folder(finished, "run")
    mark_done(finished)
    for look in (check_folder, claim_folder):
        with pytest.raises(StorageError, match=r"Cannot write \S+sub \(Not a directory\); choose another --out"):
            look(tmp_path / "file" / "new" / "sub", "run")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) not in (tmp_path, finished))
    for look in (check_folder, claim_folder):
        with pytest.raises(StorageError, match=r"Cannot write \S+sub \(Permission denied\); choose another --out"):
            look(tmp_path / "new" / "sub", "run")
        look(finished, "run")
    assert not (tmp_path / "new").exists()
