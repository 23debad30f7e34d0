"""One seed's training. In: a model, rows as tensors, a recipe. Out: the same model with its best weights, and their history.

An epoch's order and dropout depend on (seed, epoch) alone, so a run that goes on from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.errors import NotFinite
from coref_automl.models.attention import without_cudnn
from coref_automl.progress import Progress, Stage
from coref_automl.relation.graphs import Recorded, Step, recordable
from coref_automl.relation.labels import LABELS
from coref_automl.relation.metrics import Scores, score
from coref_automl.relation.model import RelationModel
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.relation.techniques import (
    LOSSES,
    Average,
    LossSettings,
    effective_number_weights,
    hard_negatives,
    margins,
    masked,
    pushed,
    r_drop,
)
from coref_automl.relation.tensors import Chosen, Side, logits_of, matmuls, probabilities, training_order
from coref_automl.store import written_whole
from coref_automl.training.optimizer import adamw, groups_of
from coref_automl.training.schedule import rate_factor

OnEpoch = Callable[[int, int, Scores], None]
"""Called with the seed, the number of the epoch that just ended (from 1), and its scores on the slice that chooses."""

RESUME = "resume.pt"
_LOOK_EVERY = 50
_CLIP = 1.0


@dataclass(slots=True)
class State:
    """Where a fit stands after a whole epoch; all of it is in resume.pt."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_step: int = 0
    best_loss: float = math.inf
    best: Scores = field(default_factory=lambda: Scores(0.0, 0.0, 0.0, 0))
    best_weights: dict[str, Any] = field(default_factory=dict)
    margins: Any | None = None
    averaged: Any | None = None
    rows_seen: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What does not change from epoch to epoch."""

    model: RelationModel
    optimizer: Any
    peaks: tuple[float, ...]
    train: Side
    gold: Any
    recipe: RelationRecipe
    settings: LossSettings
    average: Average | None
    seed: int
    total: int
    stage: Stage


def fit(
    model: RelationModel,
    train: Side,
    valid: Side,
    recipe: RelationRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: OnEpoch | None = None,
) -> State:
    """Train until the epochs are over or patience is; the model is left with the weights of its best epoch.

    `on_epoch` hears of every epoch; what it raises ends the fit, which a later call can take up again.
    """
    device = train.tensors.device
    optimizer = adamw(
        groups_of(model, rate=rate_of(recipe, model), weight_decay=recipe.weight_decay, layer_decay=recipe.layer_decay),
        fused=True,
    )
    peaks = tuple(group["lr"] for group in optimizer.param_groups)
    state = _resume(folder / RESUME, model, optimizer)
    average = Average(model, recipe.ema) if recipe.ema else None
    if average is not None and state.averaged is not None:
        average.load(state.averaged)
    total = recipe.epochs * math.ceil(len(train.tensors) / recipe.batch_size)
    gold = torch.from_numpy(train.gold).to(device)
    settings = loss_settings(recipe, train.gold, device)
    with (
        progress.stage(f"seed {seed}", total, "steps") as stage,
        _own_randomness(device),
        matmuls(recipe.precision),
        without_cudnn(),
    ):
        run = _Run(model, optimizer, peaks, train, gold, recipe, settings, average, seed, total, stage)
        step = _step_of(run, device)
        stage.skip(state.step)
        while state.epoch < recipe.epochs and not _flat(state, recipe):
            began = time.monotonic()
            torch.manual_seed(1_000_003 * seed + state.epoch)
            _epoch(run, step, state)
            with average.in_place() if average else nullcontext():
                scores = _look(model, valid, recipe, state, stage)
            state.seconds += time.monotonic() - began
            if recipe.epoch_checkpoints:
                state.averaged = average.held if average else None
                _save(folder / RESUME, model, optimizer, state)
            if on_epoch is not None:
                on_epoch(seed, state.epoch, scores)
    model.load_state_dict(state.best_weights)
    return state


def _step_of(run: _Run, device: str) -> Step:
    """What a batch does to the gradients; on CUDA recorded, where the encoder's family can be."""

    def step(chosen: Chosen) -> tuple[Any, Any]:
        return _step(run, chosen)

    if run.recipe.graphs and recordable(run.model, device):
        return Recorded(step, tuple(run.model.parameters()), run.recipe.batch_size)
    return step


def rate_of(recipe: RelationRecipe, model: RelationModel) -> float:
    """Small encoders want a larger rate: the one our measurements used for them."""
    if recipe.learning_rate is not None:
        return recipe.learning_rate
    return 3e-4 if model.config.hidden_size < 512 else 5e-5


