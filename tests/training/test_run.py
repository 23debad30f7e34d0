"""A run, its checkpoints, its end."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from transformers import Trainer

from coref_automl.base.errors import FolderError, RecipeError
from coref_automl.base.store import read_json, write_json
from coref_automl.models.build import build_masked_lm
from coref_automl.models.execution import dropout_of
from coref_automl.models.load import load_tokenizer
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.setup import prepare_run
from coref_automl.training.trainer import MaskedTrainer

Recipe = Callable[..., TrainRecipe]


def train(recipe: TrainRecipe) -> Any:
    from coref_automl.training.run import train as run_it

    return run_it(recipe)


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "events.ndjson").read_text("utf-8").splitlines()]
    return [row["loss"] for row in rows if row["event"] == "step"]


@pytest.mark.parametrize("objective", ["mlm", "entity", "combined"])
def test_a_run_leaves_a_checkpoint_each_half_epoch(recipe: Recipe, objective: str) -> None:
    result = train(recipe(objective=objective))
    assert [path.name for path in result.checkpoints] == ["checkpoint-1", "checkpoint-3", "checkpoint-4", "checkpoint-6"]
    assert result.steps == 6
    assert result.epochs == 2.0


def weights(checkpoint: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(checkpoint / "model.safetensors"))


def same_weights(left: Path, right: Path) -> bool:
    import torch

    first, second = weights(left), weights(right)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Killed(BaseException):
    """As sudden as a signal: nothing of ours catches it."""


@pytest.fixture
def killed_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """End a run right after the given step, without any clean-up of ours."""
    from coref_automl.training.trainer import RunCallback

    def arm(step: int) -> None:
        kept = RunCallback.on_step_begin

        def dies(self: Any, args: Any, state: Any, control: Any, **more: Any) -> Any:
            if state.global_step == step:
                monkeypatch.setattr(RunCallback, "on_step_begin", kept)
                raise Killed
            return kept(self, args, state, control, **more)

        monkeypatch.setattr(RunCallback, "on_step_begin", dies)

    return arm


@pytest.mark.parametrize("stop", [5, 7])
def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(
    recipe: Recipe, tmp_path: Path, killed_after: Callable[[int], None], stop: int
) -> None:
    """Dropout on; checkpoints at 1, 3, 4, 6, 7, 9: killed at 5 it goes on from 4 (mid-epoch), at 7 from 6 or 7."""
    settings = {"objective": "combined", "epochs": 3, "dropout": 0.2}
    unbroken = train(recipe(out=str(tmp_path / "unbroken"), **settings))
    killed_after(stop)
    with pytest.raises(Killed):
        train(recipe(**settings))
    resumed = train(recipe(**settings))
    assert resumed.steps == unbroken.steps == 9
    assert same_weights(resumed.checkpoints[-1], unbroken.checkpoints[-1])
    assert losses(resumed.run)[-2:] == losses(unbroken.run)[-2:]


def sourced(folder: Path, rows: int = 12) -> None:
    """Rows of two sources by turns, as `prepare` names them."""
    lines = [
        json.dumps({"source": "news" if row % 2 else "wiki", "id": f"{row}-{part}"}) for row in range(rows) for part in (0, 1)
    ]
    (folder / "documents.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def test_a_mix_and_a_curriculum_resume_exactly_and_change_what_is_read(
    recipe: Recipe, make_dataset: Callable[..., Path], tmp_path: Path, killed_after: Callable[[int], None]
) -> None:
    sourced(folder := make_dataset())
    settings = {"dataset": str(folder), "epochs": 3, "objective": "combined", "dropout": 0.2}
    settings |= {"mix": "news=3", "curriculum": 0.5, "rates": "falling"}
    plain = prepare_run(recipe(**{**settings, "mix": "", "curriculum": 0.0}))
    work = prepare_run(recipe(**settings))
    read = [[int((work.plan.order(epoch) % 2 == side).sum()) for side in (0, 1)] for epoch in range(2)]
    assert read == [[3, 9], [3, 9]]
    assert work.plan.sorted_rows == 6
    assert work.plan.tokens_after(work.last) == sum(int(work.plan.lengths[work.plan.order(epoch)].sum()) for epoch in range(3))
    assert (plain.plan.weights, plain.plan.contexts) == (None, None)
    unbroken = train(recipe(out=str(tmp_path / "unbroken"), **settings))
    killed_after(5)
    with pytest.raises(Killed):
        train(recipe(**settings))
    resumed = train(recipe(**settings))
    assert same_weights(resumed.checkpoints[-1], unbroken.checkpoints[-1])
    assert losses(resumed.run)[-2:] == losses(unbroken.run)[-2:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mix": "wiki"}, "should read NAME=NUMBER"),
        ({"mix": "wiki=-1"}, "should read NAME=NUMBER"),
        ({"mix": "wikl=2"}, "Did you mean .wiki.?"),
        ({"mix": "wiki=2,news=2"}, "changes nothing in"),
        ({"mix": "wiki=0,news=0"}, "leaves nothing to train on"),
        ({"curriculum": 0.5, "epochs": None, "max_minutes": 1.0}, "--curriculum needs a run of known length"),
    ],
)
def test_a_mix_or_curriculum_that_cannot_be_meant_is_refused(
    recipe: Recipe, make_dataset: Callable[..., Path], changes: dict[str, Any], message: str
) -> None:
    sourced(folder := make_dataset())
    with pytest.raises(RecipeError, match=message):
        prepare_run(recipe(dataset=str(folder), **changes))


def test_dropout_is_really_on_in_that_comparison(recipe: Recipe, tmp_path: Path) -> None:
    off = train(recipe(out=str(tmp_path / "off"), epochs=1, dropout=0.0))
    on = train(recipe(epochs=1, dropout=0.2))
    assert not same_weights(off.checkpoints[-1], on.checkpoints[-1])


@pytest.fixture
def noisy(recipe: Recipe, tmp_path: Path) -> str:
    """A trained model whose config has dropout."""
    result = train(recipe(model="new:bert-tiny", out=str(tmp_path / "noisy"), epochs=1, dropout=0.2))
    assert dropout_of(read_json(result.checkpoints[-1] / "config.json")) == NOISY
    return str(result.checkpoints[-1])


NOISY = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}


def test_continued_pretraining_is_without_dropout_and_checkpoints_keep_the_models_own(
    recipe: Recipe, noisy: str, tmp_path: Path, killed_after: Callable[[int], None]
) -> None:
    """Fine-tuning from a checkpoint has the dropout that fine-tuning from the base would have."""
    settings = {"model": noisy, "tokenizer": None, "epochs": 1, "save_every": 0.4}
    work = prepare_run(recipe(**settings))
    assert work.recipe.dropout == 0.0
    assert len([note for note in work.notes if "--dropout 0.2" in note]) == 1
    killed_after(2)
    with pytest.raises(Killed):
        train(recipe(**settings))
    silent = train(recipe(**settings)).checkpoints[-1]
    asked = train(recipe(**settings, dropout=0.0, out=str(tmp_path / "asked"))).checkpoints[-1]
    kept = train(recipe(**settings, dropout=0.2, out=str(tmp_path / "kept"))).checkpoints[-1]
    assert same_weights(silent, asked)
    assert not same_weights(silent, kept)
    for checkpoint in (silent, asked, kept):
        assert dropout_of(read_json(checkpoint / "config.json")) == NOISY
    assert not any("dropout" in note for note in prepare_run(recipe(**settings, dropout=0.2, out=str(tmp_path / "other"))).notes)


def test_a_model_without_dropout_hears_nothing_of_it(recipe: Recipe, tmp_path: Path) -> None:
    quiet = train(recipe(model="new:bert-tiny", epochs=1)).checkpoints[-1]
    work = prepare_run(recipe(model=str(quiet), tokenizer=None, out=str(tmp_path / "more")))
    assert work.recipe.dropout is None
    assert not any("dropout" in note for note in work.notes)


def test_a_checkpoint_loads_alone_and_says_how_it_came_to_be(recipe: Recipe) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from coref_automl.base.records import Provenance
    from coref_automl.base.store import read_json

    result = train(recipe(epochs=1))
    newest = result.checkpoints[-1]
    assert AutoModelForMaskedLM.from_pretrained(newest).config.vocab_size == len(AutoTokenizer.from_pretrained(newest))
    ends = [read_json(checkpoint / "training.json")["planned_end"] for checkpoint in result.checkpoints]
    assert ends == [False] * (len(ends) - 1) + [True]
    provenance = Provenance.from_json(read_json(newest / "training.json"))
    assert (provenance.step, provenance.epoch, provenance.tokens, provenance.objective) == (3, 1.0, result.tokens, "mlm")
    assert (newest / "trainer_state.json").is_file()
    assert not (result.run / ".writing" / newest.name).exists()


@pytest.mark.parametrize("keep", [False, True])
def test_only_the_newest_checkpoint_stays_resumable(recipe: Recipe, keep: bool) -> None:
    result = train(recipe(epochs=1, keep_states=keep))
    assert [(path / "optimizer.pt").is_file() for path in result.checkpoints] == [keep, True]


def test_a_finished_run_is_not_computed_again(recipe: Recipe) -> None:
    first = train(recipe(epochs=1))
    events = len(losses(first.run))
    second = train(recipe(epochs=1))
    assert second.checkpoints == first.checkpoints
    assert len(losses(second.run)) == events


@pytest.mark.parametrize(
    ("change", "named"), [({"seed": 1}, "seed 0"), ({"learning_rate": 2e-3}, "learning_rate 0.001"), ({"epochs": 3}, "epochs 2")]
)
def test_a_folder_begun_with_another_recipe_is_refused(recipe: Recipe, change: dict[str, Any], named: str) -> None:
    from coref_automl.base.errors import FolderError
    from coref_automl.training.folder import claim_run
    from coref_automl.training.setup import prepare_run

    work = prepare_run(recipe())
    claim_run(work.recipe, work.fingerprints, work.summary())
    other = prepare_run(recipe(**change))
    with pytest.raises(FolderError, match=named):
        claim_run(other.recipe, other.fingerprints, other.summary())
    again = prepare_run(recipe(workers=2, micro_batch=1, log_every=5))
    claim_run(again.recipe, again.fingerprints, again.summary())


def test_a_run_goes_on_with_a_tokenizer_that_moved_but_not_with_another(
    recipe: Recipe, tmp_path: Path, tokenizer_folder: Path
) -> None:
    from coref_automl.training.folder import claim_run

    work = prepare_run(recipe())
    claim_run(work.recipe, work.fingerprints, work.summary())
    moved = shutil.copytree(tokenizer_folder, tmp_path / "moved")
    again = prepare_run(recipe(tokenizer=str(moved)))
    claim_run(again.recipe, again.fingerprints, again.summary())
    settings = read_json(moved / "tokenizer_config.json")
    write_json(moved / "tokenizer_config.json", {**settings, "cls_token": "[SEP]"})
    other = prepare_run(recipe(tokenizer=str(moved)))
    with pytest.raises(FolderError, match="configs or tokenizers"):
        claim_run(other.recipe, other.fingerprints, other.summary())


def test_a_folder_begun_with_other_data_is_refused(recipe: Recipe, make_dataset: Callable[..., Path]) -> None:
    from coref_automl.base.errors import FolderError
    from coref_automl.training.folder import claim_run
    from coref_automl.training.setup import prepare_run

    work = prepare_run(recipe())
    claim_run(work.recipe, work.fingerprints, work.summary())
    other = prepare_run(recipe(dataset=str(make_dataset(seed=1))))
    with pytest.raises(FolderError, match="bytes of the dataset"):
        claim_run(other.recipe, other.fingerprints, other.summary())


def test_data_of_another_tokenizer_is_refused(recipe: Recipe, make_dataset: Callable[..., Path]) -> None:
    from coref_automl.base.errors import DatasetError

    with pytest.raises(DatasetError, match="not this model"):
        train(recipe(dataset=str(make_dataset(tokenizer_print="another"))))


def test_rows_longer_than_the_blocks_are_refused(recipe: Recipe) -> None:
    from coref_automl.base.errors import DatasetError

    with pytest.raises(DatasetError, match="--seq-len 64"):
        train(recipe(seq_len=64))


@pytest.mark.parametrize("objective", ["entity", "combined"])
def test_an_objective_that_hides_mentions_is_refused_without_any(
    recipe: Recipe, make_dataset: Callable[..., Path], objective: str
) -> None:
    from coref_automl.base.errors import DatasetError

    with pytest.raises(DatasetError, match=f"no mentions, which --objective {objective} hides; .* prepare {objective}"):
        train(recipe(objective=objective, dataset=str(make_dataset(chains=False))))


def test_a_share_of_no_entity_rows_needs_no_mentions(recipe: Recipe, make_dataset: Callable[..., Path]) -> None:
    assert train(recipe(objective="combined", ratio=0.0, dataset=str(make_dataset(chains=False)), epochs=1)).steps


def test_a_gpu_other_than_the_first_is_refused_with_the_way_to_it(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    from coref_automl.base.errors import RecipeError

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for visible, number in (("", "1"), ("5,7", "7")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(RecipeError, match=f"set CUDA_VISIBLE_DEVICES={number} for this command, with the device cuda"):
            train(recipe(device="cuda:1"))


def test_a_folder_that_is_no_model_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    from coref_automl.base.errors import ModelError

    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError):
        train(recipe(model=str(tmp_path / "empty"), tokenizer=None))


def test_a_run_can_start_from_another_run(recipe: Recipe, tmp_path: Path) -> None:
    first = train(recipe(epochs=1, out=str(tmp_path / "first")))
    second = train(recipe(model=str(first.run), tokenizer=None, epochs=1, objective="entity"))
    assert "checkpoint-3" in (second.run / "recipe.yaml").read_text("utf-8")


def test_workers_change_nothing_that_is_learned(recipe: Recipe, tmp_path: Path) -> None:
    alone = train(recipe(out=str(tmp_path / "alone"), objective="combined", epochs=1))
    helped = train(recipe(objective="combined", epochs=1, workers=2))
    assert same_weights(alone.checkpoints[-1], helped.checkpoints[-1])


@pytest.mark.parametrize("shape", ["tiny", "deberta-tiny"])
def test_gradient_checkpointing_changes_nothing_that_is_learned(recipe: Recipe, tmp_path: Path, shape: str) -> None:
    plain = train(recipe(model=f"new:{shape}", out=str(tmp_path / "plain"), epochs=1))
    saving = train(recipe(model=f"new:{shape}", epochs=1, gradient_checkpointing=True))
    assert losses(saving.run) == pytest.approx(losses(plain.run), rel=1e-4)


def test_a_budget_in_minutes_ends_with_a_checkpoint_and_a_small_rate(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds it two seconds on, whatever this machine is doing."""
    from coref_automl.training.optimizer import Clock

    looks = iter(range(10**6))
    monkeypatch.setattr(Clock, "elapsed", lambda self: 2.0 * next(looks))
    result = train(recipe(epochs=None, max_minutes=6, save_every=0))
    assert [path.name for path in result.checkpoints] == [f"checkpoint-{result.steps}"]
    rows = [json.loads(line) for line in (result.run / "events.ndjson").read_text("utf-8").splitlines()]
    rates = [row["rate"] for row in rows if row["event"] == "step"]
    assert 10 < len(rates) < 100
    assert rates[-1] < 0.1 * max(rates)
    assert rates[0] < max(rates)


