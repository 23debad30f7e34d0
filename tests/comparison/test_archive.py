"""An archive holds no text and gives every number, half, draw and verdict of the evaluations it came from."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.errors import CorefError, FolderError, InputError
from coref_automl.base.records import Evaluation, ItemScore, Provenance
from coref_automl.base.store import read_json, write_json, write_jsonl
from coref_automl.comparison.archive import archive, without_paths
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.evaluation.metrics import GROUPINGS, breakdown, halves, summarise_all
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.report.printout import compare, recommend
from tests.comparison.conftest import WORDS, Maker, Model, write_relation_run


@pytest.fixture(scope="module")
def kept(study_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "archive"
    archive(study_source, out=out)
    return out


def by_name(root: Path) -> dict[tuple[str, int], tuple[Evaluation, list[ItemScore]]]:
    evaluations = find_evaluations([root])
    return {(each.evaluation.checkpoint, each.evaluation.seq_len): (each.evaluation, each.scores()) for each in evaluations}


def test_every_metric_and_breakdown_is_the_same(study_source: Path, kept: Path) -> None:
    before, after = by_name(study_source), by_name(kept)
    assert list(before) == list(after)
    assert len(before) == 8
    for name, (evaluation, scores) in before.items():
        archived, others = after[name]
        assert archived.estimates == evaluation.estimates
        assert archived.baselines == evaluation.baselines
        assert summarise_all([others], draws=300)[0] == summarise_all([scores], draws=300)[0]
        assert halves(others) == halves(scores)
        for by in GROUPINGS:
            assert breakdown(others, "real_far1", by, draws=50) == breakdown(scores, "real_far1", by, draws=50)


@pytest.mark.parametrize("metric", [None, "score", "real_far1"])
def test_every_comparison_and_recommendation_is_the_same(study_source: Path, kept: Path, metric: str | None) -> None:
    def plain(value: object) -> str:
        return json.dumps(value, sort_keys=True).replace(str(study_source), "ROOT").replace("runs/", "ROOT/")

    before, after = (compare(root, metric=metric).to_json() for root in (study_source, kept))
    for table in (before, after):
        for line in table["rows"]:
            line.pop("path")
    assert before == after
    first, second = (recommend(root, metric=metric).to_json() | {"keep": None, "against": None} for root in (study_source, kept))
    assert plain(first) == plain(second)


def test_halves_and_documents_are_kept_item_by_item(study_source: Path, kept: Path) -> None:
    (before,), (after,) = read_groups(open_results([str(study_source)])), read_groups(open_results([str(kept)]))
    assert before.items.index == after.items.index
    assert before.items.halves.tolist() == after.items.halves.tolist()
    for task in ("real", "new"):
        rows = before.items.facts["task"] == task
        codes = [np.unique(group.items.facts["cluster"][rows], return_inverse=True)[1].tolist() for group in (before, after)]
        assert codes[0] == codes[1]
    for entry, other in zip(before.entries, after.entries, strict=True):
        assert np.array_equal(entry.ranks, other.ranks)


def test_no_text_and_no_path_of_the_machine_is_kept(study_source: Path, kept: Path) -> None:
    text = b""
    for path in sorted(kept.rglob("*")):
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                text += b"".join(repr(arrays[name].tolist()).encode() for name in arrays.files)
        elif path.is_file():
            text += path.read_bytes()
    for word in (*WORDS, "그날", str(study_source), str(study_source.parent)):
        assert word.encode() not in text
    assert not list(kept.rglob("items.jsonl"))


def test_paths_become_names() -> None:
    evaluation = by_evaluation(path="/else/runs/a/checkpoint-5", base="/else/runs/b/checkpoint-9", dataset="/else/data/x")
    plain = without_paths(evaluation)
    assert plain.path == "runs/a/checkpoint-5"
    assert plain.evalset_path == ""
    assert plain.provenance is not None
    assert (plain.provenance.run, plain.provenance.base, plain.provenance.dataset) == ("a", "runs/b/checkpoint-9", "x")
    hub = without_paths(by_evaluation(path="runs/a/checkpoint-5", base="klue/roberta-base", dataset="prepared_datasets/x"))
    assert hub.provenance is not None
    assert (hub.path, hub.provenance.base) == ("runs/a/checkpoint-5", "klue/roberta-base")
    assert hub.provenance.dataset == "prepared_datasets/x"


def by_evaluation(*, path: str, base: str, dataset: str) -> Evaluation:
    provenance = Provenance("/else/runs/a", 5, 0.5, 1000, "mlm", base, 128, 0, dataset)
    return Evaluation(
        "a/checkpoint-5",
        path,
        "set",
        128,
        "float32",
        "1",
        "2026-01-01",
        1.0,
        {"items": "i"},
        {},
        {},
        {},
        0.9,
        0,
        provenance,
        "/else/set",
    )


def test_an_archive_of_an_archive_is_the_same_bytes(kept: Path, tmp_path: Path) -> None:
    archive(kept, out=tmp_path / "again")
    files = sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file())
    assert all((kept / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in files)


def test_an_evaluation_cut_short_keeps_its_rows(study_folder: Path, tmp_path: Path) -> None:
    path = next(study_folder.rglob("checkpoint-195/items.jsonl"))
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    write_jsonl(path, [{**row, "pieces": 3} for row in rows[5:90]])
    archive(study_folder, out=tmp_path / "out")
    before, after = by_name(study_folder), by_name(tmp_path / "out")
    for name, (_, scores) in before.items():
        numbers = [replace(score, cluster="", answer="", top=()) for score in scores]
        assert [replace(score, cluster="", answer="", top=()) for score in after[name][1]] == numbers


def test_an_archive_made_again_is_read_again(evaluated: Maker, tmp_path: Path) -> None:
    """A long process, as the studio is, reads both."""
    root = evaluated([Model("run", 100, 0.5)])
    (path,) = root.rglob("items.jsonl")
    whole = path.read_text("utf-8").splitlines(keepends=True)
    for lines in (whole[5:90], whole):
        path.write_text("".join(lines), "utf-8")
        archive(root, out=tmp_path / "kept")
        (stored,) = find_evaluations([tmp_path / "kept"])
        assert [score.item for score in stored.scores()] == [json.loads(line)["item"] for line in lines]


def test_making_it_again_leaves_nothing_of_before(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, -1), Model("run", 100, 0.5), Model("run", 200, 0.6)])
    archive(root, out=tmp_path / "kept")
    shutil.rmtree(root / "run" / "evaluations" / "a-128" / "checkpoint-100")
    kept = archive(root / "run", root / "evaluations", out=tmp_path / "kept")
    assert kept.evaluations == 2
    assert len(find_evaluations([tmp_path / "kept"])) == 2


def test_an_archive_that_stands_survives_a_kill(
    kept: Path, study_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    out = shutil.copytree(kept, tmp_path / "archive")
    monkeypatch.setattr("coref_automl.comparison.archive.without_paths", killed)
    with pytest.raises(KeyboardInterrupt):
        archive(study_source, out=out)
    assert list(by_name(out)) == list(by_name(kept))


def test_a_killed_archive_is_not_read_as_a_whole_one(evaluated: Maker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Killed before each change of the disk: the earlier archive stands, or the new one, or it is refused in a sentence."""
    place = tmp_path_factory.mktemp("killed")
    root = evaluated([Model("run", 100, 0.5), Model("run", 200, 0.6)], documents=4)
    write_relation_run(root / "relation")
    whole, seen = contents_of(Path(archive(root, out=place / "whole").folder)), set()
    earlier = Path(archive(root / "run" / "checkpoint-100", out=place / "earlier").folder)
    for stands in (place / "nothing", earlier):
        home = place / f"{stands.name} before"
        home.mkdir()
        if stands.is_dir():
            shutil.copytree(stands, home / "out")
        left = before_each_change(lambda home=home: archive(root, out=home / "out"), home, place / f"{stands.name} killed")
        assert len(left) > 20
        for out in (one / "out" for one in left):
            contents = contents_of(out)
            if contents == [f"{out} was not archived to the end; run the same command again."]:
                seen.add("refused")
            else:
                assert contents in (contents_of(stands), whole)
                seen.add("whole" if contents == whole else "earlier")
            archive(root, out=out)
            assert contents_of(out) == whole
            assert {path.name for path in out.glob(".*")} == {".coref-automl"}
    assert seen == {"earlier", "whole", "refused"}


