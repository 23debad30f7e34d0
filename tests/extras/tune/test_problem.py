"""Following events that another process writes."""

from __future__ import annotations

from pathlib import Path

from coref_automl.extras.tune.problem import Follower


def test_rows_come_once_half_lines_wait_and_torn_ones_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    follower = Follower(path)
    assert list(follower.rows()) == []
    path.write_text('{"event": "step", "progress": 0.25}\n{"event": "eval')
    assert [row["event"] for row in follower.rows()] == ["step"]
    with path.open("a") as handle:
        handle.write('uation"}\n{"event": "st{"event": "note"}\n')
    rows = list(follower.rows())
    assert [(row["event"], row["progress"]) for row in rows] == [("evaluation", 0.25)]
    assert list(follower.rows()) == []


def test_a_row_that_says_how_far_it_was_keeps_that_and_the_next_go_by_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    rows = ('{"event": "step", "progress": 0.375}', '{"event": "evaluation", "progress": 0.25}', '{"event": "evaluation"}')
    path.write_text("".join(row + "\n" for row in rows))
    assert [row["progress"] for row in Follower(path).rows()] == [0.375, 0.25, 0.375]
