"""The probe: sizes that train, in order, and an accumulation that makes the batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.base.errors import TrainingError
from coref_automl.base.pool import Call, Returned
from coref_automl.base.store import read_jsonl
from coref_automl.cli.app import run
from coref_automl.extras.study import probe as probing
from coref_automl.training.recipe import TrainRecipe
from tests.extras.tune.conftest import World


def recipe(world: World) -> TrainRecipe:
    return TrainRecipe("new:tiny", str(world.dataset), "", tokenizer=str(world.tokenizer), batch=8, device="cpu")


def here(jobs: list[Call], **_: object) -> list[Returned]:
    """The probe's own process would import everything anew."""
    return [Returned(jobs[0], probing.climb(**jobs[0].arguments))]


def test_sizes_are_tried_upwards_and_the_batch_is_made_of_the_fastest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "run_calls", here)
    monkeypatch.setattr(probing, "_SPEED_RATIO", 0.0)
    result = probing.probe(recipe(world), largest=4, steps=1)
    assert [size.rows for size in result.sizes] == [1, 2, 4]
    assert result.largest == 4
    assert result.stopped == "larger sizes were not tried"
    assert result.fastest * result.accumulation == result.batch == 8
    assert all(size.tokens_per_second > 0 for size in result.sizes)
    assert result.lines()[-1].startswith("For a batch of 8: --batch 8 --micro-batch ")


def test_a_size_that_does_not_fit_ends_the_climb(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    plain = probing.timed_step

    def limited(work: object, rows: int, steps: int) -> probing.Size:
        if rows > 2:
            raise torch.OutOfMemoryError("too many")
        return plain(work, rows, steps)

    monkeypatch.setattr(probing, "run_calls", here)
    monkeypatch.setattr(probing, "_SPEED_RATIO", 0.0)
    monkeypatch.setattr(probing, "timed_step", limited)
    result = probing.probe(recipe(world), largest=64, steps=1)
    assert (result.largest, result.stopped) == (2, "4 do not fit")


def test_a_process_that_was_killed_keeps_what_it_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(jobs: list[Call], **_: object) -> list[Returned]:
        probing.climb(**{**jobs[0].arguments, "largest": 1})
        assert list(read_jsonl(Path(jobs[0].arguments["sizes_file"])))
        return [Returned(jobs[0], None, "the worker process died 1 times")]

    monkeypatch.setattr(probing, "run_calls", killed)
    result = probing.probe(recipe(world), steps=1)
    assert result.largest == 1
    assert "killed" in result.stopped


def test_nothing_that_fits_is_an_error_with_the_next_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "run_calls", lambda jobs, **_: [Returned(jobs[0], "1 do not fit")])
    with pytest.raises(TrainingError, match="pass --gradient-checkpointing, or prepare shorter blocks"):
        probing.probe(recipe(world))


def test_the_gpu_asked_for_is_the_only_one_that_the_probe_sees(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    def noted(jobs: list[Call], *, devices: list[str], **_: object) -> list[Returned]:
        seen.update(devices=devices, device=jobs[0].arguments["recipe"]["device"])
        return [Returned(jobs[0], "1 do not fit")]

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(probing, "run_calls", noted)
    with pytest.raises(TrainingError):
        probing.probe(replace(recipe(world), device="cuda:1"))
    assert seen == {"devices": ["cuda:1"], "device": "cuda:0"}


def timed(monkeypatch: pytest.MonkeyPatch, *speeds: float) -> None:
    """Sizes that train at these tokens a second, one after the other."""
    left = iter(speeds)
    monkeypatch.setattr(probing, "run_calls", here)
    monkeypatch.setattr(probing, "timed_step", lambda _work, rows, _steps: probing.Size(rows, 1.0, next(left)))


def test_one_slower_size_does_not_end_the_climb_and_two_in_a_row_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 100.0, 50.0, 120.0, 60.0, 50.0, 500.0)
    result = probing.probe(recipe(world), largest=256)
    assert [size.rows for size in result.sizes] == [1, 2, 4, 8, 16]
    assert result.fastest == 4
    assert "Largest tried: 16 rows (larger is slower on a CPU); fastest: 4 rows." in result.lines()


def test_the_largest_that_trains_is_said_only_where_memory_ended_the_climb(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 100.0, 200.0)
    result = probing.probe(recipe(world), largest=2)
    assert "Largest tried: 2 rows (larger sizes were not tried); fastest: 2 rows." in result.lines()
    lines = replace(result, stopped="4 do not fit").lines()
    assert "Largest that trains: 2 rows (4 do not fit); fastest: 2 rows." in lines


def test_a_recipe_that_cannot_be_meant_is_refused_before_any_size_is_tried(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", "probe", "--model", "new:tiny", "--tokenizer", str(world.tokenizer), "--dataset", str(world.dataset)]
    assert run([*arguments, "--objective", "nonsense", "--device", "cpu"]) == 2
    assert "objective cannot be 'nonsense'" in capsys.readouterr().err
