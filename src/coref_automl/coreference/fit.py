"""One model's training. In: a model, tokenized documents, a recipe. Out: the same model with its best or last weights.

An epoch's order, cuts and dropout depend on (seed, epoch) alone, so a run that resumes from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.coreference.loss import Segment, batch_loss, quotes_of
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.coreference.resolve import FoundChains, resolve_all
from coref_automl.coreference.tokens import TokenizedDocument, segments
from coref_automl.models.attention import without_cudnn
from coref_automl.models.precision import autocast
from coref_automl.progress import Progress, Stage, peak_gigabytes
from coref_automl.training.finetuning import RESUME, Fit, FitState, Updates, checked_loss, own_randomness, weights_on_cpu
from coref_automl.training.optimizer import ParameterGroup

_BALANCE = 0.5
"""How far rare genres are drawn more often: 0 as they come, 1 all alike."""
_MOST_OFTEN = 4.0
_LOOK_EVERY = 10


@dataclass(slots=True)
class CoreferenceFitState(FitState):
    tokens: int = 0
    peak: float = 0.0
    best: float = -1.0
    best_gold: float = 0.0
    best_found: float = 0.0


def fit(
    model: CoreferenceModel,
    train: Sequence[TokenizedDocument],
    dev: Sequence[TokenizedDocument],
    recipe: CoreferenceRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: Callable[[int, int, float], None] | None = None,
) -> CoreferenceFitState:
    """Train all epochs; the model is left with the weights of the epoch that `dev` scored best, or else of the last one."""
    updates = Updates(model, _groups(model, recipe), recipe.warmup)
    state = updates.load(folder / RESUME, CoreferenceFitState)
    total = recipe.epochs * len(epoch_batches(train, recipe, seed, 0))
    with progress.stage(f"seed {seed}", total, "steps") as stage, own_randomness(str(model.device)), without_cudnn():
        stage.skip(state.epoch * total / recipe.epochs)
        run = _Run(model, updates, train, dev, recipe, seed, stage, state)
        Fit(seed, state, updates, run.epoch, run.look, run.over, on_epoch).run(folder / RESUME)
    if state.best_weights:
        model.load_state_dict(state.best_weights, strict=False)
    return state


@dataclass(eq=False)
class _Run:
    """The epochs of one seed: what they share, and what each does."""

    model: CoreferenceModel
    updates: Updates
    train: Sequence[TokenizedDocument]
    dev: Sequence[TokenizedDocument]
    recipe: CoreferenceRecipe
    seed: int
    stage: Stage
    state: CoreferenceFitState

    def __post_init__(self) -> None:
        self.quotes = quotes_of(self.train)

    def epoch(self) -> None:
        state, epochs = self.state, self.recipe.epochs
        batches = epoch_batches(self.train, self.recipe, self.seed, state.epoch)
        self.model.train()
        for number, batch in enumerate(batches, 1):
            # the cuts differ from epoch to epoch: progress within one is by share, so that the decay ends at its end
            self.updates.set_rate((state.epoch + (number - 0.5) / len(batches)) / epochs)
            with autocast(str(self.model.device), self.recipe.precision):
                loss = batch_loss(self.model, batch, self.quotes)
            loss.backward()
            self.updates.step()
            state.step += 1
            state.tokens += sum(map(len, batch))
            if number % _LOOK_EVERY == 0 or number == len(batches):
                done = (state.epoch + number / len(batches)) * (self.stage.total or 0) / epochs
                self.stage.advance(done - self.stage.done, loss=checked_loss(loss, state.step))

    def look(self) -> float:
        """Score the documents that choose, and keep the weights if they are the best so far: gold and found mentions count
        alike. Without such documents nothing is chosen."""
        state, score = self.state, 0.0
        if self.dev:
            answers = resolve_all(self.model, self.dev, precision=self.recipe.precision)
            gold, found = (mean_conll(self.dev, side) for side in zip(*answers, strict=True))
            score = (gold + found) / 2
            if score > state.best or not state.best_weights:
                state.best, state.best_gold, state.best_found, state.best_epoch = score, gold, found, state.epoch
                state.best_weights = weights_on_cpu(self.model, trained_only=True)
            self.stage.advance(0, dev_gold=100 * gold, dev_found=100 * found)
        state.peak = max(state.peak, peak_gigabytes())
        return score

    def over(self) -> bool:
        return self.state.epoch >= self.recipe.epochs


def mean_conll(documents: Sequence[TokenizedDocument], answers: Sequence[FoundChains]) -> float:
    """CoNLL, the mean over schemes."""
    by_scheme: dict[str, list[Any]] = {}
    for doc, found in zip(documents, answers, strict=True):
        by_scheme.setdefault(doc.document.scheme, []).append(score_document(doc.document.chains, found.as_spans()))
    return sum(conll(added(scores)) for scores in by_scheme.values()) / len(by_scheme)


def rate_of(recipe: CoreferenceRecipe, model: CoreferenceModel) -> float:
    """The learning rate of the encoder, or of its low-rank change."""
    if recipe.learning_rate is not None:
        return recipe.learning_rate
    if recipe.rank:
        return 5e-4 if recipe.start else 2e-3
    return 2e-4 if model.config.hidden_size < 512 else 3e-5


def _groups(model: CoreferenceModel, recipe: CoreferenceRecipe) -> list[ParameterGroup]:
    """Encoder and head, each with what is decayed and what is not."""
    rates = {"encoder": rate_of(recipe, model), "head": recipe.head_rate}
    members: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decayed = parameter.ndim >= 2 and "norm" not in name.lower()
            members.setdefault((name.partition(".")[0], decayed), {})[name] = parameter
    return [
        ParameterGroup(None, rates[part], recipe.weight_decay if decayed else 0.0, tuple(own), tuple(own.values()))
        for (part, decayed), own in sorted(members.items())
    ]


def epoch_batches(train: Sequence[TokenizedDocument], recipe: CoreferenceRecipe, seed: int, epoch: int) -> list[list[Segment]]:
    """Segments of all documents in random order, as many a step as the budget of tokens holds."""
    rng = np.random.default_rng((seed, epoch))
    parts = [
        Segment(doc, low, high)
        for doc, often in zip(train, _times(train), strict=True)
        for _ in range(int(often + rng.random()))
        for low, high in segments(len(doc), recipe.segment, rng)
    ]
    batches: list[list[Segment]] = []
    room = 0
    for index in rng.permutation(len(parts)).tolist():
        part = parts[index]
        if not batches or len(part) > room:
            batches.append([])
            room = recipe.batch_tokens
        batches[-1].append(part)
        room -= len(part)
    return batches


def _times(train: Sequence[TokenizedDocument]) -> list[float]:
    """How often a document is read in an epoch, on average: the most frequent genre of its scheme once."""
    kinds = [(doc.document.scheme, doc.document.genre) for doc in train]
    tokens: Counter[tuple[str, str]] = Counter()
    for kind, doc in zip(kinds, train, strict=True):
        tokens[kind] += len(doc)
    most = {scheme: max(count for (own, _), count in tokens.items() if own == scheme) for scheme, _ in tokens}
    return [min(_MOST_OFTEN, (most[kind[0]] / max(1, tokens[kind])) ** _BALANCE) for kind in kinds]
