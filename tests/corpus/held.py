"""The ids of one source that are held out, by the product's own limit and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coref_automl.corpus.clean import limits, rank


def held_out(ids: Sequence[str], **options: Any) -> frozenset[str]:
    limit = limits((("source", identity) for identity in ids), **options).get("source", -1)
    return frozenset(identity for identity in ids if rank(identity) <= limit)
