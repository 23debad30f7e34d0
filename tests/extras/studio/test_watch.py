"""A run is followed by its events: what was read, what a kill cut off, and who is silent."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from coref_automl.base.errors import InputError
from coref_automl.base.folders import HOLDER
from coref_automl.base.locks import locked
from coref_automl.extras.studio.watch import RunWatch

STEP = {"time": 2.0, "event": "step", "stage": "train", "step": 1, "loss": 2.0, "epoch": 0.5}
SCORED = {
    "time": 3.0, "event": "evaluation", "checkpoint": "checkpoint-65", "metric": "real1", "text": "31%",
    "low": 0.28, "value": 0.31, "high": 0.34, "n": 900,
}  # fmt: skip


def write(run: Path, *rows: dict[str, object], cut: str = "") -> RunWatch:
    (run / "events.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows) + cut, "utf-8")
    return RunWatch(run)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run"):
        RunWatch(tmp_path).status()


def test_a_run_that_was_stopped_is_seen_as_stopped_with_its_scores(tmp_path: Path) -> None:
    start = {"time": 1.0, "event": "start", "stage": "train"}
    stopped = {"time": 4.0, "event": "stopped", "stage": "train"}
    watch = write(tmp_path, start, STEP, SCORED, stopped, cut='{"time": 5')
    status = watch.status()
    assert (status.state, status.step, status.epoch) == ("stopped", 1, 0.5)
    assert watch.curve == [(1, 2.0)]
    assert watch.scores["checkpoint-65"].value == 0.31


def test_damaged_events_are_passed_over(tmp_path: Path) -> None:
    watch = write(tmp_path, STEP, {"event": "note", "time": 3.0}, {**STEP, "step": "a"}, cut='{"time": 1.0, "ev{"a": 1}\n')
    assert (watch.status().step, watch.curve) == (1, [(1, 2.0)])


def test_only_new_events_are_read_and_a_resumed_run_repeats_no_step(tmp_path: Path) -> None:
    watch = write(tmp_path, STEP, {**STEP, "step": 2, "loss": 1.5})
    watch.status()
    with (tmp_path / "events.ndjson").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps({**STEP, "step": 2, "loss": 1.0}) + "\n")
    assert watch.status().loss == 1.0
    assert watch.curve == [(1, 2.0), (2, 1.0)]


def test_a_slow_step_is_not_silence_and_a_run_without_a_process_has_stopped(tmp_path: Path) -> None:
    long_ago = time.time() - 600
    row = {"event": "step", "time": long_ago, "stage": "train", "step": 1, "loss": 2.0}
    (tmp_path / "events.ndjson").write_text(json.dumps(row) + "\n", "utf-8")
    assert RunWatch(tmp_path).status().state == "stopped"  # nobody works on it
    with locked(tmp_path):
        status = RunWatch(tmp_path).status()
        assert (status.state, status.quiet > 500) == ("training", True)
        os.utime(tmp_path / HOLDER, (long_ago, long_ago))
        assert RunWatch(tmp_path).status().state == "silent"
