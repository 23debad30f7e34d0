"""Progress goes to standard error as plain lines, and to events.ndjson as rows; standard output stays the result's."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coref_automl.base.progress import Progress, duration, quiet, read_events


def test_events_tell_a_stage_from_start_to_end(tmp_path: Path) -> None:
    progress = quiet().into(tmp_path / "run" / "events.ndjson")
    with progress.stage("train", 10, "steps") as stage:
        stage.advance(4, loss=2.5)
        stage.advance(6)
    rows = [json.loads(line) for line in (tmp_path / "run" / "events.ndjson").read_text("utf-8").splitlines()]
    assert [row["event"] for row in rows] == ["start", "end"]
    assert rows[1]["done"] == 10
    assert rows[1]["loss"] == 2.5


def test_a_line_that_a_kill_cut_in_two_takes_no_other_event_along(tmp_path: Path) -> None:
    progress = quiet().into(tmp_path / "events.ndjson")
    progress.note("first")
    with (tmp_path / "events.ndjson").open("ab") as handle:
        handle.write(b'{"time": 1.0, "ev')
    progress.note("second")
    assert [row["text"] for row in read_events(tmp_path / "events.ndjson")] == ["first", "second"]


def test_a_stage_that_fails_is_stopped_not_ended(tmp_path: Path) -> None:
    progress = quiet().into(tmp_path / "events.ndjson")
    with pytest.raises(ValueError), progress.stage("train"):
        raise ValueError
    assert json.loads((tmp_path / "events.ndjson").read_text("utf-8").splitlines()[-1])["event"] == "stopped"


def test_what_was_skipped_does_not_count_for_the_speed() -> None:
    with quiet().stage("score", 100, "items") as stage:
        stage.skip(90)
        assert stage.seconds_left() is None
        stage.advance(5)
        left = stage.seconds_left()
        assert left is not None
        assert left < 5
        assert stage.line().startswith("score: 95 of 100 items")


def test_no_time_left_is_told_until_the_speed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("coref_automl.base.progress.time.monotonic", lambda: now)
    with quiet().stage("tag", 1_000, "documents") as stage:
        now = 30.0  # a tagger was loaded
        stage.advance(2)
        assert stage.seconds_left() is None
        for second in range(1, 11):
            now = 30.0 + second
            stage.advance(10)
        left = stage.seconds_left()
    assert left is not None
    assert left == pytest.approx((1_000 - 102) / 10, rel=0.15)  # ten a second; the half minute of loading counts for nothing


def test_pieces_of_work_that_end_together_are_not_taken_for_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("coref_automl.base.progress.time.monotonic", lambda: now)
    with quiet().stage("trials", 16, "trials") as stage:
        now = 60.0
        for _ in range(4):
            stage.advance()
        assert stage.seconds_left() == pytest.approx(180.0)


def test_nothing_is_printed_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.note("a line for a person")
    list(progress.track(range(3), "count"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "a line for a person" in shown.err


ON_A_TERMINAL = """
import time
from pathlib import Path
from coref_automl.base.progress import Progress

progress = Progress()
with progress.stage("train", 4, "steps") as outer:
    for step in range(4):
        time.sleep(0.15)
        outer.advance(loss=2.5 - step, model="[base]")
        with progress.into(Path("events.ndjson")).stage("score", 2, "items") as inner:
            time.sleep(0.11)
            inner.advance(2)
    progress.note("[done] in a line of its own")
print("the result")
"""


def on_a_terminal(code: str, folder: Path) -> tuple[str, str]:
    """What a program prints to standard output (a pipe) and to standard error (a terminal of 100 columns)."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=env, cwd=folder) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                more = os.read(ours, 1 << 16)
            except OSError:  # Linux: the other end is closed
                break
            if not more:
                break
            shown += more
        assert running.stdout is not None
        result = running.stdout.read().decode()
    os.close(ours)
    assert running.returncode == 0
    return result, shown.decode()


def test_a_terminal_shows_bars_and_keeps_notes_above_them(tmp_path: Path) -> None:
    result, shown = on_a_terminal(ON_A_TERMINAL, tmp_path)
    assert result == "the result\n"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search("━{24} train: 4 of 4 steps, loss -0.5, model \\[base\\]", plain)
    assert re.search("train: 2 of 4 steps.*\n.*score: 2 of 2 items", plain)  # a stage inside a stage has a bar of its own
    assert "[done] in a line of its own" in plain.replace("\r", "\n").split("\n")
    assert re.search(r"train: 4 steps in \d", plain)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0  # the cursor comes back
    events = [json.loads(line)["event"] for line in (tmp_path / "events.ndjson").read_text("utf-8").splitlines()]
    assert events == ["start", "progress", "end"] * 4


@pytest.mark.parametrize(("seconds", "text"), [(1.23, "1.2 s"), (59, "59 s"), (61, "1 min 01 s"), (7_260, "2 h 01 min")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_durations_read_well_in_korean() -> None:
    assert [duration(seconds, "ko") for seconds in (1.23, 61, 7_260)] == ["1.2초", "1분 01초", "2시간 01분"]
