"""Relation runs, to compare. In: folders of `re train`, or an archive. Out: results, and hits per row.

Three facts per row determine micro-F1: whether it has a relation, whether one was predicted, whether it was the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.arrays import read_arrays
from coref_automl.comparison.copies import copies_of
from coref_automl.decoder import decode_stored, read_stored_rows
from coref_automl.errors import CorefError, InputError
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.records import Estimate
from coref_automl.statistics.intervals import DRAWS, from_draws
from coref_automl.statistics.methods import MethodVerdict, method_verdict
from coref_automl.statistics.resampling import resampled_f1
from coref_automl.store import check_name, files_under, natural_order, read_json, short_names, write_json, written_whole

RESULTS, ROWS = "re_results.json", "rows.npz"
FOLDER = "relation"
_NO_RELATION = "no_relation"
_CONDITIONS = ("data", "train", "settings")
"""Fingerprints that two runs must share to be compared."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of the scored split: `gold` [n]; `right` and `given` (predicted) [n, seeds]; the number of each row's sentence."""

    gold: Bools
    right: Bools
    given: Bools
    sentences: NDArray[Any]

    @property
    def seeds(self) -> int:
        return int(self.right.shape[1])

    def f1(self) -> NDArray[np.float64]:
        """Micro-F1 of each seed, a fraction."""
        both = self.given.sum(0) + self.gold.sum()
        return np.asarray(2 * self.right.sum(0) / np.maximum(both, 1), np.float64)

    def of(self, columns: Sequence[int]) -> Rows:
        """The same rows under some of the seeds."""
        return Rows(self.gold, self.right[:, columns], self.given[:, columns], self.sentences)


class _Seed(TypedDict, total=False):
    seed: int


class _Stored(TypedDict, total=False):
    """What is read of re_results.json; runs of earlier versions name less."""

    micro_f1: float
    model: str
    split: str
    n: int
    spread: dict[str, float] | None
    estimates: dict[str, Estimate]
    seeds: list[_Seed] | int
    fingerprints: dict[str, str]


class _Line(TypedDict):
    guid: str
    gold: str
    pred: str


class _Prediction(_Line, total=False):
    """One line of a seed's predictions."""

    sentence: str


@dataclass(frozen=True, slots=True, eq=False)
class RelationRun:
    """A run's summary, its rows if the predictions were kept, the folder it was read from, and those that repeat it."""

    name: str
    result: dict[str, Any]
    rows: Rows | None
    folder: Path | None = None
    copies: tuple[Path, ...] = ()

    @property
    def model(self) -> str:
        return str(self.result.get("model", ""))

    @property
    def weights(self) -> str:
        """The fingerprint of the weights it started from; empty if not recorded."""
        return str((self.result.get("fingerprints") or {}).get("weights", ""))

    @property
    def seeds(self) -> list[int]:
        """The seed of each column of its rows; column numbers if not recorded."""
        count = self.rows.seeds if self.rows is not None else 0
        told = self.result.get("seeds")
        named = [int(one["seed"]) for one in told if "seed" in one] if isinstance(told, list) else []
        return named if len(named) == count else list(range(count))


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two sides on the same rows under the same relation seeds, a column each."""

    a: Rows
    b: Rows
    seeds: tuple[int, ...]

    def of(self, seeds: Sequence[int]) -> Pair:
        columns = [self.seeds.index(seed) for seed in seeds]
        return Pair(self.a.of(columns), self.b.of(columns), tuple(seeds))

    def differences(self) -> NDArray[np.float64]:
        """In micro-F1, seed by seed."""
        return np.asarray(self.a.f1() - self.b.f1())


@dataclass(frozen=True, slots=True, eq=False)
class RelationPair:
    """Two sides over their pairs: the number of pairs, micro-F1 of both, and the verdict. Pairs that share one relation seed tell
    no more than one of them: `seeds` is then 1."""

    seeds: int
    values: tuple[float, float]
    answer: MethodVerdict


def find_relation(paths: Sequence[str]) -> list[RelationRun]:
    """Readable runs with a result under the paths; `look_for_relation` names the others."""
    return look_for_relation(paths)[0]


def look_for_relation(paths: Sequence[str]) -> tuple[list[RelationRun], list[str]]:
    """Runs with a result under the paths, and a sentence for each whose summary or rows cannot be read."""
    found: dict[Path, RelationRun] = {}
    damaged: dict[Path, str] = {}
    unread: list[InputError] = []
    for path in paths:
        for held in files_under(Path(path), RESULTS, unread):
            place = held.parent.resolve()
            try:
                check_name(place)
                result = read_json(held)
                if place in found or not isinstance(result, dict) or "micro_f1" not in result:
                    continue
                decode_stored(_Stored, result, str(held), remedy="run re evaluate again")
                found[place] = RelationRun(held.parent.name, result, None, place)
                found[place] = replace(found[place], rows=_rows(held.parent, str(result.get("split", ""))))
            except CorefError as error:
                damaged.setdefault(place, str(error))
    copies = copies_of(found)
    names = short_names(copies)
    told = [replace(found[folder], name=names[folder], copies=copies[folder]) for folder in copies]
    return told, [
        *damaged.values(),
        *map(str, unread),
    ]


def place_of(path: str) -> str:
    """A path without this machine's folders: of an absolute one the last part, with the run before a checkpoint."""
    found = PurePath(path)
    if not found.is_absolute():
        return path
    return f"runs/{found.parent.name}/{found.name}" if CHECKPOINT.fullmatch(found.name) else found.name


