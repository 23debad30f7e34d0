"""One trial: what it is known by, and what it says when it ends otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from coref_automl.base import launch
from coref_automl.base.errors import EvaluationError, ModelError
from coref_automl.base.job import FAILED, OUTCOME, Outcome, read_outcome, run_job
from coref_automl.base.launch import run_in_subprocess
from coref_automl.base.progress import quiet
from coref_automl.base.store import write_json
from coref_automl.extras.tune.masked import open_masked
from coref_automl.extras.tune.problem import Follower, run_folder
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.training.folder import average_of, checkpoints_of
from tests.extras.tune.scripted import ScriptedProblem


def test_a_trial_whose_last_checkpoint_has_no_score_fails_and_says_so(
    recipe: Callable[..., TuneRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.training import judge

    real, seen = judge.evaluate, []

    def evaluate(paths: list[Path], *arguments: Any, **options: Any) -> Any:
        seen.append(paths[-1].name)
        if len(seen) == REPORTS:
            raise EvaluationError("The set has gone.")
        return real(paths, *arguments, **options)

    monkeypatch.setattr(judge, "evaluate", evaluate)
    problem = open_masked(recipe(), tmp_path / "study", quiet())
    job = problem.job(problem.starts()[0].params, 0)
    outcome = run_job(job.to_json())
    assert len(seen) == REPORTS + 1  # and the average of the last two
    assert not outcome.done
    assert outcome.kind == "EvaluationError"
    assert "The last checkpoint of" in outcome.reason
    reports = problem.reports(job, Follower(run_folder(job) / "events.ndjson").rows())
    assert [report.step for report in reports if not report.averaged] == [*range(1, REPORTS)]


def test_a_process_that_never_came_to_its_work_gives_its_last_words_and_not_an_older_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ScriptedProblem(out=tmp_path).job({"learning_rate": 0.5}, 0)
    write_json(Path(job.folder) / OUTCOME, Outcome(True).to_json())
    monkeypatch.setattr(launch, "MODULE", "coref_automl.no_such_module")
    assert run_in_subprocess(job.to_json()) == FAILED
    outcome = read_outcome(job)
    assert outcome is not None
    assert not outcome.done
    assert "ended with status 1" in outcome.reason
    assert "No module named coref_automl.no_such_module" in outcome.reason


def test_a_trial_offers_the_average_of_its_last_checkpoints(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> None:
    problem = open_masked(recipe(epochs=1), tmp_path / "study", quiet())
    job = problem.job(problem.starts()[0].params, 0)
    assert run_job(job.to_json()).done
    *_, previous, last = (load_file(path / "model.safetensors") for path in checkpoints_of(run_folder(job)))
    (average,) = checkpoints_of(run_folder(job) / "average")
    for name, value in load_file(average / "model.safetensors").items():
        assert torch.allclose(value, (previous[name] + last[name]) / 2, atol=1e-6)
    reports = list(problem.reports(job, Follower(run_folder(job) / "events.ndjson").rows()))
    assert [(report.step, report.averaged) for report in reports[-2:]] == [(REPORTS, False), (REPORTS, True)]
    averaged, plain = (problem.job({**problem.starts()[0].params, "average": count}, 0) for count in (2, 0))
    assert averaged.recipe["average"] == 2
    assert plain.recipe["average"] is None
    assert all(problem.accepts({**problem.starts()[0].params, "average": count}) for count in (2, 0))  # as an ablation asks
    (average.parent / "DONE").unlink()  # killed before the end
    assert average_of(run_folder(job), 2) == average_of(run_folder(job), 2) == average
    with pytest.raises(ModelError, match="an average takes two or more"):
        average_of(run_folder(job), 9)


def test_finalists_average_as_many_checkpoints_as_the_settings_say(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> None:
    for settings, count in (({"average": 3}, 3), ({"average": None}, 0), ({}, 2)):
        wanted = recipe()
        problem = open_masked(replace(wanted, settings={**wanted.settings, **settings}), tmp_path / str(count), quiet())
        assert problem.averaged == count
        trial = problem.job(problem.starts()[0].params, 0)
        assert trial == problem.job({**problem.starts()[0].params, "average": problem.averaged}, 0)
