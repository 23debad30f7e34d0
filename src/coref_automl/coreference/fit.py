"""One model's training. In: a model, laid-out documents, a recipe. Out: the same model with its best or last weights.

The loss has three parts: every stretch of tokens is a mention or not; a mention's last token is cut behind it; and the
antecedents of a mention that are in its chain have all the probability together (marginal log-likelihood), or having none has
it.

An epoch's order, cuts and dropout depend on (seed, epoch) alone, so a run that resumes from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

import io
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from coref_automl.coreference.head import quotations, surfaces
from coref_automl.coreference.layout import Laid, Window, segments
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.coreference.resolve import resolve_all
from coref_automl.errors import NotFinite
from coref_automl.models.attention import without_cudnn
from coref_automl.progress import Progress, Stage
from coref_automl.store import written_whole
from coref_automl.training.optimizer import Group, adamw
from coref_automl.training.schedule import rate_factor

_LURES = 0.0
"""Stretches above this score that are no mentions stand among the candidates, as they will when the model finds its own."""


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


RESUME = "resume.pt"
_CLIP = 1.0
_LOOK_EVERY = 10
READ_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens that the encoder reads at a time when nothing is learned."""


@dataclass(slots=True)
class State:
    """Where a fit stands after a whole epoch; all of it is in resume.pt."""

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
    optimizer = adamw(_groups(model, recipe), fused=True)
    peaks = tuple(group["lr"] for group in optimizer.param_groups)
    state = _resume(folder / RESUME, model, optimizer)
    quotes = quotes_of(train)
    total = recipe.epochs * len(list(_epoch_batches(train, recipe, seed, 0)))
    with progress.stage(f"seed {seed}", total, "steps") as stage, _own_randomness(device), without_cudnn():
        stage.skip(state.epoch * total / recipe.epochs)
        while state.epoch < recipe.epochs:
            began = time.monotonic()
            torch.manual_seed(1_000_003 * seed + state.epoch)
            _epoch(model, optimizer, peaks, train, recipe, seed, state, total, stage, quotes)
            state.epoch += 1
            score = _look(model, dev, recipe, state, stage) if dev else 0.0
            state.seconds += time.monotonic() - began
            state.peak = max(state.peak, peak_gigabytes(device))
            _save(folder / RESUME, model, optimizer, state)
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
    optimizer: Any,
    peaks: tuple[float, ...],
    train: Sequence[Laid],
    recipe: CoreferenceRecipe,
    seed: int,
    state: State,
    total: int,
    stage: Stage,
    quotes: dict[str, Any],
) -> None:
    device = str(model.device)
    half = recipe.precision == "bfloat16" or (recipe.precision == "auto" and device.startswith("cuda"))
    batches = list(_epoch_batches(train, recipe, seed, state.epoch))
    model.train()
    for number, batch in enumerate(batches, 1):
        # the cuts differ from epoch to epoch: progress within one is by share, so that the decay ends at its end
        progress = (state.epoch + (number - 0.5) / len(batches)) / recipe.epochs
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * rate_factor(progress, "linear", recipe.warmup)
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16, enabled=half):
            loss = segment_losses(model, batch, quotes)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        state.step += 1
        state.tokens += sum(part.high - part.low for part in batch)
        if number % _LOOK_EVERY == 0 or number == len(batches):
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NotFinite(f"The loss is NaN or infinite at step {state.step}; lower --lr or pass --precision float32.")
            stage.advance((state.epoch + number / len(batches)) * total / recipe.epochs - stage.done, loss=value)


def _look(model: CoreferenceModel, dev: Sequence[Laid], recipe: CoreferenceRecipe, state: State, stage: Stage) -> float:
    """Score the documents that choose, and keep the weights if they are the best so far: gold and found mentions count alike."""
    tokens = READ_TOKENS[str(model.device).split(":")[0]]
    answers = resolve_all(model, dev, tokens=tokens, precision=recipe.precision)
    gold, found = (
        conll(added(score_document(laid.document.chains, pair[way].as_spans()) for laid, pair in zip(dev, answers, strict=True)))
        for way in (0, 1)
    )
    score = (gold + found) / 2
    if score > state.best or not state.best_weights:
        state.best, state.best_gold, state.best_found, state.best_epoch = score, gold, found, state.epoch
        kept = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        state.best_weights = {
            name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items() if name in kept
        }
    stage.advance(0, dev_gold=100 * gold, dev_found=100 * found)
    return score


def peak_gigabytes(device: str) -> float:
    """The most memory this process has held: the GPU's where one was used."""
    if device.startswith("cuda"):
        return round(float(torch.cuda.max_memory_allocated()) / 1e9, 2)
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 2)


def _save(path: Path, model: CoreferenceModel, optimizer: Any, state: State) -> None:
    """Torch fills memory, not the file: its writer would turn a Ctrl-C or a full disk into an error of its own."""
    kept = {name: getattr(state, name) for name in State.__slots__}
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": kept}, buffer)
    with written_whole(path, "wb") as handle:
        handle.write(buffer.getbuffer())


def _resume(path: Path, model: CoreferenceModel, optimizer: Any) -> State:
    if not path.is_file():
        return State()
    whole = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(whole["model"])
    optimizer.load_state_dict(whole["optimizer"])
    return State(**whole["state"])


@contextmanager
def _own_randomness(device: str) -> Iterator[None]:
    """Dropout draws from torch's global state; what it was before comes back afterwards."""
    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        yield
