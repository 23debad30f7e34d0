"""A study that adds seeds until it is known, and `adapt --tune`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coref_automl.base.errors import ComparisonError, NotFinite, RecipeError
from coref_automl.base.folders import EVENTS
from coref_automl.base.job import Job
from coref_automl.base.progress import Progress, quiet, read_events
from coref_automl.cli.app import run as command
from coref_automl.evaluation.metrics import hits
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.study import run, until_shown
from coref_automl.extras.study.plan import Plan
from coref_automl.extras.study.preflight import before_training
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.study.until_shown import run_until_shown
from coref_automl.extras.tune import adapted as adapting
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.statistics.planning import Look
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.extras.study.conftest import Bench
from tests.extras.tune.inline import InlineLauncher

Make = Callable[..., ExperimentRecipe]


def test_methods_are_judged_against_the_first_over_pairs_of_seeds(recipe: Make) -> None:
    wanted = recipe(train={"max_tokens": 2_000, "batch": 8, "learning_rate": 1e-3, "checkpoints": 1})
    result, (known,) = run_until_shown(wanted, launcher=InlineLauncher())
    assert result.failures == ()
    assert (known.method, known.against, known.metric, known.verdict.pairs) == ("entity", "mlm", "real1", 2)
    means = scores_by_run(wanted)
    expected = np.mean([means[f"entity-64-s{seed}"] - means[f"mlm-64-s{seed}"] for seed in (0, 1)])
    assert known.verdict.difference == pytest.approx(expected)
    assert known.verdict.decision != "open"
    assert str(known).startswith("entity - mlm: ")


def scores_by_run(recipe: ExperimentRecipe) -> dict[str, float]:
    """Strict Real@1 of every run's only checkpoint."""
    return {
        stored.evaluation.provenance.run: float(np.mean(hits(stored.scores(), "real1")[1]))
        for stored in find_evaluations([Path(recipe.out) / "evaluations"])
        if stored.evaluation.provenance
    }


def test_runs_at_other_lengths_and_with_seeds_outside_the_plan_are_not_judged(recipe: Make) -> None:
    wanted, number = recipe(lengths=[128], first_seed=4, seeds=2), 0
    evaluations = Path(wanted.out) / "evaluations"
    for length, seeds, gain in ((128, (0, 1, 2, 3), -1.0), (128, (4, 5), 1.0), (256, (4, 5), -1.0)):
        for method, seed in product(("mlm", "entity"), seeds):
            skill, number = gain if method == "entity" else 0.0, number + 1
            model = Model(f"{method}-{length}-s{seed}", 200, skill, objective=method, seq_len=length, seed=seed)
            write_evaluation(evaluations, model, make_scores(model, documents=60, own=number))
    judged_on: Any = SimpleNamespace(fingerprint="items-a")
    plan = Plan(wanted, Path(wanted.out), (judged_on,), {})
    (known,) = until_shown._compare_with_first(plan, Look(2, 0.05), last_look=True)
    assert (known.verdict.pairs, known.verdict.decision) == (2, "better")