def contents_of(folder: Path) -> list[str]:
    """What `compare` finds there, or why it reads nothing."""
    if not folder.is_dir():
        return []
    results = open_results([str(folder)])
    names = [*(stored.evaluation.checkpoint for stored in results.everything), *(run.name for run in results.runs.all)]
    return list(results.runs.unread) or sorted(names)


def before_each_change(work: Callable[[], object], folder: Path, into: Path) -> list[Path]:
    """What a process killed before each of its changes of the disk would leave of a folder."""
    into.mkdir()
    looking = [False]

    def changes(event: str, given: tuple[object, ...]) -> None:
        written = event == "open" and isinstance(given[2], int) and given[2] & os.O_CREAT
        if (written or event in ("os.rename", "os.remove", "os.rmdir")) and not looking[0]:
            looking[0] = True
            shutil.copytree(folder, into / f"{len(list(into.iterdir())):03d}")
            looking[0] = False

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            sys.addaudithook(changes)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    return sorted(into.iterdir())


def test_an_archive_is_not_emptied_of_what_is_not_written_again(evaluated: Maker, tmp_path: Path) -> None:
    root, kept = evaluated([Model("base", 0, -1), Model("a", 100, 0.5), Model("b", 100, 0.6)]), tmp_path / "kept"
    write_relation_run(tmp_path / "re" / "re-a")
    everything = [root / "a", root / "b", root / "evaluations", tmp_path / "re"]
    archive(everything, out=kept)
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    for left_out, name in ((1, "b"), (2, "base"), (3, "re-a")):
        with pytest.raises(InputError, match=f"kept also holds {name}; pass them too, or choose another --out"):
            archive([path for number, path in enumerate(everything) if number != left_out], out=kept)
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before
    assert archive(everything, out=kept).evaluations == 3
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before


