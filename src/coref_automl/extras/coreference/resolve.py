"""Chains of a document. In: a model and a document. Out: its chains, with gold mentions or with those the model finds.

Windows are encoded a few at a time and only the states of possible mentions are kept, so that memory grows with the mentions
alone. A mention's candidate antecedents are a fixed number of earlier mentions of the whole document; it joins the chain with the
highest total probability, unless having no antecedent is more probable. Batching changes the speed, not the chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.base.machine import default_batch_tokens
from coref_automl.base.progress import Progress, quiet
from coref_automl.extras.coreference.documents import Span, SpanChains
from coref_automl.extras.coreference.head import GOLD_LOGIT, Surfaces
from coref_automl.extras.coreference.keep import LINKED_FROM, Floats, fit, link_features, scores
from coref_automl.extras.coreference.model import CoreferenceModel
from coref_automl.extras.coreference.recipe import AnnotationScheme
from coref_automl.extras.coreference.tokens import MAX_WIDTH, Ints, TokenizedDocument
from coref_automl.models.execution import autocast

Logits = NDArray[np.float32]
MAX_ANTECEDENTS = 250
"""Earlier mentions that may be an antecedent."""
_LENGTH_PENALTY = 0.25
"""A chain's total probability is divided by its length to this power: a long one has many chances."""
_BLOCK = 128
_OPENING, _CLOSING = "(（[〔", ")）]〕"
_LEAST_DOCUMENTS = 40
"""Dev documents from which the choice of mentions is fitted."""
_ALIAS_REACH = 30
"""Characters between a mention and a form of it in brackets."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundChains:
    """A document's mentions and chains. `probabilities[i]` are of mention i having no antecedent, then of its candidates
    `i - len + 1 .. i - 1`."""

    spans: tuple[Span, ...]
    chains: tuple[tuple[int, ...], ...]
    probabilities: tuple[NDArray[np.float32], ...]
    singletons: bool = True

    def as_spans(self) -> SpanChains:
        """The chains as spans; singletons are included if the scheme marks them, or the mentions were gold."""
        least = 1 if self.singletons else 2
        return tuple(tuple(self.spans[index] for index in chain) for chain in self.chains if len(chain) >= least)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedDocument:
    """Spans of a document that may be mentions, with their logits, and head inputs of the tokens needed to link them: those of
    token t are row `row_of[t]` of `inputs`."""

    doc: TokenizedDocument
    first: Ints
    last: Ints
    logits: Logits
    inputs: Any
    row_of: Ints

    def inputs_of(self, tokens: Ints) -> Any:
        return self.inputs[torch.from_numpy(self.row_of[tokens]).to(self.inputs.device)]


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Mentions in the order of the text: characters, first and last tokens, logits."""

    spans: tuple[Span, ...]
    first: Ints
    last: Ints
    logits: Logits

    def only(self, kept: NDArray[np.bool_]) -> _Places:
        spans = tuple(span for span, keep in zip(self.spans, kept, strict=True) if keep)
        return _Places(spans, self.first[kept], self.last[kept], self.logits[kept])


def encode_document(
    model: CoreferenceModel,
    doc: TokenizedDocument,
    *,
    tokens: int | None = None,
    precision: str = "auto",
    progress: Progress | None = None,
) -> EncodedDocument:
    """Encode a document, some windows at a time, and keep only the head inputs of possible mentions."""
    device, head, model = model.device, model.head, model.eval()
    gold_tokens, row_of = np.unique(np.concatenate([doc.first, doc.last])), np.full(len(doc), -1, np.int64)
    none = np.zeros(0, np.int64)
    spans, kept, pending = [(none, none, np.zeros(0, np.float32))], list[Any](), None
    begin = end = count = 0
    with torch.inference_mode(), (progress or quiet()).stage("reading", len(doc), "tokens") as stage:
        for windows in model.window_batches(doc, tokens or default_batch_tokens(device.type)):
            with autocast(str(device), precision):
                encoded = model.encode_windows([(doc, window) for window in windows])
            inputs, end = encoded if pending is None else torch.cat([pending, encoded]), end + len(encoded)
            # a span that begins in the last tokens may end in the next windows: those tokens wait for them
            done = len(inputs) if end == len(doc) else max(0, len(inputs) - MAX_WIDTH + 1)
            logits = head.mention_logits(inputs, torch.from_numpy(doc.recurrence[begin:end]).to(device))
            logits = logits[:done].float().cpu().numpy()
            start, width = np.nonzero(logits > LINKED_FROM)
            first, last, values = begin + start, begin + start + width, logits[start, width]
            inside = doc.sentence_ids[first] == doc.sentence_ids[last]
            first, last = first[inside], last[inside]
            spans.append((first, last, values[inside]))
            new = np.unique(np.concatenate([first, last, gold_tokens[(gold_tokens >= begin) & (gold_tokens < begin + done)]]))
            new = new[row_of[new] < 0]
            row_of[new] = count + np.arange(len(new))
            kept.append(inputs[torch.from_numpy(new - begin).to(device)])
            pending, begin, count = inputs[done:], begin + done, count + len(new)
            stage.advance(len(encoded))
    firsts, lasts, values = (np.concatenate(column) for column in zip(*spans, strict=True))
    return EncodedDocument(doc, firsts, lasts, values, torch.cat(kept) if kept else torch.zeros((0, 0)), row_of)


