"""Objectives: which tokens are hidden. In: a packed row, a random generator. Out: input ids and labels.

Pure numpy, about a tenth of a millisecond for a thousand tokens. Masks depend on (seed, epoch, row) alone, never on the order in
which workers request rows: these three are the key of a counter-based generator (`row_rng`).

Objectives:
    mlm        random tokens or whole words; the rate grows from `min_prob` to `max_prob` with the unpadded length of the document
               piece, or is sampled between them per piece, or falls from the larger to the smaller over the run
    nouns      whole nouns are hidden with all their mentions in the row, so that nothing is left to copy: the control of entity,
               with the same expected share of hidden tokens and the same background
    entity     later mentions of a repeated noun are hidden as whole spans, one [MASK] per token, never the first mention;
               ordinary mlm outside all mentions (`background`) preserves the language model
    combined   a fraction `ratio` of the rows is entity, the others are mlm; a row without a repeated noun is always mlm
    copy, link, copy+link
               hide what entity hides; a hidden mention must also be found among the visible ones (`training/loss.py`)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Objective

MentionLoss = Literal["copy", "link"]
IntArray = NDArray[np.integer]
BoolArray = NDArray[np.bool_]
Rates = NDArray[np.float64] | float


@dataclass(frozen=True, slots=True)
class ObjectiveKind:
    """What an objective hides. `entity_rows` is the fraction of rows, among those with a repeated noun, whose later mentions are
    hidden; None takes `Masking.ratio`. Other rows are masked as mlm, or with `background` alone if the objective needs chains.
    `losses` are added to the loss of the hidden tokens. `whole_nouns` hides every mention of the nouns that it hides."""

    about: str
    entity_rows: float | None
    needs_chains: bool = False
    losses: tuple[MentionLoss, ...] = ()
    whole_nouns: bool = False

    def share(self, ratio: float) -> float:
        return ratio if self.entity_rows is None else self.entity_rows


OBJECTIVES: dict[Objective, ObjectiveKind] = {
    "mlm": ObjectiveKind("masked language modelling", 0.0),
    "nouns": ObjectiveKind(
        "noun masking: a repeated noun is hidden with all its mentions", 1.0, needs_chains=True, whole_nouns=True
    ),
    "combined": ObjectiveKind("masked language modelling and entity masking, mixed by row", None),
    "entity": ObjectiveKind("entity masking: later mentions of a repeated noun are hidden whole", 1.0, needs_chains=True),
    "copy": ObjectiveKind("entity masking, and a hidden mention is found among visible ones", 1.0, True, ("copy",)),
    "link": ObjectiveKind("entity masking, and a contrastive loss between mentions", 1.0, True, ("link",)),
    "copy+link": ObjectiveKind("entity masking, a copy loss and a contrastive loss of mentions", 1.0, True, ("copy", "link")),
}
"""A new objective is a line here, and its name in `Objective` of `records`."""

IGNORED = -100
"""The label of a position without a target, as torch and transformers define it."""

FAR = 256
"""A mention with more tokens than this to the nearest other mention of its chain is far."""


class RowLike(Protocol):
    """The part of a corpus row that masking needs: tokens, document number of each token (0 = padding), mentions (start, end,
    chain)."""

    @property
    def tokens(self) -> IntArray: ...
    @property
    def segments(self) -> IntArray: ...
    @property
    def mentions(self) -> IntArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class Masking:
    """How rows are masked. `special` and `starts` are boolean tables over the vocabulary: never masked; begins a word.

    `replace_all=True` puts [MASK] at every hidden position; False applies 80/10/10 to positions hidden by mlm. Hidden mentions
    are [MASK] either way, as in evaluation. `falling` rates are the same for all documents (`at`). `far_weight` multiplies the
    entity rate of far mentions.
    """

    objective: Objective
    mask_id: int
    special: BoolArray
    starts: BoolArray
    min_prob: float = 0.15
    max_prob: float = 0.15
    drawn: bool = False
    falling: bool = False
    whole_word: bool = False
    entity_rate: float = 0.3
    background: float = 0.07
    ratio: float = 0.5
    replace_all: bool = True
    far_weight: float = 1.0

    def at(self, progress: float) -> Masking:
        """Return the settings at a progress of the run: a falling rate goes from `max_prob` to `min_prob`."""
        if not self.falling:
            return self
        rate = self.max_prob + (self.min_prob - self.max_prob) * min(1.0, progress)
        return replace(self, min_prob=rate, max_prob=rate)


def row_rng(seed: int, epoch: int, row: int) -> np.random.Generator:
    """Return the generator of one row in one epoch; it is counter-based, as creating one takes microseconds."""
    return np.random.Generator(np.random.Philox(key=np.array([seed & (1 << 64) - 1, (epoch << 40) | row], dtype=np.uint64)))


def mask_row(row: RowLike, settings: Masking, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the input ids and the labels of a row; labels are IGNORED where nothing is hidden."""
    tokens = np.asarray(row.tokens).astype(np.int64)
    segments = np.asarray(row.segments)
    maskable = ~settings.special[tokens] & (segments > 0)
    objective = OBJECTIVES[settings.objective]
    later = later_mentions(np.asarray(row.mentions)) if objective.entity_rows != 0 else _NO_MENTIONS
    as_entity = bool(len(later)) and (objective.entity_rows == 1 or rng.random() < objective.share(settings.ratio))
    spans = np.zeros(len(tokens), dtype=bool)
    if as_entity:
        mentions = np.asarray(row.mentions)
        rates_of_later = mention_rates(mentions, settings)
        if objective.whole_nouns:
            spans = whole_nouns(tokens, mentions, rates_of_later, rng) & maskable
        else:
            spans = _covered(_sampled(later, rates_of_later, rng), len(tokens)) & maskable
        free = maskable & ~_covered(np.asarray(row.mentions), len(tokens))
        rates: Rates = settings.background
    else:
        free = maskable
        rates = settings.background if objective.needs_chains else mlm_rates(segments, settings, rng)
    hidden = _hide(tokens, segments, free, rates, settings, rng)
    if not (hidden.any() or spans.any()) and free.any() and np.any(np.asarray(rates) > 0):
        hidden[rng.choice(np.flatnonzero(free))] = True  # a row without a target would teach nothing
    ids = tokens.copy()
    ids[hidden] = settings.mask_id if settings.replace_all else _mixture(tokens[hidden], settings, rng)
    ids[spans] = settings.mask_id
    return ids, np.where(hidden | spans, tokens, IGNORED)