def archive_relation(runs: Sequence[RelationRun], out: Path) -> None:
    """Keep the results and the three facts per row; no sentence, entity, label or local path."""
    for run in runs:
        folder = out / FOLDER / run.name
        told = {**run.result, "run": run.name, "model": place_of(str(run.result.get("model", "")))}
        if run.rows is not None:
            with written_whole(folder / ROWS, "wb") as handle:
                rows = run.rows
                np.savez_compressed(handle, gold=rows.gold, right=rows.right, given=rows.given, sentences=rows.sentences)
        write_json(folder / RESULTS, told)


def paired(a: RelationRun, b: RelationRun, *, seed: int) -> RelationPair | None:
    """Is `a` better than `b` in micro-F1, over shared relation seeds and sentences? None if no seed is shared."""
    pair = shared(a, b)
    return None if pair is None else over_pairs([pair.of([number]) for number in pair.seeds], seed=seed)


def alike(runs: Sequence[RelationRun]) -> list[list[RelationRun]]:
    """Runs that can be compared with each other: same split, data and settings."""
    found: dict[tuple[str, ...], list[RelationRun]] = {}
    for run in runs:
        if run.rows is not None:
            prints = run.result.get("fingerprints") or {}
            key = (str(run.result.get("split")), *(str(prints.get(name)) for name in _CONDITIONS))
            found.setdefault(key, []).append(run)
    return list(found.values())


def shared(a: RelationRun, b: RelationRun) -> Pair | None:
    """Both sides under their shared relation seeds; None unless rows and settings match."""
    seeds = [number for number in a.seeds if number in b.seeds]
    if a.rows is None or b.rows is None or not seeds or not same_rows(a, b):
        return None
    ours, theirs = (rows.of([run.seeds.index(number) for number in seeds]) for run, rows in ((a, a.rows), (b, b.rows)))
    return Pair(ours, theirs, tuple(seeds))


def same_rows(a: RelationRun, b: RelationRun) -> bool:
    """Were both scored on the same rows, after the same training data and settings?"""
    if a.rows is None or b.rows is None or a.result.get("split") != b.result.get("split"):
        return False
    for name in _CONDITIONS:
        both = [(run.result.get("fingerprints") or {}).get(name) for run in (a, b)]
        if None not in both and both[0] != both[1]:
            return False
    return np.array_equal(a.rows.gold, b.rows.gold)


def over_pairs(pairs: Sequence[Pair], *, seed: int) -> RelationPair:
    """Are the first sides better than the second ones, over pairs, over relation seeds and over sentences?

    Where pairs share relation seeds, the luck of these is in every pair: they are crossed with the pairs, if all have them.
    """
    crossed = len({number for pair in pairs for number in pair.seeds}) < sum(len(pair.seeds) for pair in pairs)
    if crossed and (common := [number for number in pairs[0].seeds if all(number in pair.seeds for pair in pairs)]):
        pairs = [pair.of(common) for pair in pairs]
        differences = np.stack([pair.differences() for pair in pairs])
    else:
        differences = np.array([pair.differences().mean() for pair in pairs])
        differences = differences[:, None] if crossed else differences  # some share a seed and none is everyone's: no telling
    marks = min((rows.sentences for pair in pairs for rows in (pair.a, pair.b)), key=lambda held: len(np.unique(held)))
    over = from_draws(float(differences.mean()), _draws(pairs, marks, seed), marks)
    answer = method_verdict(differences, over.interval, over.error, over.held)
    ours, theirs = (float(np.mean([rows.f1().mean() for rows in side])) for side in ([p.a for p in pairs], [p.b for p in pairs]))
    return RelationPair(1 if differences.shape[1:] == (1,) else len(pairs), (ours, theirs), answer)


def _draws(pairs: Sequence[Pair], sentences: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """Bootstrap draws of the mean micro-F1 difference: each draw resamples the same sentences for all pairs."""
    sides = [rows for pair in pairs for rows in (pair.a, pair.b)]
    right, given = (np.hstack([getattr(rows, name) for rows in sides]) for name in ("right", "given"))
    gold = np.repeat(sides[0].gold[:, None], right.shape[1], axis=1)
    share = np.concatenate([np.full(rows.seeds, (-1) ** side / rows.seeds / len(pairs)) for side, rows in enumerate(sides)])
    return np.asarray(resampled_f1(right, given, gold, sentences, seed=seed, draws=DRAWS) @ share)


def _rows(folder: Path, split: str) -> Rows | None:
    if (folder / ROWS).is_file():
        try:
            held = read_arrays(folder / ROWS)
            return Rows(held["gold"], held["right"], held["given"], held["sentences"])
        except (InputError, KeyError) as error:
            raise InputError(f"{folder / ROWS} is damaged ({error}); archive the runs again.") from error
    files = sorted(folder.glob(f"seed-*/predictions/{split}.jsonl"), key=natural_order)
    if not files:
        return None
    seeds = [list(read_stored_rows(path, _Prediction, remedy="run re evaluate again")) for path in files]
    if not seeds[0]:
        raise InputError(f"{folder}: its predictions on {split} have no rows, or rows of another kind; run re evaluate again.")
    ids = [line["guid"] for line in seeds[0]]
    if any([line["guid"] for line in one] != ids for one in seeds):
        raise InputError(f"{folder}: its seeds have predictions of different rows of {split}; run re evaluate again.")
    gold = np.array([line["gold"] != _NO_RELATION for line in seeds[0]])
    given = np.array([[line["pred"] != _NO_RELATION for line in one] for one in seeds]).T
    right = np.array([[line["pred"] == line["gold"] for line in one] for one in seeds]).T & gold[:, None]
    marks = [line.get("sentence", line["guid"]) for line in seeds[0]]
    return Rows(gold, right, given, np.unique(np.array(marks), return_inverse=True)[1].astype(np.int32))
