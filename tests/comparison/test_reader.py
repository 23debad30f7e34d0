"""The reader of results: what lies behind paths is found, told apart and opened once a command."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.reader import find_runs, open_results
from coref_automl.extras.coreference.results import COREFERENCE_FILES
from tests.agreement.studies import draw, small, write
from tests.comparison.conftest import Maker, Model, write_relation_run

RESULTS = ("result.json", "re_results.json", "rows.npz", "coref_results.json", "documents.npz")
_opened: Counter[str] | None = None


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb"):
        _opened[os.path.realpath(arguments[0])] += 1


sys.addaudithook(_hear)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """How often each file of results is opened to be read."""
    global _opened
    heard = _opened = Counter()
    try:
        yield heard
    finally:
        _opened = None
        for path in [path for path in heard if Path(path).name not in RESULTS]:
            del heard[path]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of methods and their base, relation and coreference runs from them. Read only."""
    plans = (draw(seed, light=True) for seed in range(200))
    plan = next(plan for plan in plans if plan.relation and plan.coreference and plan.base == "evaluated" and plan.seeds > 1)
    return write(plan, tmp_path_factory.mktemp("study"))


@pytest.mark.parametrize("name", ["compare", "report", "archive"])
def test_a_command_opens_each_result_once(study: Path, tmp_path: Path, name: str) -> None:
    out = [] if name == "compare" else ["--out", str(tmp_path / "out")]
    wanted = {str(path) for kind in RESULTS for path in study.rglob(kind)}
    with counting() as opened:
        assert command([name, str(study), *out]) == 0
    assert wanted <= set(opened)
    assert {path: times for path, times in opened.items() if path in wanted and times != 1} == {}


def test_a_base_beside_several_checkpoints_is_opened_once(evaluated: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    root = evaluated([Model("base", 0, -1.0), *(Model(f"run-{n}", 100 * step, 0.5) for n in range(2) for step in (1, 2))])
    monkeypatch.chdir(root)
    with counting() as opened:
        results = open_results(["run-0", "run-1"])
        assert len(results.counted()) == 5
        assert results.check_evaluated() == []
    assert set(opened.values()) == {1}
    assert len(opened) == 5


def test_paths_are_told_apart(study: Path, tmp_path: Path) -> None:
    write_relation_run(tmp_path / "re")
    (tmp_path / "none").mkdir()
    results = open_results([str(study), str(tmp_path / "re"), str(tmp_path / "none")])
    assert results.check_evaluated() == [str(tmp_path / "none")]
    assert results.checked_under(str(tmp_path / "re")) == []
    assert len(results.runs.checks["relation"]) == len(list(study.rglob("re_results.json"))) + 1
    assert len(results.runs.checks["coreference"]) == len(list(study.rglob("coref_results.json")))


def test_a_run_without_its_facts_is_named_and_one_of_other_seeds_too(study: Path, tmp_path: Path) -> None:
    run = find_runs([str(study)]).checks["coreference"][0]
    COREFERENCE_FILES.archive([run], tmp_path)
    folder = tmp_path / "coreference" / run.name
    (folder / "documents.npz").rename(folder / "aside.npz")
    (error,) = find_runs([str(tmp_path)]).unread
    assert f"{folder} has no documents.npz" in error
    (folder / "aside.npz").rename(folder / "documents.npz")
    text = (folder / "coref_results.json").read_text("utf-8")
    (folder / "coref_results.json").write_text(text.replace('"seeds": [', '"seeds": [], "more": [', 1), "utf-8")
    (error,) = find_runs([str(tmp_path)]).unread
    assert "unknown key 'more'" in error


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", ["compare", "report", "archive"])
def test_a_path_with_a_damaged_run_alone_is_told_by_its_damage(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, beside: bool
) -> None:
    write_relation_run(tmp_path / "re")
    (tmp_path / "re" / "rows.npz").unlink()
    out = [] if name == "compare" else ["--out", str(tmp_path / "out")]
    status = 0 if name == "report" and beside else 2  # a report goes on without it, and says so
    assert command([name, *([str(study)] if beside else []), str(tmp_path / "re"), *out]) == status
    text = capsys.readouterr().err if status else (tmp_path / "out" / "report.md").read_text("utf-8")
    assert f"{tmp_path / 're'} has no rows.npz" in text
    assert f"evaluate {tmp_path / 're'}" not in text


def test_a_file_is_not_sent_to_evaluate_which_takes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert command(["compare", str(tmp_path / "empty.jsonl")]) == 2
    told = capsys.readouterr().err
    assert "empty.jsonl is a file" in told
    assert "coref-automl evaluate" not in told


def test_paths_that_this_user_may_not_look_at_are_paths_that_are_gone(tmp_path: Path) -> None:
    """Evaluations that came from another home: a name that is too long raises where a closed folder does."""
    closed, runs = "/closed/" + 300 * "a", write(small(gone=True, relation=False), tmp_path / "runs")
    for file in runs.rglob("result.json"):
        result = read_json(file)
        if provenance := result.get("provenance"):
            provenance |= {"base": f"{closed}/base", "dataset": f"{closed}/data"}
        write_json(file, result | {"path": f"{closed}/{result['path']}" if provenance else f"{closed}/base"})
    for line in ("compare {}", "report {} --out {}/report", "archive {} --out {}/kept", "power {}"):
        assert command(line.format(runs, tmp_path).split()) == 0, line
