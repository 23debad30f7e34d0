"""One model's training. In: a model, tokenized documents, a recipe. Out: the same model with its best or last weights.

An epoch's order, cuts and dropout depend on (seed, epoch) alone, so a run resumed from the last whole epoch ends where an
uninterrupted one does. What is minimized: `extras/coreference/loss`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coref_automl.base.progress import Progress, Stage, peak_gigabytes
from coref_automl.base.records import grouped
from coref_automl.extras.coreference.loss import Segment, batch_loss
from coref_automl.extras.coreference.metrics import conll, score_document, sum_scores
from coref_automl.extras.coreference.model import CoreferenceModel
from coref_automl.extras.coreference.recipe import CoreferenceRecipe
from coref_automl.extras.coreference.resolve import FoundChains, resolve_all
from coref_automl.extras.coreference.tokens import TokenizedDocument, segments
from coref_automl.models.execution import autocast, without_cudnn
from coref_automl.training.finetuning import RESUME, FitState, Updates, checked_loss, run_epochs, scoped_rng, weights_on_cpu
from coref_automl.training.optimizer import parameter_groups

_BALANCE = 0.5
_MAX_REPEATS = 4.0
"""Oversampling of rare genres: its exponent (0 none, 1 uniform over genres), and the most repeats of a document in an epoch."""
_LOG_EVERY = 10
"""Steps between two lines of progress; reading the loss waits for the device."""


@dataclass(slots=True)
class CoreferenceFitState(FitState):
    tokens: int = 0
    peak: float = 0.0
    best: float = -1.0
    best_gold: float = 0.0
    best_found: float = 0.0


def train_model(
    model: CoreferenceModel,
    train: Sequence[TokenizedDocument],
    dev: Sequence[TokenizedDocument],
    recipe: CoreferenceRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: Callable[[int, int, float], None] | None = None,
) -> CoreferenceFitState:
    """Train all epochs; leave the model with the weights of the epoch that scored best on `dev`, or without one of the last."""
    learning_rate = recipe.learning_rate or _default_learning_rate(recipe, model.config.hidden_size)
    encoder = parameter_groups(model.encoder, learning_rate=learning_rate, weight_decay=recipe.weight_decay)
    head = parameter_groups(model.head, learning_rate=recipe.head_rate, weight_decay=recipe.weight_decay)
    updates = Updates(model, [*encoder, *head], recipe.warmup)
    state = updates.load(folder / RESUME, CoreferenceFitState)
    total = recipe.epochs * len(epoch_batches(train, recipe, seed, 0))
    with progress.stage(f"seed {seed}", total, "steps") as stage, scoped_rng(str(model.device)), without_cudnn():
        stage.skip(state.epoch * total / recipe.epochs)
        trainer = _Trainer(model, updates, train, dev, recipe, seed, stage, state)
        run_epochs(trainer, seed=seed, state=state, updates=updates, resume=folder / RESUME, on_epoch=on_epoch)
    if state.best_weights:
        model.load_state_dict(state.best_weights, strict=False)
    return state


@dataclass(eq=False)
class _Trainer:
    """The epochs of one seed. `run_epochs` advances `state.epoch`; steps and the best epoch are recorded here."""

    model: CoreferenceModel
    updates: Updates
    train: Sequence[TokenizedDocument]
    dev: Sequence[TokenizedDocument]
    recipe: CoreferenceRecipe
    seed: int
    stage: Stage
    state: CoreferenceFitState
    loss: float = field(init=False)

    def train_epoch(self) -> None:
        state = self.state
        batches = epoch_batches(self.train, self.recipe, self.seed, state.epoch)
        self.model.train()
        for number, batch in enumerate(batches, 1):
            # cuts differ from epoch to epoch: progress is measured by fraction of the epoch, so that the decay ends at its end
            self.updates.set_learning_rate((state.epoch + (number - 0.5) / len(batches)) / self.recipe.epochs)
            with autocast(str(self.model.device), self.recipe.precision):
                loss = batch_loss(self.model, batch)
            loss.backward()
            self.updates.step()
            state.step += 1
            state.tokens += sum(map(len, batch))
            if number % _LOG_EVERY == 0 and number < len(batches):
                self._advance(state.epoch + number / len(batches), loss=checked_loss(loss, state.step))
        self.loss = checked_loss(loss, state.step)  # reported with the epoch's scores

    def _advance(self, epochs: float, **facts: float) -> None:
        self.stage.advance(epochs * (self.stage.total or 0) / self.recipe.epochs - self.stage.done, **facts)

    def validate(self) -> float:
        """Score the dev documents by the mean of gold- and found-mention CoNLL. Without dev documents nothing is selected."""
        score, scores = 0.0, dict[str, float]()
        if self.dev:
            answers = resolve_all(self.model, self.dev, precision=self.recipe.precision)
            gold, found = (mean_conll(self.dev, mode) for mode in zip(*answers, strict=True))
            score = (gold + found) / 2
            self._keep_if_best(score, gold, found)
            scores = {"dev_gold": 100 * gold, "dev_found": 100 * found}
        self._advance(self.state.epoch, loss=self.loss, **scores)
        self.state.peak = max(self.state.peak, peak_gigabytes())
        return score

    def _keep_if_best(self, score: float, gold: float, found: float) -> None:
        state = self.state
        if score > state.best or not state.best_weights:
            state.best = score
            state.best_gold = gold
            state.best_found = found
            state.best_epoch = state.epoch
            state.best_weights = weights_on_cpu(self.model, trained_only=True)

    def should_stop(self) -> bool:
        return self.state.epoch >= self.recipe.epochs


def mean_conll(documents: Sequence[TokenizedDocument], answers: Sequence[FoundChains]) -> float:
    """CoNLL, the mean over schemes."""
    by_scheme = grouped(list(zip(documents, answers, strict=True)), lambda pair: pair[0].document.scheme).values()
    scores = [[score_document(doc.document.chains, found.as_spans()) for doc, found in pairs] for pairs in by_scheme]
    return sum(map(conll, map(sum_scores, scores))) / len(scores)


def _default_learning_rate(recipe: CoreferenceRecipe, hidden_size: int) -> float:
    """The encoder's rate: larger for a small one, and for an adapter that is not trained yet."""
    if recipe.rank:
        return 5e-4 if recipe.start else 2e-3
    return 2e-4 if hidden_size < 512 else 3e-5


