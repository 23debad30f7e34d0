"""The answers on the archives of results/ are the golden records; scripts/write_golden.py writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.write_golden import ARCHIVES, GOLDEN, answers


def differences(golden: Any, now: Any, where: str = "") -> list[str]:
    """The places where two JSON values differ; numbers are equal to twelve digits."""
    if isinstance(golden, dict) and isinstance(now, dict):
        keys = sorted(golden.keys() | now.keys())
        return [place for key in keys for place in differences(golden.get(key), now.get(key), f"{where}.{key}")]
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        pairs = enumerate(zip(golden, now, strict=True))
        return [place for number, pair in pairs for place in differences(*pair, f"{where}[{number}]")]
    if isinstance(golden, float) and isinstance(now, float):
        return [] if now == pytest.approx(golden, rel=1e-9, abs=1e-12) else [f"{where}: {golden} -> {now}"]
    return [] if golden == now else [f"{where}: {golden!r} -> {now!r}"]


@pytest.mark.parametrize("archive", dict.fromkeys(ARCHIVES), ids=lambda path: path.name)
def test_the_answer_on_an_archive_is_the_golden_record(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(archive.parents[1])
    golden = json.loads((GOLDEN / f"{archive.name}.json").read_text("utf-8"))
    assert not differences(golden, json.loads(json.dumps(answers(Path("results") / archive.name))))


def test_a_changed_number_is_a_difference() -> None:
    assert differences({"a": [1.0, {"b": "x"}]}, {"a": [1.0 + 1e-6, {"b": "x"}]}) == [".a[0]: 1.0 -> 1.000001"]
    assert not differences({"a": 0.1 + 0.2}, {"a": 0.3})
