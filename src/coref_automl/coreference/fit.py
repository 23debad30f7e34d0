"""One model's training. In: a model, laid-out documents, a recipe. Out: the same model with its best or last weights.

The loss has three parts: every stretch of tokens is a mention or not; a mention's last token is cut behind it; and the
antecedents of a mention that are in its chain have all the probability together (marginal log-likelihood), or having none has
it.

An epoch's order, cuts and dropout depend on (seed, epoch) alone, so a run that resumes from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from coref_automl.coreference.head import quotations, surfaces
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.coreference.resolve import resolve_all
from coref_automl.coreference.tokens import Laid, Window, segments
from coref_automl.models.attention import without_cudnn
from coref_automl.models.precision import autocast
from coref_automl.progress import Progress, Stage
from coref_automl.training.finetuning import RESUME, Updates, checked_loss, own_randomness, seed_epoch, weights_on_cpu
from coref_automl.training.optimizer import Group

_LURES = 0.0
"""False mentions above this score are added to the candidates, as they are when the model finds its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Tokens `low:high` of a document, read in windows that do not overlap."""

    laid: Laid
    low: int
    high: int

    def windows(self, room: int) -> list[Window]:
        return [Window(a, min(self.high, a + room), a, min(self.high, a + room)) for a in range(self.low, self.high, room)]


def segment_losses(model: CoreferenceModel, parts: Sequence[Segment], quotes: dict[str, Any]) -> Any:
    """The mean loss of some segments; all their windows go through the encoder at once."""
    asked = [(part.laid, window) for part in parts for window in part.windows(model.room)]
    states = model.states_of(asked)
    total, done = 0.0, 0
    for part in parts:
        count = len(part.windows(model.room))
        total = total + _segment_loss(model, part, torch.cat(states[done : done + count]), quotes)
        done += count
    return total / len(parts)


def quotes_of(documents: Sequence[Laid]) -> dict[str, Any]:
    return {laid.document.id: quotations(laid.document.text) for laid in documents}


def _segment_loss(model: CoreferenceModel, part: Segment, states: Any, quotes: dict[str, Any]) -> Any:
    laid, head, device = part.laid, model.head, states.device
    inside = np.flatnonzero((laid.first >= part.low) & (laid.last < part.high))
    known = inside[laid.reachable[inside]] if len(inside) else inside
    first, last = laid.first[known] - part.low, laid.last[known] - part.low
    read = head.read(states, torch.from_numpy(laid.letters[part.low : part.high]).to(device))
    scores = head.stretches(read)
    wanted = torch.zeros_like(scores)
    wanted[torch.from_numpy(first), torch.from_numpy(last - first)] = 1.0
    scale = max(1, len(known))
    loss = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / scale
    if len(known):
        ends = torch.from_numpy(last).to(device)
        logits = head.trims(read[ends], torch.from_numpy(laid.sizes[laid.last[known]]).to(device))
        loss = loss + functional.cross_entropy(logits, torch.from_numpy(laid.trim[known]).to(device))
    if len(inside) > 1:
        loss = loss + _link_loss(model, part, read, scores.detach(), wanted, inside, quotes)
    return loss


def _link_loss(
    model: CoreferenceModel, part: Segment, read: Any, scores: Any, wanted: Any, inside: Any, quotes: dict[str, Any]
) -> Any:
    laid, device = part.laid, read.device
    lured = torch.nonzero((scores > _LURES) & (wanted == 0)).cpu().numpy()[: len(inside)]
    first = np.concatenate([laid.first[inside] - part.low, lured[:, 0]])
    last = np.concatenate([laid.last[inside] - part.low, lured[:, 0] + lured[:, 1]])
    entity = np.concatenate([laid.entity[inside], np.full(len(lured), -1)])
    spans = [laid.document.mentions[index].span for index in inside.tolist()]
    spans += [laid.span(part.low + a, part.low + a + w, 0) for a, w in lured.tolist()]
    order = np.array(sorted(range(len(spans)), key=lambda index: (spans[index][0], -spans[index][1])))
    first, last, entity = first[order], last[order], entity[order]
    own = surfaces(laid.document.text, [spans[index] for index in order], first, quotes[laid.document.id])
    shown = model.head.mentions(read[torch.from_numpy(first).to(device)], read[torch.from_numpy(last).to(device)])
    features = torch.from_numpy(own.of(slice(0, len(order)), slice(0, len(order)))).to(device)
    logits = model.head.antecedents(shown, shown, features)
    earlier = torch.ones_like(logits, dtype=torch.bool).tril(-1)
    logits = torch.cat([torch.zeros_like(logits[:, :1]), logits.masked_fill(~earlier, -1e4)], dim=1)
    same = (entity[:, None] == entity[None, :]) & (entity[:, None] >= 0) & np.tri(len(order), k=-1, dtype=bool)
    gold = torch.from_numpy(np.concatenate([~same.any(1, keepdims=True), same], axis=1)).to(device)
    asked = torch.from_numpy(entity >= 0).to(device)
    right = torch.logsumexp(logits.masked_fill(~gold, -1e4), 1) - torch.logsumexp(logits, 1)
    return -(right * asked).sum() / asked.sum()


_LOOK_EVERY = 10
READ_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens that the encoder reads at a time when nothing is learned."""


