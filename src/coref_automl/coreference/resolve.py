"""Chains of a document. In: a model and a document. Out: its chains, with gold mentions or with those the model finds.

Windows are read a few at a time and only what mentions need is kept, so that memory grows with the mentions alone. A mention
looks back over the whole document, up to a fixed count of earlier mentions, and joins the chain whose mentions together are its
most probable antecedent, unless none is more probable still. Batches change the speed, not the chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.coreference.head import SURE, quotations, surfaces
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.tokens import WIDTH, Laid
from coref_automl.models.precision import autocast
from coref_automl.progress import Progress, quiet

Span = tuple[int, int]
Ints = NDArray[np.int64]
BACK = 250
"""Earlier mentions that may be an antecedent."""
_DISCOUNT = 0.25
"""A long chain has many chances: what its mentions offer together is divided by its length to this power."""
_BLOCK = 128
_FLOOR = -2.5
"""Stretches below this score are not mentions under any threshold that training tries."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A document's mentions and chains. `probabilities[i]` are those of mention i's antecedents `i - len .. i - 1`, after that of
    having none; `scores[i]` is how probably mention i is one."""

    spans: tuple[Span, ...]
    chains: tuple[tuple[int, ...], ...]
    scores: tuple[float, ...]
    probabilities: tuple[NDArray[np.float32], ...]
    singletons: bool = True

    def as_spans(self) -> tuple[tuple[Span, ...], ...]:
        """The chains as an answer; those of one mention belong to it where the scheme marks them, or they were given."""
        least = 1 if self.singletons else 2
        return tuple(tuple(self.spans[index] for index in chain) for chain in self.chains if len(chain) >= least)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What the head has read of a document: stretches that may be mentions with their scores, and the tokens it needs to link
    them; token t is row `row_of[t]` of `rows`."""

    laid: Laid
    first: Ints
    last: Ints
    scores: NDArray[np.float32]
    rows: Any
    row_of: Ints

    def tokens(self, places: Ints) -> Any:
        return self.rows[torch.from_numpy(self.row_of[places]).to(self.rows.device)]


def read_document(
    model: CoreferenceModel, laid: Laid, *, tokens: int, precision: str = "auto", progress: Progress | None = None
) -> Read:
    """Run the encoder over a document, some windows at a time; of their states only those of possible mentions are kept."""
    device = str(model.device)
    model.eval()
    kept = _Kept(model, laid)
    with torch.inference_mode(), (progress or quiet()).stage("reading", len(laid), "tokens") as stage:
        for part in model.batches(laid, tokens):
            with autocast(device, precision):
                states = torch.cat(model.states(laid, part))
            kept.add(states)
            stage.advance(len(states))
        return kept.whole()


class _Kept:
    """Gathers a `Read` while states come in. A stretch that begins before an edge ends behind it: the last tokens wait."""

    def __init__(self, model: CoreferenceModel, laid: Laid) -> None:
        self.model, self.laid = model, laid
        self.waiting: Any = None
        self.begin = self.end = 0
        self.found: list[tuple[Ints, Ints, NDArray[np.float32]]] = []
        self.rows: list[Any] = []
        self.row_of = np.full(len(laid), -1, np.int64)
        self.count = 0
        self.given = np.unique(np.concatenate([laid.first, laid.last]))

    def add(self, states: Any) -> None:
        new, device, document = slice(self.end, self.end + len(states)), states.device, self.laid.document
        letters, repeats = (torch.from_numpy(table[new]).to(device) for table in (self.laid.letters, self.laid.repeats))
        scheme = torch.full((len(states),), self.model.scheme_number(document), device=device)
        read = self.model.head.read(states, letters, repeats, scheme)
        self.end += len(read)
        read = read if self.waiting is None else torch.cat([self.waiting, read])
        done = len(read) if self.end == len(self.laid) else max(0, len(read) - WIDTH + 1)
        repeats = torch.from_numpy(self.laid.repeats[self.begin : self.end]).to(device)
        scores = self.model.head.stretches(read, repeats)[:done].float().cpu().numpy()
        first, width = np.nonzero(scores > _FLOOR)
        sentences = self.laid.sentences[self.begin :]
        within = sentences[first] == sentences[first + width]
        first, width = first[within], width[within]
        self.found.append((first + self.begin, first + self.begin + width, scores[first, width]))
        given = self.given[(self.given >= self.begin) & (self.given < self.begin + done)]
        wanted = np.unique(np.concatenate([first, first + width, given - self.begin]))
        wanted = wanted[self.row_of[wanted + self.begin] < 0]
        self.row_of[wanted + self.begin] = self.count + np.arange(len(wanted))
        self.count += len(wanted)
        self.rows.append(read[torch.from_numpy(wanted).to(read.device)])
        self.waiting, self.begin = read[done:], self.begin + done

    def whole(self) -> Read:
        if not self.found:
            none = np.zeros(0, np.int64)
            return Read(self.laid, none, none, np.zeros(0, np.float32), torch.zeros((0, 0)), self.row_of)
        first, last, scores = (np.concatenate(column) for column in zip(*self.found, strict=True))
        return Read(self.laid, first, last, scores, torch.cat(self.rows), self.row_of)


