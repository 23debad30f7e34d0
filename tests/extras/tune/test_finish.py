"""The end of a study: fresh seeds choose, other fresh seeds judge until it is known, and what is known is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coref_automl.base.errors import StorageError, TuningError
from coref_automl.base.job import Job
from coref_automl.base.progress import quiet
from coref_automl.base.records import Estimate
from coref_automl.base.say import Say
from coref_automl.extras.tune import finish as tuning_finish
from coref_automl.extras.tune import run as tuning_run
from coref_automl.extras.tune.choosing import JobRunner, TrialCandidate
from coref_automl.extras.tune.finish import Final, JudgingRuns, Selection, finish
from coref_automl.extras.tune.outputs import lines_of, sentence_of
from coref_automl.extras.tune.portfolio import KnownSettings
from coref_automl.extras.tune.problem import Report, Start
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from tests.extras.tune.inline import DeadLauncher
from tests.extras.tune.scripted import Script, ScriptedLauncher, ScriptedProblem, rate, search


def end(out: Path, script: Script, *, guards: dict[float, float] | None = None, **changes: object) -> tuple[Final, list[Job]]:
    """The end of a study, and the runs that it started."""
    tuner, _ = search(out, script, **{"ablate": False, **changes})
    tuner.problem.guards = guards or {}  # type: ignore[attr-defined]
    tuner.run()
    launcher = ScriptedLauncher(script)
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, launcher, quiet(), lambda: None))
    return final, [run.job for run in launcher.started]


def verdict(final: Final) -> str:
    return sentence_of(final, "Real@1", "confirm", Say("en"))


def is_sampled(job: Job) -> bool:
    return rate(job) not in (0.5, 0.25)


def wobble(job: Job) -> float:
    """The luck of a seed, different on both sides."""
    return 0.001 * ((job.recipe["seed"] * (7 if is_sampled(job) else 3)) % 5)


def level(better: float, other: float = 0.5) -> Script:
    """Drawn settings on one level, the recommended ones a little above train's default on another."""
    return lambda job: [(better if is_sampled(job) else other + 0.005 * (rate(job) == 0.25)) + wobble(job)] * REPORTS


def test_the_run_that_nominated_does_not_choose_and_runs_that_chose_do_not_judge(tmp_path: Path) -> None:
    """Drawn settings are lucky with the seed of the search and with those that choose, and equal with new ones."""

    def script(job: Job) -> list[float | str]:
        lucky = is_sampled(job) and job.recipe["seed"] < 5
        return [(0.9 if lucky else 0.51 if rate(job) == 0.25 else 0.5) + wobble(job)] * REPORTS

    final, runs = end(tmp_path, script, finalists=2)
    assert final.best.origin == "drawn"
    assert final.best.seeds == (1, 2, 3, 4)
    assert final.judging[0] == 5
    assert final.comparison is not None
    assert final.comparison.verdict.decision != "better"
    assert 0 not in {job.recipe["seed"] for job in runs}
    judged = {rate(job) for job in runs if job.recipe["seed"] >= 5}
    assert judged == {final.best.params["learning_rate"], 0.5, 0.25}  # the winner, its opponent, and train's default


def test_a_clear_gain_is_shown_at_an_early_look(tmp_path: Path) -> None:
    final, runs = end(tmp_path, level(0.6))
    assert final.comparison is not None
    assert final.comparison.verdict.decision == "better"
    assert len(final.comparison.seeds) == 4
    assert max(job.recipe["seed"] for job in runs) == 8
    assert verdict(final).startswith(f"The search (trial {final.winner}) is better than ")
    assert "over train's plain default" in " ".join(lines_of(final, _recipe(tmp_path), "Real@1", "confirm", Say("en"))).lower()


def test_a_gain_that_does_not_matter_ends_the_comparison(tmp_path: Path) -> None:
    """Choosing seeds favour the drawn settings; new ones show that there is nothing."""

    def script(job: Job) -> list[float | str]:
        return [0.5 + (0.02 if is_sampled(job) and job.recipe["seed"] < 5 else 0.0) + wobble(job)] * REPORTS

    final, _ = end(tmp_path, script)
    assert final.comparison is not None
    assert final.comparison.verdict.decision == "futile"
    assert len(final.comparison.seeds) == 4
    assert "gains no more than" in verdict(final)


def test_pairs_are_added_until_they_are_spent(tmp_path: Path) -> None:
    final, _ = end(tmp_path, level(0.506), worth=0.1)
    assert final.comparison is not None
    assert len(final.comparison.seeds) == 24 or final.comparison.verdict.decision == "better"


