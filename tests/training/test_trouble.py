"""What happens when a step, the memory or the disk fails."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from coref_automl.base.errors import FolderError, ModelError, StorageError, TrainingError
from coref_automl.models.build import build_masked_lm
from coref_automl.models.load import load_tokenizer
from coref_automl.training.folder import average_of, resumable
from coref_automl.training.recipe import TrainRecipe

Recipe = Callable[..., TrainRecipe]
Wrap = Callable[[Callable[[int, Any, Any], Any]], None]


def train(recipe: TrainRecipe) -> Any:
    from coref_automl.training.run import train as run_it

    return run_it(recipe)


@pytest.fixture
def each_loss(monkeypatch: pytest.MonkeyPatch) -> Wrap:
    """Change the losses of a run: the function gets the number of the forward pass, its input and its loss."""
    from coref_automl.training import loss

    kept = loss.loss_at

    def arm(change: Callable[[int, Any, Any], Any]) -> None:
        calls = iter(range(10**6))

        def changed(model: Any, input_ids: Any, *rest: Any) -> Any:
            return change(next(calls), input_ids, kept(model, input_ids, *rest))

        monkeypatch.setattr(loss, "loss_at", changed)

    return arm


def test_a_loss_that_is_not_a_number_stops(recipe: Recipe, each_loss: Wrap, tmp_path: Path) -> None:
    """Two forward passes a step: the ninth belongs to step 5. Found at the next report, step 6."""
    each_loss(lambda call, _, loss: loss * float("nan") if call == 8 else loss)
    with pytest.raises(TrainingError, match="step 5 is NaN or infinite"):
        train(recipe(log_every=3))
    assert [path.name for path in sorted((tmp_path / "run").glob("checkpoint-*"))] == [
        "checkpoint-1",
        "checkpoint-3",
        "checkpoint-4",
    ]


def test_a_checkpoint_is_not_made_of_weights_that_are_not_numbers(recipe: Recipe, each_loss: Wrap, tmp_path: Path) -> None:
    each_loss(lambda call, _, loss: loss * float("nan") if call == 3 else loss)
    with pytest.raises(TrainingError, match="step 2 is NaN or infinite"):
        train(recipe(log_every=100))
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-1"]


def test_a_loss_of_exactly_zero_stops(recipe: Recipe) -> None:
    with pytest.raises(TrainingError, match="exactly 0"):
        train(recipe(min_prob=0.0, max_prob=0.0))


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_effective_one(
    recipe: Recipe, each_loss: Wrap, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    small = train(recipe(out=str(tmp_path / "small"), micro_batch=1, epochs=1))

    def too_large(_: int, ids: Any, loss: Any) -> Any:
        if len(ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss

    each_loss(too_large)
    halved = train(recipe(micro_batch=4, epochs=1))
    left, right = (load_file(result.checkpoints[-1] / "model.safetensors") for result in (small, halved))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert "effective batch stays 4" in (halved.run / "events.ndjson").read_text("utf-8")


def test_memory_that_cannot_suffice_is_one_sentence(recipe: Recipe, each_loss: Wrap) -> None:
    import torch

    def never(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    each_loss(never)
    with pytest.raises(TrainingError, match="gradient-checkpointing"):
        train(recipe(epochs=1))


def test_a_full_disk_leaves_earlier_checkpoints_and_the_run_goes_on_later(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from transformers import Trainer

    kept = Trainer._save_optimizer_and_scheduler

    def full(self: Any, folder: str) -> None:
        if self.state.global_step == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        kept(self, folder)

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", full)
    with pytest.raises(StorageError, match="checkpoint-4 could not be saved"):
        train(recipe())
    run = tmp_path / "run"
    assert sorted(path.name for path in run.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-3"]
    assert (run / "checkpoint-3" / "optimizer.pt").is_file()
    monkeypatch.undo()
    assert train(recipe()).steps == 6


def test_a_full_disk_refuses_a_run_that_would_write_and_not_a_finished_one(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tokenizer_folder: Path
) -> None:
    """Of the finished run the training state was removed, for room."""
    tokenizer = load_tokenizer(str(tokenizer_folder))
    build_masked_lm("tiny", tokenizer, seq_len=32).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    finished = train(recipe(model=str(tmp_path / "base"), tokenizer=None, epochs=1))
    (finished.checkpoints[-1] / "optimizer.pt").unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert train(recipe(model=str(tmp_path / "base"), tokenizer=None, epochs=1)).checkpoints == finished.checkpoints
    (finished.run / "DONE").unlink()
    with pytest.raises(StorageError, match="free some space"):
        train(recipe(model=str(tmp_path / "base"), tokenizer=None, epochs=1))


def test_a_half_written_checkpoint_is_not_taken_for_a_whole_one(recipe: Recipe, tmp_path: Path) -> None:
    from coref_automl.training.folder import checkpoints_of, resumable

    run = tmp_path / "run"
    torn = run / ".writing" / "checkpoint-9"
    torn.mkdir(parents=True)
    (torn / "model.safetensors").write_bytes(b"half")
    (run / ".coref-automl").write_text("run\n")
    assert checkpoints_of(run) == []
    assert resumable(run) is None
    assert train(recipe(epochs=1)).steps == 3
    assert not torn.exists()


@pytest.mark.parametrize(
    ("text", "disk"),
    [
        ("No space left on device (os error 28)", True),
        ("PytorchStreamWriter failed writing file", True),
        ("shape mismatch", False),
    ],
)
def test_disk_trouble_is_told_from_other_errors(text: str, disk: bool) -> None:
    from coref_automl.training.state import is_disk_trouble

    assert is_disk_trouble(RuntimeError(text)) is disk


@pytest.mark.parametrize("name", ["optimizer.pt", "trainer_state.json", "clock.json", "rng_state.pth"])
@pytest.mark.parametrize("left", [0, 20])
def test_a_state_that_was_cut_short_is_named_before_training_goes_on(
    recipe: Recipe, tmp_path: Path, name: str, left: int
) -> None:
    run = tmp_path / "run"
    train(recipe(epochs=1))
    (run / "DONE").unlink()
    whole = resumable(run)
    assert whole is not None
    path = whole / name
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(FolderError, match=rf"{name} is damaged .* or remove .*run to train again\."):
        train(recipe(epochs=1))


def interrupted(recipe: Recipe, run: Path) -> Path:
    """The checkpoint from which a run resumes that was killed before its last one."""
    train(recipe(keep_states=True))
    (run / "DONE").unlink()
    shutil.rmtree(str(resumable(run)))
    earlier = resumable(run)
    assert earlier is not None
    return earlier


def _of_another_model(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    first = state["state"][0]["exp_avg"]
    torch.save({**state, "state": {**state["state"], 0: {**state["state"][0], "exp_avg": first.repeat(2, 1)}}}, path)


FOREIGN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no optimizer's state": ("optimizer.pt", lambda at: torch.save({}, at), "not the state of this training"),
    "another model's": ("optimizer.pt", _of_another_model, "not the state of this training"),
    "no scheduler's state": ("scheduler.pt", lambda at: torch.save([1], at), "not the state of this training"),
    "no scheduler": ("scheduler.pt", Path.unlink, "missing"),
    "no randomness": ("rng_state.pth", Path.unlink, "missing"),
    "other randomness": ("rng_state.pth", lambda at: torch.save({"python": 1}, at), "not the state of this training"),
    "a scaler": ("scaler.pt", lambda at: torch.save({"scale": 1.0}, at), "was not written by this training; remove it"),
    "another step": (
        "trainer_state.json",
        lambda at: at.write_text('{"global_step": 1}'),
        "not the state of this training",
    ),
    "another trainer": ("trainer_state.json", lambda at: at.write_text('{"loss": 1}'), "not the state of this training"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_state_that_is_not_of_this_training_is_refused(recipe: Recipe, tmp_path: Path, case: str) -> None:
    name, harm, said = FOREIGN[case]
    harm(interrupted(recipe, tmp_path / "run") / name)
    with pytest.raises(FolderError, match=said):
        train(recipe(keep_states=True))


def test_a_run_trains_again_over_its_checkpoints_when_the_one_with_a_state_was_removed(recipe: Recipe, tmp_path: Path) -> None:
    """As the errors on a damaged state advise; here no other checkpoint has one."""
    run = tmp_path / "run"
    train(recipe(epochs=1))
    (run / "DONE").unlink()
    (run / "checkpoint-1" / "of-the-first-attempt").touch()
    shutil.rmtree(run / "checkpoint-3")
    assert resumable(run) is None
    assert [path.name for path in train(recipe(epochs=1)).checkpoints] == ["checkpoint-1", "checkpoint-3"]
    assert not (run / "checkpoint-1" / "of-the-first-attempt").exists()


@pytest.mark.parametrize("step", [3, 6])  # a step that is saved, and the last
def test_a_gradient_that_is_not_a_number_stops_before_a_checkpoint_is_made_of_it(
    recipe: Recipe, each_loss: Wrap, tmp_path: Path, step: int
) -> None:
    """The loss stays finite; two forward passes a step."""

    def change(call: int, _: Any, loss: Any) -> Any:
        if call == 2 * (step - 1):
            loss.register_hook(lambda gradient: gradient * float("nan"))
        return loss

    each_loss(change)
    with pytest.raises(TrainingError, match=f"The gradient of step {step} is NaN or infinite"):
        train(recipe(log_every=100))
    run = tmp_path / "run"
    assert f"checkpoint-{step}" not in [path.name for path in run.glob("checkpoint-*")]
    assert not (run / "DONE").exists()


def test_seconds_are_counted_once_where_memory_ran_out_after_a_checkpoint(
    recipe: Recipe, each_loss: Wrap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from coref_automl.training import optimizer as schedule
    from coref_automl.training.folder import checkpoints_of, read_clock

    clock = iter(range(0, 10**7, 1))  # a second for each look at the clock
    monkeypatch.setattr(schedule.time, "monotonic", lambda: float(next(clock)))

    def change(call: int, ids: Any, loss: Any) -> Any:
        if call > 8 and len(ids) > 1:  # in the fifth step, behind two checkpoints
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss

    each_loss(change)
    began = next(clock)
    result = train(recipe())
    seconds = read_clock(checkpoints_of(result.run)[-1])["seconds"]
    assert result.steps == 6
    assert seconds <= next(clock) - began


@pytest.mark.parametrize(("dtype", "expected"), [("float32", "ieee"), ("auto", "tf32")])
def test_float32_is_not_rounded_in_products(recipe: Recipe, each_loss: Wrap, dtype: str, expected: str) -> None:
    import torch

    settings, seen = torch.backends.cuda.matmul, set()
    before = settings.fp32_precision

    def look(_: int, __: Any, loss: Any) -> Any:
        seen.add(settings.fp32_precision)
        return loss

    each_loss(look)
    train(recipe(dtype=dtype, epochs=1))
    assert seen == {expected}
    assert settings.fp32_precision == before


def test_a_copy_of_a_checkpoint_under_another_name_is_no_step_of_the_run(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(recipe(epochs=1))
    (run / "DONE").unlink()
    for name in ("checkpoint-best", "checkpoint-3 (copy)"):
        shutil.copytree(run / "checkpoint-1", run / name)
    again = train(recipe(epochs=1, average=2))
    assert (again.steps, [path.name for path in again.checkpoints]) == (3, ["checkpoint-1", "checkpoint-3"])
    sources = (run / "average" / "sources.txt").read_text("utf-8").splitlines()
    assert [line.split()[0] for line in sources] == ["checkpoint-1", "checkpoint-3"]


def test_checkpoints_that_cannot_be_averaged_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step, names in ((2, "ab"), (3, "a")):
        (run / f"checkpoint-{step}").mkdir(parents=True)
        save_file({name: torch.ones(2) for name in names}, run / f"checkpoint-{step}" / "model.safetensors")
        (run / f"checkpoint-{step}" / "training.json").write_text("{}")
    with pytest.raises(ModelError, match=r"checkpoint-2 and .*checkpoint-3 have other weights"):
        average_of(run, 2)
    (run / "checkpoint-2" / "model.safetensors").write_bytes(b"\x08" + b"\0" * 7 + b'{"a":[1]')
    with pytest.raises(ModelError, match=r"checkpoint-2/model.safetensors is damaged"):
        average_of(run, 2)
    assert not (run / "average").exists()
