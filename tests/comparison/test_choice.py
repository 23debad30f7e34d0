"""What came out highest, and how long to train next time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.base.config import from_mapping
from coref_automl.base.errors import ComparisonError
from coref_automl.evaluation.metrics import halves
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.study.recipe import EvaluateStage
from coref_automl.report.printout import recommend
from coref_automl.training.recipe import TrainRecipe, check
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation

BASE = Model("base", 0, -1.5)


def plateau(steps: int = 4) -> list[Model]:
    """A run that has learned all it will by its second checkpoint."""
    return [BASE, Model("run", 100, -0.6), *(Model("run", 100 * k, 0.6) for k in range(2, steps + 1))]


def test_of_checkpoints_that_are_as_high_the_earliest_is_taken(evaluated: Maker) -> None:
    root = evaluated([BASE, Model("run", 200, 0.6)], documents=30)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    for step in (100, 300, 400):
        write_evaluation(root, Model("run", step, 0.6), scores)
    keep = recommend(root).keep
    assert keep is not None
    assert (keep.name, keep.tied) == ("checkpoint-100", ("checkpoint-200", "checkpoint-300", "checkpoint-400"))


def test_equal_checkpoints_are_told_to_be_reached_by_the_earliest(evaluated: Maker) -> None:
    root = evaluated(plateau(2), documents=150)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    for step in range(300, 600, 100):
        write_evaluation(root, Model("run", step, 0.6), scores)
    it = recommend(root)
    assert (it.base, it.action) == ("base", "use checkpoint")
    assert it.next_time is not None
    assert Path(it.next_time.checkpoint) == root / "run" / "checkpoint-200"
    assert (it.next_time.how, it.next_time.tokens, it.next_time.share, it.next_time.points) == ("less", 200_000, 0.4, 5)
    assert "Next time, train until 200k tokens (40% of this training)" in str(it)


def test_the_accepted_loss_is_the_margin_or_a_quarter_of_the_gain(evaluated: Maker) -> None:
    root = evaluated(plateau(2), documents=200)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    of = halves(scores)
    wrong = [n for n, s in enumerate(scores) if s.rank > 1 and of[n] == "select" and s.task == "real"]
    better = [replace(s, rank=1) if n in wrong[:3] else s for n, s in enumerate(scores)]
    write_evaluation(root, Model("run", 300, 0.6), better)
    wide = recommend(root, margin=4).next_time
    assert wide is not None
    assert (wide.loss, wide.name, wide.share) == (0.04, "checkpoint-200", pytest.approx(2 / 3))
    it = recommend(root, margin=50)
    assert it.next_time is not None
    assert it.next_time.loss == pytest.approx(it.questions[0].lead.difference.value / 4)


def test_a_set_too_small_to_save_training_says_so(evaluated: Maker) -> None:
    it = recommend(evaluated(plateau(5), documents=160))
    assert it.next_time is not None
    assert (it.next_time.how, it.next_time.tokens, it.next_time.share, it.next_time.checkpoint) == ("as long", None, None, "")


def test_one_lucky_run_is_not_a_method(evaluated: Maker) -> None:
    """A method of one seed is left aside where others have several, however high it is."""
    firm = [Model(f"entity-s{seed}", 100, 0.3, seed=seed) for seed in range(3)]
    it = recommend(evaluated([BASE, *firm, Model("combined-s0", 100, 1.5, objective="combined")], documents=80))
    assert (it.action, it.method, it.beats) == ("use method", "entity 128", ())
    combined = [claim for claim in it.claims if claim.a == "combined 128"]
    assert combined
    assert {claim.verdict for claim in combined} == {"not judged"}


def test_a_fall_is_declared_only_where_it_is_shown(evaluated: Maker) -> None:
    curves = {"mlm": (1.0, -1.0), "entity": (0.5, 0.49)}
    models = [
        Model(f"{name}-s{seed}", 100 * step, skill, objective=name, seed=seed)
        for name, skills in curves.items()
        for seed in range(3)
        for step, skill in enumerate(skills, 1)
    ]
    it = recommend(evaluated([BASE, *models], documents=120))
    falls = {claim.a: claim.verdict for claim in it.claims if claim.part == "peak to end"}
    assert falls["mlm 128"] == "better"
    assert falls.get("entity 128") != "better"


def test_one_checkpoint_alone_and_models_outside_runs_are_told_without_advice(evaluated: Maker) -> None:
    alone = recommend(evaluated([Model("run", 100, 0.5)]))
    assert (alone.action, alone.keep, alone.highest) == ("no base", None, "checkpoint-100")
    assert "Only checkpoint-100 was evaluated" in str(alone)
    outside = recommend(evaluated([BASE, Model("other", 0, 1.0)], set_name="b"), eval_set="b")
    assert (outside.action, outside.highest, outside.base) == ("undecided", "other", None)


def test_a_margin_that_cannot_be_is_refused(evaluated: Maker) -> None:
    with pytest.raises(ComparisonError, match="such as 2"):
        recommend(evaluated([BASE]), margin=200)


@pytest.mark.parametrize("fraction", [0.02, 0.005])
def test_a_fraction_is_refused_with_the_points_to_write(evaluated: Maker, tmp_path: Path, fraction: float) -> None:
    message = f"{fraction:g} is a fraction of 1; write {100 * fraction:g}"
    with pytest.raises(ComparisonError, match=message):
        recommend(evaluated([BASE]), margin=fraction)
    with pytest.raises(ComparisonError, match=message):
        report("runs", out=tmp_path / "out", margin=fraction)
    with pytest.raises(ComparisonError, match=message):
        from_mapping(EvaluateStage, {"margin": fraction}, "line.yaml")
    with pytest.raises(ComparisonError, match=message):
        check(TrainRecipe(model="bundled:ko-mini", dataset="d", out="o", margin=fraction))


def test_identical_checkpoints_are_called_equal_and_the_base_is_kept(tmp_path: Path) -> None:
    scores = make_scores(Model("run", 100, 0.5), documents=60, own=1)
    for number in range(5):
        for step in (100, 200):
            write_evaluation(tmp_path, Model(f"run-s{number}", step, 0.5, seed=number), scores)
    write_evaluation(tmp_path, Model("base", 0, 0.5), scores)
    it = recommend(tmp_path)
    assert {claim.verdict for claim in it.questions[0].claims} == {"same"}
    assert (it.action, it.next_time) == ("keep base", None)
    assert it._repr_html_().startswith("<p><strong>Keep the base")
