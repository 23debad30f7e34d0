"""Models of two tokenizers, two at a time. In: groups of the same items under different tokenizers. Out: a VocabularyPair for
every two of them, about the checkpoint that leads in each.

Ranks of two vocabularies do not compare: each model competes with the nouns that its own vocabulary has. A pair is compared on
items that both count, ranked among the nouns that both have as one entry. That rank is exact: scores keep the nouns that beat
the answer, best first, at most MOST_AHEAD.

    nouns ahead of the answer           of these, both have    rank in the pair
    all kept                            n                      1 + n
    more than are kept                  FIRST or more          above FIRST: wrong at 1 and at 5
    more than are kept                  fewer                  undetermined: the item is left out and counted

No third model's items take part. What a pair says, it says of frequent nouns: those are in both vocabularies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from coref_automl.base.errors import ComparisonError, CorefError
from coref_automl.base.records import Half
from coref_automl.comparison.claims import VocabularyPair
from coref_automl.comparison.scores import Entry, Group, Ints
from coref_automl.comparison.study import of_checkpoints
from coref_automl.comparison.study_data import choose
from coref_automl.evaluation.columns import holds_text, read_columns
from coref_automl.evaluation.evalset import EvalSet, find_set
from coref_automl.evaluation.metrics import leading, tasks_of
from coref_automl.models.load import load_tokenizer
from coref_automl.models.vocabulary import entry_words

FEWEST = 300
"""With fewer items that both count, nothing is said."""
FIRST = 5
"""Ranks are needed up to here."""
_RANKED_AMONG_NOUNS = {"real", "new", "real-far"}


class RanksAhead(NamedTuple):
    """One model on the items of a pair: its ranks among its own nouns, and the nouns that beat the answer."""

    ranks: Ints
    ahead: Sequence[Sequence[str]]


def vocabulary_pairs(group: Group, *, seed: int) -> tuple[VocabularyPair, ...]:
    """The pairs of a group and those of the same items under other tokenizers; empty if there are none."""
    if not group.others:
        return ()
    leaders = [(of_tokenizer, _leader(of_tokenizer, seed)) for of_tokenizer in (group, *group.others)]
    return tuple(compare_two(*one, *other, seed=seed) for one, other in combinations(leaders, 2))


def _leader(group: Group, seed: int) -> Entry:
    """The checkpoint that leads under its tokenizer on the documents that choose."""
    return choose(group, leading(group.metrics()), seed=seed).chosen if len(group.entries) > 1 else group.entries[0]


def compare_two(group: Group, a: Entry, other: Group, b: Entry, *, seed: int) -> VocabularyPair:
    """Compare an entry of a group with one of another; where either was chosen among several, on `confirm`."""
    empty = VocabularyPair(a.name, b.name)
    if not (holds_text(a.folder) and holds_text(b.folder)):
        return replace(empty, why="no words")
    try:
        shared = nouns_of(a) & nouns_of(b)
    except CorefError as error:
        return replace(empty, why="no tokenizer", error=str(error))
    ours, theirs = (_ranks_ahead(entry, group) for entry in (a, b))
    first, second, undetermined = shared_ranks(ours, theirs, shared)
    pair = replace(group, entries=(replace(a, ranks=first), replace(b, ranks=second)), left_out=(), others=())
    metrics = [name for name in pair.metrics() if tasks_of(name) <= _RANKED_AMONG_NOUNS and name != "score"]
    half: Half | None = None if len(group.entries) == len(other.entries) == 1 else "confirm"
    items = pair.columns(leading(metrics), half=half).items if metrics else 0
    measured = replace(empty, items=items, undetermined=undetermined, nouns=len(shared))
    if items < FEWEST:
        return replace(measured, why="few items")
    one, two = pair.entries
    claims = [of_checkpoints(pair, one, two, metric, half, seed=seed) for metric in metrics]
    return replace(measured, claims=tuple(claims))


def nouns_of(entry: Entry) -> frozenset[str]:
    """The nouns that are one entry of a model's vocabulary."""
    evaluation = entry.evaluation
    folder = find_set(evaluation.evalset_path, evaluation.fingerprints.get("items", ""))
    if folder is None:
        raise ComparisonError(f"The evaluation set {evaluation.evalset} is gone; evaluate {evaluation.path} again.")
    tokenizer = load_tokenizer(evaluation.path)
    words = entry_words(tokenizer)
    return frozenset(words[number] or "" for number in np.flatnonzero(EvalSet.open(folder).noun_table(tokenizer)))


def _ranks_ahead(entry: Entry, group: Group) -> RanksAhead:
    """The scores of an entry in the order of a group's items."""
    columns = read_columns(entry.folder, ("rank", "ahead"))
    row = {item: number for number, item in enumerate(columns["item"])}
    ranks = np.array([columns["rank"][row[item]] if item in row else 0 for item in group.items.index], np.int32)
    return RanksAhead(ranks, [columns["ahead"][row[item]] if item in row else () for item in group.items.index])


def shared_ranks(ours: RanksAhead, theirs: RanksAhead, shared: frozenset[str]) -> tuple[Ints, Ints, int]:
    """The ranks of both among the shared nouns, by the table above, and the number of items that are undetermined. Items that
    one of them does not count, or that are undetermined for one, have rank 0 for both."""
    counted = (ours.ranks > 0) & (theirs.ranks > 0)
    ranks = np.zeros((2, len(counted)), np.int32)
    for side, (own, ahead) in enumerate((ours, theirs)):
        for item in np.flatnonzero(counted).tolist():
            common = sum(word in shared for word in ahead[item])
            is_complete = len(ahead[item]) >= own[item] - 1
            ranks[side, item] = common + 1 if is_complete or common >= FIRST else 0
    determined = (ranks > 0).all(axis=0)
    ranks[:, ~determined] = 0
    return ranks[0], ranks[1], int((counted & ~determined).sum())
