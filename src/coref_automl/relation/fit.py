"""One seed's training. In: a model, rows as tensors, a recipe. Out: the same model with its best weights, and their history.

An epoch's order and dropout depend on (seed, epoch) alone, so a run that resumes from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.models.execution import without_cudnn
from coref_automl.models.fused_deberta import installed
from coref_automl.progress import Progress, Stage
from coref_automl.relation import techniques
from coref_automl.relation.metrics import score
from coref_automl.relation.model import Chosen, LabelledRows, RelationModel, logits_of, matmuls, probabilities, training_order
from coref_automl.relation.recipe import RelationRecipe, usual_rate
from coref_automl.relation.results import Scores
from coref_automl.relation.rows import LABELS
from coref_automl.training.finetuning import RESUME, FitState, Updates, checked_loss, run_epochs, scoped_rng, weights_on_cpu
from coref_automl.training.optimizer import parameter_groups

_LOOK_EVERY = 50


@dataclass(slots=True)
class RelationFitState(FitState):
    """`best` are the scores of the best epoch, as JSON has them."""

    best_step: int = 0
    best_loss: float = math.inf
    best: dict[str, Any] = field(default_factory=lambda: Scores(0.0, 0.0, 0.0, 0).to_json())
    margins: Any | None = None
    rows_seen: int = 0


def fit(
    model: RelationModel,
    train: LabelledRows,
    valid: LabelledRows,
    recipe: RelationRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: Callable[[int, int, Scores], None] | None = None,
) -> RelationFitState:
    """Train until the epochs are over or patience is; the model is left with the weights of its best epoch."""
    device = train.tensors.device
    rate = usual_rate(model.config.hidden_size) if recipe.learning_rate is None else recipe.learning_rate
    groups = parameter_groups(model, learning_rate=rate, weight_decay=recipe.weight_decay, layer_decay=recipe.layer_decay)
    updates = Updates(model, groups, recipe.warmup)
    state = updates.load(folder / RESUME, RelationFitState)
    total = recipe.epochs * math.ceil(len(train.tensors) / recipe.batch_size)
    with (
        progress.stage(f"seed {seed}", total, "steps") as stage,
        scoped_rng(device),
        matmuls(recipe.precision),
        without_cudnn(),
    ):
        stage.skip(state.step)
        run = _Run(model, updates, train, valid, recipe, seed=seed, total=total, stage=stage, state=state)
        resume = folder / RESUME if recipe.epoch_checkpoints else None
        run_epochs(run, seed=seed, state=state, updates=updates, resume=resume, on_epoch=on_epoch)
        stage.conclude(best_epoch=state.best_epoch, validation_f1=state.best["micro_f1"])
    model.load_state_dict(state.best_weights)
    return state


def loss_settings(recipe: RelationRecipe, gold: NDArray[np.int64], device: str) -> techniques.LossSettings:
    """What the loss of a recipe needs to know; the labels' weights come from the rows that are trained on."""
    weights = None
    if recipe.loss == "class-balanced":
        weights = torch.from_numpy(techniques.effective_number_weights(gold, len(LABELS), recipe.balance_beta)).to(device)
    return techniques.LossSettings(recipe.label_smoothing, recipe.focal_gamma if recipe.loss == "focal" else 0.0, weights)


Step = Callable[[Chosen], tuple[Any, Any]]
"""Adds a batch's gradients to those of the weights; its loss and its logits come back, detached."""


