"""One model's training. In: a model, laid-out documents, a recipe. Out: the same model with its best or last weights.

An epoch's order, cuts and dropout depend on (seed, epoch) alone, so a run that goes on from the last whole epoch ends where an
uninterrupted one does.
"""

from __future__ import annotations

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

from coref_automl.coreference.layout import Laid, segments
from coref_automl.coreference.loss import Segment, quotes_of, segment_losses
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.coreference.resolve import resolve_all
from coref_automl.errors import TrainingError
from coref_automl.models.attention import without_cudnn
from coref_automl.models.memory import write_state
from coref_automl.progress import Progress, Stage
from coref_automl.training.optimizer import Group, adamw
from coref_automl.training.schedule import rate_factor

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
                raise TrainingError(f"The loss is not a number at step {state.step}; lower --lr or pass --precision float32.")
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
    kept = {name: getattr(state, name) for name in State.__slots__}
    write_state(path, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": kept})


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