def test_a_path_without_evaluations_is_named_and_a_relation_run_is_not(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("run", 100, 0.5)])
    (tmp_path / "other").mkdir()
    write_relation_run(tmp_path / "re")
    kept = archive(root / "run", tmp_path / "other", tmp_path / "re", out=tmp_path / "kept")
    assert kept.not_evaluated == (str(tmp_path / "other"),)
    assert f"run: coref-automl evaluate {tmp_path / 'other'}" in str(kept)
    assert "evaluate" not in str(archive(root / "run", tmp_path / "re", out=tmp_path / "kept"))


def test_runs_of_one_name_and_foreign_folders_are_refused(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("run", 100, 0.5)])
    other = shutil.copytree(root / "run", tmp_path / "elsewhere" / "run") / "evaluations/a-128/checkpoint-100/result.json"
    assert archive(root / "run", tmp_path / "elsewhere", out=tmp_path / "kept").evaluations == 1
    record = read_json(other)
    write_json(other, record | {"fingerprints": record["fingerprints"] | {"weights": "others"}})
    with pytest.raises(InputError, match="same name"):
        archive(root / "run", tmp_path / "elsewhere", out=tmp_path / "kept")
    with pytest.raises(FolderError):
        archive(root / "run", out=tmp_path / "elsewhere")
    with pytest.raises(CorefError, match="nothing does not exist"):
        archive(tmp_path / "nothing", out=tmp_path / "kept")


def test_an_archive_is_never_written_over_what_it_reads(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("run", 100, 0.5)])
    archive(root / "run", out=tmp_path / "kept")
    with pytest.raises(InputError, match="choose another --out"):
        archive(tmp_path / "kept", out=tmp_path / "kept")
    assert len(find_evaluations([tmp_path / "kept"])) == 1


def test_the_base_model_is_kept_with_its_checkpoints_and_no_other_is_taken_for_it(
    evaluated: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = evaluated([Model("base", 0, -1), Model("run", 100, 0.5), Model("run", 200, 0.6)])
    monkeypatch.chdir(root)
    assert archive("run", out="kept").evaluations == 3
    assert compare("kept").reference == "base"
    monkeypatch.chdir(tmp_path.parent)
    assert compare(root / "kept").reference == "base"
    monkeypatch.chdir(root)
    shutil.rmtree(root / "kept" / "evaluations")
    assert "base" not in {line.name for line in compare("kept").rows}


def test_a_lost_items_file_is_one_sentence(kept: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(kept, tmp_path / "copy")
    next(copy.glob("items-*.npz")).unlink()
    with pytest.raises(InputError, match="make the archive again"):
        compare(copy)


def test_scored_again_an_archive_is_not_taken_for_items(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("run", 100, 0.5)])
    archive(root / "run", out=tmp_path / "kept")
    (stored,) = find_evaluations([tmp_path / "kept"])
    assert stored.archived
    assert not find_evaluations([root / "run"])[0].archived
    assert read_json(stored.folder / "result.json")["checkpoint"] == "run/checkpoint-100"


def test_a_report_of_an_archive_says_the_same_without_the_items(study_source: Path, kept: Path, tmp_path: Path) -> None:
    before, after = (report(root, tmp_path / root.name, lang="en") for root in (study_source, kept))
    texts = [Path(written.markdown).read_text("utf-8").replace(f"{study_source}/", "runs/") for written in (before, after)]
    # an archive has no weights
    gone = r"coref-automl evaluate runs/plan.*|\*\*(?:Keep|Next|Make again):.*|, on this disk|, not on this disk"
    strip = [re.sub(gone, "", text) for text in texts]
    assert strip[0] == strip[1]
    page = Path(after.page).read_text("utf-8")
    assert 'id="items"' not in page
    assert not any(word in page for word in WORDS)