def later_mentions(mentions: IntArray) -> IntArray:
    """Return the mentions that are not the first of their chain; only these may be hidden."""
    if not len(mentions):
        return _NO_MENTIONS
    ordered = mentions[np.argsort(mentions[:, 0], kind="stable")]
    _, first = np.unique(ordered[:, 2], return_index=True)
    keep = np.ones(len(ordered), dtype=bool)
    keep[first] = False
    return ordered[keep]


def mention_rates(mentions: IntArray, settings: Masking) -> NDArray[np.float64]:
    """Return the probability with which each later mention is hidden."""
    if settings.far_weight == 1 or not len(mentions):
        return np.full(len(later_mentions(mentions)), settings.entity_rate)
    distance = later_mentions(np.column_stack([mentions, nearest_coreferent(mentions)]))[:, 3]
    return np.minimum(settings.entity_rate * np.where(distance > FAR, settings.far_weight, 1.0), 1.0)


def nearest_coreferent(mentions: IntArray) -> NDArray[np.int64]:
    """Return the tokens from each mention to the nearest other mention of its chain, on either side, hidden or not."""
    mentions = mentions.astype(np.int64)
    order = np.lexsort((mentions[:, 0], mentions[:, 2]))
    alone = np.iinfo(np.int64).max
    gaps = np.where(np.diff(mentions[order, 2]) == 0, np.diff(mentions[order, 0]), alone)
    nearest = np.empty(len(mentions), np.int64)
    nearest[order] = np.minimum(np.append(alone, gaps), np.append(gaps, alone))
    return nearest


