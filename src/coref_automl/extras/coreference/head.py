"""The head. In: the states of a document's tokens. Out: which spans are mentions, where they end, which antecedent each has.

A span is scored from its first and its last token. A pair is scored by a biaffine form of both ends of both mentions plus surface
features: distance (in tokens, in mentions), whether the forms are equal or contain each other, and whether both are in narration,
in one quotation or in different ones. The later mention gates these features: a pronoun need not care that two forms are equal.
The confidence that either is a mention counts too.

What counts as a mention depends on the annotation scheme, which is an input beside each token, and on whether the same words
recur in the text: most schemes annotate what is mentioned twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coref_automl.extras.coreference.documents import Span
from coref_automl.extras.coreference.tokens import (
    CHAR_TABLE,
    CHARS,
    MAX_WIDTH,
    RECURRENCE_CLASSES,
    TRIMS,
    Ints,
    TokenizedDocument,
)

DISTANCES = 14
SURFACES = 6
QUOTES = 5
FEATURES = {"tokens": DISTANCES, "mentions": DISTANCES, "surface": SURFACES, "quote": QUOTES}


class Surfaces:
    """What the text says of a document's mentions, in text order; `first` are their first tokens."""

    def __init__(self, doc: TokenizedDocument, spans: Sequence[Span], first: Ints) -> None:
        self._starts, self._ends = np.array(spans, np.int64).reshape(-1, 2).T
        self._first, self._quotes = first, doc.quotes[self._starts]
        numbers: dict[str, int] = {}
        forms = ("".join(doc.document.text[start:end].split()) for start, end in spans)
        self._forms = np.array([numbers.setdefault(form, len(numbers)) for form in forms], np.int64)
        self._relation = _form_relations(list(numbers))

    def pair_features(self, queries: slice, candidates: slice) -> Ints:
        """Features [4, queries, candidates]; a candidate precedes its query."""
        tokens = self._first[queries, None] - self._first[None, candidates]
        order = np.arange(len(self._first))
        mentions = order[queries, None] - order[None, candidates]
        starts, ends = self._starts, self._ends
        nested = (starts[None, candidates] < ends[queries, None]) & (starts[queries, None] < ends[None, candidates])
        related = self._relation[self._forms[queries][:, None], self._forms[candidates][None, :]]
        surface = np.where(nested, SURFACES - 1, related)
        later, earlier = self._quotes[queries][:, None], self._quotes[candidates][None, :]
        quote = np.where(later == earlier, np.where(later > 0, 3, 0), np.where(later > 0, np.where(earlier > 0, 4, 2), 1))
        return np.stack([_bucket(tokens), _bucket(mentions), surface, quote]).astype(np.int64)


def _form_relations(forms: Sequence[str]) -> NDArray[np.int8]:
    """1 equal, 2 one ends in the other, 3 one begins with it, 4 one contains it, 0 otherwise."""
    table = np.eye(len(forms), dtype=np.int8)
    numbers = {form: number for number, form in enumerate(forms)}
    sizes = sorted({len(form) for form in forms} - {0})
    for a, long in enumerate(forms):
        for size in sizes[: bisect_left(sizes, len(long))]:
            for start in range(len(long) - size + 1):
                b = numbers.get(long[start : start + size])
                if b is not None:
                    kind = 2 if start + size == len(long) else 3 if start == 0 else 4
                    table[a, b] = table[b, a] = min(kind, table[a, b] or kind)
    return table


def _bucket(distance: Ints) -> Ints:
    """Bucket distances: 0 to 3 exactly, larger ones by powers of two."""
    far = np.maximum(distance, 0)
    doubled = 4 + np.floor(np.log2(np.maximum(far, 4) / 4)).astype(np.int64)
    return np.asarray(np.where(far < 4, far, np.minimum(doubled, DISTANCES - 1)))


_CHAR_DIM = 16
_CLASS_DIM = 8
_GATE_DIM = 32
MASKED_LOGIT = -1e4
"""Logit of a masked candidate."""
GOLD_LOGIT = 4.0
"""Mention logits are clipped here; gold mentions get this value."""


