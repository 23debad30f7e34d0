"""A whole study of tiny models: what it leaves behind can be used as it is, and nothing is computed twice."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.errors import FolderError, InputsChanged, TuningError
from coref_automl.base.folders import DONE
from coref_automl.base.job import Job
from coref_automl.base.progress import quiet
from coref_automl.cli.options import recipe_from
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import hits
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.tune.choosing import JobRunner
from coref_automl.extras.tune.page import write_study_page
from coref_automl.extras.tune.problem import run_folder
from coref_automl.extras.tune.recipe import TuneRecipe, TuneTexts
from coref_automl.extras.tune.run import StudyResult, open_problem, run_study
from coref_automl.extras.tune.score import score_of
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.setup import prepare_run
from tests.extras.tune.conftest import World
from tests.extras.tune.inline import FinishedJob, InlineLauncher


@dataclass(frozen=True)
class Finished:
    """A study that was stopped at its first run with certain seeds, each time resumed, and at last finished.

    `kept` holds by seed the runs that were finished at the stop, and when.
    """

    recipe: TuneRecipe
    result: StudyResult
    launcher: InlineLauncher
    kept: dict[int, dict[Path, int]]


STOPS = (0, 1, 3, 5)
"""The first trial; the first and the second round of choosing; judging."""


@pytest.fixture(scope="module")
def finished(world: World, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    space = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "batch": [4, 8]}
    recipe = world.recipe(tmp_path_factory.mktemp("studies") / "study", epochs=1, trials=2, space=space)
    launcher, kept = StoppingLauncher(), {}
    for seed in STOPS:
        launcher.stop_at = seed
        with pytest.raises(KeyboardInterrupt):
            run_study(recipe, launcher=launcher, wait=lambda: None)
        kept[seed] = finished_runs(recipe)
    launcher.stop_at = None
    result = run_study(recipe, launcher=launcher, wait=lambda: None, draw=write_study_page)
    return Finished(recipe, result, launcher, kept)


@dataclass
class StoppingLauncher(InlineLauncher):
    """A person who stops the study at its first run with a certain seed."""

    stop_at: int | None = None

    def start(self, job: Job, slot: int) -> FinishedJob:
        if job.recipe["seed"] == self.stop_at:
            raise KeyboardInterrupt
        return super().start(job, slot)


@pytest.mark.journey
def test_a_study_ends_with_a_sentence_a_recipe_weights_and_a_page(finished: Finished) -> None:
    recipe, result = finished.recipe, finished.result
    out = Path(recipe.out)
    assert sum(result.trials.values()) == 2
    assert result.final is not None
    assert result.sentence in (out / "study.html").read_text("utf-8").replace("&#39;", "'")
    best = recipe_from(TrainRecipe, {}, "test", out / "best-recipe.yaml")
    params = {**result.final.best.params, "average": result.final.best.params["average"] or None}
    assert {name: getattr(best, name) for name in params} == params
    assert prepare_run(best).last > 0
    from coref_automl.models.load import load_masked_lm

    assert load_masked_lm(str(out / "best-model")).seq_len == 16
    assert not list((out / "best-model").glob("optimizer*"))


def test_trials_see_the_select_half_alone_and_finalists_are_judged_on_the_other(finished: Finished) -> None:
    recipe, result, launcher = finished.recipe, finished.result, finished.launcher
    out = Path(recipe.out)
    whole = EvalSet.open(str(recipe.eval_set)).halves
    for half in ("select", "confirm"):
        items = EvalSet.open(out / "evalsets" / half).items["real"]
        assert items
        assert {whole[item.cluster] for item in items} == {half}
    trials = [job for job in launcher.jobs if "confirm" not in job.recipe]
    assert all(Path(job.recipe["eval_set"]).name == "select" for job in trials)
    assert result.final is not None
    assert result.final.best.seeds == (1, 2, 3, 4)
    assert len(result.final.confirmed) == recipe.seeds == len(result.final.judging)
    judging = [job for job in launcher.jobs if "confirm" in job.recipe]
    assert {job.recipe["seed"] for job in judging} == {5, 6}


def test_a_study_stopped_while_it_searches_chooses_or_judges_goes_on_and_trains_nothing_twice(finished: Finished) -> None:
    last = finished_runs(finished.recipe)
    counts = [len(finished.kept[seed]) for seed in STOPS]
    assert counts[0] == 0
    assert counts == sorted(set(counts))
    for runs in finished.kept.values():
        assert {run: last[run] for run in runs} == runs


def finished_runs(recipe: TuneRecipe) -> dict[Path, int]:
    """When each finished run of a study ended; one that is trained again ends anew."""
    return {done.parent: done.stat().st_mtime_ns for done in Path(recipe.out).glob(f"trials/*/run-*/{DONE}")}


def test_weights_are_kept_of_the_first_pair_alone(finished: Finished) -> None:
    """What is left behind is a copy of one of the two; every other trial and run gave its weights back when it ended."""
    final, out = finished.result.final, Path(finished.recipe.out)
    assert final is not None
    problem = open_problem(finished.recipe, out, quiet())
    sides = [side for number in (final.winner, final.reference) if (side := final.candidate(number))]
    first = final.comparison.seeds[0] if final.comparison else final.judging[0]
    weights = {path.parent for path in (out / "trials").rglob("model.safetensors")}
    assert weights == {problem.weights(side.jobs(problem, [first], confirm=True)[0]) for side in sides}
    assert not list((out / "trials").rglob("optimizer.pt"))
    assert len(finished_runs(finished.recipe)) > len(weights)


@pytest.mark.journey
def test_a_score_of_ones_own_is_judged_on_new_runs_and_its_guard_is_told(world: World, tmp_path: Path) -> None:
    recipe = world.recipe(
        tmp_path / "study", eval_set=str(world.two_tasks), trials=2, finalists=2, epochs=1, portfolio_only=True,
        score="real1=.25,lambada_top1=.75", guards=("real1>=-90",),
        space={"objective": ["mlm", "entity"], "batch": [4, 8]},
    )  # fmt: skip
    result = run_study(recipe, launcher=InlineLauncher(), wait=lambda: None)
    final = result.final
    assert final is not None
    confirm = EvalSet.open(Path(recipe.out) / "evalsets" / "confirm")
    assert set(confirm.items) == {"real", "lambada"}
    score = score_of(recipe, confirm)
    problem = open_problem(recipe, Path(recipe.out), quiet())
    values = []
    for job in final.best.jobs(problem, final.judging, confirm=True):
        folder = run_folder(job) / "average" if final.best.params["average"] else run_folder(job)
        stored = find_evaluations(sorted(folder.glob("evaluations/*/checkpoint-*")))
        scores = [entry.scores() for entry in stored if entry.evaluation.fingerprints["items"] == confirm.fingerprint][-1]
        each = {name: float(np.mean(hits(scores, name)[1])) for name in ("real1", "lambada_top1")}
        values.append(0.25 * each["real1"] + 0.75 * each["lambada_top1"])
        assert score.value(scores) == pytest.approx(values[-1])
    assert final.confirmed == pytest.approx(values)
    if final.comparison is not None:
        assert set(final.comparison.guards) == {"real1"}


@pytest.mark.journey
def test_a_guard_of_relation_extraction_is_asked_of_what_is_fine_tuned_from_both_sides(world: World, tmp_path: Path) -> None:
    rows = {"rows": 40, "seeds": 1, "settings": {"epochs": 1, "batch_size": 8}}
    recipe = world.recipe(
        tmp_path / "study",
        epochs=1,
        guards=("relation_f1>=-1",),
        checks={"relation": rows},
        space={"objective": ["mlm", "entity"]},
    )
    problem = open_problem(recipe, Path(recipe.out), quiet())
    runner = JobRunner(problem, InlineLauncher(), quiet(), lambda: None)
    sides = [[problem.job({"objective": name}, seed, confirm=True) for seed in (5, 6)] for name in ("entity", "mlm")]
    runner.keep_last = {job.key for side in sides for job in side}
    assert not runner.run([job for side in sides for job in side], "verdict")
    differences = problem.checked(sides[0], sides[1], runner.run)
    assert set(differences) == {"relation_f1"}
    assert -1 <= differences["relation_f1"].low <= differences["relation_f1"].value <= differences["relation_f1"].high <= 1
    runs = [CHECKS["relation"].files.read(path.parent) for path in (tmp_path / "study").glob("trials/*/run-*/re_results.json")]
    assert sorted((run.seeds[0], Path(run.model).parent.parent.parent.name) for run in runs) == sorted(
        (1_000 * seed, job.key) for side in sides for seed, job in zip((5, 6), side, strict=True)
    )


def test_the_same_command_again_trains_nothing(finished: Finished) -> None:
    recipe, result = finished.recipe, finished.result
    before = finished_runs(recipe)
    launcher = InlineLauncher()
    again = run_study(recipe, launcher=launcher, wait=lambda: None, draw=write_study_page)
    assert again.to_json() == result.to_json()
    assert all(job.recipe["seed"] for job in launcher.jobs)
    assert finished_runs(recipe) == before


def test_a_study_with_another_space_is_refused_and_nothing_is_overwritten(finished: Finished) -> None:
    recipe = finished.recipe
    before = contents(Path(recipe.out))
    other = replace(recipe, space={"learning_rate": {"low": 1e-4, "high": 2e-2, "log": True}, "batch": [4, 8]})
    with pytest.raises(InputsChanged, match=r"was begun with space .*choose another --out"):
        run_study(other, launcher=InlineLauncher())
    with pytest.raises(InputsChanged, match="was begun with epochs 1"):
        run_study(replace(recipe, epochs=3.0), launcher=InlineLauncher())
    with pytest.raises(InputsChanged, match="was begun with other bytes of the eval_set"):
        run_study(replace(recipe, eval_items=4), launcher=InlineLauncher())
    assert contents(Path(recipe.out)) == before


def test_texts_that_the_folder_was_not_begun_with_are_refused_by_its_own_name(recipe: Callable[..., TuneRecipe]) -> None:
    texts = TuneTexts(("bundled:synthetic",), seq_lens=(64,), limit=8, near_duplicates=False)
    begun = recipe(datasets=(), texts=texts, epochs=None, max_tokens=99_999)
    with pytest.raises(KeyboardInterrupt):
        run_study(begun, launcher=StoppingLauncher(stop_at=0))
    before = contents(Path(begun.out))
    with pytest.raises(FolderError, match=f"{begun.out}/datasets/blocks-64 was begun with limit 8, and this command has limit 9"):
        run_study(replace(begun, texts=replace(texts, limit=9)), launcher=InlineLauncher())
    assert contents(Path(begun.out)) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a study but its lock and the journal, in which Optuna notes every question."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "study.journal"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_second_study_wants_a_folder_of_its_own(finished: Finished) -> None:
    recipe = finished.recipe
    before = contents(Path(recipe.out))
    with pytest.raises(FolderError, match="holds the study 'study'; give 'second' an --out of its own"):
        run_study(replace(recipe, study="second"), launcher=InlineLauncher())
    assert contents(Path(recipe.out)) == before


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


def test_a_budget_in_minutes_reports_its_quarters(recipe: Callable[..., TuneRecipe]) -> None:
    launcher = InlineLauncher()
    result = run_study(recipe(epochs=None, max_minutes=0.02, trials=1, seeds=1), launcher=launcher, wait=lambda: None)
    assert result.trials["complete"] == 1
    with (Path(launcher.jobs[0].folder).parent.parent / "trials.csv").open(encoding="utf-8") as handle:
        row = next(csv.DictReader(handle))
    assert row["at 4/4"]
