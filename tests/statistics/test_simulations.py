"""A slice of the simulations behind docs/statistics.md: levels are kept, gains are not overstated."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "verdicts.py"
SETS = 200


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verdicts", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("table", "columns"), [("six", slice(1, 4)), ("margins", slice(1, 4)), ("curves", slice(1, 4))])
def test_false_verdicts_keep_their_level(verdicts: ModuleType, table: str, columns: slice) -> None:
    head, *rows = verdicts.TABLES[table](SETS)
    shares = [float(cell.rstrip("%")) for row in rows for cell in row[columns]]
    assert len(shares) == len(rows) * len(head[columns])
    assert max(shares) <= 5 + 3 * 100 * math.sqrt(0.0475 / SETS)
    assert sum(shares) / len(shares) <= 5


@pytest.mark.journey
def test_the_gain_of_the_best_is_not_overstated(verdicts: ModuleType) -> None:
    _, *rows = verdicts.TABLES["winner"](25)
    means, believed = ([float(row[at]) for row in rows] for at in (3, 4))
    assert sum(means) / len(means) > 0.5
    assert abs(sum(believed) / len(believed)) < 0.3


def test_the_page_has_the_tables_of_the_benchmark(verdicts: ModuleType) -> None:
    page = (BENCHMARK.parents[1] / "docs" / "statistics.md").read_text("utf-8")
    for make in verdicts.TABLES.values():
        assert f"| {' | '.join(next(make(1)))} |" in page
