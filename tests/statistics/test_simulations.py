"""A slice of the simulations behind docs/statistics.md: levels are kept, gains are not overstated."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "verdict_simulation.py"
SETS = 400


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verdict_simulation", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("table", "columns"), [("margins", slice(1, 4)), ("curves", slice(1, 2)), ("copied", slice(1, 4))])
def test_false_verdicts_keep_their_level(verdicts: ModuleType, table: str, columns: slice) -> None:
    head, *rows = verdicts.TABLES[table](SETS)
    shares = [float(cell.split()[0]) for row in rows for cell in row[columns]]
    assert len(shares) == len(rows) * len(head[columns])
    assert max(shares) <= 5 + 3 * 100 * math.sqrt(0.0475 / (SETS if table != "copied" else SETS // 10))
    assert sum(shares) / len(shares) <= 5


def test_copies_leave_verdicts_as_they_are(verdicts: ModuleType) -> None:
    _, *rows = verdicts.TABLES["copied"](100)
    assert [row[-1] for row in rows] == ["100%", "100%"]


def test_a_pair_is_counted_at_every_level(verdicts: ModuleType) -> None:
    """A slice of `methods`: the levels of the new test, and its power beside the one before it."""
    counts, sizes = verdicts.Counts(), verdicts.shape("20 novel")
    for a, b in verdicts.draws("slice", sizes, 1500, (3, 3), (0.4, 0.4)):
        verdicts.judge(counts, np.random.default_rng(0), a, b, sizes)
    assert counts.share("new 0") < 5 + 3 * 100 * math.sqrt(0.0475 / 1500)
    assert counts.share("new 0 of 15") < 1
    assert counts.share("new 3") > counts.share("t 3") + 10


@pytest.mark.journey
def test_the_gain_of_the_best_is_not_overstated(verdicts: ModuleType) -> None:
    _, *rows = verdicts.TABLES["winner"](25)
    means, believed = ([float(row[at]) for row in rows] for at in (3, 4))
    assert sum(means) / len(means) > 0.5
    assert abs(sum(believed) / len(believed)) < 0.3


def test_the_page_has_the_tables_of_the_benchmark(verdicts: ModuleType) -> None:
    page = (BENCHMARK.parent / "RESULTS.md").read_text("utf-8")
    for name in ("documents", "methods", "pooled", "families", "best", "copied", "off"):
        assert f"| {' | '.join(next(verdicts.TABLES[name](1)))} |" in page