@dataclass
class Clock:
    """Stands still but for a minute per job."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class MinuteLauncher(InlineLauncher):
    clock: Clock = field(default_factory=Clock)

    def start(self, job: Job, slot: int) -> Any:
        self.clock.now += 60
        return super().start(job, slot)


def test_minutes_and_consent_are_those_of_the_whole_command(
    recipe: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = MinuteLauncher()
    monkeypatch.setattr(run, "time", launcher.clock)
    monkeypatch.setattr(until_shown, "MIN_EFFECT", 0.0)  # no gain is excluded at the first look
    wanted = recipe(seeds=12, train={"max_tokens": 512, "batch": 8, "learning_rate": 1e-3, "checkpoints": 1})

    def before(plan: Plan) -> Plan:
        return before_training(plan, Progress(), lambda _: False, fit=False, timed=False)

    result, known = run_until_shown(wanted, max_minutes=11.5, launcher=launcher, before=before)
    assert (result.resumes, known) == (True, [])
    assert len(launcher.jobs) == 12  # nine are the first look's; the second has no minutes of its own
    assert re.findall(r"Training: .* (\d+) runs of", capsys.readouterr().err) == ["24"]


@pytest.mark.parametrize(
    ("changes", "message"), [({"methods": {"mlm": {}}}, "name at least two"), ({"lengths": [32, 64]}, "judges one length")]
)
def test_what_cannot_be_judged_so_is_refused(recipe: Make, changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        run_until_shown(recipe(**changes))


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ({("mlm", 0), ("mlm", 1)}, "no run of mlm was finished;"),
        ({("entity", 0), ("entity", 1)}, "no run of entity was finished with a seed of mlm;"),
        ({("mlm", 0), ("entity", 1)}, "no run of entity was finished with a seed of mlm;"),
    ],
)
def test_methods_without_a_seed_in_common_leave_nothing_to_compare(
    recipe: Make, monkeypatch: pytest.MonkeyPatch, lost: set[tuple[str, int]], told: str
) -> None:
    from coref_automl.training import run as training

    true = training.train

    def failing(given: Any, **options: Any) -> Any:
        if (given.objective, given.seed) in lost:
            raise NotFinite("The loss of step 1 is NaN.")
        return true(given, **options)

    monkeypatch.setattr(training, "train", failing)
    wanted = recipe(train={"max_tokens": 1_000, "batch": 8, "learning_rate": 1e-3, "checkpoints": 1})
    with pytest.raises(ComparisonError, match=told):
        run_until_shown(wanted, launcher=InlineLauncher())


@pytest.mark.journey
def test_adapt_tunes_first_and_compares_the_winner_on_documents_that_did_not_choose_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every set of the recipe, and on its confirm half where the recipe asks for that itself; of texts one dataset is made."""
    monkeypatch.setenv("COREF_AUTOML_PORTFOLIO", str(tmp_path / "portfolio.yaml"))
    texts = ["--source", "bundled:synthetic", "--model", str(bench.home / "model"), "--limit", "16", "--holdout", "0.4"]
    assert (
        command(
            ["prepare", "eval", *texts, "--task", "real", "--per-source", "8", "--seed", "1", "--out", str(tmp_path / "other")]
        )
        == 0
    )
    out = tmp_path / "adapted"
    stage = {"sets": [str(bench.home / "evalset"), str(tmp_path / "other")], "half": "confirm"}
    learned = {"sources": ["bundled:synthetic"], "limit": 16, "holdout": 0.4, "near_duplicates": False}
    changes = {"methods": {"mlm": {}}, "seeds": 1, "evaluate": stage, "datasets": [], "texts": learned}
    written = bench.file(tmp_path / "recipe.yaml", out, **changes)
    assert command(["adapt", "--recipe", str(written), "--tune", "1"]) == 0
    assert (out / "tune" / "best-recipe.yaml").is_file()
    assert {path.name for path in (out / "runs").iterdir()} == {"mlm-64-s0", "tuned-64-s0"}
    judged = {stored.evaluation.evalset for stored in find_evaluations([out / "evaluations"])}
    assert judged == {"evalset-confirm", "other-confirm"}