def test_a_search_that_finds_nothing_says_how_much_there_may_be(tmp_path: Path) -> None:
    final, _ = end(tmp_path, level(0.40))
    assert final.best.origin != "drawn"
    assert final.ceiling is not None
    assert final.ceiling < 0.005
    lines = lines_of(final, _recipe(tmp_path), "Real@1", "confirm", Say("en"))
    assert any("No setting tried gains more than" in line for line in lines)


def test_runs_that_stop_early_bound_the_gain_by_where_they_ended(tmp_path: Path) -> None:
    """Relation extraction stops where epochs no longer help: here the reference, or else the drawn settings."""

    def stopping(early: Callable[[Job], bool]) -> Script:
        return lambda job: [0.3, 0.5 + wobble(job)] if early(job) else [0.1, 0.2, 0.3, 0.5 + wobble(job)]

    for number, early in enumerate((is_sampled, lambda job: not is_sampled(job))):
        final, _ = end(tmp_path / str(number), stopping(early))
        assert final.ceiling is not None
        assert 0 < final.ceiling < 0.02


def test_a_trial_cut_at_a_quarter_that_its_reference_passed_over_is_compared_between_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a budget in minutes, long steps report at some of the quarters alone."""

    def reports(_: ScriptedProblem, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        quarters = (1, 2, 3, 4) if is_sampled(job) else (1, 3, 4)
        return (Report(quarters[event["step"] - 1], event["value"]) for event in events)

    monkeypatch.setattr(ScriptedProblem, "reports", reports)
    final, _ = end(tmp_path, lambda job: [0.31, 0.1, 0.1, 0.1] if is_sampled(job) else [0.3, 0.5, 0.6 + wobble(job)], prune=True)
    assert final.ceiling is not None
    assert final.ceiling < 0.05


def test_a_win_of_the_recommended_settings_is_judged_against_trains_default(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return [{0.25: 0.6, 0.5: 0.5}.get(rate(job), 0.3) + wobble(job)] * REPORTS

    final, _ = end(tmp_path, script)
    assert (final.best.origin, final.reference, final.over_default) == ("recommended", 0, None)
    assert final.comparison is not None
    assert final.comparison.verdict.decision == "better"


def started_from(monkeypatch: pytest.MonkeyPatch, *starts: Start) -> None:
    monkeypatch.setattr(ScriptedProblem, "starts", lambda _: list(starts))


def test_a_reference_need_not_be_a_finalist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The portfolio nominates itself and the recommended settings; these win, and train's default comes before them."""
    started_from(
        monkeypatch,
        Start("default", "mlm", {"learning_rate": 0.5}),
        Start("recommended", "entity", {"learning_rate": 0.25}),
        Start("portfolio", "light", {"learning_rate": 0.3}),
    )

    def script(job: Job) -> list[float | str]:
        nominated = {0.25: 0.60, 0.3: 0.61 if job.recipe["seed"] == 0 else 0.58, 0.5: 0.5}
        return [nominated.get(rate(job), 0.4) + wobble(job)] * REPORTS

    final, _ = end(tmp_path, script)
    assert (final.best.origin, final.reference) == ("recommended", 0)
    assert final.comparison is not None
    assert final.comparison.verdict.decision == "better"