def test_a_budget_in_tokens_counts_real_ones(recipe: Recipe) -> None:
    result = train(recipe(epochs=None, max_tokens=250))
    assert result.steps == 2
    assert 200 < result.tokens <= 250


def test_rows_can_be_cut_shorter_than_the_blocks(recipe: Recipe) -> None:
    result = train(recipe(seq_len=16, epochs=1, objective="entity"))
    assert result.steps == 6


def test_rows_of_padding_alone_are_no_steps(
    recipe: Recipe, make_dataset: Callable[..., Path], tmp_path: Path, killed_after: Callable[[int], None]
) -> None:
    """Rows 0 and 2 hold 16 tokens of 64, row 1 is full: cut to 16, that is one row each and four."""
    folder = make_dataset(rows=3, length=64, padding=48)
    settings = {"dataset": str(folder), "seq_len": 16, "objective": "mlm", "batch": 1, "micro_batch": 1, "epochs": 2}
    unbroken = train(recipe(out=str(tmp_path / "unbroken"), **settings))
    assert unbroken.steps == 2 * 6
    assert json.loads((unbroken.checkpoints[-1] / "training.json").read_text())["tokens"] == 2 * 96
    killed_after(8)
    with pytest.raises(Killed):
        train(recipe(**settings))
    assert same_weights(train(recipe(**settings)).checkpoints[-1], unbroken.checkpoints[-1])


