"""Relation runs as a report reads them. In: folders that `re train` left, or an archive. Out: results, and hits by row.

Of every row three facts suffice for micro-F1: is there a relation, was one given, was it the right one. An archive keeps these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.arrays import read_arrays
from coref_automl.decoder import decode_stored, read_stored_rows
from coref_automl.errors import CorefError, InputError
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.records import Estimate
from coref_automl.statistics.intervals import DRAWS
from coref_automl.statistics.methods import MethodVerdict, method_verdict
from coref_automl.statistics.resampling import resampled_f1
from coref_automl.store import natural_order, read_json, short_names, write_json, written_whole

RESULTS, ROWS = "re_results.json", "rows.npz"
FOLDER = "relation"
_NO_RELATION = "no_relation"
_CONDITIONS = ("data", "train", "settings")
"""Fingerprints that must be the same in two runs to be compared."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of the scored split: `gold` [n]; `right` and `given` [n, seeds]; the sentence of each row, as a number."""

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
    """A run's summary, and its rows where the predictions were kept."""

    name: str
    result: dict[str, Any]
    rows: Rows | None

    @property
    def model(self) -> str:
        return str(self.result.get("model", ""))

    @property
    def weights(self) -> str:
        """The name of the bytes that it began from; empty where its summary does not say."""
        return str((self.result.get("fingerprints") or {}).get("weights", ""))

    @property
    def seeds(self) -> list[int]:
        """The seed of each column of its rows, by its summary; by their order where it does not say."""
        count = self.rows.seeds if self.rows is not None else 0
        told = self.result.get("seeds")
        named = [int(one["seed"]) for one in told if "seed" in one] if isinstance(told, list) else []
        return named if len(named) == count else list(range(count))


Pair = tuple[Rows, Rows]
"""Two sides on the same rows; each is the mean over its columns."""


@dataclass(frozen=True, slots=True, eq=False)
class RelationPair:
    """Two sides over their pairs: how many, both values of micro-F1, and the verdict."""

    seeds: int
    values: tuple[float, float]
    answer: MethodVerdict


def find_relation(paths: Sequence[str]) -> list[RelationRun]:
    """Runs under the paths that left a result; what cannot be read is left out, and `look_for_relation` says what that is."""
    return look_for_relation(paths)[0]


def look_for_relation(paths: Sequence[str]) -> tuple[list[RelationRun], list[str]]:
    """Runs under the paths that left a result, and what is wrong with each that cannot be read, in whole or in its rows."""
    found: dict[Path, RelationRun] = {}
    damaged: dict[Path, str] = {}
    for path in paths:
        folder = Path(path)
        for held in sorted(folder.rglob(RESULTS), key=natural_order) if folder.is_dir() else []:
            place = held.parent.resolve()
            try:
                result = read_json(held)
                if place in found or not isinstance(result, dict) or "micro_f1" not in result:
                    continue
                decode_stored(_Stored, result, str(held), remedy="run re evaluate again")
                found[place] = RelationRun(held.parent.name, result, None)
                found[place] = replace(found[place], rows=_rows(held.parent, str(result.get("split", ""))))
            except CorefError as error:
                damaged.setdefault(place, str(error))
    names = short_names(found)
    return [replace(run, name=names[folder]) for folder, run in found.items()], list(damaged.values())


def place_of(path: str) -> str:
    """A path without this machine's folders: of an absolute one the last part, with the run before a checkpoint."""
    found = PurePath(path)
    if not found.is_absolute():
        return path
    return f"runs/{found.parent.name}/{found.name}" if CHECKPOINT.fullmatch(found.name) else found.name


def archive_relation(runs: Sequence[RelationRun], out: Path) -> None:
    """Keep the results and the three facts of every row; no sentence, entity, label of a row, or path of a machine."""
    for run in runs:
        folder = out / FOLDER / run.name
        told = {**run.result, "run": run.name, "model": place_of(str(run.result.get("model", "")))}
        if run.rows is not None:
            with written_whole(folder / ROWS, "wb") as handle:
                rows = run.rows
                np.savez_compressed(handle, gold=rows.gold, right=rows.right, given=rows.given, sentences=rows.sentences)
        write_json(folder / RESULTS, told)


def paired(a: RelationRun, b: RelationRun, *, seed: int) -> RelationPair | None:
    """Is `a` better than `b` in micro-F1, over the relation seeds that both have and over sentences? None if none is."""
    side = shared(a, b)
    if side is None:
        return None
    return over_pairs([(side[0].of([column]), side[1].of([column])) for column in range(side[0].seeds)], seed=seed)


def alike(runs: Sequence[RelationRun]) -> list[list[RelationRun]]:
    """Runs with their rows, by what must be the same to compare them: the split, the data and the settings."""
    found: dict[tuple[str, ...], list[RelationRun]] = {}
    for run in runs:
        if run.rows is not None:
            prints = run.result.get("fingerprints") or {}
            key = (str(run.result.get("split")), *(str(prints.get(name)) for name in _CONDITIONS))
            found.setdefault(key, []).append(run)
    return list(found.values())


def shared(a: RelationRun, b: RelationRun) -> Pair | None:
    """Both under the relation seeds that both have; None unless rows and settings are the same and a seed is shared."""
    seeds = [number for number in a.seeds if number in b.seeds]
    if a.rows is None or b.rows is None or not seeds or not same_rows(a, b):
        return None
    return a.rows.of([a.seeds.index(number) for number in seeds]), b.rows.of([b.seeds.index(number) for number in seeds])


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
    """Are the first sides better than the second ones, over pairs and over sentences?"""
    values = np.array([[one.f1().mean(), other.f1().mean()] for one, other in pairs])
    draws = _differences(pairs, seed)
    low, high = np.quantile(draws, (0.025, 0.975))
    differences = values[:, 0] - values[:, 1]
    over = Estimate(float(differences.mean()), float(low), float(high), len(pairs[0][0].gold))
    answer = method_verdict(differences, over, float(draws.std(ddof=1)))
    return RelationPair(len(pairs), (float(values[:, 0].mean()), float(values[:, 1].mean())), answer)


def _differences(pairs: Sequence[Pair], seed: int) -> NDArray[np.float64]:
    """The mean difference of micro-F1 over pairs on resampled sentences: every draw has the same sentences for all."""
    sides = [rows for pair in pairs for rows in pair]
    right, given = (np.hstack([getattr(rows, name) for rows in sides]) for name in ("right", "given"))
    gold = np.repeat(sides[0].gold[:, None], right.shape[1], axis=1)
    sentences = min((rows.sentences for rows in sides), key=lambda marks: len(np.unique(marks)))
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
