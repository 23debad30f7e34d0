"""One seed's training. In: a model, rows as tensors, a recipe. Out: the same model with its best weights, and their history.

An epoch's order and dropout depend on (seed, epoch) alone, so a run resumed from the last whole epoch ends where an uninterrupted
one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.base.progress import Progress, Stage
from coref_automl.extras.relation import techniques
from coref_automl.extras.relation.metrics import score
from coref_automl.extras.relation.model import (
    BatchRows,
    LabelledRows,
    RelationModel,
    logits_of,
    matmuls,
    probabilities,
    training_order,
)
from coref_automl.extras.relation.recipe import RelationRecipe, default_learning_rate
from coref_automl.extras.relation.results import Scores
from coref_automl.models.execution import without_cudnn
from coref_automl.training.finetuning import RESUME, FitState, Updates, checked_loss, run_epochs, scoped_rng, weights_on_cpu
from coref_automl.training.optimizer import parameter_groups

_LOG_EVERY = 50
"""Steps between two lines of progress; reading the loss waits for the device."""


@dataclass(slots=True)
class RelationFitState(FitState):
    """`best` are the scores of the best epoch, as JSON has them; `margins` are those of the last epoch, NaN for rows not seen."""

    best_step: int = 0
    best_loss: float = math.inf
    best: dict[str, Any] = field(default_factory=lambda: Scores(0.0, 0.0, 0.0, 0).to_json())
    margins: Any | None = None
    rows_seen: int = 0


def train_model(
    model: RelationModel,
    train: LabelledRows,
    valid: LabelledRows,
    recipe: RelationRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: Callable[[int, int, Scores], None] | None = None,
) -> RelationFitState:
    """Train for all epochs or until early stopping; leave the model with the weights of its best epoch."""
    device = train.tensors.device
    peak = recipe.learning_rate or default_learning_rate(model.config.hidden_size)
    groups = parameter_groups(model, learning_rate=peak, weight_decay=recipe.weight_decay, layer_decay=recipe.layer_decay)
    updates = Updates(model, groups, recipe.warmup)
    state = updates.load(folder / RESUME, RelationFitState)
    total = recipe.epochs * math.ceil(len(train.tensors) / recipe.batch_size)
    with progress.stage(f"seed {seed}", total, "steps") as stage, scoped_rng(device), matmuls(recipe.precision), without_cudnn():
        stage.skip(state.step)
        trainer = _Trainer(model, updates, train, valid, recipe, seed=seed, total=total, stage=stage, state=state)
        resume = folder / RESUME if recipe.epoch_checkpoints else None
        run_epochs(trainer, seed=seed, state=state, updates=updates, resume=resume, on_epoch=on_epoch)
        stage.conclude(best_epoch=state.best_epoch, validation_f1=state.best["micro_f1"])
    model.load_state_dict(state.best_weights)
    return state


@dataclass(eq=False)
class _Trainer:
    """The epochs of one seed. `run_epochs` advances `state.epoch`; steps and the best epoch are recorded here."""

    model: RelationModel
    updates: Updates
    train: LabelledRows
    valid: LabelledRows
    recipe: RelationRecipe
    seed: int
    total: int
    stage: Stage
    state: RelationFitState
    gold: Any = field(init=False)
    backward_pass: techniques.Step = field(init=False)
    loss: float = field(init=False)

    def __post_init__(self) -> None:
        device = self.train.tensors.device
        self.gold = torch.from_numpy(self.train.gold).to(device)
        self.backward_pass = self.forward_backward
        if self.recipe.graphs and techniques.can_capture(self.model, device):
            weights = tuple(self.model.parameters())
            self.backward_pass = techniques.CudaGraphStep(self.forward_backward, weights, self.recipe.batch_size)

    def train_epoch(self) -> None:
        train, recipe, state = self.train, self.recipe, self.state
        rows = np.arange(len(train.gold))
        if recipe.hard_negatives and state.margins is not None:
            rows = np.concatenate([rows, techniques.hard_negatives(train.gold, state.margins.numpy(), recipe.hard_negatives)])
        order = training_order(train.tensors.lengths, rows, recipe.batch_size, np.random.default_rng((self.seed, state.epoch)))
        margins = torch.full((len(train.gold),), math.nan, device=train.tensors.device)
        first_step = state.step
        nominal_steps = self.total // recipe.epochs
        self.model.train()
        for number, batch in enumerate(train.tensors.batch_rows(order), 1):
            # repeated negatives lengthen an epoch: its steps are scaled to the nominal number, so that the decay ends with it
            state.step = first_step + round(number / len(order) * nominal_steps)
            self.updates.set_learning_rate((state.step - 0.5) / self.total)
            loss, logits = self.backward_pass(batch)
            if recipe.hard_negatives:
                margins[batch.rows] = techniques.margins(logits)
            self.updates.step(keep_gradients=True)
            state.rows_seen += len(batch.rows)
            if number % _LOG_EVERY == 0 and number < len(order):
                self.stage.advance(state.step - self.stage.done, loss=checked_loss(loss, state.step))
        self.loss = checked_loss(loss, state.step)  # reported with the epoch's scores
        state.margins = margins.cpu() if recipe.hard_negatives else None

    def forward_backward(self, batch: BatchRows) -> tuple[Any, Any]:
        """Add the gradients of a batch.

        Keep no reference to the autograd graph: it would break capturing the next CUDA graph.
        """
        gold = self.gold[batch.rows]
        logits = logits_of(self.model, self.train, batch, self.recipe.precision, gold)
        loss = techniques.label_loss(logits, gold, self.recipe.label_smoothing)
        loss.backward()
        return loss.detach(), logits.detach()

    def validate(self) -> Scores:
        """Score the validation rows, and keep the weights if they are the best so far."""
        valid, state = self.valid, self.state
        predicted = probabilities(self.model, valid, self.recipe.precision)
        scores = score(valid.gold, predicted)
        loss = float(-np.log(np.maximum(predicted[np.arange(len(valid.gold)), valid.gold], 1e-7)).mean())  # log(0) is infinite
        if not state.best_weights or self._gain(scores, loss) > self.recipe.threshold:
            state.best = scores.to_json()
            state.best_loss = loss
            state.best_epoch = state.epoch
            state.best_step = state.step
            state.best_weights = weights_on_cpu(self.model)
        self.stage.advance(state.step - self.stage.done, loss=self.loss, f1=scores.micro_f1, validation_loss=loss)
        return scores

    def _gain(self, scores: Scores, loss: float) -> float:
        """By how much an epoch is better than the best so far, in what the recipe chooses by: in the loss while both F1 are 0."""
        metric, best = self.recipe.choose_by, self.state.best
        by_loss = metric == "loss" or (metric == "micro_f1" and scores.micro_f1 == best["micro_f1"] == 0)
        return float(self.state.best_loss - loss if by_loss else getattr(scores, metric) - best[metric])

    def should_stop(self) -> bool:
        """Whether all epochs are done or patience has run out."""
        state, recipe = self.state, self.recipe
        return state.epoch >= recipe.epochs or 0 < recipe.patience <= state.epoch - state.best_epoch