def test_a_start_that_nothing_precedes_needs_no_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the objective fixed there is no default: what guards refer to is the recommended settings themselves."""
    started_from(monkeypatch, Start("recommended", "entity", {"learning_rate": 0.25}))
    tuner, _ = search(tmp_path, level(0.4), guards=("real_far1>=-0.5",), ablate=False)
    tuner.run()
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(level(0.4)), quiet(), lambda: None))
    assert (final.best.origin, final.reference, final.refused) == ("recommended", None, None)
    assert verdict(final).endswith("keep it.")


def test_nothing_before_the_default_means_nothing_to_compare(tmp_path: Path) -> None:
    final, _ = end(tmp_path, lambda job: [{0.5: 0.6}.get(rate(job), 0.3) + wobble(job)] * REPORTS)
    assert final.reference is None
    assert final.comparison is None
    assert verdict(final).endswith("keep it.")


def test_a_guard_keeps_out_what_does_not_meet_it_and_one_that_nobody_meets_is_said(tmp_path: Path) -> None:
    guards = {0.5: 0.4, 0.25: 0.4}
    assert end(tmp_path, level(0.6), guards=guards)[0].best.origin == "drawn"  # no guard was asked for
    tuner, _ = search(tmp_path / "guarded", level(0.6), guards=("real_far1>=-0.5",), ablate=False)
    tuner.problem.guards = guards  # type: ignore[attr-defined]
    tuner.run()
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(level(0.6)), quiet(), lambda: None))
    assert final.best.origin != "drawn"
    assert final.unmet == "real_far1>=-0.5"
    lines = lines_of(final, tuner.recipe, "Real@1", "confirm", Say("en"))
    assert "No drawn setting met all guards; the best one broke real_far1>=-0.5." in lines


def test_of_several_guards_those_are_said_that_every_drawn_setting_broke_or_else_the_best_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drawn settings; each breaks the second guard, or in the other case one guard each."""

    def finished(out: Path, far: tuple[float, float], near: tuple[float, float]) -> tuple[Final, list[str]]:
        def script(job: Job) -> list[float | str]:
            return [{0.125: 0.61, 0.0625: 0.6}.get(rate(job), 0.5) + wobble(job)] * REPORTS

        guards = ("real_far1>=-0.5", "real1>=-0.5")
        tuner, _ = search(out, script, guards=guards, ablate=False, trials=4, finalists=4)
        for value in (0.125, 0.0625):
            tuner.study.enqueue_trial({"learning_rate": value})
        values = {0.125: (far[0], near[0]), 0.0625: (far[1], near[1])}

        def guarded(ours: list[Job], _theirs: list[Job], _half: str) -> dict[str, Estimate]:
            pair = values.get(rate(ours[0]), (0.0, 0.0))
            return {name: Estimate(value, value, value, 9) for name, value in zip(("real_far1", "real1"), pair, strict=True)}

        monkeypatch.setattr(tuner.problem, "guarded", guarded)
        tuner.run()
        final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(script), quiet(), lambda: None))
        return final, lines_of(final, tuner.recipe, "Real@1", "confirm", Say("en"))

    final, lines = finished(tmp_path / "one", (-0.02, 0.0), (-0.02, -0.02))
    assert (final.best.origin != "drawn", final.unmet) == (True, "real1>=-0.5")
    final, lines = finished(tmp_path / "each", (-0.02, 0.0), (0.0, -0.02))
    assert (final.best.origin != "drawn", final.unmet) == (True, "real_far1>=-0.5")
    assert "No drawn setting met all guards; the best one broke real_far1>=-0.5." in lines
    final, lines = finished(tmp_path / "met", (0.0, -0.02), (0.0, -0.02))
    assert (final.best.origin, final.unmet) == ("drawn", None)


@pytest.mark.parametrize(("outside", "met"), [(-0.005, True), (-0.023, False)])
def test_a_guard_of_a_fine_tuned_task_refuses_the_winner_in_a_sentence(tmp_path: Path, outside: float, met: bool) -> None:
    tuner, _ = search(tmp_path, level(0.6), guards=("relation_f1>=-1",))
    tuner.problem.outside = outside  # type: ignore[attr-defined]
    tuner.run()
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(level(0.6)), quiet(), lambda: None))
    lines = lines_of(final, tuner.recipe, "Real@1", "confirm", Say("en"))
    assert final.best.origin == "drawn"
    assert final.comparison is not None
    assert final.comparison.verdict.decision == "better"
    assert final.recommended.origin == ("drawn" if met else "recommended")
    assert final.refused == (None if met else "relation_f1>=-1")
    assert ("is refused: it breaks the guard relation_f1>=-1." in lines[0]) is not met
    assert any("Guard relation_f1: " in line for line in lines)
    assert bool(final.effects) is met


def test_a_guard_that_could_not_be_measured_keeps_the_winner_out(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, level(0.6), guards=("relation_f1>=-1",))
    tuner.run()
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(level(0.6)), quiet(), lambda: None))
    assert (final.refused, final.recommended.origin) == ("relation_f1>=-1", "recommended")
    lines = lines_of(final, tuner.recipe, "Real@1", "confirm", Say("en"))
    assert "is refused: nothing could be measured for the guard relation_f1>=-1." in lines[0]


