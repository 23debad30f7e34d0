"""The search: recommended first, cut in time, failed with a reason, never lost, never counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import TuningError
from coref_automl.base.job import Job
from coref_automl.base.progress import quiet, read_events
from coref_automl.extras.tune import search as searching
from coref_automl.extras.tune import storage
from coref_automl.extras.tune.problem import Report, Start
from coref_automl.extras.tune.recipe import REPORTS
from coref_automl.extras.tune.run import run_search
from coref_automl.extras.tune.search import Search, completed
from coref_automl.extras.tune.storage import counts, queue_again
from tests.extras.tune.inline import DeadLauncher
from tests.extras.tune.scripted import ScriptedProblem, rate, search, steady


def states(of: Any) -> Counter[str]:
    return Counter(trial.state.name for trial in of.get_trials() if counts(trial))


def notes_of(tuner: Search, out: Path) -> list[str]:
    """Run a search, and return what it notes."""
    tuner.progress = quiet().into(out / "events.ndjson")
    tuner.run()
    return [event["text"] for event in read_events(out / "events.ndjson") if event["event"] == "note"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


def test_the_recommended_settings_are_the_first_trials_and_the_rest_is_drawn(tmp_path: Path) -> None:
    tuner, launcher = search(tmp_path)
    tuner.run()
    trials = tuner.study.get_trials()
    assert [trial.params["learning_rate"] for trial in trials[:2]] == [0.5, 0.25]
    assert [trial.user_attrs.get("origin") for trial in trials[:3]] == ["default", "recommended", None]
    assert states(tuner.study) == {"COMPLETE": 6}
    assert len(launcher.started) == 6


def test_progress_tells_the_best_value_in_percent(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, lambda job: [0.2 if rate(job) == 0.5 else 0.1] * REPORTS, trials=2)
    tuner.progress = quiet().into(tmp_path / "events.ndjson")
    tuner.run()
    assert [event["best"] for event in read_events(tmp_path / "events.ndjson") if event["event"] == "end"] == ["20.00%"]


def test_a_trial_that_dies_at_its_start_is_not_taken_for_done(tmp_path: Path) -> None:
    """An earlier study trained the same recipe, and its outcome lies there."""
    tuner, _ = search(tmp_path, trials=2)
    tuner.run()
    again, _ = search(tmp_path, trials=2, study="again")
    again.launcher = DeadLauncher()
    again.run()
    assert states(again.study) == {"FAIL": 2}


def test_a_trial_stops_within_one_report_of_what_cuts_it(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return [0.8] * REPORTS if rate(job) in (0.5, 0.25) else [0.9, 0.1, 0.1, 0.1]

    tuner, launcher = search(tmp_path, script, prune=True, trials=4)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 2, "PRUNED": 2}
    cut = tuner.study.get_trials()[2]
    assert cut.user_attrs["reason"] == "not in the better half of its objective at 2/4 of the budget"
    assert [run.reports for run in launcher.started] == [4, 4, 2, 2]
    assert all(run.stopped for run in launcher.started[2:])


def test_recommended_settings_are_never_cut(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, lambda job: [0.9 if rate(job) == 0.5 else 0.1] * REPORTS, prune=True, trials=2)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 2}


def test_a_failure_has_a_reason_and_a_log_and_no_value(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        return ["fail: out of memory: One row does not fit in memory."] if rate(job) == 0.25 else steady(job)

    tuner, _ = search(tmp_path, script, trials=4)
    tuner.run()
    failed = tuner.study.get_trials()[1]
    assert failed.state.name == "FAIL"
    assert failed.value is None
    assert failed.user_attrs["reason"] == "One row does not fit in memory."
    assert failed.user_attrs["log"].endswith("log.txt")
    assert states(tuner.study) == {"COMPLETE": 3, "FAIL": 1}


def test_three_failures_alike_in_a_row_stop_the_study_and_say_why(tmp_path: Path) -> None:
    tuner, launcher = search(tmp_path, lambda _: ["fail: not a number: The loss is not a number."], trials=9)
    why = r"3 trials in a row failed the same way \(not a number: The loss is not a number\); .* needs another --out"
    with pytest.raises(TuningError, match=why):
        tuner.run()
    assert len(launcher.started) == 3


def test_a_trial_that_ends_beside_the_one_that_stops_the_study_is_not_called_interrupted(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, lambda _: ["fail: KeyError: banana"], trials=9, slots=4)
    with pytest.raises(TuningError, match="in a row failed the same way"):
        tuner.run()
    assert states(tuner.study) == {"FAIL": 4}
    assert not any("interrupted" in trial.user_attrs for trial in tuner.study.get_trials())


def test_a_trial_is_known_by_the_last_report_of_a_quarter_in_which_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten epochs it stops after the fifth, its best; the fourth was the first of their quarter."""

    def reports(_: ScriptedProblem, _job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        return (Report(max(1, REPORTS * event["step"] // 10), event["value"]) for event in events)

    monkeypatch.setattr(ScriptedProblem, "reports", reports)
    tuner, _ = search(tmp_path, lambda _: [0.1, 0.2, 0.3, 0.4, 0.4, 0.5, 0.6], trials=1)
    tuner.run()
    assert [trial.value for trial in completed(tuner.study)] == [0.6]


def test_unlike_failures_do_not_stop_it(tmp_path: Path) -> None:
    kinds = iter(["a", "b", "a", "b", "a", "b"])
    tuner, _ = search(tmp_path, lambda _: [f"fail: {next(kinds)}: x"], trials=6)
    tuner.run()
    assert states(tuner.study) == {"FAIL": 6}


def test_a_trial_that_reports_nothing_is_a_failure(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, lambda _: ["done"], trials=1)
    tuner.run()
    assert tuner.study.get_trials()[0].user_attrs["reason"] == "it ended without a score"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("done", "(no score): it ended without a score."),
        ("fail: ValueError: The loss is gone.", "(ValueError): The loss is gone."),
    ],
)
def test_a_failure_is_told_in_whole_sentences(tmp_path: Path, script: str, reason: str) -> None:
    tuner, launcher = search(tmp_path, lambda _: [script], trials=1)
    assert notes_of(tuner, tmp_path) == [f"Trial 0 failed {reason} Log: {launcher.started[0].job.log}"]


def test_a_process_that_died_in_the_middle_of_its_log_is_told_in_one_sentence(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_text("ImportError: no such library.\n")
        return ["end 1"]

    tuner, _ = search(tmp_path, script, trials=1)
    died = "Trial 0: its process ended with status 1: ImportError: no such library; it runs again from its last checkpoint."
    assert notes_of(tuner, tmp_path)[0] == died


def test_a_process_that_dies_in_two_ways_did_not_die_twice_the_same_way(tmp_path: Path) -> None:
    deaths = iter(["die", "end 1"])
    tuner, _ = search(tmp_path, lambda job: [next(deaths)] if rate(job) == 0.25 else steady(job), trials=4)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 3, "FAIL": 1}
    failed = next(trial for trial in tuner.study.get_trials() if counts(trial) and trial.state.name == "FAIL")
    assert failed.user_attrs["reason"] == "its process ended with status 1: its log is empty"


def test_a_trial_that_died_and_was_taken_over_meanwhile_is_not_said_to_run_here_again(tmp_path: Path) -> None:
    waits, deaths = iter(range(1000)), iter(["die"])

    def wait() -> None:
        if next(waits) == 0:
            running = next(trial for trial in tuner.study.get_trials() if trial.state.name == "RUNNING")
            queue_again(tuner.study, running, "another machine heard nothing of it")

    tuner, launcher = search(tmp_path, lambda job: [0.5, next(deaths, 0.5), 0.5, 0.5], trials=3, wait=wait)
    assert notes_of(tuner, tmp_path)[0] == "Trial 0 was taken over by another machine while this one was silent."
    assert states(tuner.study) == {"COMPLETE": 3}
    assert tuner.problem.dropped == [run.job.key for run in launcher.started]  # type: ignore[attr-defined]


def test_a_killed_process_runs_again_once_and_counts_once(tmp_path: Path) -> None:
    deaths = iter(["die"])
    tuner, launcher = search(
        tmp_path, lambda job: [0.2, next(deaths, 0.2), *[0.2] * 2] if rate(job) == 0.25 else steady(job), trials=4
    )
    tuner.run()
    trials = tuner.study.get_trials()
    assert states(tuner.study) == {"COMPLETE": 4}
    assert len(launcher.started) == 5
    again = next(trial for trial in trials if trial.user_attrs.get("again") == 1)
    assert again.params == trials[1].params
    assert again.user_attrs["origin"] == "recommended"
    assert trials[1].user_attrs["interrupted"]


def test_a_process_that_dies_twice_is_a_failure(tmp_path: Path) -> None:
    tuner, launcher = search(tmp_path, lambda job: ["die"] if rate(job) == 0.25 else steady(job), trials=4)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 3, "FAIL": 1}
    assert len(launcher.started) == 5


@pytest.mark.parametrize("looks", [1, 5, 7, 11])
def test_a_killed_study_goes_on_with_nothing_lost_and_nothing_counted_twice(
    tmp_path: Path, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killing() -> Any:
        left = iter(range(looks))

        def wait() -> None:
            if next(left, None) is None:
                raise Killed

        return wait

    for _ in range(2):
        tuner, _ = search(tmp_path, wait=killing())
        with monkeypatch.context() as patch:
            patch.setattr(Search, "_requeue_active", lambda _: None)
            with pytest.raises(Killed):
                tuner.run()
        assert [trial.state.name for trial in tuner.study.get_trials()].count("RUNNING") == 1
    tuner, _ = search(tmp_path)
    tuner.run()
    trials = tuner.study.get_trials()
    assert states(tuner.study) == {"COMPLETE": 6}
    assert sum(bool(trial.user_attrs.get("interrupted")) for trial in trials) == 2
    kept = [trial.params["learning_rate"] for trial in trials if counts(trial)]
    assert len(set(kept)) == 6
    assert {0.5, 0.25} <= set(kept)
    whole, _ = search(tmp_path / "undisturbed")
    whole.run()
    assert sorted(kept) == sorted(trial.params["learning_rate"] for trial in whole.study.get_trials())
    search(tmp_path)[0].run()
    assert states(tuner.study) == {"COMPLETE": 6}


def test_an_interrupted_study_hands_its_trials_back_at_once(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    tuner, launcher = search(tmp_path, wait=interrupt, slots=2)
    with pytest.raises(KeyboardInterrupt):
        tuner.run()
    assert all(run.stopped for run in launcher.started)
    assert Counter(trial.state.name for trial in tuner.study.get_trials()) == {"FAIL": 2, "WAITING": 2}


def test_more_trials_can_be_asked_for_later(tmp_path: Path) -> None:
    search(tmp_path, trials=3)[0].run()
    tuner, launcher = search(tmp_path, trials=5)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 5}
    assert len(launcher.started) == 2


def test_two_workers_fill_two_slots_and_end_with_the_count_that_was_asked_for(tmp_path: Path) -> None:
    tuner, launcher = search(tmp_path, slots=2, trials=7)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 7}
    assert len(launcher.started) == 7


def test_every_trial_gives_its_weights_back_when_it_ends(tmp_path: Path) -> None:
    """Whatever wins is trained anew, with fresh seeds."""

    def script(job: Job) -> list[float | str]:
        return {0.5: steady(job), 0.25: ["fail: a: b"]}.get(rate(job), [0.9, 0.1, 0.1, 0.1])

    tuner, launcher = search(tmp_path, script, trials=6, prune=True)
    tuner.run()
    assert states(tuner.study)["PRUNED"] > 0
    assert states(tuner.study)["FAIL"] == 1
    assert tuner.problem.dropped == [run.job.key for run in launcher.started]  # type: ignore[attr-defined]


def test_a_trial_that_ends_leaves_the_weights_of_another_with_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trials of one recipe train in one folder: the later one waits, and is pruned by what the earlier one reports."""

    def script(job: Job) -> list[float | str]:
        return [0.8] * REPORTS if rate(job) in (0.5, 0.25) else [0.7] * REPORTS

    tuner, _ = search(tmp_path, script, slots=2, prune=True, trials=4)
    for _ in range(2):
        tuner.study.enqueue_trial({"learning_rate": 0.125})
    kept = []

    def drop(job: Job, **_: bool) -> None:
        kept.append(job.key not in [active.job.key for active in tuner.active])

    monkeypatch.setattr(tuner.problem, "drop_weights", drop)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 2, "PRUNED": 2}
    assert kept == [True] * 3


def test_a_machine_that_works_takes_over_the_trial_of_one_that_fell_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlalchemy", reason="the `scale` extra is not installed")
    shared = f"sqlite:///{tmp_path / 'study.db'}"
    waits = iter(range(1000))

    def wait() -> None:
        if next(waits) == 10:  # from here on whoever is not this process counts as silent
            monkeypatch.setattr(storage, "SILENT_SECONDS", -1.0)
            monkeypatch.setattr(searching, "HEARTBEAT_SECONDS", 0.0)

    theirs = search(tmp_path / "there", storage=shared, trials=4, owner="there")[0]
    left = theirs.study.ask()
    left.set_user_attr("owner", "there")
    theirs.problem.space.suggest(left, {})
    tuner, _ = search(tmp_path / "here", storage=shared, trials=4, owner="here", wait=wait)
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 4}
    assert [trial.number for trial in tuner.study.get_trials() if trial.user_attrs.get("interrupted")] == [left.number]
    assert 0.5 in [trial.params["learning_rate"] for trial in completed(tuner.study)]


@pytest.mark.parametrize("moment", [2, 3])
def test_a_machine_whose_trial_was_taken_over_stops_it_and_goes_on(tmp_path: Path, moment: int) -> None:
    waits = iter(range(1000))

    def wait() -> None:
        if next(waits) == moment:
            running = next(trial for trial in tuner.study.get_trials() if trial.state.name == "RUNNING")
            queue_again(tuner.study, running, "another machine heard nothing of it")

    tuner, launcher = search(tmp_path, trials=3, wait=wait)
    tuner.run()
    assert launcher.started[0].stopped == (moment == 2)  # at 3 it has ended by itself
    assert states(tuner.study) == {"COMPLETE": 3}
    assert len(launcher.started) == 4


def test_a_process_that_ends_without_a_word_is_not_called_killed(tmp_path: Path) -> None:
    def script(job: Job) -> list[float | str]:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_text("ImportError: no such library\n\n")
        return ["end 1"]

    tuner, _ = search(tmp_path, script, trials=1)
    tuner.run()
    failed = next(trial for trial in tuner.study.get_trials() if counts(trial) and trial.state.is_finished())
    assert failed.user_attrs["reason"] == "its process ended with status 1 twice: ImportError: no such library"


def test_interrupted_twins_do_not_stand_on_the_rungs_of_halving(tmp_path: Path) -> None:
    """A trial that was killed and runs again has reported twice; only one of the two is compared with others."""
    deaths = iter(["die"])
    tuner, launcher = search(
        tmp_path, lambda job: [0.9, next(deaths, 0.9), 0.9, 0.9] if rate(job) == 0.25 else [0.5] * 4, prune=True, trials=3
    )
    tuner.run()
    assert states(tuner.study) == {"COMPLETE": 2, "PRUNED": 1}
    assert [run.reports for run in launcher.started] == [4, 1, 4, 1]


def test_a_search_that_can_gain_nothing_stops_after_its_first_sampled_trials(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, lambda job: [0.5 if rate(job) in (0.5, 0.25) else 0.3] * REPORTS, trials=40)
    ranked = run_search(tuner)
    assert [candidate.is_sampled for candidate in ranked] == [False, True, True, True]
    assert states(tuner.study) == {"COMPLETE": 22}


def test_a_search_whose_starts_failed_has_no_reference_and_goes_on(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path, lambda job: ["fail: a: b"] if rate(job) in (0.5, 0.25) else steady(job), trials=24)
    assert run_search(tuner) == []
    assert states(tuner.study) == {"FAIL": 2, "COMPLETE": 22}


@pytest.mark.parametrize(("portfolio_only", "trials"), [(True, 2), (False, 22)])
def test_settings_that_became_known_meanwhile_do_not_lengthen_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portfolio_only: bool, trials: int
) -> None:
    """The winner of a study joins the portfolio, so that the same command knows one more setting than it began with."""

    def script(job: Job) -> list[float | str]:
        return [0.5 if rate(job) in (0.5, 0.25) else 0.3] * REPORTS

    def begun() -> Search:
        return search(tmp_path, script, trials=40, portfolio_only=portfolio_only)[0]

    run_search(begun())
    known = [*ScriptedProblem(out=tmp_path).starts(), Start("portfolio", "mine", {"learning_rate": 0.75})]
    monkeypatch.setattr(ScriptedProblem, "starts", lambda _: known)
    tuner = begun()
    run_search(tuner)
    assert states(tuner.study) == {"COMPLETE": trials}