def epoch_batches(train: Sequence[TokenizedDocument], recipe: CoreferenceRecipe, seed: int, epoch: int) -> list[list[Segment]]:
    """Shuffle the segments of all documents and pack them into steps of at most `batch_tokens`."""
    rng = np.random.default_rng((seed, epoch))
    parts = [
        Segment(doc, low, high)
        for doc, repeats in zip(train, _repeats(train), strict=True)
        for _ in range(int(repeats + rng.random()))
        for low, high in segments(len(doc), recipe.segment, rng)
    ]
    batches: list[list[Segment]] = []
    capacity = 0
    for index in rng.permutation(len(parts)).tolist():
        part = parts[index]
        if not batches or len(part) > capacity:
            batches.append([])
            capacity = recipe.batch_tokens
        batches[-1].append(part)
        capacity -= len(part)
    return batches


def _repeats(train: Sequence[TokenizedDocument]) -> list[float]:
    """Expected repeats of each document in an epoch: 1 for the most frequent genre of its scheme, more for rarer ones."""
    kinds = [(doc.document.scheme, doc.document.genre) for doc in train]
    tokens: Counter[tuple[str, str]] = Counter()
    for kind, doc in zip(kinds, train, strict=True):
        tokens[kind] += len(doc)
    largest = {name: max(count for (scheme, _), count in tokens.items() if scheme == name) for name, _ in tokens}
    return [min(_MAX_REPEATS, (largest[kind[0]] / max(1, tokens[kind])) ** _BALANCE) for kind in kinds]