@dataclass(eq=False)
class _Run:
    """The epochs of one seed. `run_epochs` advances `state.epoch`; steps and what is best are counted here."""

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
    settings: techniques.LossSettings = field(init=False)
    step: Step = field(init=False)

    def __post_init__(self) -> None:
        device = self.train.tensors.device
        self.gold = torch.from_numpy(self.train.gold).to(device)
        self.settings = loss_settings(self.recipe, self.train.gold, device)
        self.step = self.gradients
        if self.recipe.graphs and recordable(self.model, device):
            self.step = RecordedStep(self.gradients, tuple(self.model.parameters()), self.recipe.batch_size)

    def train_epoch(self) -> None:
        train, recipe, state = self.train, self.recipe, self.state
        rows = np.arange(len(train.gold))
        if recipe.hard_negatives and state.margins is not None:
            rows = np.concatenate([rows, techniques.hard_negatives(train.gold, state.margins.numpy(), recipe.hard_negatives)])
        order = training_order(train.tensors.lengths, rows, recipe.batch_size, np.random.default_rng((self.seed, state.epoch)))
        seen = torch.full((len(train.gold),), math.nan, device=train.tensors.device)
        begin = state.step
        self.model.train()
        for number, chosen in enumerate(train.tensors.place(order), 1):
            # repeated negatives make an epoch longer: progress within it is by share, so that the decay still ends at its end
            state.step = begin + round(number / len(order) * (self.total // recipe.epochs))
            self.updates.set_learning_rate((state.step - 0.5) / self.total)
            loss, logits = self.step(chosen)
            if recipe.hard_negatives:
                seen[chosen.rows] = techniques.margins(logits)
            self.updates.step(keep_gradients=True)
            state.rows_seen += len(chosen.rows)
            if number % _LOOK_EVERY == 0 or number == len(order):
                self.stage.advance(state.step - self.stage.done, loss=checked_loss(loss, state.step))
        state.margins = seen.cpu() if recipe.hard_negatives else None

    def gradients(self, chosen: Chosen) -> tuple[Any, Any]:
        """Add the gradients of a batch; its loss and logits come back. FGM adds those of the same batch with its words pushed.

        Nothing of the pass outlives it: a graph that was kept from before would break the recording of the next width.
        """
        gold = self.gold[chosen.rows]
        loss, logits = self._loss(chosen, gold)
        loss.backward()
        if self.recipe.fgm:
            with techniques.pushed(self.model.encoder.get_input_embeddings().weight, self.recipe.fgm):
                self._loss(chosen, gold)[0].backward()
        return loss.detach(), logits.detach()

    def _loss(self, chosen: Chosen, gold: Any) -> tuple[Any, Any]:
        """The loss of a batch and its logits. R-Drop passes every row twice, under two draws of dropout."""
        bias, weight = self.train.bias, self.recipe.r_drop
        copies = 2 if weight else 1
        logits = logits_of(self.model, self.train, chosen, self.recipe.precision, copies)
        if bias is not None:
            logits = techniques.masked(logits, bias[chosen.rows].repeat(copies, 1), gold.repeat(copies))
        loss = techniques.label_loss(logits, gold.repeat(copies), self.settings)
        first = logits[: len(gold)]
        return loss + weight * techniques.r_drop(first, logits[len(gold) :]) if weight else loss, first

    def validate(self) -> Scores:
        """Score the slice of train that chooses, and keep the weights if they are the best so far."""
        valid, recipe, state = self.valid, self.recipe, self.state
        found = probabilities(self.model, valid, recipe.precision)
        scores = score(valid.gold, found)
        loss = float(-np.log(np.maximum(found[np.arange(len(valid.gold)), valid.gold], 1e-7)).mean())
        metric = "auprc" if recipe.choose_by == "auprc" else "micro_f1"
        gain = state.best_loss - loss if recipe.choose_by == "loss" else getattr(scores, metric) - state.best[metric]
        if not state.best_weights or gain > recipe.threshold:
            state.best, state.best_loss = scores.to_json(), loss
            state.best_epoch, state.best_step = state.epoch, state.step
            state.best_weights = weights_on_cpu(self.model)
        self.stage.advance(0, f1=scores.micro_f1, validation_loss=loss)
        return scores

    def should_stop(self) -> bool:
        """All epochs are done, or patience is at its end."""
        state, recipe = self.state, self.recipe
        return state.epoch >= recipe.epochs or 0 < recipe.patience <= state.epoch - state.best_epoch


RECORDABLE = frozenset({"bert", "electra", "modernbert", "roberta", "xlm-roberta"})
"""Families whose step never waits for the GPU, so that it can be recorded; DeBERTa-v2 only with fused attention."""


def recordable(model: Any, device: str) -> bool:
    family = model.config.model_type
    return device.startswith("cuda") and (family in RECORDABLE or (family == "deberta-v2" and installed(model.encoder)))


class RecordedStep:
    """A step as CUDA graphs, one per width: the thousand short kernels of a small encoder's step are launched with one call. The
    few batches with fewer rows run as they are. Gradients must stay where they are: set them to zero between steps, not to None.

    Loss and logits are those of the last call; the next one overwrites them.
    """

    def __init__(self, step: Step, weights: Sequence[Any], rows: int) -> None:
        self._step = step
        self._weights = weights
        self._rows = torch.zeros(rows, dtype=torch.int64, device=weights[0].device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[int, tuple[Any, Any, Any]] = {}

    def __call__(self, chosen: Chosen) -> tuple[Any, Any]:
        if len(chosen.rows) != len(self._rows):
            return self._step(chosen)
        self._rows.copy_(chosen.rows)
        if chosen.width not in self._graphs:
            self._graphs[chosen.width] = self._record(chosen.width)
        graph, loss, logits = self._graphs[chosen.width]
        graph.replay()
        return loss, logits

    def _record(self, width: int) -> tuple[Any, Any, Any]:
        """One pass beside the others first: libraries set themselves up in it, and gradients find their place. No draw of
        dropout is used up, so that a resumed run draws what an uninterrupted one does."""
        chosen, device = Chosen(self._rows, width), self._rows.device
        with torch.random.fork_rng(devices=[device]):
            beside = torch.cuda.Stream(device)
            beside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(beside):
                self._step(chosen)
            torch.cuda.current_stream(device).wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                loss, logits = self._step(chosen)
            torch._foreach_zero_([weight.grad for weight in self._weights if weight.grad is not None])
        return graph, loss, logits
