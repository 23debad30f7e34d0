"""Holding documents out. In: the ids of a source. Out: those that only evaluation may see, the same for ever and everywhere."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from coref_automl.records import Document

SHARE = 0.02
LEAST = 300


def rank(identity: str) -> int:
    """The rank of an id in the order in which documents are held out: a 63-bit number."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def qualified_id(document: Document) -> str:
    """The id of a document where another source has the same: two files that count from 1 hold the same ids out."""
    return f"{document.source}/{document.id}"


def own_id(document: Document) -> str:
    """The id that a document of an evaluation set had in its source."""
    return document.id.removeprefix(f"{document.source}/")


@dataclass(slots=True)
class HoldOut:
    """Decides for one source. Add every id as it is read, filtered or not: eight bytes each, so large sources fit in memory."""

    share: float = SHARE
    least: int = LEAST
    ranks: array[int] = field(default_factory=lambda: array("q"))

    def add(self, identity: str) -> int:
        place = rank(identity)
        self.ranks.append(place)
        return place

    def limit(self) -> int:
        """A document is held out when its rank is at or below this; -1 when none is."""
        total = len(self.ranks)
        count = min(max(round(self.share * total), self.least), total // 2) if self.share > 0 else 0
        if not count:
            return -1
        return int(np.partition(np.frombuffer(self.ranks, np.int64), count - 1)[count - 1])


def held_out(ids: Sequence[str], *, share: float = SHARE, least: int = LEAST) -> frozenset[str]:
    """The ids of one source that are held out: `share` of them or `least`, whichever is more, never over half.

    The lowest ranks are taken, so the same ids give the same answer in whatever order they come; share 0 holds nothing out.
    """
    decision = HoldOut(share, least)
    places = [decision.add(identity) for identity in ids]
    limit = decision.limit()
    return frozenset(identity for identity, place in zip(ids, places, strict=True) if place <= limit)


def limits(ids_by_source: Iterable[tuple[str, str]], *, share: float = SHARE, least: int = LEAST) -> dict[str, int]:
    """From (source, id) pairs: every source's limit, for callers that see several sources in one stream."""
    decisions: dict[str, HoldOut] = {}
    for source, identity in ids_by_source:
        decisions.setdefault(source, HoldOut(share, least)).add(identity)
    return {source: decision.limit() for source, decision in decisions.items()}
