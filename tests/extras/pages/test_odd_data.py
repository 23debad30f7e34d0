"""Data that hardly say anything: compare and report answer, or refuse in a sentence, and never print a NaN."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.records import ItemScore
from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.extras.pages import charts
from tests.comparison.conftest import Model, make_scores, write_evaluation

SKILLS = {"mlm": -0.6, "entity": 0.6}
Change = Callable[[ItemScore], ItemScore]


def write(root: Path, change: Change, *, seeds: dict[str, Sequence[int]] | None = None, copies: bool = False) -> Path:
    """A base and two methods of three seeds with a curve each, every item changed alike for all."""
    models = [Model("base", 0, -1.0)]
    for objective, skill in SKILLS.items():
        for seed in (seeds or {}).get(objective, range(3)):
            models += [
                Model(f"{objective}-s{seed}", step, skill - 0.3 * (step < 200), objective=objective, seed=seed)
                for step in (100, 200)
            ]
    for number, model in enumerate(models):
        luck = 10 * model.step + len(model.objective) if copies else number
        scores = make_scores(model, documents=40, tasks=("real", "new", "lambada"), own=luck)
        write_evaluation(root, model, [change(score) for score in scores])
    return root


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What compare, compare --json and report say of a folder, all of it."""
    monkeypatch.setattr(charts, "runtime", lambda: None)

    def make(root: Path, *, compared: int = 0, langs: Sequence[str] = ("en",)) -> str:
        assert command(["compare", str(root)]) == compared
        assert command(["compare", str(root), "--json"]) == compared
        for lang in langs:
            assert command(["report", str(root), "--out", str(tmp_path / lang), "--lang", lang]) == 0
        pages = [(tmp_path / lang / name).read_text("utf-8") for lang in langs for name in ("report.md", "results.csv")]
        out = "\n".join([*capsys.readouterr(), *pages])
        assert not re.search(r"(?<![A-Za-z])(?:nan|NaN|-?inf|Infinity)(?![A-Za-z])", out)
        return out

    return make


def answer(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert command(["compare", str(root), "--json", *more]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)["answer"]
    return answer


def _gain(answer: dict[str, Any]) -> dict[str, Any]:
    return next(question["lead"] for question in answer["questions"] if question["id"] == "base")


def test_one_document_shows_nothing(tmp_path: Path, said: Callable[..., str]) -> None:
    page = said(write(tmp_path / "runs", lambda score: replace(score, cluster="alone")), compared=2, langs=("ko", "en"))
    assert "The confirm half has no item that all of these share, so nothing can be compared on Noun@1." in page
    assert "Undecided" in page
    assert "one document" in page
    assert "Use " not in page


def test_a_fall_without_a_document_to_confirm_it_is_not_judged(tmp_path: Path, said: Callable[..., str]) -> None:
    """The peak comes before the end: no sentence may say that the last checkpoint is the highest."""
    root = tmp_path / "runs"
    for number, model in enumerate([Model("base", 0, -1.0), Model("run", 100, 2.0), Model("run", 200, -1.0)]):
        scores = make_scores(model, documents=40, tasks=("real",), own=number)
        write_evaluation(root, model, [replace(score, cluster="alone") for score in scores])
    page = said(root, compared=2, langs=("ko", "en"))
    assert not re.search("highest at its end|the last is the peak|Still rising|마지막이 정점|마지막이 가장 높", page)


def test_one_document_that_holds_half_of_all_items_is_no_crowd(
    tmp_path: Path, said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of all items are one document where they are one document's, however many hits it has."""
    spread = write(tmp_path / "spread", lambda score: score)
    lumped = write(
        tmp_path / "lumped",
        lambda score: replace(score, cluster="large") if int(score.item.split("-")[2]) < 25 else score,
    )
    said(lumped)
    even, one = (answer(root, capsys, "--metric", "real1") for root in (spread, lumped))
    assert even["action"] == "use method"
    assert _gain(one)["count"] <= _gain(even)["count"] / 2 + 1


def test_runs_that_are_copies_show_nothing_about_a_method(tmp_path: Path, said: Callable[..., str]) -> None:
    page = said(write(tmp_path / "runs", lambda score: score, copies=True))
    assert "not judged (the runs are copies of each other)" in page.split("## Which method?")[1].split("\n## ")[0]


def test_seeds_that_do_not_match_are_crossed_all_the_same(tmp_path: Path, said: Callable[..., str]) -> None:
    page = said(write(tmp_path / "runs", lambda score: score, seeds={"mlm": (5, 6, 7), "entity": (0, 1)}))
    assert "| entity 128 | mlm 128 | 2 / 3 |" in page.split("## Which method?")[1].split("\n## ")[0]


@pytest.mark.parametrize("rank", [1, 50])
def test_all_hits_or_none_are_the_same_on_every_item(tmp_path: Path, said: Callable[..., str], rank: int) -> None:
    page = said(write(tmp_path / "runs", lambda score: replace(score, rank=rank)))
    assert "Keep the base: nothing here is shown to beat it" in page
    assert "the same on every item" in page


def test_an_outcome_that_some_items_lack_is_judged_on_the_others(
    tmp_path: Path, said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A part of the items is not counted: the rest is judged."""
    root = write(tmp_path / "runs", lambda score: replace(score, rank=0) if score.item.endswith("-1") else score)
    said(root)
    assert command(["compare", str(root), "--metric", "Real@1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][1]["comparison"]["difference"]["n"] > 10


def test_items_that_one_evaluation_lacks_are_refused_or_left_out_by_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "runs", lambda score: score)
    path = next(root.glob("entity-s1/evaluations/*/checkpoint-200/items.jsonl"))
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:-30]), "utf-8")
    assert command(["compare", str(root), "--metric", "lambada_top1"]) == 2
    assert "items are missing from some of these evaluations" in capsys.readouterr().err
    assert command(["compare", str(root), "--metric", "lambada_top1", "--common"]) == 0
    assert "left out)" in capsys.readouterr().out


@pytest.mark.parametrize("skills", [(-0.4, 0.6), (0.6, -0.4), (0.5, 0.5)])
def test_steps_are_never_told_as_tokens(tmp_path: Path, said: Callable[..., str], skills: tuple[float, ...]) -> None:
    """Checkpoints without a training record: how long they were trained is not known, and nothing is said of it."""
    root = tmp_path / "runs"
    models = [Model("base", 0, -1.0), *(Model("run", step, skill) for step, skill in enumerate(skills, 1))]
    for number, model in enumerate(models):
        result = write_evaluation(root, model, make_scores(model, documents=60, own=number)) / "result.json"
        write_json(result, read_json(result) | {"provenance": None})
    page = said(root, langs=("ko", "en"))
    assert not re.search(r"(?<!\d)(?:[12]|–) (?:tokens|토큰)|points/M|점/백만", page)
    assert page.count("| tokens not recorded |") == page.count("| 학습 토큰 기록 없음 |") == 1
