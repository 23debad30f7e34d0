"""The benchmark of training measures three ways on the same documents."""

from __future__ import annotations


def test_three_ways_are_measured_and_packing_wastes_less_than_padding() -> None:
    from bench import TrainBench
    from bench.train import run

    result = run(TrainBench(shape="tiny", documents=6, seq_len=64, batch=2, steps=1, device="cpu"))
    assert result.ours > 0
    assert result.usual > 0
    assert [line.split(":")[0] for line in result.lines[:3]] == [
        "packed, head at masked positions",
        "padded rows, full logits",
        "joined chunks, full logits",
    ]
    assert "against joined chunks" in result.lines[3]
    assert result.closing_line().startswith("ratio ")