def resolve_gold(model: CoreferenceModel, encoded: EncodedDocument) -> FoundChains:
    doc = encoded.doc
    spans = tuple(mention.span for mention in doc.document.mentions)
    return _link(model, encoded, _Places(spans, doc.first, doc.last, np.full(len(spans), GOLD_LOGIT, np.float32)))


def resolve_found(model: CoreferenceModel, encoded: EncodedDocument, *, threshold: float | None = None) -> FoundChains:
    """Find mentions and link them. `threshold` takes the place of the scheme's choice of mentions."""
    scheme = model.scheme(encoded.doc.document)
    if scheme.keep and threshold is None:
        places, _, features = linked(model, encoded, LINKED_FROM)
        places = places.only(scores(features, scheme.keep) >= 0)
    else:
        places = _places(model, encoded, scheme.threshold if threshold is None else threshold)
    found = _link(model, encoded, places)
    if scheme.singletons:
        return found
    return replace(found, chains=without_aliases(encoded.doc.document.text, found), singletons=False)


def linked(model: CoreferenceModel, encoded: EncodedDocument, threshold: float) -> tuple[_Places, FoundChains, Floats]:
    """Link all spans above a threshold; return them, their chains, and the features by which some are kept."""
    places = _places(model, encoded, threshold)
    found, width = _link(model, encoded, places), places.last - places.first
    recurrence = encoded.doc.recurrence[places.first, width]
    return places, found, link_features(found.spans, found.chains, found.probabilities, places.logits, recurrence, width)


def with_weights(model: CoreferenceModel, scheme: AnnotationScheme, dev: Sequence[EncodedDocument]) -> AnnotationScheme:
    """Fit which spans to keep on the dev documents of a scheme that marks only what recurs, if they are enough."""
    own = [encoded for encoded in dev if encoded.doc.document.scheme == scheme.name]
    if scheme.singletons or len(own) < _LEAST_DOCUMENTS:
        return replace(scheme, keep=())
    features, correct = list[Floats](), list[bool]()
    for encoded in own:
        gold = {mention.span for mention in encoded.doc.document.mentions}
        places, _, values = linked(model, encoded, LINKED_FROM)
        features.append(values)
        correct += [span in gold for span in places.spans]
    return replace(scheme, keep=fit(np.concatenate(features), np.array(correct)))


def _places(model: CoreferenceModel, encoded: EncodedDocument, threshold: float) -> _Places:
    first, last, logits = select_mentions(encoded, threshold)
    doc = encoded.doc
    trailing = last
    if len(last):
        with torch.inference_mode():
            lengths = torch.from_numpy(doc.lengths[last]).to(model.device)
            trailing = model.head.trailing_logits(encoded.inputs_of(last), lengths).argmax(1).cpu().numpy()
    spans = [doc.span(int(a), int(b), int(c)) for a, b, c in zip(first, last, trailing, strict=True)]
    best: dict[Span, int] = {}
    for index in np.argsort(-logits, kind="stable").tolist():  # tokens that share a character give one span twice
        best.setdefault(spans[index], index)
    order = sorted(best.values(), key=lambda index: (spans[index][0], -spans[index][1]))
    chosen = np.array(order, np.int64)
    return _Places(tuple(spans[index] for index in order), first[chosen], last[chosen], logits[chosen])


