"""Noun chains. In: a text and its tags. Out: mentions as character spans, and the chains of mentions that share a form.

A mention is a noun (NNG, NNP) of two or more Hangul syllables; nouns written together without a blank are one mention. Training
and evaluation share these mentions, so that training practises what evaluation measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from coref_automl.base.korean import KINDS, PRONOUN, Tags, is_hangul
from coref_automl.base.records import grouped

NounTag = Literal["NNG", "NNP"]
_NAME = KINDS.index("NNP")


@dataclass(frozen=True, slots=True)
class NounMention:
    """`text[start:end] == form`. A compound is NNP if any part of it is."""

    start: int
    end: int
    form: str
    tag: NounTag

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


def mentions(text: str, tags: Tags, *, only_names: bool = False) -> list[NounMention]:
    """The mentions of a text, in order; they never overlap."""
    nouns = []
    for start, end, is_name in _compounds(tags):
        form = text[start:end]
        if end - start < 2 or not is_hangul(form) or (only_names and not is_name):
            continue
        nouns.append(NounMention(start, end, form, "NNP" if is_name else "NNG"))
    return nouns


def chains(mentions: Sequence[NounMention], *, cap: int | None = 8) -> list[list[NounMention]]:
    """Chains of two or more mentions of one form, in text order, ordered by their first mentions.

    A longer chain keeps `cap` mentions, evenly spaced from its first to its last, so that a few words do not dominate a document
    and a long document does not lose its end.
    """
    return [_spread(chain, cap) for chain in grouped(mentions, attrgetter("form")).values() if len(chain) >= 2]


def _compounds(tags: Tags) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, is a name) of maximal runs of adjacent nouns."""
    nouns = tags.kinds != PRONOUN
    run: tuple[int, int, bool] | None = None
    for (start, end), kind in zip(tags.spans[nouns].tolist(), tags.kinds[nouns].tolist(), strict=True):
        if run is not None and start == run[1]:
            run = (run[0], end, run[2] or kind == _NAME)
        elif run is None or start > run[1]:
            if run is not None:
                yield run
            run = (start, end, kind == _NAME)
    if run is not None:
        yield run


def _spread(chain: list[NounMention], cap: int | None) -> list[NounMention]:
    if cap is None or len(chain) <= cap:
        return chain
    if cap < 2:
        raise ValueError("a chain needs a cap of two or more")
    return [chain[round(number * (len(chain) - 1) / (cap - 1))] for number in range(cap)]
