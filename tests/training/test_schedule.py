"""When a run ends and saves, and how its rate moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.training.optimizer import (
    OPEN_END,
    Clock,
    crossed_mark,
    even_steps,
    is_save_step,
    save_steps,
    schedule_factor,
    total_steps,
)


def test_half_epochs_of_131_steps() -> None:
    assert save_steps(131, 0.5, 655) == (65, 131, 196, 262, 327, 393, 458, 524, 589, 655)


def test_a_step_just_before_the_end_gives_way_to_it() -> None:
    assert save_steps(131, 0.5, 660)[-2:] == (589, 660)
    assert save_steps(131, 0.5, 300) == (65, 131, 196, 262, 300)


def test_no_interval_saves_the_end_alone() -> None:
    assert save_steps(131, 0, 655) == (655,)


@given(st.integers(1, 300), st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0]), st.integers(1, 2000))
def test_the_list_and_the_question_agree(per_epoch: int, every: float, last: int) -> None:
    listed = save_steps(per_epoch, every, last)
    assert listed == tuple(step for step in range(1, last + 1) if is_save_step(step, per_epoch, every, last))
    assert listed[-1] == last


@pytest.mark.parametrize(
    ("epochs", "tokens", "steps"),
    [(2.5, None, 327), (None, 500_000, 65), (5, 500_000, 65), (0.1, 10**9, 13), (None, None, OPEN_END)],
)
def test_the_first_budget_to_end_counts(epochs: float | None, tokens: int | None, steps: int) -> None:
    assert total_steps(131, epochs, tokens, 1_000_000) == steps


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_rates_rise_then_fall(schedule: str) -> None:
    assert schedule_factor(0.0, schedule, 0.1) == 0.0
    assert schedule_factor(0.05, schedule, 0.1) == pytest.approx(0.5)
    assert schedule_factor(0.1, schedule, 0.1) == 1.0
    assert schedule_factor(1.0, schedule, 0.1) == pytest.approx(1.0 if schedule == "constant" else 0.0)
    later = [schedule_factor(0.1 + 0.01 * at, schedule, 0.1) for at in range(91)]
    assert later == sorted(later, reverse=True)


def test_no_warm_up_starts_at_the_top() -> None:
    assert schedule_factor(0.0, "linear", 0.0) == 1.0


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The time a clock sees."""
    now = {"seconds": 0.0}
    monkeypatch.setattr("coref_automl.training.optimizer.time.monotonic", lambda: now["seconds"])
    return now


def test_a_budget_in_minutes_ends_in_time_and_keeps_its_warm_up(at: dict[str, float]) -> None:
    clock = Clock(OPEN_END, 2.0, reserve=10.0, started=0.0)
    assert clock.progress(0) == 0.0
    at["seconds"] = 30.0  # loading and compiling
    assert clock.progress(1) == pytest.approx(0.0, abs=1e-6)
    at["seconds"] = 70.0
    assert clock.progress(2) == pytest.approx(0.5)
    assert not clock.finished(2)
    at["seconds"] = 110.0
    assert clock.finished(3)


def test_a_resumed_clock_goes_on_where_it_stopped(at: dict[str, float]) -> None:
    first = Clock(OPEN_END, 2.0, started=0.0)
    at["seconds"] = 20.0
    first.progress(1)
    at["seconds"] = 70.0
    before = first.progress(10)
    at["seconds"] = 1000.0
    second = Clock(OPEN_END, 2.0, earlier=70.0, lost=first.lost, first=10, started=1000.0)
    assert second.progress(10) == pytest.approx(before)
    at["seconds"] = 1005.0
    assert before <= second.progress(11) < before + 0.05
    at["seconds"] = 1051.0
    assert second.finished(12)


def test_steps_end_a_run_that_the_clock_would_let_go_on(at: dict[str, float]) -> None:
    clock = Clock(10, 60.0, started=0.0)
    at["seconds"] = 1.0
    assert clock.finished(10)
    assert not clock.finished(9)


@given(marks=st.integers(1, 12), last=st.integers(1, 400))
def test_even_checkpoints_end_with_the_run_and_agree_with_the_question_asked_at_each_step(marks: int, last: int) -> None:
    crossing = [step for step in range(1, last + 1) if crossed_mark((step - 1) / last, step / last, marks)]
    assert tuple(crossing) == even_steps(marks, last)
    assert crossing[-1] == last
    assert len(crossing) == min(marks, last)


def test_more_marks_than_steps_are_all_steps() -> None:
    assert even_steps(99_999_999_999, 7) == (1, 2, 3, 4, 5, 6, 7)
