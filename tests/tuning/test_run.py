"""A whole study of tiny models: what it leaves behind can be used as it is, and nothing is computed twice."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.config import read_recipe, read_yaml
from coref_automl.engine.job import Job
from coref_automl.errors import FolderError, InputsChanged, TuningError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.results import find_evaluations
from coref_automl.report.tuning_page import write_study_page
from coref_automl.statistics.intervals import difference_intervals
from coref_automl.statistics.resampling import Part
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.setup import prepare_run
from coref_automl.tuning.halves import clusters_of, decode_hits, encode_hits
from coref_automl.tuning.recipe import Texts, TuneRecipe
from coref_automl.tuning.run import StudyResult, run_study
from tests.tuning.conftest import World
from tests.tuning.inline import Ended, InlineLauncher


@pytest.fixture(scope="module")
def finished(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[TuneRecipe, StudyResult, InlineLauncher]:
    recipe = world.recipe(tmp_path_factory.mktemp("studies") / "study")
    launcher = InlineLauncher()
    return recipe, run_study(recipe, launcher=launcher, wait=lambda: None, draw=write_study_page), launcher


@pytest.mark.journey
def test_a_study_ends_with_a_sentence_a_recipe_weights_and_a_page(
    finished: tuple[TuneRecipe, StudyResult, InlineLauncher],
) -> None:
    recipe, result, _ = finished
    out = Path(recipe.out)
    assert sum(result.trials.values()) == 3
    assert result.final is not None
    assert "recommended settings" in result.sentence
    assert result.sentence in (out / "study.html").read_text("utf-8").replace("&#39;", "'")
    best = read_recipe(out / "best-recipe.yaml", TrainRecipe)
    assert {name: getattr(best, name) for name in result.final.winner.params} == result.final.winner.params
    assert prepare_run(best).last > 0
    from coref_automl.models.load import load_masked_lm

    assert load_masked_lm(str(out / "best-model")).seq_len == 16
    assert not list((out / "best-model").glob("optimizer*"))


def test_trials_see_the_select_half_alone_and_finalists_are_judged_on_the_other(
    finished: tuple[TuneRecipe, StudyResult, InlineLauncher],
) -> None:
    recipe, result, launcher = finished
    out = Path(recipe.out)
    whole = EvalSet.open(str(recipe.eval_set)).halves
    for half in ("select", "confirm"):
        items = EvalSet.open(out / "evalsets" / half).items["real"]
        assert items
        assert {whole[item.cluster] for item in items} == {half}
    trials = [job for job in launcher.jobs if job.confirm is None]
    assert all(Path(job.recipe["eval_set"]).name == "select" for job in trials)
    assert result.final is not None
    assert all(len(one.select) == recipe.seeds for one in result.final.finalists)
    assert len(result.final.winner.confirm) == recipe.seeds


def test_a_stopped_study_goes_on_with_its_new_seeds_and_trains_nothing_twice(recipe: Callable[..., TuneRecipe]) -> None:
    wanted = recipe(trials=1, seeds=1, epochs=1)
    with pytest.raises(KeyboardInterrupt):
        run_study(wanted, launcher=StoppedAt(1), wait=lambda: None)
    assert len(before := checkpoints(wanted)) == 1
    launcher = InlineLauncher()
    result = run_study(wanted, launcher=launcher, wait=lambda: None)
    assert {run: checkpoints(wanted)[run] for run in before} == before
    assert len(checkpoints(wanted)) == 2
    assert [job.recipe["seed"] for job in launcher.jobs] == [0, 1]
    assert result.final is not None
    assert result.final.winner.number == result.final.reference
    assert result.final.winner.judging_seeds == (1,)


class StoppedAt(InlineLauncher):
    """A person who stops the study at its first run with a certain seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def start(self, job: Job, slot: int) -> Ended:
        if job.recipe["seed"] == self.seed:
            raise KeyboardInterrupt
        return super().start(job, slot)


def checkpoints(recipe: TuneRecipe) -> dict[Path, int]:
    """When the last checkpoint of each run of a study was written."""
    found = Path(recipe.out).glob("trials/*/run-*/checkpoint-*/training.json")
    last: dict[Path, int] = {}
    for path in found:
        run = path.parent.parent
        last[run] = max(last.get(run, 0), path.stat().st_mtime_ns)
    return last