def test_a_new_run_that_fails_is_named_and_its_pair_is_left_out(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        lost = is_sampled(job) and job.recipe["seed"] == 6
        return ["fail: not a number: The loss is not a number."] if lost else level(0.6)(job)

    final, _ = end(tmp_path, script)
    assert final.comparison is not None
    assert 6 not in final.comparison.seeds
    assert any(note.startswith("A run of the verdict is left out: The loss is not a number. (log: ") for note in final.notes)
    assert Final.from_json(final.to_json()) == final


def test_a_reference_that_cannot_be_trained_again_leaves_no_verdict(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        lost = not is_sampled(job) and job.recipe["seed"] >= 5
        return ["fail: KeyError: banana"] if lost else level(0.6)(job)

    final, _ = end(tmp_path, script)
    assert final.best.origin == "drawn"
    assert (final.comparison, final.share) == (None, None)
    assert "there is no verdict: run the same command again." in verdict(final)


def test_a_winner_whose_guards_have_no_pair_is_not_left_behind(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        lost = not is_sampled(job) and job.recipe["seed"] >= 5
        return ["fail: KeyError: banana"] if lost else level(0.6)(job)

    told = r"No guard could be measured: .* no new seed together: .*banana.*; run the same command again\."
    tuner, _ = search(tmp_path, script, guards=("real_far1>=-0.5",), ablate=False)
    tuner.run()
    with pytest.raises(TuningError, match=told):
        finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(script), quiet(), lambda: None))


def test_a_winner_without_anything_to_be_judged_against_breaks_its_guards(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return level(0.6)(job) if is_sampled(job) else ["fail: KeyError: banana"]

    tuner, _ = search(tmp_path, script, guards=("real_far1>=-0.5",), ablate=False)
    tuner.run()
    with pytest.raises(TuningError, match=r"No guard could be measured: .* none of the settings to begin with completed; run"):
        finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, ScriptedLauncher(script), quiet(), lambda: None))


