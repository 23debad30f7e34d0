"""Before anything is trained: few texts get a batch and epochs that fit, too few are refused, and what was asked for stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import RecipeError
from coref_automl.base.folders import is_done
from coref_automl.base.job import Job
from coref_automl.base.launch import FinishedJob
from coref_automl.base.progress import Progress, quiet
from coref_automl.cli.app import run as command
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.extras.study import estimate
from coref_automl.extras.study.adapt import adapt
from coref_automl.extras.study.estimate import Preflight, plan_preflight, tokens_of
from coref_automl.extras.study.plan import FEWEST_STEPS, open_plan
from coref_automl.extras.study.preflight import before_training, lines_of, sized_to_texts, study_preflight
from coref_automl.extras.study.run import run_experiment
from coref_automl.extras.tune.masked import MaskedProblem
from coref_automl.extras.tune.preflight import before_tuning
from coref_automl.extras.tune.problem import Problem
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.run import open_problem, run_study
from tests.extras.study.conftest import ONE, Bench
from tests.extras.study.test_adapt import Make, model, recipe
from tests.extras.tune.inline import InlineLauncher

__all__ = ["model", "recipe"]  # the fixtures


def test_few_texts_get_a_batch_and_epochs_that_fit(recipe: Make) -> None:
    few = recipe(train={"learning_rate": 1e-3}, relation=None)
    plan = sized_to_texts(open_plan(few, Path(few.out), quiet()))
    preflight = plan_preflight(plan)
    assert preflight.steps >= FEWEST_STEPS
    assert not preflight.too_short
    assert preflight.batch < 32
    assert (preflight.batch, preflight.epochs) == (plan.recipe.train["batch"], plan.recipe.train["epochs"])
    whole, (reason, count) = preflight.documents + sum(preflight.left_out.values()), next(iter(preflight.left_out.items()))
    assert any(line.startswith(f"Left out of {whole} documents: {count} {reason}") for line in lines_of(preflight))
    assert preflight.evidence is not None
    assert 0 < preflight.evidence.items <= 24
    assert preflight.evidence.detectable is None or preflight.evidence.detectable > 0.1
    assert preflight.evidence.too_coarse
    asked = recipe(train={"batch": 16, "epochs": 1}, relation=None)
    assert sized_to_texts(again := open_plan(asked, Path(few.out), quiet())) is again


def test_too_little_text_is_refused_before_training(recipe: Make) -> None:
    texts = {"sources": ["bundled:synthetic"], "limit": 8, "holdout": 0.5, "near_duplicates": False}
    little = recipe(train={"learning_rate": 1e-3}, relation=None, methods={"mlm": {}}, texts=texts, lengths=[4096])
    with pytest.raises(RecipeError, match=r"steps change next to nothing; 20 take about [\d,]+ tokens.*--yes to go on"):
        adapt(little)
    assert not (Path(little.out) / "runs").exists()


def test_the_tokens_said_to_be_enough_are_enough(recipe: Make) -> None:
    """Of a budget that ends in the first epoch, more text would add no step: the budget itself is too small."""
    small = {"batch": 4, "learning_rate": 1e-3}
    begun = recipe(train={**small, "max_tokens": 300}, relation=None, methods={"mlm": {}})
    plan = open_plan(begun, Path(begun.out), quiet())
    few = plan_preflight(plan)
    assert few.too_short
    assert few.epochs < 1
    enough = replace(plan, recipe=replace(plan.recipe, train={**small, "max_tokens": few.enough_tokens}))
    assert plan_preflight(enough).steps == pytest.approx(FEWEST_STEPS, abs=2)


def test_what_it_takes_is_said_before_training_and_a_long_one_is_asked_about(
    recipe: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = recipe(train={"batch": 16, "epochs": 1}, relation=None)
    plan, shown = open_plan(asked, Path(asked.out), quiet()), list[Preflight]()

    def refuse(preflight: Preflight) -> bool:
        shown.append(preflight)
        return False

    assert before_training(plan, Progress(), refuse, fit=False) is plan  # few steps that were asked for are trained, and said
    printed = capsys.readouterr().err
    assert " on this machine, " in printed
    assert "steps change next to nothing" in printed
    assert not shown
    fit = recipe(train={"learning_rate": 1e-3, "epochs": 900_000, "save_every": 900_000}, relation=None)
    with pytest.raises(RecipeError, match=r"Nothing was trained; .*--yes to go on"):
        before_training(open_plan(fit, Path(fit.out), quiet()), quiet(), refuse, fit=True)
    assert shown[0].is_long


def test_few_steps_that_were_asked_for_do_not_hide_hours(recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recipe(train={"batch": 16, "epochs": 1}, relation=None)
    monkeypatch.setattr(estimate, "_LONG", 0.0)
    with pytest.raises(RecipeError, match="Nothing was trained"):
        before_training(open_plan(asked, Path(asked.out), quiet()), quiet(), lambda _: False, fit=False)


def test_hours_are_agreed_to_once_and_again_only_for_what_was_added(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "_LONG", 0.0)
    small = {"max_tokens": 512, "batch": 8, "checkpoints": 1}

    def confirmations(*, agree: bool = True, only: tuple[str, ...] = (), **changes: Any) -> int:
        shown: list[Preflight] = []
        before = partial(before_training, progress=quiet(), confirm=lambda ahead: shown.append(ahead) or agree, fit=False)
        recipe = bench.recipe(tmp_path / "study", **{**ONE, "train": small, **changes})
        with nullcontext() if agree else pytest.raises(RecipeError, match="Nothing was trained"):
            run_experiment(recipe, only=only, launcher=InlineLauncher(), before=before)
        return len(shown)

    assert confirmations(agree=False) == 1
    assert confirmations(only=("evaluate",)) == 1  # a refusal is not kept
    assert confirmations() == 0  # resumed
    more = {"seeds": 2, "methods": {"mlm": {}, "entity": {}}}
    assert confirmations(**more, agree=False) == 1
    assert confirmations(**more, only=("train",)) == 1
    assert confirmations(**more) == confirmations() == 0


def test_a_dry_run_counts_what_starts_from_the_chosen_model_and_only_the_kinds_asked_for(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"relation": {**bench.relation, "start": "chosen"}, "seeds": 1, "methods": {"mlm": {"min_prob": 0.2}, "entity": {}}}
    file = bench.file(tmp_path / "study.yaml", tmp_path / "out", **changes)
    for only, kinds in (((), {"train", "evaluate", "relation"}), (("--only", "train"), {"train"})):
        assert command(["study", "--recipe", str(file), "--dry-run", "--json", *only]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {share["kind"] for share in told["shares"]} == kinds
        assert set(told["methods"]) == {"mlm (min_prob 0.2)", "entity"}


def test_every_method_is_counted_with_its_own_checkpoints(bench: Bench, tmp_path: Path) -> None:
    changes = {"seeds": 2, "methods": {"mlm": {"checkpoints": 1}, "entity": {"checkpoints": 5}}}
    wanted = bench.recipe(tmp_path / "study", **changes)
    plan = open_plan(wanted, tmp_path / "study", quiet())
    of_one, of_other = (plan.prepared[arm] for arm in plan.arms)
    assert plan_preflight(plan).disk == 2 * (of_one.disk() + of_other.disk())
    few = replace(plan, recipe=replace(wanted, keep_weights=False))
    assert plan_preflight(few).disk == of_other.disk()
    costs = {step.name: tokens_of(plan, step) for step in plan.steps if step.kind == "evaluate"}
    assert costs["entity-64-s1"] == len(of_other.saves()) * costs["base-64"]
    assert costs["mlm-64-s1"] == len(of_one.saves()) * costs["base-64"] < costs["entity-64-s1"]


def test_scoring_counts_what_its_windows_hold_and_is_not_told_as_measured(bench: Bench, tmp_path: Path) -> None:
    plan = open_plan(bench.recipe(tmp_path / "study", **ONE), tmp_path / "study", quiet())
    base = next(step for step in plan.steps if step.name == "base-64")

    def cost(length: int) -> float:
        return tokens_of(plan, replace(base, recipe=replace(base.recipe, seq_len=length)))

    evalset = EvalSet.open(bench.home / "evalset")
    longest = max(map(len, evalset.documents.values()))
    assert cost(16) == pytest.approx(16 * len(evalset.select()) / 3)
    assert cost(16) < cost(longest) == cost(10 * longest)
    shares = {share.kind: share.source for share in study_preflight(bench.recipe(tmp_path / "new", **ONE)).shares}
    assert "tokens/s" in shares["train"]
    assert "tokens/s" not in shares["evaluate"]


def test_a_dry_run_trains_nothing_and_keeps_what_it_prepared_for_the_study(bench: Bench, tmp_path: Path) -> None:
    texts = {"sources": ["bundled:synthetic"], "limit": 16, "holdout": 0.4, "near_duplicates": False}
    stage = {"tasks": ["real"], "per_source": 8}
    wanted = bench.recipe(tmp_path / "study", seeds=1, methods={"mlm": {}}, datasets=[], texts=texts, evaluate=stage)
    assert study_preflight(wanted).runs == 1
    assert {path.name for path in (tmp_path / "study").iterdir() if path.is_dir()} == {"datasets", "evalset"}


def test_tune_says_what_is_ahead_and_too_few_steps_are_not_trained(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--source", "bundled:synthetic", "--limit", "16", "--seq-len", "128", "--exact-only"]
    assert command(["prepare", "combined", *data, "--model", model, "--out", str(tmp_path / "data")]) == 0
    line = ["tune", "--model", model, "--dataset", str(tmp_path / "data"), "--out", str(tmp_path / "study"), "--trials", "5"]
    assert command([*line, "--lang", "en"]) == 2
    told = capsys.readouterr().err
    assert re.search(r"Training: \d+ documents, [\d,]+ tokens .* \d+ runs of \d+ steps each", told)
    assert re.search(r"About .* on this machine, [\d.]+ GB of memory per training, up to [\d.]+ GB of disk", told)
    assert "steps change next to nothing" in told.splitlines()[-1]
    assert not (tmp_path / "study").exists()


def test_texts_that_tune_has_prepared_stay_when_it_is_refused(model: str, tmp_path: Path) -> None:
    data = ["--source", "bundled:synthetic", "--train-limit", "16", "--seq-len", "128"]
    assert command(["tune", "--model", model, *data, "--out", str(tmp_path / "study"), "--trials", "5"]) == 2
    assert [path for path in (tmp_path / "study" / "datasets").iterdir() if is_done(path)]


@pytest.fixture
def study(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TuneRecipe]:
    """A study of one setting, and blocks to train it on."""
    monkeypatch.setenv("COREF_AUTOML_PORTFOLIO", str(tmp_path / "portfolio.yaml"))
    data = ["--source", "bundled:synthetic", "--limit", "16", "--seq-len", "128", "--exact-only"]
    assert command(["prepare", "combined", *data, "--model", model, "--out", str(tmp_path / "data")]) == 0
    asked: dict[str, Any] = {"models": (model,), "out": str(tmp_path / "study"), "datasets": (str(tmp_path / "data"),)}
    asked |= {
        "metric": "real1",
        "trials": 1,
        "seeds": 1,
        "portfolio": False,
        "eval_items": 8,
        "device": "cpu",
        "settings": {"batch": 4},
    }
    asked["space"] = {"learning_rate": {"low": 1e-4, "high": 1e-3}}
    return lambda **changes: TuneRecipe(**asked | changes)


def test_a_search_of_fewer_trials_than_settings_to_begin_with_has_that_many_runs(study: Callable[..., TuneRecipe]) -> None:
    told: list[int] = []

    def refuse(ahead: Preflight) -> bool:
        told.append(ahead.runs)
        return False

    space = {"objective": ["mlm", "entity", "combined"]}
    for portfolio_only in (False, True):
        wanted = study(trials=2, max_minutes=10_000.0, space=space, portfolio=True, portfolio_only=portfolio_only)
        with pytest.raises(RecipeError, match="Nothing was trained"):
            before_tuning(open_problem(wanted, Path(wanted.out), quiet()), quiet(), refuse)
    assert told == [2, 3]


def test_of_two_budgets_of_a_trial_the_smaller_one_is_counted(study: Callable[..., TuneRecipe]) -> None:
    wanted, long = study(max_minutes=1_000.0, max_tokens=20_000), list[bool]()

    def refuse(ahead: Preflight) -> bool:
        long.append(ahead.is_long)
        return False

    before_tuning(open_problem(wanted, Path(wanted.out), quiet()), quiet(), refuse)
    assert not long
    wanted = replace(wanted, max_tokens=None)
    with pytest.raises(RecipeError, match="Nothing was trained"):
        before_tuning(open_problem(wanted, Path(wanted.out), quiet()), quiet(), refuse)
    assert long == [True]


@dataclass
class MeasuringLauncher(InlineLauncher):
    """Measures the weights that lie in a folder after every job."""

    folder: Path = field(default_factory=Path)
    held: list[float] = field(default_factory=list)

    def start(self, job: Job, slot: int) -> FinishedJob:
        ended = super().start(job, slot)
        files = (path for path in self.folder.rglob("*") if path.name in ("model.safetensors", "optimizer.pt"))
        self.held.append(sum(path.stat().st_size for path in files) / 1e9)
        return ended


def test_a_study_holds_no_more_than_its_preflight_says(study: Callable[..., TuneRecipe]) -> None:
    wanted, told = study(epochs=1.0, seeds=3), list[Preflight]()
    launcher = MeasuringLauncher(folder=Path(wanted.out))

    def before(problem: Problem) -> None:
        assert isinstance(problem, MaskedProblem)
        asked = replace(problem.recipe, epochs=None, max_minutes=10_000.0)  # about what takes days it is asked
        before_tuning(replace(problem, recipe=asked), quiet(), lambda ahead: told.append(ahead) is None)

    run_study(wanted, launcher=launcher, wait=lambda: None, before=before)
    assert len(launcher.held) == 3
    assert max(launcher.held) <= 1.02 * told[0].disk <= 3 * max(launcher.held)