class CoreferenceHead(nn.Module):  # type: ignore[misc]
    """Mention, boundary and antecedent scores. Attribute names are the keys of saved heads, and so never change."""

    def __init__(self, hidden: int, size: int, dropout: float, schemes: int) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.letters = nn.Embedding(CHAR_TABLE, _CHAR_DIM, padding_idx=0)
        self.repeats = nn.Embedding(RECURRENCE_CLASSES, _CLASS_DIM)
        self.schemes = nn.Embedding(schemes, _CLASS_DIM)
        inputs = hidden + CHARS * _CHAR_DIM + 2 * _CLASS_DIM
        self.first = _layer(inputs, size, dropout)
        self.last = _layer(inputs, size, dropout)
        self.first_score = nn.Linear(size, 1)
        self.last_score = nn.Linear(size, 1)
        self.span = nn.Linear(size, size, bias=False)
        self.width = nn.Parameter(torch.zeros(MAX_WIDTH))
        self.repeated = nn.Linear(size, RECURRENCE_CLASSES)
        self.trim = nn.Linear(size, TRIMS)
        self.pair_first = _layer(inputs, size, dropout)
        self.pair_last = _layer(inputs, size, dropout)
        self.pair = nn.Linear(2 * size, 2 * size, bias=False)
        self.worth = nn.Linear(2 * size, 1)  # prior of a candidate as an antecedent
        self.sure = nn.Parameter(torch.zeros(2))  # weights of both mentions' confidence
        self.weigh = nn.Linear(2 * size, _GATE_DIM)  # gate of the pair features
        self.features = nn.ModuleList(nn.Embedding(count, _GATE_DIM) for count in FEATURES.values())
        with torch.no_grad():
            self.first_score.bias.fill_(-2.0)  # most spans are not mentions
            for table in (self.pair.weight, self.span.weight):
                table.mul_(0.2)
            for table in self.features:
                table.weight.mul_(0.1)

    def token_inputs(self, states: Any, char_ids: Any, recurrence: Any, scheme: Any) -> Any:
        """Concatenate states [T, H] with embeddings of the tokens' last characters, recurrence class and scheme."""
        embedded = self.letters(char_ids).flatten(1), self.repeats(recurrence[:, 0]), self.schemes(scheme)
        return torch.cat([self.drop(states.float()), *embedded], dim=1)

    def mention_logits(self, inputs: Any, recurrence: Any) -> Any:
        """Logits [T, MAX_WIDTH] of the span that begins at t and has w + 1 tokens; spans beyond the text are masked."""
        first, last = self.first(inputs), self.last(inputs)
        ends = nn.functional.pad(torch.cat([last, self.last_score(last)], dim=1), (0, 0, 0, MAX_WIDTH - 1))
        starts = torch.cat([self.span(first), torch.ones_like(first[:, :1])], dim=1)
        logits = (starts[:, None, :] * ends.unfold(0, MAX_WIDTH, 1).transpose(1, 2)).sum(2) + self.first_score(first) + self.width
        logits = logits + self.repeated(first).gather(1, recurrence)
        positions = torch.arange(len(inputs), device=inputs.device)
        beyond = positions[:, None] + torch.arange(MAX_WIDTH, device=inputs.device) >= len(inputs)
        return logits.masked_fill(beyond, MASKED_LOGIT)

    def trailing_logits(self, inputs: Any, lengths: Any) -> Any:
        """Logits [N, TRIMS] of how many characters to cut off the last token; at least one always remains."""
        logits = self.trim(self.last(inputs))
        return logits.masked_fill(torch.arange(TRIMS, device=inputs.device) >= lengths[:, None], MASKED_LOGIT)

    def mention_vectors(self, first: Any, last: Any) -> Any:
        """Represent mentions for linking by the inputs of their first and last tokens: [N, 2 x size]."""
        return torch.cat([self.pair_first(first), self.pair_last(last)], dim=1)

    def antecedent_logits(self, queries: Any, candidates: Any, features: Any, confidence: tuple[Any, Any]) -> Any:
        """Logits [Q, C]; 0 is the logit of no antecedent. `features` [4, Q, C] are `Surfaces.pair_features`, `confidence` the
        mention logits of queries and candidates."""
        logits = self.pair(queries) @ candidates.T + self.worth(candidates).T
        query, candidate = (mention.clamp(-GOLD_LOGIT, GOLD_LOGIT) / GOLD_LOGIT for mention in confidence)
        logits = logits + self.sure[0] * query[:, None] + self.sure[1] * candidate[None, :]
        gate = self.weigh(queries)
        for table, buckets in zip(self.features, features, strict=True):
            logits = logits + (gate @ table.weight.T).gather(1, buckets)
        return logits


def _layer(inputs: int, size: int, dropout: float) -> Any:
    return nn.Sequential(nn.Linear(inputs, size), nn.GELU(), nn.Dropout(dropout))
