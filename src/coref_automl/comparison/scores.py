"""Evaluations side by side. In: paths. Out: groups of evaluations of the same items, their ranks as arrays over those items.

Scores are read as arrays, not as records: 500 checkpoints of 4,000 items are two million rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import ComparisonError, InputError
from coref_automl.evaluation.metrics import METRICS, Metric
from coref_automl.evaluation.stored import ITEMS, StoredEvaluation, find_evaluations, open_evaluation, target_of
from coref_automl.records import Evaluation, Half, half_of
from coref_automl.statistics import Part
from coref_automl.store import read_jsonl

Ints = NDArray[np.int32]
NOT_RUN = -1
_STEP = re.compile(r"checkpoint-(\d+)")
_RANKS = ("strict_rank", "lenient_rank", "word_rank", "out_of_reach")
_ranks_of = itemgetter(*_RANKS)
_FACTS = ("task", "cluster", "source", "tag", "answer", "distance")


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a group, a row each; `index` finds the row of an id."""

    index: dict[str, int]
    facts: dict[str, NDArray[Any]]
    halves: NDArray[Any]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One evaluation. `ranks[rule]` is aligned with the group's items; NOT_RUN where the item or the rule was not run."""

    name: str
    evaluation: Evaluation
    folder: Path
    ranks: dict[str, Ints]
    out_of_reach: NDArray[np.bool_]

    @property
    def step(self) -> int | None:
        if self.evaluation.provenance:
            return self.evaluation.provenance.step
        found = _STEP.search(Path(self.evaluation.checkpoint).name)
        return int(found.group(1)) if found else None

    @property
    def trained(self) -> bool:
        """A checkpoint of a run; what is not is a base model: shown, never recommended."""
        return bool(self.step) if self.evaluation.provenance else self.step is not None

    @property
    def tokens(self) -> int:
        """Training behind it; steps where the run left no record of its tokens."""
        return self.evaluation.provenance.tokens if self.evaluation.provenance else self.step or 0

    @property
    def run(self) -> str:
        if self.evaluation.provenance:
            return Path(self.evaluation.provenance.run).name
        return Path(self.evaluation.checkpoint).parent.name if self.trained else self.evaluation.checkpoint


@dataclass(frozen=True, slots=True)
class Columns:
    """Hits of some entries on the items that all of them have: a part a task, a column an entry, weights in the values."""

    parts: list[Part]
    items: int
    documents: int
    dropped: int

    def differences(self, reference: int) -> list[Part]:
        """The same with one column taken from all."""
        return [Part(np.asarray(p.values) - np.asarray(p.values)[:, [reference]], p.clusters) for p in self.parts]

    def pair(self, a: int, b: int) -> list[Part]:
        return [Part(np.asarray(p.values)[:, a] - np.asarray(p.values)[:, b], p.clusters) for p in self.parts]


