"""Chains of a document. In: a model and a document. Out: its chains, with gold mentions or with those the model finds.

States are computed window by window and kept; mentions then look back over the whole document, up to a fixed
count of earlier mentions, so that memory grows with the text alone. A mention joins the chain whose mentions together are its
most probable antecedent. Batches change the speed, not the chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.coreference.layout import WIDTH, Laid
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.pairs import quotations, surfaces
from coref_automl.progress import Progress, quiet

Span = tuple[int, int]
BACK = 400
"""Earlier mentions that may be an antecedent."""
_BLOCK = 128
_ROWS = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A document's mentions and chains. `probabilities[i]` are those of mention i's antecedents `i - len .. i - 1`, after that of
    having none; `scores[i]` is how surely mention i is one (1 where it was given)."""

    spans: tuple[Span, ...]
    chains: tuple[tuple[int, ...], ...]
    scores: tuple[float, ...]
    probabilities: tuple[NDArray[np.float32], ...]

    def as_spans(self, *, singletons: bool = True) -> tuple[tuple[Span, ...], ...]:
        least = 1 if singletons else 2
        return tuple(tuple(self.spans[index] for index in chain) for chain in self.chains if len(chain) >= least)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A document's tokens as the head reads them, with the scores of its stretches."""

    laid: Laid
    read: Any
    stretches: Any


def read_document(
    model: CoreferenceModel, laid: Laid, *, tokens: int, precision: str = "auto", progress: Progress | None = None
) -> Read:
    """Run the encoder over a document."""
    device = str(model.device)
    half = precision == "bfloat16" or (precision == "auto" and device.startswith("cuda"))
    model.eval()
    kept = []
    with torch.inference_mode(), (progress or quiet()).stage("reading", len(laid), "tokens") as stage:
        for part in model.batches(laid, tokens):
            with torch.autocast(device.split(":")[0], dtype=torch.bfloat16, enabled=half):
                kept += model.states(laid, part)
            stage.advance(sum(window.keep_high - window.keep_low for window in part))
        if not kept:
            empty = torch.zeros((0, model.config.hidden_size), device=model.device)
            return Read(laid, empty, torch.zeros((0, WIDTH), device=model.device))
        read = model.head.read(torch.cat(kept), torch.from_numpy(laid.letters).to(model.device))
        rows = range(0, len(read), _ROWS)
        scores = [model.head.stretches(read[low : low + _ROWS + WIDTH])[:_ROWS] for low in rows]
    return Read(laid, read, torch.cat(scores))


def with_gold(model: CoreferenceModel, read: Read) -> Found:
    """Chains of the mentions that the document gives."""
    laid = read.laid
    spans = tuple(mention.span for mention in laid.document.mentions)
    return _linked(model, read, laid.first, laid.last, spans, (1.0,) * len(spans))


def with_found(model: CoreferenceModel, read: Read, *, threshold: float | None = None) -> Found:
    """Chains of the mentions that the model finds itself."""
    threshold = model.settings.threshold if threshold is None else threshold
    first, last, score = _mentions(read, threshold)
    laid = read.laid
    with torch.inference_mode():
        sizes = torch.from_numpy(laid.sizes[last]).to(model.device)
        places = torch.from_numpy(last).to(model.device)
        trim = model.head.trims(read.read[places], sizes).argmax(1).cpu().numpy() if len(last) else last
    spans = [laid.span(int(a), int(b), int(c)) for a, b, c in zip(first, last, trim, strict=True)]
    order = sorted(range(len(spans)), key=lambda index: (spans[index][0], -spans[index][1]))
    chosen = np.array(order, np.int64)
    return _linked(
        model,
        read,
        first[chosen],
        last[chosen],
        tuple(spans[index] for index in order),
        tuple(float(score[index]) for index in order),
    )


def _mentions(read: Read, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """The stretches above the threshold; of two that cross, the surer one."""
    scores = read.stretches.float().cpu().numpy()
    first, width = np.nonzero(scores > threshold)
    last, value = first + width, scores[first, width]
    keep: list[int] = []
    taken: dict[int, list[int]] = {}
    for index in np.lexsort((last, first, -value)).tolist():
        a, b = int(first[index]), int(last[index])
        rivals = {other for token in range(a, b + 1) for other in taken.get(token, ())}
        if any((a < first[o] <= b < last[o]) or (first[o] < a <= last[o] < b) for o in rivals):
            continue
        keep.append(index)
        for token in range(a, b + 1):
            taken.setdefault(token, []).append(index)
    chosen = np.array(sorted(keep), np.int64)
    sure = 1 / (1 + np.exp(-value[chosen]))
    return first[chosen], last[chosen], sure.astype(np.float32)


def _linked(
    model: CoreferenceModel,
    read: Read,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    spans: tuple[Span, ...],
    scores: tuple[float, ...],
) -> Found:
    text = read.laid.document.text
    own = surfaces(text, spans, first, quotations(text))
    chain_of = np.full(len(spans), -1, np.int64)
    chains: list[list[int]] = []
    kept: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        where = torch.from_numpy(first).to(model.device), torch.from_numpy(last).to(model.device)
        shown = model.head.mentions(read.read, *where) if len(spans) else read.read
        for low in range(0, len(spans), _BLOCK):
            high, begin = min(len(spans), low + _BLOCK), max(0, low - BACK)
            features = torch.from_numpy(own.of(slice(low, high), slice(begin, high))).to(model.device)
            block = model.head.antecedents(shown[low:high], shown[begin:high], features).float().cpu().numpy()
            for index in range(low, high):
                kept.append(_probabilities(block[index - low, max(0, index - BACK - begin) : index - begin]))
                _join(index, kept[-1], chain_of, chains)
    return Found(spans, tuple(map(tuple, chains)), scores, tuple(kept))


def _probabilities(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of having no antecedent, then of each candidate."""
    logits = np.append(np.float32(0), scores)
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum(), np.float32)


def _join(index: int, probabilities: NDArray[np.float32], chain_of: NDArray[np.int64], chains: list[list[int]]) -> None:
    before = chain_of[index - len(probabilities) + 1 : index]
    mass = np.bincount(before, weights=probabilities[1:], minlength=len(chains)) if len(before) else np.zeros(0)
    best = int(mass.argmax()) if len(mass) else -1
    if best < 0 or mass[best] <= probabilities[0]:
        best = len(chains)
        chains.append([])
    chains[best].append(index)
    chain_of[index] = best


def resolve_all(
    model: CoreferenceModel, documents: Sequence[Laid], *, tokens: int, precision: str = "auto", progress: Progress | None = None
) -> list[tuple[Found, Found]]:
    """(with gold mentions, with the model's own) for each document."""
    found = []
    for laid in (progress or quiet()).track(documents, "resolving", len(documents), "documents"):
        read = read_document(model, laid, tokens=tokens, precision=precision)
        found.append((with_gold(model, read), with_found(model, read)))
    return found
