"""The end of a study: winners are chosen on select, and judged on confirm by runs that chose nothing, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from coref_automl.engine.job import Job
from coref_automl.errors import TuningError
from coref_automl.progress import quiet
from coref_automl.say import Say
from coref_automl.tuning.finish import Final, finish, run_all
from coref_automl.tuning.outputs import StudyResult
from coref_automl.tuning.reasons import reason_words
from coref_automl.tuning.recipe import REPORTS
from tests.tuning.inline import DeadLauncher
from tests.tuning.scripted import Script, ScriptedLauncher, rate, search


def end(out: Path, script: Script, **changes: object) -> Final:
    return end_and_runs(out, script, **changes)[0]


def end_and_runs(out: Path, script: Script, **changes: object) -> tuple[Final, list[Job]]:
    """The end of a study, and the runs that it started."""
    made, _ = search(out, script, **changes)
    made.run()
    launcher = ScriptedLauncher(script)
    final = finish(made.study, made.problem, made.recipe, launcher, quiet(), wait=lambda: None)
    return final, [run.job for run in launcher.started]


def drawn(job: Job) -> bool:
    return rate(job) not in (0.5, 0.25)


def luck_that_chose(job: Job) -> list[float | str]:
    """Drawn settings are lucky with the seeds that choose, and no better than the recommended ones with new seeds."""
    seed = job.recipe["seed"]
    new = {3: 0.50, 4: 0.60, 5: 0.55} if drawn(job) else {3: 0.55, 4: 0.50, 5: 0.60}
    return [new.get(seed, 0.9 if drawn(job) else 0.3)] * REPORTS


def test_runs_that_chose_do_not_judge(tmp_path: Path) -> None:
    final, runs = end_and_runs(tmp_path, luck_that_chose)
    assert final.choosing_seeds == (0, 1, 2)
    assert not final.winner.recommended
    assert final.winner.select == (0.9, 0.9, 0.9)
    assert final.winner.judging_seeds == (3, 4, 5)
    assert final.winner.confirm == (0.50, 0.60, 0.55)
    assert final.verdict is not None
    assert not final.verdict.shown
    assert abs(final.verdict.difference) < 1e-9
    assert "is not shown to differ from the recommended settings: " in final.sentence
    assert "on confirm over 3 new seeds" in final.sentence
    assert len(runs) == 4 * 3 + 2 * 3
    judged = {rate(job) for job in runs if job.recipe["seed"] >= 3}
    assert judged == {final.winner.params["learning_rate"], 0.5}


def test_a_new_run_that_fails_is_named_and_its_pair_is_left_out(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        lost = drawn(job) and job.recipe["seed"] == 4
        return ["fail: not a number: The loss is not a number."] if lost else luck_that_chose(job)

    final = end(tmp_path, script)
    assert final.winner.judging_seeds == (3, 5)
    assert final.opponent is not None
    assert final.opponent.judging_seeds == (3, 4, 5)
    assert final.verdict is not None
    assert final.verdict.over_seeds is not None
    assert final.verdict.over_seeds.n == 2
    assert final.verdict.difference == pytest.approx(-0.05)
    assert "on confirm over 2 new seeds" in final.sentence
    (note,) = final.notes
    number = final.winner.number
    assert note.startswith(f"Trial {number} with seed 4 is left out of the verdict: The loss is not a number. (log: ")
    assert reason_words(note, Say("ko")).startswith(f"판정에서 빠진 시도 {number}, 시드 4: ")
    result = StudyResult("study", "tpe", "real1_strict", {"complete": 6}, final.sentence, final)
    assert note in result.lines()


def test_one_new_seed_that_is_left_cannot_tell(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return ["fail: a: b"] if drawn(job) and job.recipe["seed"] > 3 else luck_that_chose(job)

    final = end(tmp_path, script)
    assert "on confirm over 1 new seed, " in final.sentence
    assert final.sentence.endswith("the one new seed that is left cannot tell, run the same command again.")


@pytest.mark.parametrize("lost", ["winner", "reference"])
def test_without_a_new_seed_on_both_sides_there_is_no_verdict(tmp_path: Path, lost: str) -> None:
    def script(job: Job) -> list[float | str]:
        return ["fail: a: b"] if drawn(job) == (lost == "winner") and job.recipe["seed"] >= 3 else luck_that_chose(job)

    final = end(tmp_path, script)
    assert final.verdict is None
    assert final.reference is not None
    assert "there is no verdict: run the same command again" in final.sentence
    told = {"winner": "(no new seed completed)", "reference": "(Real@1 strict 55.00% on confirm over 3 new seeds)"}
    assert f"is the best on select {told[lost]}; " in final.sentence
    assert len(final.notes) == 3
    assert Final.from_json(final.to_json()) == final


def test_a_winner_that_is_better_on_every_seed_is_shown(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        drawn = rate(job) not in (0.5, 0.25)
        return [(0.9 if drawn else 0.3) + (0.02 if drawn else 0.05) * job.recipe["seed"]] * REPORTS

    final = end(tmp_path, script)
    assert final.verdict is not None
    assert final.verdict.shown
    assert final.sentence.startswith(f"Trial {final.winner.number} is better than the recommended settings: +4")


def test_seeds_that_all_give_the_same_lead_show_nothing(tmp_path: Path) -> None:
    final = end(tmp_path, lambda job: [0.9 if rate(job) not in (0.5, 0.25) else 0.3] * REPORTS)
    assert final.verdict is not None
    assert not final.verdict.shown
    assert final.sentence.endswith("every seed gives the same, so their spread is unknown.")


def test_a_lead_that_seeds_turn_round_is_called_noise(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        drawn, seed = rate(job) not in (0.5, 0.25), job.recipe["seed"]
        return [(0.60 if drawn else 0.56) + (0.1 if drawn == (seed % 2 == 0) else 0.0)] * REPORTS

    final = end(tmp_path, script)
    assert not final.winner.recommended
    assert "is not shown to differ" in final.sentence


def test_recommended_settings_that_win_are_kept(tmp_path: Path) -> None:
    final, runs = end_and_runs(tmp_path, lambda job: [0.9 if rate(job) == 0.25 else 0.1] * REPORTS)
    assert final.winner.number == final.reference == 1
    assert final.verdict is None
    assert final.winner.judging_seeds == (3, 4, 5)
    assert [job.recipe["seed"] for job in runs if rate(job) == 0.25] == [0, 1, 2, 3, 4, 5]
    assert all(job.recipe["seed"] < 3 for job in runs if rate(job) != 0.25)
    assert final.sentence == (
        "The recommended settings are the best found (Real@1 strict 90.00% on confirm over 3 new seeds): keep them."
    )


def test_the_reference_is_the_better_of_the_recommended_settings_and_is_always_trained_again(tmp_path: Path) -> None:
    final = end(tmp_path, lambda job: [0.2 if rate(job) == 0.5 else 0.3 if rate(job) == 0.25 else 0.8] * REPORTS, finalists=2)
    assert final.reference == 1
    assert [one.recommended for one in final.finalists] == [False, False, True]
    assert all(len(one.select) == 3 for one in final.finalists)
    assert [one.judging_seeds for one in final.finalists] == [(3, 4, 5), (), (3, 4, 5)]


def test_the_winner_is_the_best_over_all_seeds_not_over_the_first(tmp_path: Path) -> None:
    lucky: dict[float, int] = {}

    def script(job: Job) -> list[float | str]:
        order = lucky.setdefault(rate(job), len(lucky))
        first = job.recipe["seed"] == 0
        return [0.9 if order == 3 and first else 0.4 if order == 3 else 0.7 if order == 4 else 0.3] * REPORTS

    final = end(tmp_path, script)
    assert final.winner.number == 4


def test_finalists_are_different_recipes(tmp_path: Path) -> None:
    """A search over few choices draws the same recipe again; of the recommended settings, their own trial stands for them."""
    made, _ = search(tmp_path, lambda job: [1 - rate(job)] * REPORTS, trials=7, finalists=2)
    for drawn_again in (0.125, 0.125, 0.25, 0.125, 0.75):
        made.study.enqueue_trial({"learning_rate": drawn_again})
    made.run()
    kept = {made.problem.job({"learning_rate": of}, 0).key for of in (0.125, 0.25, 0.5)}
    assert not kept & set(made.problem.dropped)
    launcher = ScriptedLauncher(made.launcher.script)
    final = finish(made.study, made.problem, made.recipe, launcher, quiet(), wait=lambda: None)
    assert [(one.number, one.params["learning_rate"]) for one in final.finalists] == [(2, 0.125), (1, 0.25)]
    assert final.reference == 1


def test_one_seed_is_told_to_be_too_few(tmp_path: Path) -> None:
    final = end(tmp_path, lambda job: [0.9 if rate(job) not in (0.5, 0.25) else 0.3] * REPORTS, seeds=1)
    assert "one seed cannot tell, pass --seeds 3" in final.sentence


def test_a_finalist_whose_further_seed_fails_is_left_out_and_named(tmp_path: Path) -> None:
    best: list[float] = []

    def script(job: Job) -> list[float | str]:
        if rate(job) not in (0.5, 0.25) and not best:
            best.append(rate(job))
        if best and rate(job) == best[0]:
            return ["fail: not a number: The loss is not a number."] if job.recipe["seed"] else [0.95] * REPORTS
        return [0.5] * REPORTS

    final = end(tmp_path, script)
    assert 2 not in [one.number for one in final.finalists]
    assert "Trial 2 is left out of the end: The loss is not a number. (log: " in final.notes[0]


def test_a_killed_finalist_is_tried_once_more(tmp_path: Path) -> None:
    deaths = iter(["die"])
    made, _ = search(tmp_path)
    jobs = [made.problem.job({"learning_rate": 0.5}, seed) for seed in range(2)]
    launcher = ScriptedLauncher(lambda job: [0.1, next(deaths, 0.1)])
    assert run_all(jobs, launcher, quiet(), wait=lambda: None) == {}
    assert len(launcher.started) == 3
    always = ScriptedLauncher(lambda _: ["die"])
    assert set(run_all(jobs, always, quiet(), wait=lambda: None)) == {job.key for job in jobs}


def test_a_process_that_dies_at_its_start_is_not_taken_for_done(tmp_path: Path) -> None:
    """The outcome of an earlier call lies in its folder."""
    made, launcher = search(tmp_path, trials=2)
    made.run()
    jobs = [run.job for run in launcher.started]
    failed = run_all(jobs, DeadLauncher(), quiet(), wait=lambda: None)
    assert set(failed) == {job.key for job in jobs}


def test_no_completed_trial_says_so_and_why(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"No trial of the study 'study' completed \(the last says: b\); .* another --out"):
        end(tmp_path, lambda _: ["fail: a: b"], trials=2)


def test_finalists_that_all_fail_say_so_and_why(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"No finalist could be trained with its further seeds: Trial .* \(log: "):
        end(tmp_path, lambda job: ["fail: a: b"] if job.recipe["seed"] else [0.5] * REPORTS)
