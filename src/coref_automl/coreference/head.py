"""The head. In: the states of a document's tokens. Out: which stretches are mentions, where they end, which antecedent each has.

A stretch is scored from its first and its last token; a pair by a biaffine form of both ends of both mentions, moved by what the
characters say of them (`pairs`), which the later mention weighs: a pronoun need not care that two surfaces are equal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from coref_automl.coreference.layout import ALPHABET, LETTERS, TRIMS, WIDTH
from coref_automl.coreference.pairs import FEATURES

_LETTER = 16
_WEIGHING = 32


class CoreferenceHead(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden: int, size: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.letters = nn.Embedding(ALPHABET, _LETTER, padding_idx=0)
        read = hidden + LETTERS * _LETTER
        self.first = _layer(read, size, dropout)
        self.last = _layer(read, size, dropout)
        self.first_score = nn.Linear(size, 1)
        self.last_score = nn.Linear(size, 1)
        self.span = nn.Linear(size, size, bias=False)
        self.width = nn.Parameter(torch.zeros(WIDTH))
        self.trim = nn.Linear(size, TRIMS)
        self.pair_first = _layer(read, size, dropout)
        self.pair_last = _layer(read, size, dropout)
        self.pair = nn.Linear(2 * size, 2 * size, bias=False)
        self.worth = nn.Linear(2 * size, 1)
        self.weigh = nn.Linear(2 * size, _WEIGHING)
        self.features = nn.ModuleList(nn.Embedding(count, _WEIGHING) for count in FEATURES.values())
        with torch.no_grad():
            self.first_score.bias.fill_(-2.0)  # most stretches are no mentions
            for table in (self.pair.weight, self.span.weight):
                table.mul_(0.2)
            for table in self.features:
                table.weight.mul_(0.1)

    def read(self, states: Any, letters: Any) -> Any:
        """States [T, H] with the tokens' last characters beside them."""
        return torch.cat([self.drop(states.float()), self.letters(letters).flatten(1)], dim=1)

    def stretches(self, read: Any) -> Any:
        """Logits [T, WIDTH] of the stretch that begins at t and has w + 1 tokens; those beyond the text are far below 0."""
        first, last = self.first(read), self.last(read)
        ends = nn.functional.pad(torch.cat([last, self.last_score(last)], dim=1), (0, 0, 0, WIDTH - 1))
        begins = torch.cat([self.span(first), torch.ones_like(first[:, :1])], dim=1)
        scores = (begins[:, None, :] * ends.unfold(0, WIDTH, 1).transpose(1, 2)).sum(2) + self.first_score(first) + self.width
        places = torch.arange(len(read), device=read.device)
        beyond = places[:, None] + torch.arange(WIDTH, device=read.device) >= len(read)
        return scores.masked_fill(beyond, -1e4)

    def trims(self, read: Any, sizes: Any) -> Any:
        """Logits [N, TRIMS] of how much is cut off behind the last token; something of it always stays."""
        logits = self.trim(self.last(read))
        return logits.masked_fill(torch.arange(TRIMS, device=read.device) >= sizes[:, None], -1e4)

    def mentions(self, first: Any, last: Any) -> Any:
        """What stands for each mention when it is linked, from its first and its last token as read: [N, 2 x size]."""
        return torch.cat([self.pair_first(first), self.pair_last(last)], dim=1)

    def antecedents(self, queries: Any, candidates: Any, features: Any) -> Any:
        """Scores [Q, C]; 0 is the score of having none. `features` [4, Q, C] are those of `pairs`."""
        scores = self.pair(queries) @ candidates.T + self.worth(candidates).T
        weights = self.weigh(queries)
        for table, buckets in zip(self.features, features, strict=True):
            scores = scores + (weights @ table.weight.T).gather(1, buckets)
        return scores


def _layer(read: int, size: int, dropout: float) -> Any:
    return nn.Sequential(nn.Linear(read, size), nn.GELU(), nn.Dropout(dropout))
