"""One model's training. In: a model, tokenized documents, a recipe. Out: the same model with its best or last weights.

An epoch's order, cuts and dropout depend on (seed, epoch) alone, so a run that resumes from the last whole epoch ends where an
uninterrupted one does. The loss has three parts:

- mention: every span of tokens in a sentence is a mention or not (binary cross-entropy, per gold mention)
- trailing: how many characters of a mention's last token lie behind it (cross-entropy)
- antecedent: the antecedents of a mention that are in its chain, or having none, hold all the probability (marginal
  log-likelihood, as in end-to-end coreference resolution)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from coref_automl.coreference.head import FEATURES, quotations, surfaces
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.coreference.resolve import FoundChains, resolve_all
from coref_automl.coreference.tokens import WIDTH, TokenizedDocument, TokenWindow, segments, within
from coref_automl.models.execution import autocast, without_cudnn
from coref_automl.progress import Progress, Stage, peak_gigabytes
from coref_automl.training.finetuning import RESUME, FitState, Updates, checked_loss, run_epochs, scoped_rng, weights_on_cpu
from coref_automl.training.optimizer import parameter_groups

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
    encoder = parameter_groups(model.encoder, learning_rate=rate_of(recipe, model), weight_decay=recipe.weight_decay)
    head = parameter_groups(model.head, learning_rate=recipe.head_rate, weight_decay=recipe.weight_decay)
    updates = Updates(model, [*encoder, *head], recipe.warmup)
    state = updates.load(folder / RESUME, CoreferenceFitState)
    total = recipe.epochs * len(epoch_batches(train, recipe, seed, 0))
    with progress.stage(f"seed {seed}", total, "steps") as stage, scoped_rng(str(model.device)), without_cudnn():
        stage.skip(state.epoch * total / recipe.epochs)
        run = _Run(model, updates, train, dev, recipe, seed, stage, state)
        run_epochs(run, seed=seed, state=state, updates=updates, resume=folder / RESUME, on_epoch=on_epoch)
    if state.best_weights:
        model.load_state_dict(state.best_weights, strict=False)
    return state


@dataclass(eq=False)
class _Run:
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

    def train_epoch(self) -> None:
        state, epochs = self.state, self.recipe.epochs
        batches = epoch_batches(self.train, self.recipe, self.seed, state.epoch)
        self.model.train()
        for number, batch in enumerate(batches, 1):
            # the cuts differ from epoch to epoch: progress within one is by share, so that the decay ends at its end
            self.updates.set_learning_rate((state.epoch + (number - 0.5) / len(batches)) / epochs)
            with autocast(str(self.model.device), self.recipe.precision):
                loss = batch_loss(self.model, batch, self.quotes)
            loss.backward()
            self.updates.step()
            state.step += 1
            state.tokens += sum(map(len, batch))
            if number % _LOOK_EVERY == 0 or number == len(batches):
                done = (state.epoch + number / len(batches)) * (self.stage.total or 0) / epochs
                self.stage.advance(done - self.stage.done, loss=checked_loss(loss, state.step))

    def validate(self) -> float:
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

    def should_stop(self) -> bool:
        return self.state.epoch >= self.recipe.epochs


def mean_conll(documents: Sequence[TokenizedDocument], answers: Sequence[FoundChains]) -> float:
    """CoNLL, the mean over schemes."""
    by_scheme: dict[str, list[Any]] = {}
    for doc, found in zip(documents, answers, strict=True):
        by_scheme.setdefault(doc.document.scheme, []).append(score_document(doc.document.chains, found.as_spans()))
    return sum(conll(added(scores)) for scores in by_scheme.values()) / len(by_scheme)


def rate_of(recipe: CoreferenceRecipe, model: CoreferenceModel) -> float:
    if recipe.learning_rate is not None:
        return recipe.learning_rate
    if recipe.rank:
        return 5e-4 if recipe.start else 2e-3
    return 2e-4 if model.config.hidden_size < 512 else 3e-5


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


Ints = NDArray[np.int64]
_NEVER = -1e4
"""A logit that leaves no probability and no gradient."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Tokens `low:high` of a document, read in windows that do not overlap."""

    doc: TokenizedDocument
    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    def windows(self, room: int) -> list[TokenWindow]:
        return [TokenWindow(a, min(self.high, a + room), a, min(self.high, a + room)) for a in range(self.low, self.high, room)]


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Spans of some segments as places in their tokens end to end. `segment` is the number of each one's segment, `entity` -1
    where a span is not a mention, `characters` the span in its document's text."""

    first: Ints
    last: Ints
    entity: Ints
    segment: Ints
    characters: list[tuple[int, int]]


def quotes_of(documents: Sequence[TokenizedDocument]) -> dict[str, Ints]:
    return {doc.document.id: quotations(doc.document.text) for doc in documents}


