"""recommend: the earliest checkpoint surely within the margin, judged on the half that did not choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.comparison.differences import in_words
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.results import find_evaluations
from coref_automl.report.printout import compare, recommend
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation

BASE = Model("base", 0, -1.5)


def plateau(steps: int = 4) -> list[Model]:
    """A run that has learned all it will by its second checkpoint."""
    return [BASE, Model("run", 100, -0.6), *(Model("run", 100 * k, 0.6) for k in range(2, steps + 1))]


def identical_after(root: Path, steps: range) -> None:
    """Later checkpoints answer as checkpoint-200 does but for a few items."""
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    for step in steps:
        write_evaluation(root, Model("run", step, 0.6), scores)


def test_the_earliest_checkpoint_surely_within_the_margin_is_chosen(evaluated: Maker) -> None:
    root = evaluated(plateau(2), documents=150)
    identical_after(root, range(300, 600, 100))
    it = recommend(root)
    assert Path(it.chosen) == root / "run" / "checkpoint-200"
    assert it.base == "base"
    assert it.confirmation == "confirmed"
    assert it.beaten_base
    assert [candidate.tokens for candidate in it.candidates] == [100_000, 200_000, 300_000, 400_000, 500_000]
    assert it.candidates[0].bound > 0.02
    assert it.candidates[1].bound == 0


def test_an_earlier_one_is_chosen_over_a_best_that_is_better_by_a_hair(evaluated: Maker) -> None:
    root = evaluated(plateau(2), documents=200)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    wrong = [n for n, s in enumerate(scores) if s.strict_rank > 1 and s.half == "select" and s.task == "real"]
    better = [replace(s, strict_rank=1) if n in wrong[:3] else s for n, s in enumerate(scores)]
    write_evaluation(root, Model("run", 300, 0.6), better)
    it = recommend(root, margin=0.2)
    assert (it.name, it.best, it.saves, it.settled) == ("checkpoint-200", "checkpoint-300", True, True)
    assert it.confirmation == "confirmed"
    assert "within 20 points of the best (checkpoint-300), at 67% of its training" in it.sentence


def test_a_set_too_small_to_save_training_says_so_and_what_it_would_take(evaluated: Maker) -> None:
    it = recommend(evaluated(plateau(5), documents=30))
    assert not it.settled
    assert it.name == it.best
    assert "too small to save training" in it.sentence
    assert it.more_documents is not None
    assert it.more_documents > 30
    assert "more documents" in it.sentence


def test_nothing_beats_the_base(evaluated: Maker) -> None:
    it = recommend(evaluated([BASE, Model("run", 100, -1.6), Model("run", 200, -1.7)]))
    assert it.beaten_base is False
    assert "nothing here is shown to beat the base" in it.sentence


def test_a_choice_that_the_other_half_contradicts_is_not_confirmed(tmp_path: Path) -> None:
    early = make_scores(Model("run", 100, 0.5), documents=120, own=1)
    lucky = next(n for n, s in enumerate(early) if s.half == "select" and s.strict_rank > 1 and s.task == "real")
    late = [replace(s, strict_rank=1) if s.half == "confirm" or n == lucky else s for n, s in enumerate(early)]
    write_evaluation(tmp_path, Model("run", 100, 0), early)
    write_evaluation(tmp_path, Model("run", 200, 0), late)
    it = recommend(tmp_path, margin=0.05)
    assert (it.name, it.best) == ("checkpoint-100", "checkpoint-200")
    assert it.confirmation == "not confirmed"
    assert "not confirmed" in it.sentence


def test_over_fitting_is_declared_only_where_it_is_shown(evaluated: Maker) -> None:
    falling = [Model("falls", 100, 1.0), Model("falls", 200, -1.0)]
    steady = [Model("holds", 100, 0.5), Model("holds", 200, 0.49)]
    it = recommend(evaluated([BASE, *falling, *steady], documents=120))
    shown = {one.run: one.shown for one in it.over_fitting}
    assert shown == {"falls": True, "holds": False}


def test_a_fall_is_told_in_the_words_and_the_reach_of_its_family(evaluated: Maker) -> None:
    models = [Model(f"run{n}", step, skill) for n in range(4) for step, skill in ((100, 0.2), (200, 0.0))]
    root = evaluated(models, documents=90)
    judged = [(one, one.comparison) for one in recommend(root).over_fitting if one.comparison is not None]
    assert len(judged) > 1
    for one, comparison in judged:
        assert comparison.family == len(judged)
        assert comparison.verdict == in_words(comparison)  # what is said follows from the adjusted p
        alone = compare(root / one.run).rows[1].comparison
        assert alone is not None
        assert alone.detectable is not None
        assert comparison.detectable is not None
        assert comparison.detectable > alone.detectable


def test_one_checkpoint_alone_is_reported_without_a_comparison(evaluated: Maker) -> None:
    it = recommend(evaluated([Model("run", 100, 0.5)]))
    assert it.sentence.startswith("Only checkpoint-100 was evaluated")
    assert it.over_base is None
    assert it.over_fitting == ()


def test_models_outside_runs_can_be_ranked_too(evaluated: Maker) -> None:
    it = recommend(evaluated([BASE, Model("other", 0, 1.0)]))
    assert it.name == "other"
    assert it.base is None


def test_a_margin_that_cannot_be_is_refused(evaluated: Maker) -> None:
    with pytest.raises(ComparisonError, match="such as 2"):
        recommend(evaluated([BASE]), margin=2)


def test_the_record_prints_well(evaluated: Maker) -> None:
    it = recommend(evaluated(plateau()))
    assert str(it).startswith(it.sentence)
    assert it._repr_html_().startswith("<p><strong>")


def test_only_less_training_is_called_earlier(evaluated: Maker) -> None:
    """Two runs of equal training: neither is the earlier one of the other, whatever their order."""
    models = [Model("base", 0, -1.0), Model("a", 100, 0.0, tokens=1000), Model("b", 100, 0.6, tokens=1000, seed=1)]
    it = recommend(evaluated(models, documents=30), margin=0.2)
    assert (it.name, it.promising) == ("b/checkpoint-100", None)
