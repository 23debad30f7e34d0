"""Noun chains. In: a text and its tags. Out: mentions as character spans, and the chains of mentions that share a form.

A mention is a noun (NNG, NNP) of two or more Hangul syllables; nouns written together without a blank are one mention. Training
and evaluation both take their mentions from here, so that what is practised is what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from coref_automl.korean import CLAUSE, KIND, KINDS, PRONOUN, Tags, is_hangul

NounTag = Literal["NNG", "NNP"]
_NAME = KINDS.index("NNP")


@dataclass(frozen=True, slots=True)
class NounMention:
    """`text[start:end] == form`. The tag of a compound is NNP if any part of it is. `around` flags what stands beside it."""

    start: int
    end: int
    form: str
    tag: NounTag
    around: int = 0

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


def mentions(text: str, tags: Tags, *, only_names: bool = False) -> list[NounMention]:
    """The mentions of a text in order. They never overlap."""
    found = []
    for start, end, is_name, around in _joined(tags):
        form = text[start:end]
        if end - start < 2 or not is_hangul(form) or (only_names and not is_name):
            continue
        found.append(NounMention(start, end, form, "NNP" if is_name else "NNG", around))
    return found


def chains(mentions: Sequence[NounMention], *, cap: int | None = 8) -> list[list[NounMention]]:
    """Mentions of one form, two or more of them, in text order; the chains in the order of their first mentions.

    A form that occurs more than `cap` times keeps that many mentions, spread evenly from its first to its last, so that a few
    words do not dominate a document and a long document does not lose its end.
    """
    return [_spread(chain, cap) for chain in by_form(mentions).values() if len(chain) >= 2]


def by_form(mentions: Sequence[NounMention]) -> dict[str, list[NounMention]]:
    found: dict[str, list[NounMention]] = {}
    for mention in mentions:
        found.setdefault(mention.form, []).append(mention)
    return found


def _joined(tags: Tags) -> Iterator[tuple[int, int, bool, int]]:
    """Maximal runs of nouns whose ends meet, with the flags of what surrounds them."""
    nouns = tags.kinds != PRONOUN
    run: tuple[int, int, bool, int] | None = None
    for (start, end), held in zip(tags.spans[nouns].tolist(), tags.surroundings[nouns].tolist(), strict=True):
        is_name, around = held & KIND == _NAME, held & ~KIND
        if run is not None and start == run[1]:
            run = (run[0], end, run[2] or is_name, run[3] & CLAUSE | around)
        elif run is None or start > run[1]:
            if run is not None:
                yield run
            run = (start, end, is_name, around)
    if run is not None:
        yield run


def _spread(chain: list[NounMention], cap: int | None) -> list[NounMention]:
    if cap is None or len(chain) <= cap:
        return chain
    if cap < 2:
        raise ValueError("a chain needs a cap of two or more")
    return [chain[round(step * (len(chain) - 1) / (cap - 1))] for step in range(cap)]