@pytest.mark.slow
def test_adapt_judges_what_it_tuned_on_the_set_that_it_made_of_the_texts(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COREF_AUTOML_PORTFOLIO", str(tmp_path / "portfolio.yaml"))
    learned = {"sources": ["bundled:synthetic"], "limit": 16, "holdout": 0.4, "near_duplicates": False}
    stage = {"tasks": ["real"], "per_source": 16}
    changes = {"methods": {"mlm": {}}, "seeds": 1, "evaluate": stage, "datasets": [], "texts": learned}
    written = bench.file(tmp_path / "recipe.yaml", tmp_path / "adapted", **changes)
    assert command(["adapt", "--recipe", str(written), "--tune", "0.1"]) == 0
    judged = {stored.evaluation.evalset for stored in find_evaluations([tmp_path / "adapted" / "evaluations"])}
    assert judged == {"evalset-confirm"}


def test_adapt_tunes_data_that_leave_no_choice_of_objective(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data without noun chains are for masked language modelling alone."""
    monkeypatch.setenv("COREF_AUTOML_PORTFOLIO", str(tmp_path / "portfolio.yaml"))
    texts = ["--source", "bundled:synthetic", "--model", str(bench.home / "model"), "--limit", "16", "--holdout", "0.4"]
    named = ["--seq-len", "64", "--eval-set", str(bench.home / "evalset"), "--exact-only"]
    assert command(["prepare", "mlm", *texts, *named, "--out", str(tmp_path / "dataset")]) == 0
    changes = {"methods": {"mlm": {}}, "seeds": 1, "datasets": [str(tmp_path / "dataset")]}
    written = bench.file(tmp_path / "recipe.yaml", tmp_path / "adapted", **changes)
    assert command(["adapt", "--recipe", str(written), "--tune", "0.1"]) == 0
    assert {path.name for path in (tmp_path / "adapted" / "runs").iterdir()} == {"mlm-64-s0", "tuned-64-s0"}


def test_adapt_keeps_the_events_of_what_it_prepares_before_tuning(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adapting, "run_study", stopped)
    texts = {"sources": ["bundled:synthetic"], "limit": 16, "holdout": 0.4, "near_duplicates": False}
    stage = {"tasks": ["real"], "per_source": 8}
    wanted = bench.recipe(tmp_path / "adapted", seeds=1, methods={"mlm": {}}, datasets=[], texts=texts, evaluate=stage)
    with pytest.raises(KeyboardInterrupt):
        adapting.with_tuned(wanted, 1.0, quiet())
    assert {event["event"] for event in read_events(tmp_path / "adapted" / EVENTS)} >= {"start", "end"}


def test_tune_trains_with_the_settings_of_the_recipe_that_it_does_not_choose(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may choose and did not is as its trials had it: whole_word is off for the method, too."""
    told: list[dict[str, Any]] = []

    def stub(recipe: TuneRecipe, **_: object) -> SimpleNamespace:
        told.append(recipe.settings)
        return SimpleNamespace(final=SimpleNamespace(recommended=SimpleNamespace(params={"learning_rate": 0.1})))

    monkeypatch.setattr(adapting, "run_study", stub)
    train = {"new_head": True, "whole_word": True, "epochs": 1.0, "batch": 4}
    wanted = bench.recipe(tmp_path / "adapted", seeds=1, methods={"mlm": {}}, train=train)
    tuned = adapting.with_tuned(wanted, 1.0, quiet())[0].methods["tuned"]
    assert told == [{"new_head": True, "batch": 4}]
    assert tuned == {"objective": "mlm", "learning_rate": 0.1, "whole_word": False}


def test_a_method_that_is_called_tuned_is_not_replaced(bench: Bench, tmp_path: Path) -> None:
    wanted = bench.recipe(tmp_path / "adapted", methods={"mlm": {}, "tuned": {"objective": "mlm"}})
    with pytest.raises(RecipeError, match='a method called "tuned", which the recipe has'):
        adapting.with_tuned(wanted, 1.0, quiet())


def test_adapt_does_not_judge_on_the_half_that_tuning_chose_on(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = {"sets": [str(bench.home / "evalset")], "half": "select"}
    written = bench.file(tmp_path / "recipe.yaml", tmp_path / "adapted", evaluate=stage, seeds=1)
    assert command(["adapt", "--recipe", str(written), "--tune", "1"]) == 2
    assert "leave out evaluate.half: select" in capsys.readouterr().err
    assert not (tmp_path / "adapted").exists()
