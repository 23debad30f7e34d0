"""Work is done once, in batches of like length within a budget, and survives a memory that is too small."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import EvaluationError
from coref_automl.base.machine import default_batch_tokens, is_out_of_memory
from coref_automl.evaluation import scorer
from coref_automl.evaluation.scorer import Budget, in_batches

UNITS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 100)), max_size=40)


@given(UNITS, st.integers(1, 600))
def test_every_unit_runs_once_within_the_budget(units: list[tuple[int, int]], budget: int) -> None:
    seen = []
    for batch, result in in_batches(units, lambda unit: unit, Budget(budget), lambda batch: list(batch)):
        assert batch == result
        assert len(batch) == 1 or sum(rows for rows, _ in batch) * max(length for _, length in batch) <= budget
        seen += batch
    assert sorted(seen) == sorted(units)
    assert [length for _, length in seen] == sorted((length for _, length in units), reverse=True)


def test_too_little_memory_halves_the_batch_and_loses_nothing() -> None:
    tried: list[int] = []

    def run(batch: list[tuple[int, int]]) -> int:
        tried.append(len(batch))
        if len(batch) > 3:
            raise MemoryError
        return len(batch)

    done = [unit for batch, _ in in_batches([(1, 10)] * 20, lambda unit: unit, Budget(1000), run) for unit in batch]
    assert len(done) == 20
    assert tried[:4] == [20, 10, 5, 2]


def test_what_a_failed_batch_held_is_gone_before_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        pass

    tensors: list[weakref.ref[Tensor]] = []
    left: list[int] = []

    def run(batch: list[tuple[int, int]]) -> int:
        tensor = Tensor()
        tensors.append(weakref.ref(tensor))
        if len(batch) > 3:
            raise MemoryError
        return len(batch)

    monkeypatch.setattr(scorer, "free_memory", lambda: left.append(sum(tensor() is not None for tensor in tensors)))
    list(in_batches([(1, 10)] * 20, lambda unit: unit, Budget(1000), run))
    assert left == [0, 0, 0]


def test_a_single_unit_that_does_not_fit_is_an_error() -> None:
    def run(batch: list[tuple[int, int]]) -> int:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")

    with pytest.raises(EvaluationError, match="512 tokens does not fit"):
        list(in_batches([(1, 512)], lambda unit: unit, Budget(4096), run))


def test_other_errors_pass_through() -> None:
    def run(batch: list[tuple[int, int]]) -> int:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        list(in_batches([(1, 5), (1, 5)], lambda unit: unit, Budget(4096), run))
    assert is_out_of_memory(type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"))


def test_a_gpu_takes_larger_batches() -> None:
    assert default_batch_tokens("cpu") == 4096 < default_batch_tokens("cuda:1")
