"""recommend: what to use and how long to train next time, judged on the half that did not choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.comparison.differences import in_words
from coref_automl.config import from_mapping
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import halves
from coref_automl.evaluation.results import find_evaluations
from coref_automl.experiment.recipe import EvaluateStage
from coref_automl.report.checkpoint_report import report
from coref_automl.report.printout import compare, recommend
from coref_automl.training.recipe import TrainRecipe, check
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation

BASE = Model("base", 0, -1.5)
OTHERS = ("mlm", "combined", "copy", "link", "copy+link")


def plateau(steps: int = 4) -> list[Model]:
    """A run that has learned all it will by its second checkpoint."""
    return [BASE, Model("run", 100, -0.6), *(Model("run", 100 * k, 0.6) for k in range(2, steps + 1))]


def identical_after(root: Path, steps: range) -> None:
    """Later checkpoints answer as checkpoint-200 does but for a few items."""
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    for step in steps:
        write_evaluation(root, Model("run", step, 0.6), scores)


def test_of_checkpoints_that_are_as_high_the_earliest_is_taken_and_the_others_are_named(evaluated: Maker) -> None:
    root = evaluated([BASE, Model("run", 200, 0.6)], documents=30)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    for step in (100, 300, 400):
        write_evaluation(root, Model("run", step, 0.6), scores)
    it = recommend(root)
    assert (it.use.name, it.use.tied) == ("checkpoint-100", ("checkpoint-200", "checkpoint-300", "checkpoint-400"))
    assert (
        "3 other checkpoints are as high (checkpoint-200, checkpoint-300, checkpoint-400); the earliest is taken" in it.sentence
    )


def test_equal_checkpoints_are_told_to_be_reached_by_the_earliest(evaluated: Maker) -> None:
    root = evaluated(plateau(2), documents=150)
    identical_after(root, range(300, 600, 100))
    it = recommend(root)
    assert it.base == "base"
    assert it.beaten_base
    assert it.use.status == "shown"
    assert it.next_time is not None
    assert Path(it.next_time.checkpoint) == root / "run" / "checkpoint-200"
    assert (it.next_time.tokens, it.next_time.share, it.next_time.points) == (200_000, 0.4, 5)
    assert "Next time, train until 200k tokens (40% of this training)" in it.sentence
    assert [candidate.tokens for candidate in it.candidates] == [100_000, 200_000, 300_000, 400_000, 500_000]
    assert it.candidates[0].bound > 0.02
    assert it.candidates[1].bound == 0


def test_the_accepted_loss_is_the_margin_or_a_quarter_of_the_gain(evaluated: Maker) -> None:
    root = evaluated(plateau(2), documents=200)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    of = halves(scores)
    wrong = [n for n, s in enumerate(scores) if s.strict_rank > 1 and of[n] == "select" and s.task == "real"]
    better = [replace(s, strict_rank=1) if n in wrong[:3] else s for n, s in enumerate(scores)]
    write_evaluation(root, Model("run", 300, 0.6), better)
    wide = recommend(root, margin=4).next_time
    assert wide is not None
    assert (wide.loss, wide.name, wide.share) == (0.04, "checkpoint-200", pytest.approx(2 / 3))
    it = recommend(root, margin=50)
    assert it.next_time is not None
    assert it.use.over_base is not None
    assert it.next_time.loss == pytest.approx(it.use.over_base.value / 4)
    assert "a quarter of the gain over the base" in it.sentence


def test_a_set_too_small_to_save_training_says_so_and_what_it_would_take(evaluated: Maker) -> None:
    it = recommend(evaluated(plateau(5), documents=160))
    assert it.next_time is not None
    assert (it.next_time.tokens, it.next_time.share, it.next_time.checkpoint) == (None, None, "")
    assert "there are too few documents to place any point of its curve" in it.sentence
    assert it.next_time.more_documents is not None
    assert it.next_time.more_documents > 30
    assert "would do with 80% power" in it.sentence


def test_nothing_beats_the_base(evaluated: Maker) -> None:
    it = recommend(evaluated([BASE, Model("run", 100, -1.6), Model("run", 200, -1.7)]))
    assert it.beaten_base is False
    assert it.use.status == "not better than the base"
    assert it.sentence.startswith("Nothing here is shown to beat the base model base (")


def test_a_choice_that_the_other_half_contradicts_is_not_confirmed(evaluated: Maker) -> None:
    """A spike among checkpoints that are alike is not believed on the half that chooses; on the other half it is real."""
    root = evaluated([Model("run", 100 * step, 0.5) for step in range(1, 7)], documents=120)
    scores = find_evaluations([root / "run" / "checkpoint-200"])[0].scores()
    level = max(candidate.value.value for candidate in recommend(root).candidates)
    of = halves(scores)
    chosen = [n for n, s in enumerate(scores) if of[n] == "select" and s.task == "real"]
    wrong = [n for n in chosen if scores[n].strict_rank > 1]
    need = int(level * len(chosen)) + 2 - (len(chosen) - len(wrong))
    spike = [replace(s, strict_rank=1) if of[n] == "confirm" or n in wrong[:need] else s for n, s in enumerate(scores)]
    write_evaluation(root, Model("run", 200, 0.5), spike)
    it = recommend(root, margin=5)
    assert it.best == "checkpoint-200"
    assert it.name != it.best
    assert it.confirmation == "not confirmed"
    assert "checkpoint-200 leads it by" in it.sentence


def several(skills: dict[str, float], *, seeds: int = 3, steps: int = 2) -> list[Model]:
    """Runs of methods: each falls short by a little at its first checkpoint."""
    return [
        Model(f"{objective}-s{seed}", 100 * step, skill - 0.8 * (step < steps), objective=objective, seed=seed)
        for objective, skill in skills.items()
        for seed in range(seeds)
        for step in range(1, steps + 1)
    ]


def test_methods_of_several_seeds_are_advised_as_methods(evaluated: Maker) -> None:
    it = recommend(evaluated([BASE, *several({"mlm": -1.2, "entity": 0.8})], documents=150))
    use = it.use
    assert (use.method, use.objective, use.length, use.seeds, use.tokens) == ("entity 128", "entity", 128, 3, 200_000)
    assert (use.status, use.better_than, use.open_against, use.judged_on) == ("shown", ("mlm 128",), (), "confirm")
    assert use.checkpoint == it.chosen
    assert use.over_base is not None
    assert use.over_base.low > 0
    assert it.sentence.startswith("Use entity 128, trained on 200k tokens: ")
    assert "over 3 seeds on held-back documents; of its checkpoints entity-s" in it.sentence
    assert "It is shown better than the other method with several seeds." in it.sentence
    assert "Next time, train longer: its mean curve is highest at the end, and no earlier point is within 2 points" in it.sentence


@pytest.mark.parametrize(
    ("skills", "status", "won"),
    [({"mlm": -1.2, "combined": 0.8, "entity": 0.8}, "in part", ("mlm 128",)), ({"mlm": 0.8, "entity": 0.8}, "open", ())],
)
def test_methods_that_are_alike_are_not_told_apart(
    evaluated: Maker, skills: dict[str, float], status: str, won: tuple[str, ...]
) -> None:
    use = recommend(evaluated([BASE, *several(skills)], documents=100)).use
    assert (use.status, use.better_than, len(use.open_against)) == (status, won, 1)


def test_the_best_of_many_methods_has_more_to_show_than_one_alone(evaluated: Maker) -> None:
    """Whichever is luckiest is chosen, and its runs are lucky on the other half of the documents too."""
    alone = [BASE, *several({"entity": -0.85}, steps=1)]
    one = recommend(evaluated(alone, documents=80)).use
    assert one.status == "shown"
    it = recommend(evaluated([*alone, *several(dict.fromkeys(OTHERS, -4.0), steps=1)], documents=80))
    assert it.use.over_base == one.over_base
    assert it.use.over_base is not None
    assert it.use.over_base.low > 0
    assert it.use.status == "not better than the base"
    assert "it would be if it were the only method, but it was chosen of 6 (Bonferroni)" in it.sentence


def test_the_gain_of_one_run_comes_from_the_documents_that_did_not_choose_it(evaluated: Maker) -> None:
    use = recommend(evaluated([BASE, *several({"mlm": 0.4, "entity": 0.5}, seeds=1, steps=1)], documents=120)).use
    assert (use.seeds, use.judged_on) == (1, "confirm")
    assert use.over_base is not None
    assert use.over_base.n == use.value.n


def test_one_lucky_run_is_not_a_method(evaluated: Maker) -> None:
    """A method of one seed is left aside where others have several, however high it is."""
    models = [BASE, *several({"entity": 0.3}), Model("combined-s0", 200, 1.5, objective="combined")]
    it = recommend(evaluated(models, documents=80))
    assert it.best == "combined-s0/checkpoint-200"
    assert it.use.method == "entity 128"
    assert (it.use.open_against, it.use.unjudged) == ((), ("combined 128",))
    assert it.use.status != "shown"


def test_runs_without_a_curve_say_nothing_about_how_long_to_train(evaluated: Maker) -> None:
    it = recommend(evaluated([BASE, *several({"mlm": -1.0, "entity": 0.5}, seeds=1, steps=1)]))
    assert it.next_time is None
    assert it.use.seeds == 1
    assert "How long to train next time cannot be said: each run has one evaluated checkpoint." in it.sentence
    assert "one seed shows nothing about a method" in it.sentence


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_seeds_that_share_one_epoch_are_not_told_to_have_one_checkpoint(evaluated: Maker, lang: str) -> None:
    models = [
        Model(f"entity-s{seed}", step, 0.5, seed=seed) for seed, steps in enumerate(((100, 200), (50, 100))) for step in steps
    ]
    it = recommend(evaluated([BASE, *models]), lang=lang)
    assert it.next_time is None
    told = {
        "ko": "이 방법의 실행들에서 함께 평가된 에폭이 2개 미만입니다.",
        "en": "its runs share fewer than two evaluated epochs.",
    }
    assert told[lang] in it.sentence


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
        recommend(evaluated([BASE]), margin=200)


@pytest.mark.parametrize("fraction", [0.02, 0.005])
def test_a_fraction_is_refused_with_the_points_to_write(evaluated: Maker, tmp_path: Path, fraction: float) -> None:
    told = f"{fraction:g} is a fraction of 1; write {100 * fraction:g}"
    with pytest.raises(ComparisonError, match=told):
        recommend(evaluated([BASE]), margin=fraction)
    with pytest.raises(ComparisonError, match=told):
        report("runs", out=tmp_path / "out", margin=fraction)
    with pytest.raises(ComparisonError, match=told):
        from_mapping(EvaluateStage, {"margin": fraction}, "line.yaml")
    with pytest.raises(ComparisonError, match=told):
        check(TrainRecipe(model="bundled:ko-mini", dataset="d", out="o", margin=fraction))


def test_the_record_prints_well(evaluated: Maker) -> None:
    it = recommend(evaluated(plateau()))
    assert str(it).startswith(it.sentence)
    assert it._repr_html_().startswith("<p><strong>")


def test_identical_checkpoints_are_called_equal(tmp_path: Path) -> None:
    """Ten runs that answer alike: nothing is shown, the earliest is used, and nothing is left to plan."""
    scores = make_scores(Model("run", 100, 0.5), documents=60, own=1)
    for number in range(5):
        for step in (100, 200):
            write_evaluation(tmp_path, Model(f"run-s{number}", step, 0.5, seed=number), scores)
    write_evaluation(tmp_path, Model("base", 0, 0.5), scores)
    it = recommend(tmp_path)
    assert {one.verdict for one in it.over_bases} == {"the same on every item"}
    assert it.use.status == "not better than the base"
    assert it.use.tokens == 100_000
    assert it.next_time is not None
    assert (it.next_time.tokens, it.next_time.more_documents) == (100_000, None)
