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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from coref_automl.coreference.head import FEATURES, quotations, surfaces
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.coreference.resolve import Found, resolve_all
from coref_automl.coreference.tokens import WIDTH, Laid, Window, segments, within
from coref_automl.models.attention import without_cudnn
from coref_automl.models.precision import autocast
from coref_automl.progress import Progress, Stage
from coref_automl.training.finetuning import RESUME, Updates, checked_loss, own_randomness, seed_epoch, weights_on_cpu
from coref_automl.training.optimizer import Group

_BALANCE = 0.5
"""How far rare genres are drawn more often: 0 as they come, 1 all alike."""
_MOST = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Tokens `low:high` of a document, read in windows that do not overlap."""

    laid: Laid
    low: int
    high: int

    def windows(self, room: int) -> list[Window]:
        return [Window(a, min(self.high, a + room), a, min(self.high, a + room)) for a in range(self.low, self.high, room)]


def batch_loss(model: CoreferenceModel, parts: Sequence[Segment], quotes: dict[str, Any]) -> Any:
    """The loss of some segments, laid end to end; no stretch and no link runs from one into another."""
    states = torch.cat(model.states_of([(part.laid, window) for part in parts for window in part.windows(model.room)]))
    marks, device, head = _marks(parts), states.device, model.head
    letters, repeats = (
        _joined([getattr(part.laid, name)[part.low : part.high] for part in parts], device) for name in ("letters", "repeats")
    )
    sizes = [part.high - part.low for part in parts]
    scheme = torch.from_numpy(np.repeat([model.scheme_number(part.laid.document) for part in parts], sizes)).to(device)
    read = head.read(states, letters, repeats, scheme)
    sentences = [part.laid.sentences[part.low : part.high] + 1_000_000 * number for number, part in enumerate(parts)]
    scores = head.stretches(read, repeats)
    scores = scores.masked_fill(~torch.from_numpy(within(np.concatenate(sentences))).to(device), -1e4)
    known = marks.reachable
    first, last, trim = (torch.from_numpy(column[known]).to(device) for column in (marks.first, marks.last, marks.trim))
    wanted = torch.zeros_like(scores)
    wanted[first, last - first] = 1.0
    loss = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / max(1, len(first))
    if len(first):
        logits = head.trims(read[last], torch.from_numpy(marks.sizes[known]).to(device))
        loss = loss + functional.cross_entropy(logits, trim)
    if len(marks.first) > 1:
        loss = loss + _link_loss(model, parts, read, scores, wanted, marks, quotes)
    return loss


@dataclass(frozen=True, slots=True, eq=False)
class _Marks:
    """The mentions of some segments, as places in their tokens end to end; `part` is the number of the segment."""

    spans: list[tuple[int, int]]
    first: Any
    last: Any
    trim: Any
    sizes: Any
    entity: Any
    reachable: Any
    part: Any


def _marks(parts: Sequence[Segment]) -> _Marks:
    columns: list[tuple[Any, ...]] = []
    spans: list[tuple[int, int]] = []
    begin = 0
    for number, part in enumerate(parts):
        laid, shift = part.laid, begin - part.low
        own = np.flatnonzero((laid.first >= part.low) & (laid.last < part.high))
        first, last = laid.first[own], laid.last[own]
        reachable = laid.reachable[own] if len(own) else np.zeros(0, bool)
        named = laid.sizes[last], laid.entity[own], reachable, np.full(len(own), number)
        columns.append((first + shift, last + shift, laid.trim[own], *named))
        spans += [laid.document.mentions[index].span for index in own.tolist()]
        begin += part.high - part.low
    return _Marks(spans, *(np.concatenate(column) for column in zip(*columns, strict=True)))


def _joined(tables: Sequence[Any], device: Any) -> Any:
    return torch.from_numpy(np.concatenate(tables)).to(device)


def quotes_of(documents: Sequence[Laid]) -> dict[str, Any]:
    return {laid.document.id: quotations(laid.document.text) for laid in documents}


def wrong_stretches(scores: Any, wanted: Any, count: int) -> tuple[Any, Any]:
    """(first, width) of the wrong stretches that the model takes for mentions: the first `count` of the batch.

    On dev documents they score 69.0, those with the highest scores 67.7, and 66.6 where these are taught to have no antecedent.
    """
    found = torch.nonzero((scores.detach() > 0) & (wanted == 0)).cpu().numpy()[:count]
    return found[:, 0], found[:, 1]


def _link_loss(
    model: CoreferenceModel,
    parts: Sequence[Segment],
    read: Any,
    scores: Any,
    wanted: Any,
    marks: _Marks,
    quotes: dict[str, Any],
) -> Any:
    """Mentions of the data have their antecedents; wrong stretches are candidates."""
    device, begins = read.device, np.cumsum([0, *(part.high - part.low for part in parts)])
    wrong, width = wrong_stretches(scores, wanted, len(marks.first))
    owner = np.searchsorted(begins, wrong, "right") - 1
    first, last = np.concatenate([marks.first, wrong]), np.concatenate([marks.last, wrong + width])
    entity, part = np.concatenate([marks.entity, np.full(len(wrong), -1)]), np.concatenate([marks.part, owner])
    shifts = [one.low - begin for one, begin in zip(parts, begins, strict=False)]
    places = zip(owner.tolist(), wrong.tolist(), width.tolist(), strict=True)
    spans = marks.spans + [parts[p].laid.span(a + shifts[p], a + shifts[p] + w, 0) for p, a, w in places]
    order = np.array(sorted(range(len(spans)), key=lambda index: (part[index], spans[index][0], -spans[index][1])))
    first, last, entity, part = first[order], last[order], entity[order], part[order]
    features = np.zeros((len(FEATURES), len(order), len(order)), np.int64)
    for number, one in enumerate(parts):
        low, high = np.searchsorted(part, (number, number + 1)).tolist()
        document = one.laid.document
        own = surfaces(document.text, [spans[index] for index in order[low:high]], first[low:high], quotes[document.id])
        features[:, low:high, low:high] = own.of(slice(0, high - low), slice(0, high - low))
    begin, end = (torch.from_numpy(places).to(device) for places in (first, last))
    shown = model.head.mentions(read[begin], read[end])
    sure = scores[begin, (end - begin).clamp(max=WIDTH - 1)]
    logits = model.head.antecedents(shown, shown, torch.from_numpy(features).to(device), (sure, sure))
    earlier = (part[:, None] == part[None, :]) & np.tri(len(order), k=-1, dtype=bool)
    none = torch.zeros_like(logits[:, :1])
    logits = torch.cat([none, logits.masked_fill(~torch.from_numpy(earlier).to(device), -1e4)], dim=1)
    same = (entity[:, None] == entity[None, :]) & (entity[:, None] >= 0) & earlier
    gold = torch.from_numpy(np.concatenate([~same.any(1, keepdims=True), same], axis=1)).to(device)
    right = torch.logsumexp(logits.masked_fill(~gold, -1e4), 1) - torch.logsumexp(logits, 1)
    return -right[torch.from_numpy(entity >= 0).to(device)].mean()


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
        return 5e-4 if recipe.start else 2e-3
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
    times = _times(train)
    parts = [
        Segment(laid, low, high)
        for laid, often in zip(train, times, strict=True)
        for _ in range(int(often + rng.random()))
        for low, high in segments(len(laid), recipe.segment, rng)
    ]
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


def _times(train: Sequence[Laid]) -> list[float]:
    """How often a document is read in an epoch, on average: the most frequent genre of its scheme once."""
    kinds = [(laid.document.scheme, laid.document.genre) for laid in train]
    tokens: Counter[tuple[str, str]] = Counter()
    for kind, laid in zip(kinds, train, strict=True):
        tokens[kind] += len(laid)
    most = {scheme: max(count for (own, _), count in tokens.items() if own == scheme) for scheme, _ in tokens}
    return [min(_MOST, (most[kind[0]] / max(1, tokens[kind])) ** _BALANCE) for kind in kinds]


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
            loss = batch_loss(model, batch, quotes)
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
    gold, found = _means(dev, [pair[0] for pair in answers]), _means(dev, [pair[1] for pair in answers])
    score = (gold + found) / 2
    if score > state.best or not state.best_weights:
        state.best, state.best_gold, state.best_found, state.best_epoch = score, gold, found, state.epoch
        state.best_weights = weights_on_cpu(model, trained_only=True)
    stage.advance(0, dev_gold=100 * gold, dev_found=100 * found)
    return score


def _means(dev: Sequence[Laid], answers: Sequence[Found]) -> float:
    """CoNLL, the mean over schemes."""
    by_scheme: dict[str, list[Any]] = {}
    for laid, found in zip(dev, answers, strict=True):
        by_scheme.setdefault(laid.document.scheme, []).append(score_document(laid.document.chains, found.as_spans()))
    return sum(conll(added(scores)) for scores in by_scheme.values()) / len(by_scheme)


def peak_gigabytes(device: str) -> float:
    """The most memory this process has held: the GPU's where one was used."""
    if device.startswith("cuda"):
        return round(float(torch.cuda.max_memory_allocated()) / 1e9, 2)
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 2)
