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
from coref_automl.coreference.tokens import WIDTH, TokenizedDocument
from coref_automl.machine import default_batch_tokens
from coref_automl.models.execution import autocast
from coref_automl.progress import Progress, quiet

Span = tuple[int, int]
Ints = NDArray[np.int64]
BACK = 250
"""Earlier mentions that may be an antecedent."""
_DISCOUNT = 0.25
"""A long chain has many chances: what its mentions offer together is divided by its length to this power."""
_BLOCK = 128
_FLOOR = -2.5
"""Spans below this score are not mentions under any threshold that training tries."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundChains:
    """A document's mentions and chains. `probabilities[i]` are those of mention i's antecedents `i - len .. i - 1`, after that of
    having none."""

    spans: tuple[Span, ...]
    chains: tuple[tuple[int, ...], ...]
    probabilities: tuple[NDArray[np.float32], ...]
    singletons: bool = True

    def as_spans(self) -> tuple[tuple[Span, ...], ...]:
        """The chains as an answer; those of one mention belong to it where the scheme marks them, or they were given."""
        least = 1 if self.singletons else 2
        return tuple(tuple(self.spans[index] for index in chain) for chain in self.chains if len(chain) >= least)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What the head has read of a document: spans that may be mentions with their scores, and the tokens it needs to link
    them; token t is row `row_of[t]` of `rows`."""

    doc: TokenizedDocument
    first: Ints
    last: Ints
    scores: NDArray[np.float32]
    rows: Any
    row_of: Ints

    def tokens(self, places: Ints) -> Any:
        return self.rows[torch.from_numpy(self.row_of[places]).to(self.rows.device)]


def read_document(
    model: CoreferenceModel,
    doc: TokenizedDocument,
    *,
    tokens: int | None = None,
    precision: str = "auto",
    progress: Progress | None = None,
) -> Read:
    """Run the encoder over a document, some windows at a time; of their states only those of possible mentions are kept."""
    device, head, model = model.device, model.head, model.eval()
    wanted, row_of = np.unique(np.concatenate([doc.first, doc.last])), np.full(len(doc), -1, np.int64)
    none = np.zeros(0, np.int64)
    found, rows, waiting = [(none, none, np.zeros(0, np.float32))], list[Any](), None
    begin = end = count = 0
    with torch.inference_mode(), (progress or quiet()).stage("reading", len(doc), "tokens") as stage:
        for part in model.batches(doc, tokens or default_batch_tokens(device.type)):
            with autocast(str(device), precision):
                states = torch.cat(model.states_of([(doc, window) for window in part]))
            letters, repeats = (torch.from_numpy(fact[end : end + len(states)]).to(device) for fact in (doc.letters, doc.repeats))
            scheme = torch.full((len(states),), model.scheme_number(doc.document), device=device)
            read = head.read(states, letters, repeats, scheme)
            read, end = read if waiting is None else torch.cat([waiting, read]), end + len(states)
            # a span that begins before the last token ends behind it: the last tokens wait for the next windows
            done = len(read) if end == len(doc) else max(0, len(read) - WIDTH + 1)
            scores = head.span_scores(read, torch.from_numpy(doc.repeats[begin:end]).to(device))[:done].float().cpu().numpy()
            first, width = np.nonzero(scores > _FLOOR)
            inside = doc.sentences[begin + first] == doc.sentences[begin + first + width]
            first, width = first[inside], width[inside]
            found.append((begin + first, begin + first + width, scores[first, width]))
            given = wanted[(wanted >= begin) & (wanted < begin + done)]
            new = np.unique(np.concatenate([begin + first, begin + first + width, given]))
            new = new[row_of[new] < 0]
            row_of[new] = count + np.arange(len(new))
            rows.append(read[torch.from_numpy(new - begin).to(device)])
            waiting, begin, count = read[done:], begin + done, count + len(new)
            stage.advance(len(states))
    firsts, lasts, values = (np.concatenate(column) for column in zip(*found, strict=True))
    return Read(doc, firsts, lasts, values, torch.cat(rows) if rows else torch.zeros((0, 0)), row_of)


def with_gold(model: CoreferenceModel, read: Read) -> FoundChains:
    doc = read.doc
    spans = tuple(mention.span for mention in doc.document.mentions)
    return _linked(model, read, doc.first, doc.last, spans, np.full(len(spans), SURE, np.float32))


def with_found(model: CoreferenceModel, read: Read, *, threshold: float | None = None) -> FoundChains:
    scheme = model.scheme(read.doc.document)
    first, last, score = _mentions(read, scheme.threshold if threshold is None else threshold)
    doc = read.doc
    trailing = last
    if len(last):
        with torch.inference_mode():
            sizes = torch.from_numpy(doc.sizes[last]).to(model.device)
            trailing = model.head.trailing(read.tokens(last), sizes).argmax(1).cpu().numpy()
    spans = [doc.span(int(a), int(b), int(c)) for a, b, c in zip(first, last, trailing, strict=True)]
    surest: dict[Span, int] = {}
    for index in np.argsort(-score, kind="stable").tolist():  # tokens that share a character give one span twice
        surest.setdefault(spans[index], index)
    order = sorted(surest.values(), key=lambda index: (spans[index][0], -spans[index][1]))
    chosen = np.array(order, np.int64)
    named = tuple(spans[index] for index in order)
    found = _linked(model, read, first[chosen], last[chosen], named, score[chosen])
    return replace(found, singletons=scheme.singletons)


def _mentions(read: Read, threshold: float) -> tuple[Ints, Ints, NDArray[np.float32]]:
    """The spans above the threshold; of two that cross or end on one token, the surer one.

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
    model: CoreferenceModel, read: Read, first: Ints, last: Ints, spans: tuple[Span, ...], scores: NDArray[np.float32]
) -> FoundChains:
    text = read.doc.document.text
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
    return FoundChains(spans, tuple(map(tuple, chains)), tuple(kept))


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
    model: CoreferenceModel, documents: Sequence[TokenizedDocument], *, precision: str = "auto", progress: Progress | None = None
) -> list[tuple[FoundChains, FoundChains]]:
    """(with gold mentions, with the model's own) for each document."""
    found = []
    for doc in (progress or quiet()).track(documents, "resolving", len(documents), "documents"):
        read = read_document(model, doc, precision=precision)
        found.append((with_gold(model, read), with_found(model, read)))
    return found
