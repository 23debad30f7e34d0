"""Both ways run on the same texts, and the stages add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import PrepareBench
from bench.prepare import run
from tests.corpus.conftest import rows


@pytest.mark.journey
def test_every_stage_is_measured_and_padding_is_shown_for_both(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(12)), "utf-8")
    result = run(PrepareBench(f"local:{path}", megabytes=0.01, seq_len=64, workers=1))
    assert result.ours > 0
    assert result.usual > 0
    assert result.unit == "MB/s"
    text = "\n".join(result.lines)
    for stage in ("read and clean", "choose", "tag, 1 threads", "encode, 1 processes", "pack", "dropping"):
        assert stage in text