@dataclass(frozen=True, slots=True)
class Group:
    """Evaluations of one set of items by one version of the scorer: these, and only these, may be compared."""

    evalset: str
    fingerprint: str
    scorer: str
    items: Items
    entries: tuple[Entry, ...]

    @property
    def tokenizers(self) -> int:
        return len({entry.evaluation.fingerprints.get("tokenizer", "") for entry in self.entries})

    def has(self, metric: str) -> bool:
        """Was it run, part for part, by every entry?"""
        for part in _plain(metric):
            rows = self._of(part)
            if not rows.any() or any(entry.ranks[part.rule][rows].max() == NOT_RUN for entry in self.entries):
                return False
        return True

    def metrics(self) -> list[str]:
        return [name for name in METRICS if self.has(name)]

    def columns(
        self,
        metric: str,
        *,
        half: Half | None = None,
        entries: Sequence[Entry] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> Columns:
        """Hits for a metric, on one half of the items or all, or only `among` some rows."""
        chosen = self.entries if entries is None else entries
        by_task: dict[str, tuple[NDArray[np.float64], NDArray[Any]]] = {}
        dropped = 0
        for name, weight in METRICS[metric].parts or ((metric, 1.0),):
            part = METRICS[name]
            rows = self._of(part) & (True if half is None else self.items.halves == half) & (True if among is None else among)
            ranks = np.stack([entry.ranks[part.rule][rows] for entry in chosen], axis=1)
            whole, empty = (ranks != NOT_RUN).all(axis=1), (ranks == NOT_RUN).all(axis=1)
            dropped += int((~whole & ~empty).sum())
            values = weight * ((ranks > 0) & (ranks <= part.at))[whole]
            before = by_task.get(str(part.task))
            by_task[str(part.task)] = (values + before[0] if before else values, self.items.facts["cluster"][rows][whole])
        parts = [Part(values, clusters) for values, clusters in by_task.values()]
        items = sum(len(values) for values, _ in by_task.values())
        documents = sum(len(np.unique(clusters)) for _, clusters in by_task.values())
        return Columns(parts, items, documents, dropped)

    def _of(self, part: Metric) -> NDArray[np.bool_]:
        return np.asarray(self.items.facts["task"] == part.task)


def flat_paths(paths: Iterable[Any]) -> list[str]:
    """Paths, and lists of paths, in one list."""
    out: list[str] = []
    for path in paths:
        out += [str(path)] if isinstance(path, str | Path) else flat_paths(path)
    return out


def read_groups(paths: Sequence[str], *, common: bool = False) -> list[Group]:
    """Finished evaluations under the paths, grouped by items and scorer, the largest first; `common` groups by scorer alone."""
    stored = find_evaluations(paths)
    if not stored:
        raise ComparisonError(f"No finished evaluation under {', '.join(paths)}; run: coref-automl evaluate {' '.join(paths)}")
    keys: dict[tuple[str, str], list[StoredEvaluation]] = {}
    for one in [*stored, *_bases(stored)]:
        items = "" if common else one.evaluation.fingerprints.get("items", "")
        keys.setdefault((items, one.evaluation.scorer), []).append(one)
    groups = [_group(found, fingerprint, scorer) for (fingerprint, scorer), found in keys.items()]
    return sorted(groups, key=lambda group: -len(group.entries))


def _bases(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """The un-adapted models behind the checkpoints, where they were evaluated on the same items at the same length."""
    held = {one.folder.resolve() for one in stored}
    found: dict[Path, StoredEvaluation] = {}
    for one in stored:
        evaluation, made = one.evaluation, one.evaluation.provenance
        target = target_of(made.base) if made and made.base else None
        if target is None or target.in_run:
            continue
        folder = target.folder(evaluation.evalset, evaluation.seq_len).resolve()
        base = open_evaluation(folder) if folder not in held | set(found) else None
        if base and base.evaluation.scorer == evaluation.scorer:
            found[folder] = base
    return list(found.values())


def _group(stored: Sequence[StoredEvaluation], fingerprint: str, scorer: str) -> Group:
    index: dict[str, int] = {}
    facts: list[tuple[Any, ...]] = []
    tables = [_read(one.folder / ITEMS, index, facts) for one in stored]
    columns = {name: np.array([row[k] for row in facts]) for k, name in enumerate(_FACTS)}
    halves = np.array([half_of(str(cluster)) for cluster in columns["cluster"]])
    entries = []
    for one, (rows, read) in zip(stored, tables, strict=True):
        ranks = np.full((len(index), len(_RANKS)), NOT_RUN, np.int32)
        ranks[rows] = read
        by_rule = {rule: ranks[:, k] for k, rule in enumerate(("strict", "lenient", "word"))}
        entries.append(Entry(one.evaluation.checkpoint, one.evaluation, one.folder, by_rule, ranks[:, 3] == 1))
    sets = list(dict.fromkeys(one.evaluation.evalset for one in stored))
    return Group(
        " + ".join(sets),
        fingerprint,
        scorer,
        Items(index, columns, halves),
        tuple(sorted(_named(entries), key=lambda entry: entry.trained)),
    )


def _read(path: Path, index: dict[str, int], facts: list[tuple[Any, ...]]) -> tuple[Ints, Ints]:
    """Row numbers and ranks of a file; `index` and `facts` grow by the items not seen before."""
    try:
        found = _rows(path)
        at = [index.setdefault(row["item"], len(index)) for row in found]
        for number, row in zip(at, found, strict=True):
            if number == len(facts):
                facts.append(tuple(row[name] for name in _FACTS))
        ranks = np.array([_ranks_of(row) for row in found], np.float64)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} lacks {error} in a row; it was written by another version: evaluate again.") from error
    if not found:
        raise InputError(f"{path} holds no whole row; evaluate again.")
    return np.array(at, np.int32), np.where(np.isnan(ranks), NOT_RUN, ranks).astype(np.int32)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, parsed at once: three times as fast as line by line, which is left to say what is wrong with a line."""
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1].rstrip("\n")
    try:
        return list(json.loads("[" + whole.replace("\n", ",") + "]"))
    except json.JSONDecodeError:
        return list(read_jsonl(path))


def _named(entries: Sequence[Entry]) -> list[Entry]:
    """Names that tell the entries apart: no run where there is one, the length where there are several."""
    one_run = len({entry.run for entry in entries if entry.trained}) == 1
    names = [
        Path(entry.evaluation.checkpoint).name if one_run and entry.trained else entry.evaluation.checkpoint for entry in entries
    ]
    if len(set(names)) < len(names):
        names = [f"{name}@{entry.evaluation.seq_len}" for name, entry in zip(names, entries, strict=True)]
    seen: dict[str, int] = {}
    out = []
    for name, entry in zip(names, entries, strict=True):
        seen[name] = seen.get(name, 0) + 1
        out.append(replace(entry, name=name if seen[name] == 1 else f"{name} ({seen[name]})"))
    return out


def _plain(metric: str) -> list[Metric]:
    return [METRICS[name] for name, _ in METRICS[metric].parts or ((metric, 1.0),)]
