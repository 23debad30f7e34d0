"""What lies under the folders, and what does not: broken, gone, elsewhere. The studio reads, and never writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coref_automl.base.folders import claim_folder
from coref_automl.cli.app import run as command
from coref_automl.corpus.dataset import KIND as DATASET
from coref_automl.extras.studio import folders
from coref_automl.extras.studio.folders import Folders
from tests.agreement.studies import Method, small, write
from tests.extras.studio.conftest import RUN, Visitor, serving
from tests.extras.studio.test_pages import key, text_of


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def rows_of(visitor: Visitor) -> list[str]:
    """The rows of the leaderboard with all seeds unfolded."""
    return re.findall(r'<th scope="row">.*?</th>', visitor.ready("/", open="all").body, re.S)


def test_an_empty_folder_says_what_it_is(tmp_path: Path) -> None:
    with serving(tmp_path, lang="en") as visitor:
        assert "No evaluation yet" in visitor.get("/").body
        assert "No run and no evaluation yet" in visitor.get("/runs").body
        for path in ("/compare", "/items", "/export"):
            page = visitor.get(path)
            assert page.status == 404
            assert "No finished evaluation" in page.body
        assert visitor.get("/play").status == 200


def test_broken_runs_are_named_with_the_reason_and_the_rest_is_shown(copied: Path) -> None:
    folder = copied / key(copied, "mlm").removeprefix(f"{copied.name}/")
    (folder / "result.json").write_text("{", "utf-8")
    (copied / "runs/relation/re_results.json").write_text("[]", "utf-8")
    with serving(copied, lang="en") as visitor:
        page = text_of(visitor.get("/").body) + text_of(visitor.get("/runs").body)
        assert "is not JSON" in page
        assert "unreadable" in page
        assert RUN in page
        assert visitor.ready("/compare").status == 200


def test_a_run_that_disappears_while_it_is_looked_at_says_so(copied: Path) -> None:
    with serving(copied, lang="en") as visitor:
        asked = {"a": key(copied, RUN), "b": key(copied, "mlm")}
        assert visitor.ready("/compare", **asked).status == 200
        shutil.rmtree(copied / "runs" / RUN)
        visitor.studio.folders.scan()
        for path in ("/compare", "/items"):
            page = visitor.ready(path, **asked)
            assert page.status == 404
            assert "no longer, under the given folders" in text_of(page.body)
        assert RUN not in text_of(visitor.get("/").body)


def test_files_that_vanish_before_they_are_read_end_in_a_sentence(copied: Path) -> None:
    with serving(copied, lang="en") as visitor:
        visitor.studio.folders.stop()  # no further look
        (copied / key(copied, "mlm").removeprefix(f"{copied.name}/") / "items.jsonl").unlink()
        page = visitor.ready("/compare")
        assert page.status == 404
        assert "Traceback" not in page.body


def test_links_out_of_the_folders_are_not_followed(copied: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(copied / "runs/mlm", outside)
    (copied / "runs/mlm").symlink_to(outside)
    inside = copied / "runs" / RUN / "checkpoint-7" / "config.json"
    shutil.move(inside, tmp_path / "config.json")
    inside.symlink_to(tmp_path / "config.json")
    found = Folders([copied]).scan()
    assert not [name for name in (*found.runs, *found.evaluations, *found.models) if "mlm" in name]
    assert not [name for name in found.models if name.endswith(f"{RUN}/checkpoint-7")]
    assert sum("is a link to outside the given folders" in line for line in found.broken) == 2
    before = Folders([copied]).scan()
    (copied / "notes.txt").symlink_to(tmp_path / "config.json")
    found = Folders([copied]).scan()  # a link beside the runs hides none of them
    assert (found.runs, found.evaluations) == (before.runs, before.evaluations)
    assert len(found.broken) == 3


def test_a_set_outside_the_folders_is_not_opened(made: Path) -> None:
    with serving(made / "runs", lang="en") as visitor:
        page = visitor.ready("/items")
        assert page.status == 200
        assert "is not under the given folders, so passages are missing" in page.body
        assert 'class="passage"' not in page.body


def test_a_folder_inside_another_is_shown_once(made: Path) -> None:
    assert list(Folders([made, made / "runs", made]).roots) == [made.name]


def test_an_archive_beside_its_runs_adds_no_model_and_no_relation_run(copied: Path, tmp_path: Path) -> None:
    with serving(copied) as visitor:
        before = {mark: list(members.stored) for mark, members in visitor.studio.workspace.boards.sets().items()}
        listed = rows_of(visitor)
    assert command(["archive", str(copied / "runs"), "--out", str(copied / "kept")]) == 0
    with serving(copied) as visitor:
        assert {mark: list(members.stored) for mark, members in visitor.studio.workspace.boards.sets().items()} == before
        assert rows_of(visitor) == listed
        assert visitor.ready("/compare").status == 200
    assert command(["report", str(copied), "--out", str(tmp_path / "page"), "--lang", "en"]) == 0
    page = (tmp_path / "page/report.md").read_text("utf-8").replace("\\", "")
    assert f"Left out: {copied / 'kept/relation/relation'} repeats relation" in page
    assert page.count("| relation |") == 1


def test_of_several_archives_each_is_a_study_to_choose(tmp_path: Path) -> None:
    names = ("entity", "combined")
    for name in names:
        runs = write(small(methods=(Method(name, (0.5,)),), relation=False), tmp_path / name)
        assert command(["archive", str(runs), "--out", str(tmp_path / "kept" / name)]) == 0
    with serving(tmp_path / "kept") as visitor:
        sets = visitor.studio.workspace.boards.sets()
        assert [members.study for members in sets.values()] == ["kept/combined", "kept/entity", None]
        for mark, members in sets.items():
            page = visitor.ready("/", set=mark, lang="en").body
            shown = [f"{name} 128" in page for name in names]
            assert shown == [members.study in (None, f"kept/{name}") for name in names]


def test_a_dataset_in_preparation_is_on_the_runs_page(tmp_path: Path) -> None:
    claim_folder(tmp_path / "web", DATASET)
    with serving(tmp_path) as visitor:
        page = text_of(visitor.ready("/runs", lang="en").body)
    assert "Datasets in preparation" in page
    assert "fingerprint inputs: 0/0" in page
    assert "Stopped: the same command resumes it." in page


def test_nothing_is_written_into_the_folders(copied: Path) -> None:
    before = state_of(copied)
    with serving(copied) as visitor:
        for path in ("/", "/compare", "/items", "/runs", "/chains", "/play", "/export"):
            assert visitor.ready(path).status == 200
    assert state_of(copied) == before


def test_a_prepared_dataset_is_not_taken_for_an_evaluation_set(tmp_path: Path) -> None:
    texts, out = ["--source", "bundled:synthetic-short", "--limit", "8"], str(tmp_path / "dataset")
    assert command(["prepare", "mlm", *texts, "--model", "bundled:ko-mini", "--seq-len", "64", "--out", out]) == 0
    found = Folders([tmp_path]).scan()
    assert (found.sets, found.broken) == ({}, [])


def test_odd_names_and_links_that_lead_back_to_themselves_hide_nothing(copied: Path) -> None:
    (copied / "runs/entity1②").mkdir()
    (copied / "runs/circle").symlink_to("circle")
    (copied / "runs/mlm/circle").symlink_to("circle")
    with serving(copied, lang="en") as visitor:
        page = visitor.get("/")
        assert page.status == 200
        assert f"{copied.name}/runs/mlm" in visitor.studio.folders.contents().runs
        assert visitor.ready("/compare").status == 200


def test_a_name_that_is_not_utf_8_is_told_of_and_hides_nothing(copied: Path, tmp_path: Path) -> None:
    odd = copied / "runs" / os.fsdecode("한글".encode("cp949"))
    shutil.copytree(copied / "runs/mlm", odd)
    shutil.copytree(copied / "runs/relation", odd / "relation")
    told = "\ufffd is not UTF-8, so it cannot be shown; rename it."
    with serving(copied, lang="en") as visitor:
        for path in ("/", "/compare", "/items", "/play", "/export"):
            assert visitor.ready(path).status == 200
        assert told in text_of(visitor.get("/").body)
    assert command(["report", str(copied), "--out", str(tmp_path / "page"), "--lang", "en"]) == 0
    assert "is not UTF-8" in (tmp_path / "page/report.md").read_text("utf-8")


def test_a_report_of_nothing_but_a_name_that_is_not_utf_8_says_so(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / "alone").mkdir()
    (copied / "runs/mlm").rename(copied / "alone" / os.fsdecode("한글".encode("cp949")))
    capsys.readouterr()
    assert command(["report", str(copied / "alone"), "--out", str(tmp_path / "page")]) == 2
    assert "is not UTF-8, so it cannot be shown; rename it." in capsys.readouterr().err


def test_a_folder_that_cannot_be_looked_at_is_named_and_the_watch_goes_on(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_SCAN_SECONDS", 0.05)
    plain, broken = folders.kind_of_folder, copied / "runs/mlm"

    def read(folder: Path) -> str:
        if folder == broken:
            raise ValueError("out of the blue")
        return plain(folder)

    with serving(copied, lang="en") as visitor:
        monkeypatch.setattr(folders, "kind_of_folder", read)
        assert _sees(
            visitor.studio.folders, lambda found: f"{broken} cannot be read (ValueError: out of the blue)." in found.broken
        )
        assert f"{copied.name}/runs/{RUN}" in visitor.studio.folders.contents().runs
        monkeypatch.setattr(folders, "kind_of_folder", plain)
        (copied / "runs/new").mkdir()
        (copied / "runs/new/.coref-automl").write_text("run", "utf-8")
        assert _sees(visitor.studio.folders, lambda found: f"{copied.name}/runs/new" in found.runs and not found.broken)


def _sees(looking: Folders, what: Callable[[folders.FolderContents], bool]) -> bool:
    until = time.monotonic() + 30
    while not what(looking.contents()) and time.monotonic() < until:
        time.sleep(0.02)
    return what(looking.contents())


def test_the_items_of_a_study_are_exported_under_a_name_that_headers_may_hold(tmp_path: Path) -> None:
    for name in ("하나", "둘"):
        runs = write(small(methods=(Method("entity", (0.5,)),), tasks=("real", "new"), relation=False), tmp_path / name)
        assert command(["archive", str(runs), "--out", str(tmp_path / "kept" / name)]) == 0
    with serving(tmp_path / "kept") as visitor:
        mark, members = next(iter(visitor.studio.workspace.boards.sets().items()))
        a, b = [key for key, stored in members.stored.items() if stored.evaluation.provenance][:2]
        exported = visitor.ready("/items", **{"set": mark, "a": a, "b": b, "as": "json"})
    assert exported.headers["content-disposition"].isascii()
    told = {(row["task"], row["a right"] == "right", row["a rank"] == 1) for row in json.loads(exported.body)}
    assert told == {(task, right, right) for task in ("real", "new") for right in (True, False)}


def test_texts_are_shown_once_their_set_lies_under_the_folders(copied: Path) -> None:
    (copied / "evalsets").rename(copied.parent / "aside")
    with serving(copied, lang="en") as visitor:
        assert "passages are missing" in text_of(visitor.ready("/items").body)
        (copied.parent / "aside").rename(copied / "evalsets")
        visitor.studio.folders.scan()
        assert "passages are missing" not in text_of(visitor.ready("/items").body)
