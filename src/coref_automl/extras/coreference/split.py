"""Which documents train, validate and test. In: documents and a split's name or file. Out: deterministic names by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CoreferenceDataError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.records import Record
from coref_automl.base.store import write_json
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.extras.coreference.results import RETRAIN

SIDES = ("train", "dev", "test")
FIXED = "fixed"
_BUNDLED = ("koconovel", "everyday")
"""Splits in the package, which FIXED keeps."""
_TEST, _DEV = 0.15, 0.10
_LEARNED = "learned_from.json"
"""Fingerprints of the texts a model was trained or selected on; beside its weights, so that they move with them."""
_SALT = "coreference sides 407"
"""Picked among 3,000 for even shares of every genre, without looking at any score."""


@dataclass(frozen=True, slots=True)
class Split(Record):
    """Names of documents by side; the sides are disjoint."""

    train: tuple[str, ...]
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    def side(self, name: str, documents: Sequence[CorefDocument]) -> tuple[CorefDocument, ...]:
        wanted = set(getattr(self, name))
        return tuple(document for document in documents if document.id in wanted)


def named_split(name: str) -> Split:
    """Read a split that ships with the package (koconovel, everyday), or a JSON file with train, dev and test."""
    bundled = Path(str(files("coref_automl") / "assets" / "coreference" / f"{name}-split.json"))
    path = bundled if "/" not in name and bundled.is_file() else Path(name)
    if not path.is_file():
        raise CoreferenceDataError(f"Unknown split {name!r}; pass fixed, koconovel, or a JSON file with train, dev and test.")
    split = read_stored(path, Split, error=CoreferenceDataError, remedy="give lists of names for train, dev and test")
    names = [*split.train, *split.dev, *split.test]
    if repeated := sorted({document for document in names if names.count(document) > 1}):
        raise CoreferenceDataError(f"{path} has {repeated[0]!r} on two sides; a document trains, chooses or tests.")
    return split


def sides_of(name: str, documents: Sequence[CorefDocument]) -> Split:
    """Read a named split, or split these documents by the rule FIXED.

    Under the rule a novel of KoCoNovel and an everyday text of ko-coref keep their side, and any other document's side is
    decided by the hash of its origin, else of its id: it never moves when others join, and two parts of one article are on one
    side.
    """
    if name != FIXED:
        return named_split(name)
    kept = {document: side for split in map(named_split, _BUNDLED) for side in SIDES for document in getattr(split, side)}
    by_side = dict[str, list[str]]()
    for document in documents:
        side = kept.get(document.id) or _hashed_side(document.origin or document.id)
        by_side.setdefault(side, []).append(document.id)
    return Split(*(tuple(sorted(by_side.get(side, ()))) for side in SIDES))


def _hashed_side(name: str) -> str:
    share = int(fingerprint(_SALT, name)[:12], 16) / 16**12
    return "test" if share < _TEST else "dev" if share < _TEST + _DEV else "train"


def check_split(split: Split, documents: Sequence[CorefDocument]) -> None:
    """Raise unless every name is a document, every document is named, and there are some to train on and some to score."""
    names, known = {*split.train, *split.dev, *split.test}, {document.id for document in documents}
    if missing := sorted(names - known):
        raise CoreferenceDataError(f"The split names {missing[0]!r}, which is not in the data; pass the split of these data.")
    if unnamed := sorted(known - names):
        raise CoreferenceDataError(f"The split does not name {unnamed[0]!r}; name every document in it.")
    if not split.train or not (split.test or split.dev):
        lost, sides = ("to score", "test or dev") if split.train else ("to train on", "train")
        raise CoreferenceDataError(f"The split leaves no document {lost}; name some under {sides}.")


def by_hash(documents: Sequence[CorefDocument], share: float) -> Split:
    """Hold out a share of the documents, at least one, to select the epoch; which ones depends on their names alone."""
    if len(documents) < 2:
        raise CoreferenceDataError("One document cannot both train and choose the epoch; pass more documents.")
    order = sorted((document.id for document in documents), key=_hash_order)
    count = min(len(order) - 1, max(1, round(share * len(order))))
    return Split(tuple(sorted(order[count:])), tuple(sorted(order[:count])))


def folds(documents: Sequence[CorefDocument], count: int) -> list[Split]:
    """Split for cross-fitting: each document is tested once, by a model that saw neither it, nor a copy, nor another part of its
    origin. Folds are balanced by mentions."""
    order = sorted(documents, key=lambda document: (-len(document.mentions), document.id))
    first = {_text_fingerprint(document): document.origin or document.id for document in reversed(order)}
    source, group_of = {document.id: first[_text_fingerprint(document)] for document in order}, dict[str, int]()
    if not 2 <= count <= (sources := len(set(source.values()))):
        whole = f"{len(order)} documents of {sources} different texts and origins"
        raise CoreferenceDataError(f"{whole} cannot make {count} folds; pass fewer --folds, at least 2, or --split.")
    groups: list[list[str]] = [[] for _ in range(count)]
    for low in range(0, len(order), count):
        for name in sorted((document.id for document in order[low : low + count]), key=_hash_order):
            lightest = min(range(count), key=lambda group: (len(groups[group]), _hash_order(f"{low} {group}")))
            groups[group_of.setdefault(source[name], lightest)].append(name)
    everyone = {document.id for document in documents}
    return [Split(tuple(sorted(everyone - set(group))), (), tuple(sorted(group))) for group in groups]


def documents_fingerprint(documents: Sequence[CorefDocument]) -> str:
    """Fingerprint texts and chains, whatever the entities are called."""
    return fingerprint([[doc.id, doc.text, [list(map(list, chain)) for chain in doc.chains]] for doc in documents])


def learned_from(model: Path) -> list[str]:
    path = model / _LEARNED
    return read_stored(path, list[str], remedy=RETRAIN) if path.is_file() else []


def write_seen(model: Path, documents: Sequence[CorefDocument], start: str = "") -> None:
    """Record what a model was trained or selected on: these documents, and those of the head that it started from."""
    write_json(model / _LEARNED, sorted({*map(_text_fingerprint, documents), *(learned_from(Path(start)) if start else ())}))


def unseen(documents: Sequence[CorefDocument], models: Sequence[Path]) -> tuple[CorefDocument, ...]:
    """Leave out documents that one of the models learned from."""
    seen = set[str]().union(*map(learned_from, models))
    return tuple(document for document in documents if _text_fingerprint(document) not in seen)


def _text_fingerprint(document: CorefDocument) -> str:
    return fingerprint(" ".join(document.text.split()))[:12]


def _hash_order(name: str) -> Any:
    return fingerprint("coreference split", name)