def _epoch(run: _Run, step: Step, state: State) -> None:
    model, train, recipe, total = run.model, run.train, run.recipe, run.total
    seen = torch.full((len(train.gold),), math.nan, device=train.tensors.device)
    rows = np.arange(len(train.gold))
    if recipe.hard_negatives and state.margins is not None:
        rows = np.concatenate([rows, hard_negatives(train.gold, state.margins.numpy(), recipe.hard_negatives)])
    order = training_order(train.tensors.lengths, rows, recipe.batch_size, np.random.default_rng((run.seed, state.epoch)))
    model.train()
    begin = state.step
    for number, chosen in enumerate(train.tensors.place(order), 1):
        # repeated negatives make an epoch longer: progress within it is by share, so that the decay still ends at its end
        state.step = begin + round(number / len(order) * (total // recipe.epochs))
        for group, peak in zip(run.optimizer.param_groups, run.peaks, strict=True):
            group["lr"] = peak * rate_factor((state.step - 0.5) / total, "linear", recipe.warmup)
        loss, logits = step(chosen)
        if recipe.hard_negatives:
            seen[chosen.rows] = margins(logits.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=False)  # a recording adds to them where they are
        if run.average is not None:
            run.average.follow(state.step)
        state.rows_seen += len(chosen.rows)
        if number % _LOOK_EVERY == 0 or number == len(order):
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NotFinite(f"The loss is NaN or infinite at step {state.step}; lower --lr or pass --precision float32.")
            run.stage.advance(begin + round(number / len(order) * (total // recipe.epochs)) - run.stage.done, loss=value)
    state.margins = seen.cpu() if recipe.hard_negatives else None


def _step(run: _Run, chosen: Chosen) -> tuple[Any, Any]:
    """The gradients of a batch; its loss and logits come back. FGM adds those of the same batch with its words pushed."""
    gold = run.gold[chosen.rows]
    loss, logits = _loss(run, chosen, gold)
    loss.backward()
    if run.recipe.fgm:
        with pushed(run.model.encoder.get_input_embeddings().weight, run.recipe.fgm):
            _loss(run, chosen, gold)[0].backward()
    return loss, logits


def _loss(run: _Run, chosen: Chosen, gold: Any) -> tuple[Any, Any]:
    """The loss of a batch and its logits. R-Drop passes every row twice, under two draws of dropout."""
    recipe, bias = run.recipe, run.train.bias
    copies = 2 if recipe.r_drop else 1
    logits = logits_of(run.model, run.train, chosen, recipe.precision, copies)
    first = logits[: len(gold)]
    if bias is not None:
        logits = masked(logits, bias[chosen.rows].repeat(copies, 1), gold.repeat(copies))
    loss = LOSSES[recipe.loss](logits, gold.repeat(copies), run.settings)
    if recipe.r_drop:
        loss = loss + recipe.r_drop * r_drop(logits[: len(gold)], logits[len(gold) :])
    return loss, first


def loss_settings(recipe: RelationRecipe, gold: NDArray[np.int64], device: str) -> LossSettings:
    """What the loss of a recipe needs to know; the labels' weights come from the rows that are trained on."""
    weights = None
    if recipe.loss == "class-balanced":
        weights = torch.from_numpy(effective_number_weights(gold, len(LABELS), recipe.balance_beta)).to(device)
    return LossSettings(recipe.label_smoothing, recipe.focal_gamma, weights)


def _look(model: RelationModel, valid: Side, recipe: RelationRecipe, state: State, stage: Stage) -> Scores:
    """Score the slice of train that chooses, and keep the weights if they are the best so far."""
    found = probabilities(model, valid, recipe.precision)
    scores = score(valid.gold, found)
    right = found[np.arange(len(valid.gold)), valid.gold]
    loss = float(-np.log(np.maximum(right, 1e-7)).mean())
    state.epoch += 1
    gain = state.best_loss - loss if recipe.choose_by == "loss" else _metric(scores, recipe) - _metric(state.best, recipe)
    if not state.best_weights or gain > recipe.threshold:
        state.best, state.best_loss = scores, loss
        state.best_epoch, state.best_step = state.epoch, state.step
        state.best_weights = {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}
    stage.advance(0, f1=scores.micro_f1, validation_loss=loss)
    return scores


def _metric(scores: Scores, recipe: RelationRecipe) -> float:
    return scores.auprc if recipe.choose_by == "auprc" else scores.micro_f1


def _flat(state: State, recipe: RelationRecipe) -> bool:
    return 0 < recipe.patience <= state.epoch - state.best_epoch


def _save(path: Path, model: RelationModel, optimizer: Any, state: State) -> None:
    """Torch fills memory, not the file: its writer would turn a Ctrl-C or a full disk into an error of its own."""
    kept = {name: getattr(state, name) for name in State.__slots__ if name != "best"}
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": kept, "best": state.best.to_json()}
    buffer = io.BytesIO()
    torch.save(whole, buffer)
    with written_whole(path, "wb") as handle:
        handle.write(buffer.getbuffer())


def _resume(path: Path, model: RelationModel, optimizer: Any) -> State:
    if not path.is_file():
        return State()
    whole = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(whole["model"])
    optimizer.load_state_dict(whole["optimizer"])
    return State(**whole["state"], best=Scores.from_json(whole["best"]))


@contextmanager
def _own_randomness(device: str) -> Iterator[None]:
    """Dropout draws from torch's global state; what it was before comes back afterwards."""
    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        yield