@pytest.mark.journey
def test_the_verdict_on_a_composite_is_of_new_runs_and_resamples_each_task_by_its_own_documents(
    world: World, tmp_path: Path
) -> None:
    recipe = world.recipe(
        tmp_path / "study", eval_set=str(world.two_tasks), metric="score", trials=2, finalists=2, epochs=1,
        space={"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
    )  # fmt: skip
    launcher = InlineLauncher()
    result = run_study(recipe, launcher=launcher, wait=lambda: None)
    assert result.final is not None
    winner, verdict = result.final.winner, result.final.verdict
    assert verdict is not None
    assert result.final.choosing_seeds == (0, 1)
    assert winner.judging_seeds == (2, 3)
    confirm = EvalSet.open(Path(recipe.out) / "evalsets" / "confirm")
    clusters = clusters_of(confirm, "score")
    sides: dict[float, list[Any]] = {}
    for job in (job for job in launcher.jobs if job.recipe["seed"] in winner.judging_seeds):
        held = [one for one in find_evaluations([job.run]) if one.evaluation.fingerprints["items"] == confirm.fingerprint]
        sides.setdefault(job.recipe["learning_rate"], []).append(decode_hits(encode_hits(held[-1].scores(), "score")))
    means = {rate: [np.mean(task, axis=0) for task in zip(*runs, strict=True)] for rate, runs in sides.items()}
    ours = means.pop(winner.params["learning_rate"])
    (theirs,) = means.values()
    parts = [Part(a - b, marks) for a, b, marks in zip(ours, theirs, clusters, strict=True)]
    assert len(parts) == 2
    (expected,) = difference_intervals(parts, seed=recipe.seed)
    assert verdict.over_documents.to_json() == pytest.approx(expected.to_json())
    assert winner.confirmed == pytest.approx(sum(task.mean() for task in ours))


def test_the_same_command_again_trains_nothing(finished: tuple[TuneRecipe, StudyResult, InlineLauncher]) -> None:
    recipe, result, _ = finished
    runs = "trials/*/run-*/checkpoint-*/training.json"
    before = {path: path.stat().st_mtime_ns for path in Path(recipe.out).glob(runs)}
    launcher = InlineLauncher()
    again = run_study(recipe, launcher=launcher, wait=lambda: None, draw=write_study_page)
    assert again.to_json() == result.to_json()
    assert all(job.confirm is not None for job in launcher.jobs)
    assert {path: path.stat().st_mtime_ns for path in Path(recipe.out).glob(runs)} == before


@pytest.mark.journey
def test_a_trial_that_gave_up_its_weights_can_still_become_a_finalist(
    finished: tuple[TuneRecipe, StudyResult, InlineLauncher],
) -> None:
    recipe, first, _ = finished
    wider = run_study(replace(recipe, finalists=3), launcher=InlineLauncher(), wait=lambda: None)
    assert first.final is not None
    assert wider.final is not None
    assert len(wider.final.finalists) == first.trials["complete"]
    assert len(wider.final.finalists) >= len(first.final.finalists)


@pytest.mark.journey
def test_random_search_stands_beside_the_tuner_in_one_table(finished: tuple[TuneRecipe, StudyResult, InlineLauncher]) -> None:
    recipe, _, _ = finished
    beside = run_study(replace(recipe, sampler="random"), launcher=InlineLauncher(), wait=lambda: None, draw=write_study_page)
    assert beside.rival is not None
    assert beside.rival.startswith("Winner of study-random - winner of study:")
    with (Path(recipe.out) / "trials.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert {row["study"] for row in rows} == {"study", "study-random"}
    assert len(rows) == 6
    assert sum(row["origin"] == "recommended" for row in rows) == 4
    drawn = [row["learning_rate"] for row in rows if row["origin"] == "drawn"]
    assert len(set(drawn)) == 2
    for name in ("study.html", "study-random.html"):
        assert "Winner of study" in (Path(recipe.out) / name).read_text("utf-8")
    assert {path.name for path in Path(recipe.out).glob("best-recipe*.yaml")} == {"best-recipe.yaml", "best-recipe-random.yaml"}


def test_a_study_with_another_space_is_refused_and_nothing_is_overwritten(
    finished: tuple[TuneRecipe, StudyResult, InlineLauncher],
) -> None:
    recipe, _, _ = finished
    before = contents(Path(recipe.out))
    other = replace(recipe, space={"learning_rate": {"low": 1e-4, "high": 2e-2, "log": True}})
    with pytest.raises(InputsChanged, match=r"was begun with space .*choose another --out"):
        run_study(other, launcher=InlineLauncher())
    with pytest.raises(InputsChanged, match="was begun with epochs 2"):
        run_study(replace(recipe, epochs=3.0), launcher=InlineLauncher())
    with pytest.raises(InputsChanged, match="was begun with other bytes of the eval_set"):
        run_study(replace(recipe, eval_items=4), launcher=InlineLauncher())
    with pytest.raises(InputsChanged, match="was begun with other bytes of the eval_set"):
        run_study(replace(recipe, eval_items=4, sampler="random"), launcher=InlineLauncher())
    assert contents(Path(recipe.out)) == before


def test_texts_that_the_folder_was_not_begun_with_are_refused_by_its_own_name(tmp_path: Path) -> None:
    texts = Texts(("bundled:synthetic",), (64,), limit=8, near_duplicates=False)
    begun = TuneRecipe(("bundled:ko-mini",), str(tmp_path / "study"), texts=texts, eval_items=10, max_tokens=100, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        run_study(begun, launcher=Stopped())
    before = contents(Path(begun.out))
    with pytest.raises(FolderError, match=f"{begun.out}/datasets/blocks-64 was begun with limit 8, and this command has limit 9"):
        run_study(replace(begun, texts=replace(texts, limit=9)), launcher=InlineLauncher())
    assert contents(Path(begun.out)) == before


class Stopped(InlineLauncher):
    """A person who stops the study at its first trial."""

    def start(self, _job: Job, _slot: int) -> Ended:
        raise KeyboardInterrupt


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a study but its lock and the journal, in which Optuna notes every question."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "study.journal"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_second_study_wants_a_folder_of_its_own(finished: tuple[TuneRecipe, StudyResult, InlineLauncher]) -> None:
    recipe, _, _ = finished
    before = contents(Path(recipe.out))
    with pytest.raises(FolderError, match="holds the study 'study'; give 'second' an --out of its own"):
        run_study(replace(recipe, study="second"), launcher=InlineLauncher())
    assert contents(Path(recipe.out)) == before


def test_random_search_keeps_a_recipe_of_its_own(finished: tuple[TuneRecipe, StudyResult, InlineLauncher]) -> None:
    recipe, _, _ = finished
    run_study(replace(recipe, sampler="random"), launcher=InlineLauncher(), wait=lambda: None)
    samplers = {name: read_yaml(Path(recipe.out) / name)["sampler"] for name in ("recipe.yaml", "recipe-random.yaml")}
    assert samplers == {"recipe.yaml": "tpe", "recipe-random.yaml": "random"}


def test_a_result_of_an_earlier_version_is_read_and_told_to_be_judged_by_the_runs_that_chose(
    finished: tuple[TuneRecipe, StudyResult, InlineLauncher],
) -> None:
    recipe, _, _ = finished
    beside, stored = replace(recipe, sampler="random"), Path(recipe.out) / "result-random.json"
    run_study(beside, launcher=InlineLauncher(), wait=lambda: None)
    before = json.loads(stored.read_text("utf-8"))
    del before["final"]["choosing_seeds"]
    for one in before["final"]["finalists"]:
        del one["judging_seeds"]
        one["confirm"] = one["select"]
    stored.write_text(json.dumps(before), "utf-8")
    result = run_study(recipe, launcher=InlineLauncher(), wait=lambda: None, draw=write_study_page)
    assert result.rival is not None
    assert result.rival.startswith("Winner of study - winner of study-random: not compared, as they share no new seed;")
    page = (Path(recipe.out) / "study-random.html").read_text("utf-8")
    assert "over 2 seeds that also chose" in page
    assert "Judged by the runs that chose, which favours the winner" in page
    again = run_study(beside, launcher=InlineLauncher(), wait=lambda: None)
    assert again.rival is not None
    assert "not compared" not in again.rival


def test_a_folder_that_holds_something_else_is_refused(recipe: Callable[..., TuneRecipe]) -> None:
    wanted = recipe()
    Path(wanted.out).mkdir()
    (Path(wanted.out) / "mine.txt").write_text("mine")
    with pytest.raises(FolderError):
        run_study(wanted, launcher=InlineLauncher())


def test_no_completed_trial_is_work_that_failed(recipe: Callable[..., TuneRecipe], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("coref_automl.training.run.train", broken)
    with pytest.raises(
        TuningError, match=r"No trial of the study 'study' completed \(the last says: CUDA out of memory"
    ) as caught:
        run_study(recipe(trials=2), launcher=InlineLauncher(), wait=lambda: None)
    assert caught.value.exit_status == 1


def test_a_budget_in_minutes_reports_its_eighths(recipe: Callable[..., TuneRecipe]) -> None:
    launcher = InlineLauncher()
    result = run_study(recipe(epochs=None, max_minutes=0.05, trials=1, seeds=1), launcher=launcher, wait=lambda: None)
    assert result.trials["complete"] == 1
    with (Path(launcher.jobs[0].folder).parent.parent / "trials.csv").open(encoding="utf-8") as handle:
        row = next(csv.DictReader(handle))
    assert row["at 8/8"]
