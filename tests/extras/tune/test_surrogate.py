"""Simulated studies through the product's own search and end: what benchmarks/tuning_surrogate.py counts, with fewer studies."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "tuning_surrogate.py"


@pytest.fixture(scope="module")
def surrogate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tuning_surrogate", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tuning_surrogate"] = module
    spec.loader.exec_module(module)
    return module


def test_equal_settings_are_rarely_called_better_and_a_gain_of_one_point_nearly_always(surrogate: ModuleType) -> None:
    false, _ = surrogate.level(4000)
    assert false <= 0.025
    true, pairs = surrogate.level(300, 1.0)
    assert true > 0.9
    assert pairs < 14


@pytest.mark.journey
def test_a_simulated_study_with_much_to_win_shows_it_and_one_with_nothing_stops_early(surrogate: ModuleType) -> None:
    won = [surrogate.study(1.5, seed) for seed in range(2)]
    assert "better" in [study.decision for study in won]
    assert all(study.trainings <= 110 for study in won)
    nothing = [surrogate.study(0.0, seed) for seed in range(2)]
    assert all(study.decision != "better" for study in nothing)
    assert min(study.trainings for study in nothing) <= 40
