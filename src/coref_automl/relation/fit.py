"""One seed's training. In: a model, rows as tensors, a recipe. Out: the same model with its best weights, and their history.

An epoch's order and dropout depend on (seed, epoch) alone, so a run that resumes from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.models.attention import without_cudnn
from coref_automl.progress import Progress, Stage
from coref_automl.relation.graphs import Recorded, Step, recordable
from coref_automl.relation.labels import LABELS
from coref_automl.relation.metrics import Scores, score
from coref_automl.relation.model import RelationModel
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.relation.techniques import (
    LOSSES,
    LossSettings,
    effective_number_weights,
    hard_negatives,
    margins,
    masked,
    pushed,
    r_drop,
)
from coref_automl.relation.tensors import Chosen, LabelledRows, logits_of, matmuls, probabilities, training_order
from coref_automl.training.finetuning import RESUME, Updates, checked_loss, own_randomness, seed_epoch, weights_on_cpu
from coref_automl.training.optimizer import groups_of

OnEpoch = Callable[[int, int, Scores], None]
"""Called with the seed, the number of the epoch that just ended (from 1), and its scores on the slice that chooses."""

_LOOK_EVERY = 50


@dataclass(slots=True)
class FitState:
    """A fit after a whole epoch; all of it is in resume.pt."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_step: int = 0
    best_loss: float = math.inf
    best: Scores = field(default_factory=lambda: Scores(0.0, 0.0, 0.0, 0))
    best_weights: dict[str, Any] = field(default_factory=dict)
    margins: Any | None = None
    rows_seen: int = 0

    @classmethod
    def of(cls, held: dict[str, Any] | None) -> FitState:
        return cls(**held["state"], best=Scores.from_json(held["best"])) if held else cls()

    def kept(self) -> dict[str, Any]:
        """Plain values, as torch loads them without running code."""
        state = {name: getattr(self, name) for name in self.__slots__ if name != "best"}
        return {"state": state, "best": self.best.to_json()}


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What does not change from epoch to epoch."""

    model: RelationModel
    updates: Updates
    train: LabelledRows
    gold: Any
    recipe: RelationRecipe
    settings: LossSettings
    seed: int
    total: int
    stage: Stage


def fit(
    model: RelationModel,
    train: LabelledRows,
    valid: LabelledRows,
    recipe: RelationRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: OnEpoch | None = None,
) -> FitState:
    """Train until the epochs are over or patience is; the model is left with the weights of its best epoch.

    `on_epoch` hears of every epoch; what it raises ends the fit, which a later call can take up again.
    """
    device = train.tensors.device
    groups = groups_of(model, rate=rate_of(recipe, model), weight_decay=recipe.weight_decay, layer_decay=recipe.layer_decay)
    updates = Updates(model, groups, recipe.warmup)
    state = FitState.of(updates.load(folder / RESUME))
    total = recipe.epochs * math.ceil(len(train.tensors) / recipe.batch_size)
    gold = torch.from_numpy(train.gold).to(device)
    settings = loss_settings(recipe, train.gold, device)
    with (
        progress.stage(f"seed {seed}", total, "steps") as stage,
        own_randomness(device),
        matmuls(recipe.precision),
        without_cudnn(),
    ):
        run = _Run(model, updates, train, gold, recipe, settings, seed, total, stage)
        step = _step_of(run, device)
        stage.skip(state.step)
        while state.epoch < recipe.epochs and not _flat(state, recipe):
            began = time.monotonic()
            seed_epoch(seed, state.epoch)
            _epoch(run, step, state)
            scores = _look(model, valid, recipe, state, stage)
            state.seconds += time.monotonic() - began
            if recipe.epoch_checkpoints:
                updates.save(folder / RESUME, **state.kept())
            if on_epoch is not None:
                on_epoch(seed, state.epoch, scores)
        stage.conclude(best_epoch=state.best_epoch, validation_f1=state.best.micro_f1)
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


def _epoch(run: _Run, step: Step, state: FitState) -> None:
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
        run.updates.set_rate((state.step - 0.5) / total)
        loss, logits = step(chosen)
        if recipe.hard_negatives:
            seen[chosen.rows] = margins(logits)
        run.updates.step(keep_gradients=True)
        state.rows_seen += len(chosen.rows)
        if number % _LOOK_EVERY == 0 or number == len(order):
            value = checked_loss(loss, state.step)
            run.stage.advance(begin + round(number / len(order) * (total // recipe.epochs)) - run.stage.done, loss=value)
    state.margins = seen.cpu() if recipe.hard_negatives else None


def _step(run: _Run, chosen: Chosen) -> tuple[Any, Any]:
    """The gradients of a batch; its loss and logits come back. FGM adds those of the same batch with its words pushed.

    Nothing of the pass outlives it: a graph that was kept from before would break the recording of the next width.
    """
    gold = run.gold[chosen.rows]
    loss, logits = _loss(run, chosen, gold)
    loss.backward()
    if run.recipe.fgm:
        with pushed(run.model.encoder.get_input_embeddings().weight, run.recipe.fgm):
            _loss(run, chosen, gold)[0].backward()
    return loss.detach(), logits.detach()


def _loss(run: _Run, chosen: Chosen, gold: Any) -> tuple[Any, Any]:
    """The loss of a batch and its logits. R-Drop passes every row twice, under two draws of dropout."""
    recipe, bias = run.recipe, run.train.bias
    copies = 2 if recipe.r_drop else 1
    logits = logits_of(run.model, run.train, chosen, recipe.precision, copies)
    if bias is not None:
        logits = masked(logits, bias[chosen.rows].repeat(copies, 1), gold.repeat(copies))
    first = logits[: len(gold)]
    loss = LOSSES[recipe.loss](logits, gold.repeat(copies), run.settings)
    if recipe.r_drop:
        loss = loss + recipe.r_drop * r_drop(first, logits[len(gold) :])
    return loss, first


def loss_settings(recipe: RelationRecipe, gold: NDArray[np.int64], device: str) -> LossSettings:
    """What the loss of a recipe needs to know; the labels' weights come from the rows that are trained on."""
    weights = None
    if recipe.loss == "class-balanced":
        weights = torch.from_numpy(effective_number_weights(gold, len(LABELS), recipe.balance_beta)).to(device)
    return LossSettings(recipe.label_smoothing, recipe.focal_gamma, weights)


def _look(model: RelationModel, valid: LabelledRows, recipe: RelationRecipe, state: FitState, stage: Stage) -> Scores:
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
        state.best_weights = weights_on_cpu(model)
    stage.advance(0, f1=scores.micro_f1, validation_loss=loss)
    return scores


def _metric(scores: Scores, recipe: RelationRecipe) -> float:
    return scores.auprc if recipe.choose_by == "auprc" else scores.micro_f1


def _flat(state: FitState, recipe: RelationRecipe) -> bool:
    return 0 < recipe.patience <= state.epoch - state.best_epoch
