"""One trial: what it is known by, and what it says when it ends otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coref_automl.errors import EvaluationError
from coref_automl.progress import quiet
from coref_automl.tuning.follow import Follower
from coref_automl.tuning.masked import open_masked
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.trial import run_job


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
    job = problem.job(problem.recommended()[0], 0)
    outcome = run_job(job.to_json())
    assert len(seen) == REPORTS
    assert not outcome.done
    assert outcome.kind == "EvaluationError"
    assert "The last checkpoint of" in outcome.reason
    assert [report.step for report in problem.reports(job, Follower(job.run / "events.ndjson").rows())] == [*range(1, REPORTS)]