def batch_loss(model: CoreferenceModel, segments: Sequence[Segment], quotes: dict[str, Ints]) -> Any:
    """The loss of some segments, placed end to end; no span and no link runs from one into another."""
    head, device = model.head, model.device
    states = torch.cat(model.states_of([(part.doc, window) for part in segments for window in part.windows(model.room)]))
    letters, repeats, sentences = (
        np.concatenate([getattr(part.doc, name)[part.low : part.high] + shift * number for number, part in enumerate(segments)])
        for name, shift in (("letters", 0), ("repeats", 0), ("sentences", 1_000_000))
    )
    scheme = np.repeat([model.scheme_number(part.doc.document) for part in segments], [len(part) for part in segments])
    counts = torch.from_numpy(repeats).to(device)
    read = head.read(states, torch.from_numpy(letters).to(device), counts, torch.from_numpy(scheme).to(device))
    scores = head.span_scores(read, counts).masked_fill(~torch.from_numpy(within(sentences)).to(device), _NEVER)

    gold, trailing, reachable = _gold_mentions(segments)
    first, last, behind = (torch.from_numpy(column[reachable]).to(device) for column in (gold.first, gold.last, trailing))
    wanted = torch.zeros_like(scores)
    wanted[first, last - first] = 1.0
    loss = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / max(1, len(first))
    if len(first):
        sizes = np.concatenate([part.doc.sizes[part.low : part.high] for part in segments])
        logits = head.trailing(read[last], torch.from_numpy(sizes).to(device)[last])
        loss = loss + functional.cross_entropy(logits, behind)
    if len(gold.first) > 1:
        candidates = _with_wrong_spans(segments, gold, wrong_spans(scores, wanted, len(gold.first)))
        loss = loss + _antecedent_loss(model, read, scores, candidates, _features(segments, candidates, quotes))
    return loss


def _gold_mentions(segments: Sequence[Segment]) -> tuple[_Spans, Ints, NDArray[np.bool_]]:
    """The mentions that lie in the segments; the characters behind each in its last token; which can be found exactly."""
    columns: list[tuple[Any, ...]] = []
    characters: list[tuple[int, int]] = []
    begin = 0
    for number, part in enumerate(segments):
        doc, shift = part.doc, begin - part.low
        own = np.flatnonzero((doc.first >= part.low) & (doc.last < part.high))
        reachable = doc.reachable[own] if len(own) else np.zeros(0, bool)
        spans = doc.first[own] + shift, doc.last[own] + shift, doc.entity[own], np.full(len(own), number)
        columns.append((*spans, doc.trailing[own], reachable))
        characters += [doc.document.mentions[index].span for index in own.tolist()]
        begin += len(part)
    first, last, entity, segment, trailing, reachable = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _Spans(first, last, entity, segment, characters), trailing, reachable


def wrong_spans(scores: Any, wanted: Any, count: int) -> tuple[Ints, Ints]:
    """(first token, width) of spans that the model wrongly takes for mentions: the first `count` of the batch.

    On dev documents they score 69.0, those with the highest scores 67.7, and 66.6 where these are taught to have no antecedent.
    """
    found = torch.nonzero((scores.detach() > 0) & (wanted == 0)).cpu().numpy()[:count]
    return found[:, 0], found[:, 1]


def _with_wrong_spans(segments: Sequence[Segment], gold: _Spans, wrong: tuple[Ints, Ints]) -> _Spans:
    """Candidates to link: the mentions and wrong spans beside them, segment by segment in the order of the text."""
    starts, width = wrong
    begins = np.cumsum([0, *map(len, segments)])
    owner = np.searchsorted(begins, starts, "right") - 1
    characters = list(gold.characters)
    for number, start, wide in zip(owner.tolist(), starts.tolist(), width.tolist(), strict=True):
        place = start + segments[number].low - int(begins[number])
        characters.append(segments[number].doc.span(place, place + wide, 0))
    first, last = np.concatenate([gold.first, starts]), np.concatenate([gold.last, starts + width])
    entity, segment = np.concatenate([gold.entity, np.full(len(starts), -1)]), np.concatenate([gold.segment, owner])
    order = np.array(sorted(range(len(first)), key=lambda at: (segment[at], characters[at][0], -characters[at][1])))
    return _Spans(first[order], last[order], entity[order], segment[order], [characters[at] for at in order])


def _features(segments: Sequence[Segment], spans: _Spans, quotes: dict[str, Ints]) -> Ints:
    """What the characters say of every two candidates of a segment, [features, candidates, candidates]."""
    found = np.zeros((len(FEATURES), len(spans.first), len(spans.first)), np.int64)
    for number, part in enumerate(segments):
        low, high = np.searchsorted(spans.segment, (number, number + 1)).tolist()
        document = part.doc.document
        own = surfaces(document.text, spans.characters[low:high], spans.first[low:high], quotes[document.id])
        found[:, low:high, low:high] = own.of(slice(0, high - low), slice(0, high - low))
    return found


def _antecedent_loss(model: CoreferenceModel, read: Any, scores: Any, spans: _Spans, features: Ints) -> Any:
    """Minus the log-probability of all antecedents of a mention, or of having none; the mean over gold mentions."""
    device, entity, segment = read.device, spans.entity, spans.segment
    first, last = (torch.from_numpy(places).to(device) for places in (spans.first, spans.last))
    mentions = model.head.mentions(read[first], read[last])
    sure = scores[first, (last - first).clamp(max=WIDTH - 1)]
    logits = model.head.antecedents(mentions, mentions, torch.from_numpy(features).to(device), (sure, sure))
    earlier = (segment[:, None] == segment[None, :]) & np.tri(len(segment), k=-1, dtype=bool)
    logits = logits.masked_fill(~torch.from_numpy(earlier).to(device), _NEVER)
    logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1)  # the first column: no antecedent
    same = (entity[:, None] == entity[None, :]) & (entity[:, None] >= 0) & earlier
    right = torch.from_numpy(np.concatenate([~same.any(1, keepdims=True), same], axis=1)).to(device)
    likelihood = torch.logsumexp(logits.masked_fill(~right, _NEVER), 1) - torch.logsumexp(logits, 1)
    return -likelihood[torch.from_numpy(entity >= 0).to(device)].mean()