@dataclass(slots=True)
class State:
    """A fit after a whole epoch; all of it is in resume.pt."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    peak: float = 0.0
    best_epoch: int = 0
    best: float = -1.0
    best_gold: float = 0.0
    best_found: float = 0.0
    best_weights: dict[str, Any] = field(default_factory=dict)


def fit(
    model: CoreferenceModel,
    train: Sequence[Laid],
    dev: Sequence[Laid],
    recipe: CoreferenceRecipe,
    seed: int,
    folder: Path,
    progress: Progress,
    on_epoch: Callable[[int, int, float], None] | None = None,
) -> State:
    """Train all epochs; the model is left with the weights of the epoch that `dev` scored best, or of the last one without dev.

    `on_epoch(seed, epoch, score)` hears of every epoch; what it raises ends the fit, which a later call can take up again.
    """
    device = str(model.device)
    updates = Updates(model, _groups(model, recipe), recipe.warmup)
    held = updates.load(folder / RESUME)
    state = State(**held["state"]) if held else State()
    quotes = quotes_of(train)
    total = recipe.epochs * len(list(_epoch_batches(train, recipe, seed, 0)))
    with progress.stage(f"seed {seed}", total, "steps") as stage, own_randomness(device), without_cudnn():
        stage.skip(state.epoch * total / recipe.epochs)
        while state.epoch < recipe.epochs:
            began = time.monotonic()
            seed_epoch(seed, state.epoch)
            _epoch(model, updates, train, recipe, seed, state, total, stage, quotes)
            state.epoch += 1
            score = _look(model, dev, recipe, state, stage) if dev else 0.0
            state.seconds += time.monotonic() - began
            state.peak = max(state.peak, peak_gigabytes(device))
            updates.save(folder / RESUME, state={name: getattr(state, name) for name in State.__slots__})
            if on_epoch is not None:
                on_epoch(seed, state.epoch, score)
    if state.best_weights:
        model.load_state_dict(state.best_weights, strict=False)
    return state


def rate_of(recipe: CoreferenceRecipe, model: CoreferenceModel) -> float:
    if recipe.learning_rate is not None:
        return recipe.learning_rate
    if recipe.rank:
        return 2e-3
    return 2e-4 if model.config.hidden_size < 512 else 3e-5


def _groups(model: CoreferenceModel, recipe: CoreferenceRecipe) -> list[Group]:
    """Encoder and head, each with what is decayed and what is not."""
    rates = {"encoder": rate_of(recipe, model), "head": recipe.head_rate}
    found: dict[tuple[str, bool], list[tuple[str, Any]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found.setdefault((name.partition(".")[0], parameter.ndim >= 2 and "norm" not in name.lower()), []).append(
                (name, parameter)
            )
    return [
        Group(
            None, rates[part], recipe.weight_decay if decayed else 0.0, tuple(n for n, _ in members), tuple(p for _, p in members)
        )
        for (part, decayed), members in sorted(found.items())
    ]


def _epoch_batches(train: Sequence[Laid], recipe: CoreferenceRecipe, seed: int, epoch: int) -> Iterator[list[Segment]]:
    """Segments of all documents in random order, as many a step as the budget of tokens holds."""
    rng = np.random.default_rng((seed, epoch))
    parts = [Segment(laid, low, high) for laid in train for low, high in segments(len(laid), recipe.segment, rng)]
    batch: list[Segment] = []
    held = 0
    for index in rng.permutation(len(parts)).tolist():
        part = parts[index]
        if batch and held + part.high - part.low > recipe.batch_tokens:
            yield batch
            batch, held = [], 0
        batch.append(part)
        held += part.high - part.low
    if batch:
        yield batch


def _epoch(
    model: CoreferenceModel,
    updates: Updates,
    train: Sequence[Laid],
    recipe: CoreferenceRecipe,
    seed: int,
    state: State,
    total: int,
    stage: Stage,
    quotes: dict[str, Any],
) -> None:
    device = str(model.device)
    batches = list(_epoch_batches(train, recipe, seed, state.epoch))
    model.train()
    for number, batch in enumerate(batches, 1):
        # the cuts differ from epoch to epoch: progress within one is by share, so that the decay ends at its end
        updates.set_rate((state.epoch + (number - 0.5) / len(batches)) / recipe.epochs)
        with autocast(device, recipe.precision):
            loss = segment_losses(model, batch, quotes)
        loss.backward()
        updates.step()
        state.step += 1
        state.tokens += sum(part.high - part.low for part in batch)
        if number % _LOOK_EVERY == 0 or number == len(batches):
            value = checked_loss(loss, state.step)
            stage.advance((state.epoch + number / len(batches)) * total / recipe.epochs - stage.done, loss=value)


def _look(model: CoreferenceModel, dev: Sequence[Laid], recipe: CoreferenceRecipe, state: State, stage: Stage) -> float:
    """Score the documents that choose, and keep the weights if they are the best so far: gold and found mentions count alike."""
    tokens = READ_TOKENS[str(model.device).split(":")[0]]
    answers = resolve_all(model, dev, tokens=tokens, precision=recipe.precision)
    gold, found = (
        conll(
            added(
                score_document(laid.document.chains, pair[way].as_spans(singletons=single))
                for laid, pair in zip(dev, answers, strict=True)
            )
        )
        for way, single in ((0, True), (1, model.settings.singletons))
    )
    score = (gold + found) / 2
    if score > state.best or not state.best_weights:
        state.best, state.best_gold, state.best_found, state.best_epoch = score, gold, found, state.epoch
        state.best_weights = weights_on_cpu(model, trained_only=True)
    stage.advance(0, dev_gold=100 * gold, dev_found=100 * found)
    return score


def peak_gigabytes(device: str) -> float:
    """The most memory this process has held: the GPU's where one was used."""
    if device.startswith("cuda"):
        return round(float(torch.cuda.max_memory_allocated()) / 1e9, 2)
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 2)