def test_a_run_whose_rows_an_earlier_version_counted_otherwise_is_refused(recipe: Recipe) -> None:
    from coref_automl.base.errors import FolderError

    result = train(recipe(epochs=1))
    path = result.run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["plan"]["rows"] += 4
    path.write_text(json.dumps(manifest))
    assert train(recipe(epochs=1)).checkpoints == result.checkpoints
    (result.run / "DONE").unlink()
    with pytest.raises(FolderError, match="begun with rows 16, and this command has rows 12"):
        train(recipe(epochs=1))


def test_each_run_of_a_process_reports_to_tensorboard_in_its_own_folder(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard is not installed here: a stand-in remembers where it was told to write."""
    from transformers.integrations import integration_utils

    writers = MagicMock()
    for name in ("tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, MagicMock(__spec__=ModuleSpec(name, None), SummaryWriter=writers))
    monkeypatch.setattr(integration_utils, "is_tensorboard_available", lambda: True)
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    for name in ("first", "second"):
        train(recipe(epochs=0.5, out=str(tmp_path / name), report_to=("tensorboard",)))
    folders = [call.kwargs["log_dir"] for call in writers.call_args_list]
    assert folders == [str(tmp_path / name / "tensorboard") for name in ("first", "second")]


def test_a_recipe_has_the_say_on_precision_whatever_accelerate_was_configured_for(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(recipe(epochs=0.5, dtype="float32"))
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # what `accelerate launch` sets
    launched = train(recipe(epochs=0.5, dtype="float32", out=str(tmp_path / "launched")))
    assert same_weights(launched.checkpoints[-1], plain.checkpoints[-1])


def test_a_reporter_that_is_not_installed_is_said_at_once(recipe: Recipe) -> None:
    from coref_automl.base.errors import RecipeError

    with pytest.raises(RecipeError, match="pip install no_such_reporter"):
        train(recipe(report_to=("no_such_reporter",)))


@pytest.mark.parametrize(("length", "cudnn"), [(64, False), (32, True)])
def test_rows_on_which_cudnns_gradients_may_fail_are_trained_without_it(
    recipe: Recipe, make_dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, length: int, cudnn: bool
) -> None:
    seen: set[bool] = set()
    true_step = MaskedTrainer.training_step

    def watched(self: Any, *arguments: Any, **settings: Any) -> Any:
        seen.add(torch.backends.cuda.cudnn_sdp_enabled())
        return true_step(self, *arguments, **settings)

    monkeypatch.setattr(MaskedTrainer, "training_step", watched)
    train(recipe(epochs=0.5, dataset=str(make_dataset(length=64)), seq_len=length))
    assert seen == {cudnn}
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_a_new_model_starts_with_the_words_of_another(recipe: Recipe, tmp_path: Path) -> None:
    from coref_automl.training.setup import load_model, prepare_run

    source = train(recipe(epochs=0.5, out=str(tmp_path / "source"))).checkpoints[-1]
    settings = recipe(model="new:deberta-tiny", words_from=str(source), epochs=0.5)
    initial = load_model(prepare_run(settings), None)
    assert torch.equal(
        initial.model.get_input_embeddings().weight.detach().cpu(), weights(source)["model.embeddings.tok_embeddings.weight"]
    )
    assert f"Word vectors and mask head of {source}; the layers between start from random weights." in initial.notes
    result = train(settings)
    assert json.loads((result.checkpoints[-1] / "training.json").read_text("utf-8"))["base"].startswith(
        f"new:deberta-tiny+{source.name}-"
    )
    moved = source.rename(tmp_path / "elsewhere")
    assert (
        train(recipe(model="new:deberta-tiny", words_from=str(moved), epochs=0.5)).steps == result.steps
    )  # finished, not refused


def test_words_that_do_not_fit_are_refused_before_anything_is_written(recipe: Recipe, tmp_path: Path) -> None:
    from coref_automl.base.errors import CorefError

    source = train(recipe(epochs=0.5, out=str(tmp_path / "source"))).checkpoints[-1]
    refused = {
        "width 64 and new:demo needs 128; pass another shape": recipe(model="new:demo", words_from=str(source)),
        "different vocabularies": recipe(words_from="bundled:ko-mini"),
        "leave --tokenizer out": recipe(model="bundled:ko-mini"),
        "for --model new:SHAPE": recipe(model=str(source), tokenizer=None, words_from=str(source)),
    }
    for reason, settings in refused.items():
        with pytest.raises(CorefError, match=reason):
            train(settings)
        assert not Path(settings.out).exists()


def test_the_words_of_a_run_are_those_of_the_checkpoint_it_stands_for(recipe: Recipe, tmp_path: Path) -> None:
    from coref_automl.base.errors import ModelError
    from coref_automl.training.setup import load_model, prepare_run

    source = train(recipe(epochs=1, out=str(tmp_path / "source")))
    settings = recipe(model="new:deberta-tiny", words_from=str(source.run), epochs=0.5)
    for newest in (True, False):
        if not newest:
            (source.run / "best.json").write_text(json.dumps({"checkpoint": source.checkpoints[0].name}), "utf-8")
        chosen = source.checkpoints[-1 if newest else 0]
        work = prepare_run(settings)
        assert work.recipe.words_from == str(chosen)
        assert f"--words-from: {chosen}" in work.notes
        initial = load_model(work, None).model.get_input_embeddings().weight.detach().cpu()
        assert torch.equal(initial, weights(chosen)["model.embeddings.tok_embeddings.weight"])
    (source.run / "best.json").unlink()
    for checkpoint in source.checkpoints:
        (checkpoint / "training.json").unlink()
    with pytest.raises(ModelError, match="no complete checkpoint yet; finish it first, or pass another --words-from"):
        prepare_run(settings)


def test_a_source_of_words_without_a_mask_head_is_refused_with_what_helps_there(recipe: Recipe, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from coref_automl.base.errors import ModelError

    source = train(recipe(epochs=0.5, out=str(tmp_path / "source"))).checkpoints[-1]
    kept = {name: value for name, value in weights(source).items() if name.startswith("model.")}
    save_file(kept, source / "model.safetensors", metadata={"format": "pt"})
    settings = recipe(model="new:deberta-tiny", words_from=str(source), epochs=0.5)
    with pytest.raises(ModelError, match=r"no trained mask head .* Pass a checkpoint with one\.$"):
        train(settings)
    assert not Path(settings.out).exists()


def test_a_source_that_cannot_be_loaded_leaves_the_folder_free(recipe: Recipe, tmp_path: Path) -> None:
    """Damage is found when it is loaded; the corrected command may use the same folder."""
    from coref_automl.base.errors import CorefError

    source = train(recipe(epochs=0.5, out=str(tmp_path / "source"))).checkpoints[-1]
    held = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(held[: len(held) // 2])
    settings = recipe(model="new:deberta-tiny", words_from=str(source), epochs=0.5)
    with pytest.raises(CorefError):
        train(settings)
    assert not Path(settings.out).exists()
    (source / "model.safetensors").write_bytes(held)
    assert train(settings).checkpoints


def test_the_private_hooks_that_the_loop_overrides_are_the_librarys() -> None:
    """A release without one of them would leave ours uncalled, and nobody would hear of it."""
    own = {"_record_nonfinite"}
    hooks = {name for name in vars(MaskedTrainer) if name.startswith("_") and not name.startswith("__")} - own
    assert {name for name in hooks if not callable(getattr(Trainer, name, None))} == set()
    assert {name for name in hooks if name not in str(MaskedTrainer.__doc__)} == set()


@pytest.mark.parametrize("shape", ["bert-tiny", "electra-tiny", "roberta-tiny", "deberta-tiny"])
def test_a_config_without_dropout_trains_without_it_too(
    recipe: Callable[..., TrainRecipe], tmp_path: Path, tokenizer_folder: Path, shape: str
) -> None:
    """Older files leave out settings at the library's default, which is a dropout of 0.1."""
    tokenizer, folder = load_tokenizer(str(tokenizer_folder)), tmp_path / "base"
    build_masked_lm(shape, tokenizer, seq_len=64).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", {name: value for name, value in config.items() if not name.endswith("dropout_prob")})
    work = prepare_run(recipe(model=str(folder), tokenizer=None))
    assert (work.recipe.dropout, max(work.own_dropout.values())) == (0.0, 0.1)


def test_long_runs_on_a_gpu_are_compiled_unless_told_otherwise(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the recipe alone, so that a resumed run decides the same. A tiny model needs a huge budget."""
    import importlib.util

    from coref_automl.training.setup import compiles, load_model

    find, long, model = importlib.util.find_spec, 10**11, load_model(prepare_run(recipe()), None).model
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "triton" or find(name))
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")

    def decides(device: str = "cuda", **settings: Any) -> bool:
        work = dataclasses.replace(prepare_run(recipe(**settings)), device=device)
        decision, notes = compiles(work, model)
        assert bool(notes) is (decision and "compile" not in settings)
        return decision

    assert decides(epochs=None, max_tokens=long)
    assert decides(epochs=None, max_minutes=2.0)
    assert decides(epochs=1, compile=True)
    assert not decides(epochs=None, max_tokens=long, compile=False)
    assert not decides(epochs=None, max_tokens=long, max_minutes=1.0)
    assert not decides(epochs=3)
    assert not decides("cpu", epochs=None, max_tokens=long)


def test_every_seed_of_the_recipe_trains(recipe: Callable[..., TrainRecipe]) -> None:
    assert train(recipe(seed=2**63 - 1, epochs=0.5)).steps == 1
