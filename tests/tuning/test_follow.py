"""Following events that another process writes."""

from __future__ import annotations

from pathlib import Path

from coref_automl.tuning.follow import Follower


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
