"""A new outside check is one class and one line of the table: claims, report, archive, studio and a study's plan follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coref_automl.comparison.archive import archive
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.runs import TaskFiles
from coref_automl.coreference.check import CoreferenceCheck
from coref_automl.coreference.results import CoreferenceResult, DocumentSums
from coref_automl.experiment.estimate import tokens_of
from coref_automl.experiment.plan import open_plan
from coref_automl.experiment.recipe import ExperimentRecipe
from coref_automl.progress import quiet
from coref_automl.report.checkpoint_report import report
from tests.comparison.test_outside_checks import BETTER, claims, models, told, write, write_coreference
from tests.experiment.conftest import Bench
from tests.studio.conftest import serving


class ToyCheck(CoreferenceCheck):
    """Coreference under another name, in files of its own."""

    name = ("장난감 과제", "the toy task")
    metric = ("장난감 점수", "Toy score")
    number = "toys"
    outcome = "toy_score"
    files = TaskFiles("toy", "toy_results.json", "toy.npz", CoreferenceResult, DocumentSums)
    folder = "toy run"


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "toy", ToyCheck())


def test_a_check_that_was_added_is_claimed_reported_archived_and_in_the_studio(tmp_path: Path) -> None:
    runs, toys = write(tmp_path / "runs", models()), tmp_path / "toys"
    write_coreference(toys, {**BETTER, "base": (0.6,)}, files=ToyCheck.files)
    found = claims(runs, toys, "toy")
    assert told(found)["entity 128", "base"] == "better"
    assert {claim.outcome for claim in found} == {"toy_score"}
    page = Path(report(runs, toys, out=tmp_path / "page", lang="en").markdown).read_text("utf-8")
    assert "Does it carry over to the toy task?" in page
    assert archive(runs, toys, out=tmp_path / "kept").runs["toy"] == 7
    with serving(tmp_path / "runs", toys, lang="en") as visitor:
        rows = json.loads(visitor.ready("/", table="leaderboard", **{"as": "json"}).body)
        assert next(row for row in rows if row["method"] == "entity 128")["Toy score verdict"].startswith("better")
        shown = visitor.ready("/runs").body
        assert "The toy task" in shown
        assert "toys " in shown


def test_a_check_that_was_added_has_a_section_of_a_recipe_and_steps(
    bench: Bench, recipe: Callable[..., ExperimentRecipe], tmp_path: Path
) -> None:
    plan = open_plan(recipe(seeds=1, methods={"mlm": {}}, toy=bench.coreference), tmp_path / "study", quiet())
    steps = [step for step in plan.steps if step.kind == "toy"]
    assert [step.name for step in steps] == ["base-s0", "mlm-64-s0"]
    assert {Path(step.recipe.out).parent.name for step in steps} == {"toy"}
    assert all(tokens_of(plan, step) > 0 for step in steps)
