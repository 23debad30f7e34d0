"""The simplest answer: expressions of one string name one thing. In: a document. Out: chains, to stand beside every score.

With gold mentions, those of one string are a chain. With found ones, names and nouns that occur at least twice are, by the
tagger; pronouns are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec

from coref_automl.coreference.conventions import Convention, moved_chains
from coref_automl.coreference.data import CorefDocument
from coref_automl.korean import KINDS, PRONOUN, Tagger

Span = tuple[int, int]
Chains = tuple[tuple[Span, ...], ...]


def same_string(text: str, spans: Iterable[Span]) -> Chains:
    found: dict[str, list[Span]] = {}
    for start, end in spans:
        found.setdefault(" ".join(text[start:end].split()), []).append((start, end))
    return tuple(map(tuple, found.values()))


def same_nouns(document: CorefDocument, convention: Convention) -> Chains | None:
    """Chains of nouns and names that occur again, in the convention of the document; None where no tagger is installed."""
    if (tags := tagged(document.text)) is None:
        return None
    nouns: list[Span] = []
    for start, end, kind in tags:
        if kind == KINDS[PRONOUN]:
            continue
        if nouns and nouns[-1][1] == start:  # a compound is one name
            start = nouns.pop()[0]
        nouns.append((start, end))
    chains = same_string(document.text, (span for span in nouns if span[1] - span[0] > 1))
    repeated = tuple(chain for chain in chains if len(chain) > 1)
    return tuple(moved_chains(document.text, repeated, Convention(), convention))


@lru_cache(maxsize=1024)
def tagged(text: str) -> tuple[tuple[int, int, str], ...] | None:
    """(start, end, tag) of a text's nouns and pronouns; None where no tagger is installed."""
    if find_spec("kiwipiepy") is None:
        return None
    found = next(iter(Tagger().tag([text])))
    return tuple((int(a), int(b), KINDS[int(k)]) for (a, b), k in zip(found.spans, found.kinds, strict=True))
