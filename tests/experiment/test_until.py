"""A study that adds seeds until it is known, and `adapt --tune`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.cli.app import run as command
from coref_automl.errors import ComparisonError, NotFinite, RecipeError
from coref_automl.evaluation.metrics import hits
from coref_automl.evaluation.results import find_evaluations
from coref_automl.experiment.recipe import ExperimentRecipe
from coref_automl.experiment.until import run_until_shown
from tests.experiment.conftest import Bench
from tests.tuning.inline import InlineLauncher

Make = Callable[..., ExperimentRecipe]


def test_methods_are_judged_against_the_first_over_pairs_of_seeds(recipe: Make) -> None:
    wanted = recipe(train={"max_tokens": 2_000, "batch": 8, "learning_rate": 1e-3, "checkpoints": 1})
    result, (known,) = run_until_shown(wanted, launcher=InlineLauncher())
    assert result.failures == ()
    assert (known.method, known.against, known.metric, known.verdict.pairs) == ("entity", "mlm", "real1_strict", 2)
    means = {
        one.evaluation.provenance.run: float(np.mean(hits(one.scores(), "real1_strict")[1]))
        for one in find_evaluations([Path(wanted.out) / "evaluations"])
        if one.evaluation.provenance
    }
    expected = np.mean([means[f"entity-64-s{seed}"] - means[f"mlm-64-s{seed}"] for seed in (0, 1)])
    assert known.verdict.difference == pytest.approx(expected)
    assert known.verdict.decision != "open"
    assert str(known).startswith("entity - mlm: ")


@pytest.mark.parametrize(
    ("changes", "message"), [({"methods": {"mlm": {}}}, "name at least two"), ({"lengths": [32, 64]}, "judges one length")]
)
def test_what_cannot_be_judged_so_is_refused(recipe: Make, changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        run_until_shown(recipe(**changes))


@pytest.mark.parametrize("lost", ["mlm", "entity"])
def test_a_method_that_is_lost_leaves_nothing_to_compare(recipe: Make, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    from coref_automl.training import run

    true = run.train

    def failing(given: Any, **options: Any) -> Any:
        if given.objective == lost:
            raise NotFinite("The loss of step 1 is NaN.")
        return true(given, **options)

    monkeypatch.setattr(run, "train", failing)
    wanted = recipe(train={"max_tokens": 1_000, "batch": 8, "learning_rate": 1e-3, "checkpoints": 1})
    with pytest.raises(ComparisonError, match=f"no run of {lost} was finished"):
        run_until_shown(wanted, launcher=InlineLauncher())


@pytest.mark.journey
def test_adapt_tunes_first_and_compares_the_winner_on_documents_that_did_not_choose_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COREF_AUTOML_PORTFOLIO", str(tmp_path / "portfolio.yaml"))
    out = tmp_path / "adapted"
    written = bench.file(tmp_path / "recipe.yaml", out, methods={"mlm": {}}, seeds=1)
    assert command(["adapt", "--recipe", str(written), "--tune", "1"]) == 0
    assert (out / "tune" / "best-recipe.yaml").is_file()
    assert {path.name for path in (out / "runs").iterdir()} == {"mlm-64-s0", "tuned-64-s0"}
    judged = {one.evaluation.evalset for one in find_evaluations([out / "evaluations"])}
    assert all("confirm" in name for name in judged)