def test_a_finalist_whose_fresh_seed_fails_is_out(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return ["fail: a: b"] if is_sampled(job) and job.recipe["seed"] else level(0.6)(job)

    final, _ = end(tmp_path, script)
    assert all(candidate.origin != "drawn" for candidate in final.raced)
    with pytest.raises(TuningError, match="No finalist could be trained with its fresh seeds"):
        end(tmp_path / "none", lambda job: ["fail: a: b"] if job.recipe["seed"] else [0.5] * REPORTS)


def test_one_setting_back_tells_what_mattered(tmp_path: Path) -> None:
    final, _ = end(tmp_path, level(0.6), ablate=True)
    (effect,) = final.effects
    assert (effect.name, effect.back) == ("learning_rate", 0.25)
    assert effect.loss == pytest.approx(0.1, abs=0.01)
    lines = lines_of(final, _recipe(tmp_path), "Real@1", "confirm", Say("en"))
    assert any(line.startswith("One setting back at a time, in points: learning_rate ") for line in lines)


def test_a_setting_that_cannot_be_put_back_takes_no_others_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    winner, reference = (
        TrialCandidate(number, "drawn", "", {"objective": objective, "learning_rate": lr}, 0.5)
        for number, objective, lr in ((1, "entity", 0.2), (2, "mlm", 0.1))
    )
    tried: list[float] = []

    def run(jobs: list[Job], _stage: str) -> set[str]:
        tried.extend(rate(job) for job in jobs)
        return {job.key for job in jobs}

    problem = ScriptedProblem(out=tmp_path)
    monkeypatch.setattr(problem, "accepts", lambda params: params["objective"] == "entity", raising=False)
    monkeypatch.setattr(tuning_finish, "_ABLATED_SETTINGS", 1)
    selection = Selection([winner, reference], winner, None, None, {})
    runs = JudgingRuns(selection, _recipe(tmp_path), SimpleNamespace(problem=problem, run=run))  # type: ignore[arg-type]
    runs.ablate(reference, [5])
    assert tried == [0.1]


def test_a_winner_is_remembered_with_its_own_model_and_what_cannot_be_written_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, _ = end(tmp_path, level(0.6))
    of_large = replace(final, raced=tuple(replace(one, params={**one.params, "model": "large"}) for one in final.raced))
    remembered: list[KnownSettings] = []

    def remember(entry: KnownSettings) -> None:
        remembered.append(entry)
        raise StorageError("The disk is full.")

    monkeypatch.setattr(tuning_run, "shape_of", lambda model: ("bert", 1024 if model == "large" else 768))
    monkeypatch.setattr(tuning_run, "remember", remember)
    given = ScriptedProblem(out=tmp_path), _recipe(tmp_path), tmp_path, quiet()
    assert tuning_run._remember_winner(of_large, *given) is None
    assert [entry.up_to_hidden for entry in remembered] == [1024]


def test_the_share_of_the_tokens_is_where_the_winner_crosses_the_references_end(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return [0.3, 0.5, 0.6, 0.7 + wobble(job)] if is_sampled(job) else [0.2, 0.3, 0.4, 0.5 + wobble(job)]

    final, _ = end(tmp_path, script)
    assert final.share == pytest.approx(0.5, abs=0.01)


def test_a_quarter_with_several_reports_is_known_by_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five epochs, the first two end in the first quarter."""

    def reports(_: ScriptedProblem, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        return (Report(max(1, REPORTS * event["step"] // 5), event["value"]) for event in events)

    def script(job: Job) -> list[float | str]:
        return [0.1, 0.5, 0.6, 0.6, 0.7 + wobble(job)] if is_sampled(job) else [0.1, 0.2, 0.3, 0.4, 0.5 + wobble(job)]

    monkeypatch.setattr(ScriptedProblem, "reports", reports)
    final, _ = end(tmp_path, script)
    assert final.share == pytest.approx(0.25, abs=0.02)


def test_finalists_are_different_recipes(tmp_path: Path) -> None:
    """A search over few choices draws the same recipe again; of a start, its own trial stands for it."""
    tuner, _ = search(tmp_path, lambda job: [1 - rate(job)] * REPORTS, trials=7, finalists=2, ablate=False)
    for drawn_again in (0.125, 0.125, 0.25, 0.125, 0.75):
        tuner.study.enqueue_trial({"learning_rate": drawn_again})
    tuner.run()
    final = finish(
        tuner.study,
        tuner.recipe,
        JobRunner(tuner.problem, ScriptedLauncher(tuner.launcher.script), quiet(), lambda: None),
    )  # type: ignore[attr-defined]
    rates = [candidate.params["learning_rate"] for candidate in final.raced]
    assert len(rates) == len(set(rates))
    assert final.candidate(1) is not None


def test_a_killed_finalist_is_tried_once_more(tmp_path: Path) -> None:
    deaths = iter(["die"])
    tuner, _ = search(tmp_path)
    jobs = [tuner.problem.job({"learning_rate": 0.5}, seed) for seed in range(2)]
    launcher = ScriptedLauncher(lambda _: [0.1, next(deaths, 0.1)])
    runner = JobRunner(tuner.problem, launcher, quiet(), lambda: None)
    assert runner.run(jobs, "finalists") == set()
    assert len(launcher.started) == 3
    always = JobRunner(tuner.problem, ScriptedLauncher(lambda _: ["die"]), quiet(), lambda: None)
    assert always.run(jobs, "finalists") == {job.key for job in jobs}


def test_a_process_that_dies_at_its_start_is_not_taken_for_done(tmp_path: Path) -> None:
    """The outcome of an earlier call lies in its folder."""
    tuner, launcher = search(tmp_path, trials=2)
    tuner.run()
    jobs = [run.job for run in launcher.started]
    dead = JobRunner(tuner.problem, DeadLauncher(), quiet(), lambda: None)
    assert dead.run(jobs, "finalists") == {job.key for job in jobs}


def test_no_completed_trial_says_so_and_why(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"No trial of the study 'study' completed \(the last says: b\); .* another --out"):
        end(tmp_path, lambda _: ["fail: a: b"], trials=2)


@pytest.mark.parametrize(("guards", "kept"), [((), 2), (("relation_f1>=-1",), 8)])
def test_runs_with_fresh_seeds_give_their_weights_back_but_for_what_is_read(
    tmp_path: Path, guards: tuple[str, ...], kept: int
) -> None:
    """The first pair is read by what the study leaves behind, every pair by the guards of fine-tuned tasks."""
    tuner, _ = search(tmp_path, level(0.6), guards=guards)
    tuner.problem.outside = 0.0  # type: ignore[attr-defined]
    tuner.run()
    launcher = ScriptedLauncher(level(0.6))
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, launcher, quiet(), lambda: None))
    assert final.effects
    assert final.comparison is not None
    assert len(final.comparison.seeds) == 4
    dropped = set(tuner.problem.dropped)  # type: ignore[attr-defined]
    left = {run.job.key: run.job.recipe["seed"] for run in launcher.started if run.job.key not in dropped}
    assert len(left) == kept
    assert set(left.values()) == ({5} if kept == 2 else {5, 6, 7, 8})


def test_of_a_first_pair_that_only_one_side_completed_no_weights_are_kept(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        lost = rate(job) == 0.25 and job.recipe["seed"] == 5
        return ["fail: KeyError: banana"] if lost else level(0.6)(job)

    tuner, _ = search(tmp_path, script, ablate=False)
    tuner.run()
    launcher = ScriptedLauncher(script)
    final = finish(tuner.study, tuner.recipe, JobRunner(tuner.problem, launcher, quiet(), lambda: None))
    assert final.comparison is not None
    assert final.comparison.seeds[0] == 6
    done = [run.job for run in launcher.started if script(run.job)[0] != "fail: KeyError: banana"]
    left = [job.recipe["seed"] for job in done if job.key not in tuner.problem.dropped]  # type: ignore[attr-defined]
    assert left == [6, 6]


def _recipe(out: Path) -> TuneRecipe:
    return search(out / "recipe")[0].recipe