def without_aliases(text: str, found: FoundChains) -> tuple[tuple[int, ...], ...]:
    """Take apart the chains of one mention and its forms in brackets close behind it, as 한국은행(BOK): named once in fact."""
    depth, depths = 0, list[int]()
    for sign in text:
        depth = 0 if sign == "\n" else max(0, depth - (sign in _CLOSING))
        depths.append(depth)
        depth += sign in _OPENING

    def is_alias(chain: tuple[int, ...]) -> bool:
        spans = [found.spans[index] for index in chain]
        outside = [span for span in spans if not depths[span[0]]]
        return len(outside) == 1 < len(spans) and all(
            0 <= start - outside[0][1] <= _ALIAS_REACH for start, _ in spans if depths[start]
        )

    parts = ([chain] if not is_alias(chain) else [(index,) for index in chain] for chain in found.chains)
    return tuple(part for chain in parts for part in chain)


def select_mentions(encoded: EncodedDocument, threshold: float) -> tuple[Ints, Ints, Logits]:
    """Select the spans above the threshold; of two that cross or end on one token, the one with the higher logit.

    A Korean phrase ends in its head: two that end alike have one head, and annotators mark one of them.
    """
    above = encoded.logits > threshold
    first, last, logits = encoded.first[above], encoded.last[above], encoded.logits[above]
    keep: list[int] = []
    by_token: dict[int, list[int]] = {}
    for index in np.lexsort((last, first, -logits)).tolist():
        a, b = int(first[index]), int(last[index])
        rivals = {rival for token in range(a, b + 1) for rival in by_token.get(token, ())}
        if any(b == last[r] or (a < first[r] <= b < last[r]) or (first[r] < a <= last[r] < b) for r in rivals):
            continue
        keep.append(index)
        for token in range(a, b + 1):
            by_token.setdefault(token, []).append(index)
    chosen = np.array(sorted(keep), np.int64)
    return first[chosen], last[chosen], logits[chosen]


def _link(model: CoreferenceModel, encoded: EncodedDocument, places: _Places) -> FoundChains:
    spans, first, last, logits = places.spans, places.first, places.last, places.logits
    facts = Surfaces(encoded.doc, spans, first)
    chain_of = np.full(len(spans), -1, np.int64)
    chains: list[list[int]] = []
    probabilities: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        confidence = torch.from_numpy(logits).to(model.device)
        vectors = encoded.inputs
        if len(spans):
            vectors = model.head.mention_vectors(encoded.inputs_of(first), encoded.inputs_of(last))
        for low in range(0, len(spans), _BLOCK):
            high, begin = min(len(spans), low + _BLOCK), max(0, low - MAX_ANTECEDENTS)
            features = torch.from_numpy(facts.pair_features(slice(low, high), slice(begin, high))).to(model.device)
            both = confidence[low:high], confidence[begin:high]
            block = model.head.antecedent_logits(vectors[low:high], vectors[begin:high], features, both).float().cpu().numpy()
            for index in range(low, high):
                candidates = block[index - low, max(0, index - MAX_ANTECEDENTS - begin) : index - begin]
                probabilities.append(antecedent_probabilities(candidates))
                join_chain(index, probabilities[-1], chain_of, chains)
    return FoundChains(spans, tuple(map(tuple, chains)), tuple(probabilities))


def antecedent_probabilities(candidates: Logits) -> NDArray[np.float32]:
    """Softmax over no antecedent (logit 0), then each candidate."""
    logits = np.append(np.float32(0), candidates)
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum(), np.float32)


def join_chain(index: int, probabilities: NDArray[np.float32], chain_of: Ints, chains: list[list[int]]) -> None:
    """Add mention `index` to its most probable chain, or to a new one; `chain_of` and `chains` are updated."""
    candidates = chain_of[index - len(probabilities) + 1 : index]
    mass = np.zeros(0)
    if len(candidates):
        sizes = np.maximum(1, np.bincount(candidates, minlength=len(chains)))
        mass = np.bincount(candidates, weights=probabilities[1:], minlength=len(chains)) / sizes**_LENGTH_PENALTY
    best = int(mass.argmax()) if len(mass) else -1
    if best < 0 or mass[best] <= probabilities[0]:
        best = len(chains)
        chains.append([])
    chains[best].append(index)
    chain_of[index] = best


def resolve_all(
    model: CoreferenceModel, documents: Sequence[TokenizedDocument], *, precision: str = "auto", progress: Progress | None = None
) -> list[tuple[FoundChains, FoundChains]]:
    """Resolve each document with gold mentions, and with the model's own."""
    answers = []
    for doc in (progress or quiet()).track(documents, "resolving", len(documents), "documents"):
        encoded = encode_document(model, doc, precision=precision)
        answers.append((resolve_gold(model, encoded), resolve_found(model, encoded)))
    return answers