def mlm_rates(segments: IntArray, settings: Masking, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a masking rate for every position, the same within a document piece.

    Sampled rates keep a model from relying on many masks: at a constant 25% it may learn to, and then fail on a text with one.
    """
    low, high = settings.min_prob, settings.max_prob
    if not settings.drawn:
        return length_rates(segments, low, high)
    rates: NDArray[np.float64] = rng.uniform(low, high, int(segments.max(initial=0)) + 1)[segments]
    return rates


def length_rates(segments: IntArray, low: float, high: float) -> NDArray[np.float64]:
    """Return a masking rate for every position: from `low` for a very short document piece to `high` for one that fills the row.

    By piece, not by block: with full blocks the rate would be constant.
    """
    lengths = np.bincount(segments)
    lengths[0] = 0
    return (low + (high - low) * lengths / len(segments))[segments]


def _hide(
    tokens: IntArray, segments: IntArray, free: BoolArray, rates: Rates, settings: Masking, rng: np.random.Generator
) -> BoolArray:
    if settings.whole_word:
        begins = settings.starts[tokens] | settings.special[tokens]
        begins[1:] |= segments[1:] != segments[:-1]
        word = np.cumsum(begins)
        draws = rng.random(len(tokens) + 1)[word]
    else:
        draws = rng.random(len(tokens))
    hidden: BoolArray = free & (draws < rates)
    return hidden


def _sampled(later: IntArray, rates: NDArray[np.float64], rng: np.random.Generator) -> IntArray:
    """Sample the mentions to hide, at least one unless all rates are 0."""
    chosen = rng.random(len(later)) < rates
    if rates.any() and not chosen.any():
        uniform = (rates == rates[0]).all()
        chosen[rng.integers(len(later)) if uniform else rng.choice(len(later), p=rates / rates.sum())] = True
    return later[chosen]


def whole_nouns(tokens: IntArray, mentions: IntArray, rates: NDArray[np.float64], rng: np.random.Generator) -> BoolArray:
    """Choose nouns by lot and return all their places, until as many tokens are hidden as `rates` of later mentions would hide.

    A place is a mention or any other occurrence of its tokens in the row: chains are capped, and packed documents may share a
    noun. The noun that crosses the expected number is taken with the probability that keeps the mean.
    """
    later = later_mentions(mentions)
    missing = float((rates * (later[:, 1] - later[:, 0])).sum())
    hidden = np.zeros(len(tokens), dtype=bool)
    for chain in rng.permutation(np.unique(mentions[:, 2])):
        places = ~hidden & _places(tokens, mentions[mentions[:, 2] == chain])
        count = int(places.sum())
        if count > missing and rng.random() * count >= missing:
            break
        hidden |= places
        missing -= count
        if missing <= 0:
            break
    return hidden


def _places(tokens: IntArray, mentions: IntArray) -> BoolArray:
    """Return True at every occurrence of the tokens of any of the mentions."""
    found = np.zeros(len(tokens), dtype=bool)
    for form in {tuple(tokens[start:end].tolist()) for start, end, _ in mentions.tolist()}:
        windows = np.lib.stride_tricks.sliding_window_view(tokens, len(form))
        begins = np.flatnonzero((windows == np.array(form)).all(axis=1))
        for offset in range(len(form)):
            found[begins + offset] = True
    return found


def _covered(spans: IntArray, length: int) -> BoolArray:
    """Return True at the positions inside any of the spans."""
    edges = np.zeros(length + 1, dtype=np.int64)
    np.add.at(edges, spans[:, 0], 1)
    np.add.at(edges, spans[:, 1], -1)
    inside: BoolArray = np.cumsum(edges)[:length] > 0
    return inside


def _mixture(tokens: NDArray[np.int64], settings: Masking, rng: np.random.Generator) -> NDArray[np.int64]:
    """Replace 80% of the tokens by [MASK] and 10% by random ones."""
    draws = rng.random(len(tokens))
    ordinary = np.flatnonzero(~settings.special)
    random = ordinary[rng.integers(len(ordinary), size=len(tokens))]
    return np.where(draws < 0.8, settings.mask_id, np.where(draws < 0.9, random, tokens))


_NO_MENTIONS: IntArray = np.zeros((0, 3), dtype=np.int32)
