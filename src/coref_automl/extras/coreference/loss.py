"""The loss of a batch. In: a model, segments of documents. Out: one number with gradients. It has three parts:

- mention: every span of tokens in a sentence is a mention or not (binary cross-entropy, per gold mention)
- trailing: how many characters of a mention's last token lie behind it (cross-entropy)
- antecedent: the antecedents of a mention in its own chain, or having none, get all the probability (marginal log-likelihood,
  as in end-to-end coreference resolution)

Segments lie end to end in a batch. Tokens 7:10 of one document and 0:2 of another:

    batch token        0 1 2 3 4        rows of inputs and logits; `_Spans.first`, `_Spans.last`
    segment            0 0 0 1 1        no span and no link crosses from one into another
    document token     7 8 9 0 1        batch token - begin of the segment + `Segment.low`
    characters         of the document's text, what `TokenizedDocument.span` returns for document tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from coref_automl.extras.coreference.documents import Span
from coref_automl.extras.coreference.head import FEATURES, MASKED_LOGIT, Surfaces
from coref_automl.extras.coreference.model import CoreferenceModel
from coref_automl.extras.coreference.tokens import MAX_WIDTH, Ints, TokenizedDocument, TokenWindow, within_sentence


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Tokens `low:high` of a document, encoded in windows that do not overlap."""

    doc: TokenizedDocument
    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    def windows(self, capacity: int) -> list[TokenWindow]:
        edges = [(low, min(self.high, low + capacity)) for low in range(self.low, self.high, capacity)]
        return [TokenWindow(low, high, low, high) for low, high in edges]


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Spans of a batch in batch tokens, each with its segment's number and its characters. `entity` is -1 for a span that is no
    mention; `trailing` is the number of characters behind it in its last token, -1 if it cannot be predicted exactly."""

    characters: list[Span]
    first: Ints
    last: Ints
    entity: Ints
    trailing: Ints
    segment: Ints


def batch_loss(model: CoreferenceModel, segments: Sequence[Segment]) -> Any:
    head = model.head

    def tensor(array: NDArray[Any]) -> Any:
        return torch.from_numpy(array).to(model.device)

    inputs = model.encode_windows([(part.doc, window) for part in segments for window in part.windows(model.capacity)])
    inside = tensor(within_sentence(_sentence_ids(segments)))
    recurrence = tensor(np.concatenate([part.doc.recurrence[part.low : part.high] for part in segments]))
    logits = head.mention_logits(inputs, recurrence).masked_fill(~inside, MASKED_LOGIT)

    gold = _gold_mentions(segments)
    reachable = gold.trailing >= 0
    first, last, trailing = (tensor(column[reachable]) for column in (gold.first, gold.last, gold.trailing))
    targets = torch.zeros_like(logits)
    targets[first, last - first] = 1.0
    loss = functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / max(1, len(first))
    if len(first):
        lengths = tensor(np.concatenate([part.doc.lengths[part.low : part.high] for part in segments]))
        loss = loss + functional.cross_entropy(head.trailing_logits(inputs[last], lengths[last]), trailing)
    if (count := len(gold.first)) > 1:
        spans = _with_negatives(segments, gold, false_positives(logits, targets, count))
        loss = loss + _antecedent_loss(model, inputs, logits, spans, _pair_features(segments, spans))
    return loss


def _sentence_ids(segments: Sequence[Segment]) -> Ints:
    """Sentence numbers that no two segments share."""
    columns, offset = [], 0
    for part in segments:
        ids = part.doc.sentence_ids[part.low : part.high]
        columns.append(ids + offset)
        offset += int(ids.max(initial=0)) + 1
    return np.concatenate(columns)


def _gold_mentions(segments: Sequence[Segment]) -> _Spans:
    """Collect the mentions that lie whole in the segments."""
    columns: list[tuple[Ints, ...]] = []
    characters: list[Span] = []
    begin = 0
    for number, part in enumerate(segments):
        doc, shift = part.doc, begin - part.low
        inside = np.flatnonzero((doc.first >= part.low) & (doc.last < part.high))
        trailing = np.where(doc.reachable, doc.trailing, -1)[inside]
        spans = doc.first[inside] + shift, doc.last[inside] + shift
        columns.append((*spans, doc.entity[inside], trailing, np.full(len(inside), number)))
        characters += [doc.document.mentions[index].span for index in inside.tolist()]
        begin += len(part)
    return _Spans(characters, *map(np.concatenate, zip(*columns, strict=True)))


def false_positives(logits: Any, targets: Any, count: int) -> tuple[Ints, Ints]:
    """(first token, width) of false-positive spans, first `count` in text order: negatives for the antecedent loss.

    Dev CoNLL F1: 69.0 with these, 67.7 with the top-scoring ones, 66.6 if they are also trained towards "no antecedent".
    """
    spans = torch.nonzero((logits.detach() > 0) & (targets == 0)).cpu().numpy()[:count]
    return spans[:, 0], spans[:, 1]


def _with_negatives(segments: Sequence[Segment], gold: _Spans, negatives: tuple[Ints, Ints]) -> _Spans:
    """Merge gold mentions and negatives, segment by segment in text order: candidates to link."""
    starts, widths = negatives
    begins = np.cumsum([0, *map(len, segments)])
    owner = np.searchsorted(begins, starts, "right") - 1
    characters = list(gold.characters)
    for number, start, width in zip(owner.tolist(), starts.tolist(), widths.tolist(), strict=True):
        token = start - int(begins[number]) + segments[number].low
        characters.append(segments[number].doc.span(token, token + width, 0))
    none = np.full(len(starts), -1)
    pairs = (gold.first, starts), (gold.last, starts + widths), (gold.entity, none), (gold.trailing, none), (gold.segment, owner)
    columns = [np.concatenate(pair) for pair in pairs]
    low, high = np.array(characters).T
    order = np.lexsort((-high, low, columns[-1]))  # by segment, then text order, outer before inner
    return _Spans([characters[index] for index in order], *(column[order] for column in columns))


def _pair_features(segments: Sequence[Segment], spans: _Spans) -> Ints:
    """Surface features of all pairs of candidates in a segment, [features, candidates, candidates]."""
    features = np.zeros((len(FEATURES), len(spans.first), len(spans.first)), np.int64)
    for number, part in enumerate(segments):
        low, high = np.searchsorted(spans.segment, (number, number + 1)).tolist()
        every = slice(0, high - low)
        facts = Surfaces(part.doc, spans.characters[low:high], spans.first[low:high])
        features[:, low:high, low:high] = facts.pair_features(every, every)
    return features


def _antecedent_loss(model: CoreferenceModel, inputs: Any, mention_logits: Any, spans: _Spans, features: Ints) -> Any:
    """Minus the log-probability of all antecedents of a mention, or of having none; the mean over gold mentions."""
    device, entity, segment = inputs.device, spans.entity, spans.segment
    first, last = (torch.from_numpy(tokens).to(device) for tokens in (spans.first, spans.last))
    mentions = model.head.mention_vectors(inputs[first], inputs[last])
    confidence = mention_logits[first, (last - first).clamp(max=MAX_WIDTH - 1)]
    pairs = torch.from_numpy(features).to(device)
    logits = model.head.antecedent_logits(mentions, mentions, pairs, (confidence, confidence))
    earlier = (segment[:, None] == segment[None, :]) & np.tri(len(segment), k=-1, dtype=bool)
    logits = logits.masked_fill(~torch.from_numpy(earlier).to(device), MASKED_LOGIT)
    logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1)  # the first column: no antecedent
    coreferent = (entity[:, None] == entity[None, :]) & (entity[:, None] >= 0) & earlier
    correct = torch.from_numpy(np.concatenate([~coreferent.any(1, keepdims=True), coreferent], axis=1)).to(device)
    likelihood = torch.logsumexp(logits.masked_fill(~correct, MASKED_LOGIT), 1) - torch.logsumexp(logits, 1)
    return -likelihood[torch.from_numpy(entity >= 0).to(device)].mean()