def with_gold(model: CoreferenceModel, read: Read) -> Found:
    """Chains of the mentions that the document gives."""
    laid = read.laid
    spans = tuple(mention.span for mention in laid.document.mentions)
    return _linked(model, read, laid.first, laid.last, spans, np.full(len(spans), SURE, np.float32))


def with_found(model: CoreferenceModel, read: Read, *, threshold: float | None = None) -> Found:
    """Chains of the mentions that the model finds itself."""
    scheme = model.scheme(read.laid.document)
    first, last, score = _mentions(read, scheme.threshold if threshold is None else threshold)
    laid = read.laid
    trim = last
    if len(last):
        with torch.inference_mode():
            sizes = torch.from_numpy(laid.sizes[last]).to(model.device)
            trim = model.head.trims(read.tokens(last), sizes).argmax(1).cpu().numpy()
    spans = [laid.span(int(a), int(b), int(c)) for a, b, c in zip(first, last, trim, strict=True)]
    surest: dict[Span, int] = {}
    for index in np.argsort(-score, kind="stable").tolist():  # tokens that share a character give one span twice
        surest.setdefault(spans[index], index)
    order = sorted(surest.values(), key=lambda index: (spans[index][0], -spans[index][1]))
    chosen = np.array(order, np.int64)
    named = tuple(spans[index] for index in order)
    found = _linked(model, read, first[chosen], last[chosen], named, score[chosen])
    return replace(found, singletons=scheme.singletons)


def _mentions(read: Read, threshold: float) -> tuple[Ints, Ints, NDArray[np.float32]]:
    """The stretches above the threshold; of two that cross or end on one token, the surer one.

    A Korean phrase ends in its head: two that end alike have one head, and data mark one of them.
    """
    sure = read.scores > threshold
    first, last, value = read.first[sure], read.last[sure], read.scores[sure]
    keep: list[int] = []
    taken: dict[int, list[int]] = {}
    for index in np.lexsort((last, first, -value)).tolist():
        a, b = int(first[index]), int(last[index])
        rivals = {other for token in range(a, b + 1) for other in taken.get(token, ())}
        if any(b == last[o] or (a < first[o] <= b < last[o]) or (first[o] < a <= last[o] < b) for o in rivals):
            continue
        keep.append(index)
        for token in range(a, b + 1):
            taken.setdefault(token, []).append(index)
    chosen = np.array(sorted(keep), np.int64)
    return first[chosen], last[chosen], value[chosen]


def _linked(
    model: CoreferenceModel,
    read: Read,
    first: Ints,
    last: Ints,
    spans: tuple[Span, ...],
    scores: NDArray[np.float32],
) -> Found:
    text = read.laid.document.text
    own = surfaces(text, spans, first, quotations(text))
    chain_of = np.full(len(spans), -1, np.int64)
    chains: list[list[int]] = []
    kept: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        sure = torch.from_numpy(scores).to(model.device)
        shown = model.head.mentions(read.tokens(first), read.tokens(last)) if len(spans) else read.rows
        for low in range(0, len(spans), _BLOCK):
            high, begin = min(len(spans), low + _BLOCK), max(0, low - BACK)
            features = torch.from_numpy(own.of(slice(low, high), slice(begin, high))).to(model.device)
            both = sure[low:high], sure[begin:high]
            block = model.head.antecedents(shown[low:high], shown[begin:high], features, both).float().cpu().numpy()
            for index in range(low, high):
                kept.append(_probabilities(block[index - low, max(0, index - BACK - begin) : index - begin]))
                _join(index, kept[-1], chain_of, chains)
    return Found(spans, tuple(map(tuple, chains)), tuple((1 / (1 + np.exp(-scores))).tolist()), tuple(kept))


def _probabilities(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of having no antecedent, then of each candidate."""
    logits = np.append(np.float32(0), scores)
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum(), np.float32)


def _join(index: int, probabilities: NDArray[np.float32], chain_of: Ints, chains: list[list[int]]) -> None:
    before = chain_of[index - len(probabilities) + 1 : index]
    mass = np.zeros(0)
    if len(before):
        sizes = np.bincount(before, minlength=len(chains))
        mass = np.bincount(before, weights=probabilities[1:], minlength=len(chains)) / np.maximum(sizes, 1) ** _DISCOUNT
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
