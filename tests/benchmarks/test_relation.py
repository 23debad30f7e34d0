from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import RelationBench
from bench.train import run_relation as bench
from throughput import main


def test_both_ways_are_timed_on_the_same_rows(encoder_folder: Path, relation_file: Path) -> None:
    result = bench(RelationBench(str(encoder_folder), data=str(relation_file), rows=32, batch_size=16, padded=96, device="cpu"))
    assert result.ours > 0
    assert result.usual > 0
    assert "32 rows of made_train" in result.lines[0]
    ours, usual = (int(text.replace(",", "")) for text in re.findall(r"([\d,]+) tokens", result.lines[1]))
    assert usual == 32 * 96
    assert ours < usual / 2


def test_the_command_ends_with_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    main(["re", "--rows", "16", "--batch-size", "8", "--padded", "128", "--shape", "tiny", "--device", "cpu"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"ratio \d+\.\d \(ours \d+\.\d rows/s, usual way \d+\.\d rows/s\)", last)
