"""What stored runs answered, row by row. In: folders of relation runs, the rows they were scored on. Out: answers, F1 per row.

Runs that differ in markers, label mask and hard negatives alone are variants of one experiment and can be compared. Micro-F1 is a
ratio of sums, not a mean over rows: each row gets the value by which it moves the ratio, and their mean is micro-F1, so that
runs can be crossed with sentences as they are for any mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import CorefError, RelationDataError
from coref_automl.records import Estimate
from coref_automl.relation.data import RelationData, sentence_key
from coref_automl.relation.evaluate import KIND, finished_seeds
from coref_automl.relation.labels import NO_RELATION, LabelMask, gold_indices
from coref_automl.relation.markers import SCHEMES
from coref_automl.relation.results import read_probabilities
from coref_automl.relation.scoring import has_predictions
from coref_automl.relation.stored import read_manifest
from coref_automl.statistics.crossed import crossed_verdict
from coref_automl.statistics.ratios import by_document
from coref_automl.store import MANIFEST, fingerprint, kind_of_folder, natural_order, short_names

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
VARIED = ("scheme", "label_mask", "hard_negatives", "first_seed")
"""Settings in which the runs of one experiment differ: the variant, and the seed."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What the seeds of one variant answered: `predicted` [seeds, rows], as labels' indices; `numbers` are
    the seeds, `runs` the folders.

    `experiment` is the same for variants that can be compared: same start, training rows and other settings.
    """

    runs: tuple[str, ...]
    model: str
    experiment: str
    scheme: str
    label_mask: str
    hard_negatives: float
    predicted: Ints
    numbers: tuple[int, ...] = ()
    mask: LabelMask | None = None

    @property
    def variant(self) -> str:
        """`typed`, `typed + hard mask`, `typed + hard negatives 0.2`."""
        mask = [f"{self.label_mask} mask"] if self.label_mask != "off" else []
        return " + ".join([self.scheme, *mask, *([f"hard negatives {self.hard_negatives:g}"] if self.hard_negatives else [])])

    @property
    def seeds(self) -> int:
        return len(self.predicted)


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Answers of all variants to the same rows; `left_out` says of each other run why it has none."""

    data: RelationData
    answers: tuple[Answers, ...]
    left_out: tuple[str, ...]

    @property
    def gold(self) -> Ints:
        return gold_indices(self.data.rows)

    @property
    def sentences(self) -> Ints:
        found = np.unique([sentence_key(row.sentence) for row in self.data.rows], return_inverse=True)[1]
        return np.asarray(found, np.int64)

    @property
    def experiments(self) -> list[tuple[Answers, ...]]:
        """Variants that can be compared, the most first."""
        marks = dict.fromkeys(one.experiment for one in self.answers)
        return sorted((tuple(one for one in self.answers if one.experiment == mark) for mark in marks), key=len, reverse=True)


def find_answers(paths: Sequence[str | Path], data: RelationData) -> Outcomes:
    """The runs under the paths that have predictions for these rows; seeds of one variant are put together."""
    places = {
        held.parent.resolve(): held.parent
        for path in paths
        for held in sorted(Path(path).rglob(MANIFEST), key=natural_order)
        if kind_of_folder(held.parent) == KIND
    }
    folders = list(places.values())
    names, found, left_out = short_names(folders), dict[tuple[str, str], Answers](), []
    for folder in folders:
        try:
            one = _answers(folder, names[folder], data)
        except CorefError as error:
            left_out.append(str(error))
            continue
        held = found.get((one.experiment, one.variant))
        fresh = [at for at, number in enumerate(one.numbers) if held is None or number not in held.numbers]
        if len(fresh) < one.seeds:
            left_out.append(f"{folder} repeats seeds of another run of its settings; each counts once.")
        if fresh:
            found[one.experiment, one.variant] = _together(held, one, fresh)
    if not folders:
        raise RelationDataError(f"No relation run under {', '.join(map(str, paths))}; make one with: coref-automl re train")
    if not found:
        raise RelationDataError(f"No run has predictions for these rows; the first: {left_out[0]}")
    return Outcomes(data, tuple(sorted(found.values(), key=_order(found.values()))), tuple(left_out))


def _together(held: Answers | None, one: Answers, fresh: list[int]) -> Answers:
    """A run's own seeds beside those of the same variant that are held already."""
    predicted, numbers = one.predicted[fresh], tuple(one.numbers[at] for at in fresh)
    if held is None:
        return replace(one, predicted=predicted, numbers=numbers)
    both = np.concatenate([held.predicted, predicted])
    return replace(one, runs=(*held.runs, *one.runs), predicted=both, numbers=(*held.numbers, *numbers))


def _order(found: Iterable[Answers]) -> Callable[[Answers], tuple[Any, ...]]:
    """Experiments as they were found; within one, no markers first, then plain and typed, then what is added to them."""
    experiments = list(dict.fromkeys(one.experiment for one in found))
    schemes = list(SCHEMES)
    return lambda one: (
        experiments.index(one.experiment),
        schemes.index(one.scheme) if one.scheme in schemes else len(schemes),
        one.hard_negatives,
        one.label_mask != "off",
    )


def _answers(folder: Path, name: str, data: RelationData) -> Answers:
    manifest = read_manifest(folder)
    seeds = [seed for seed in finished_seeds(folder) if has_predictions(seed, data)]
    if not seeds:
        raise RelationDataError(
            f"{folder} has no predictions for these rows of {data.split}; make them with: "
            f"coref-automl re evaluate {folder} --data FILE"
        )
    predicted = np.stack([read_probabilities(seed / "predictions", data.split).argmax(1) for seed in seeds])
    binding = manifest["binding"] or {"settings": {}, "fingerprints": {}}
    shared = {key: value for key, value in binding["settings"].items() if key not in VARIED}
    bias = manifest["mask_bias"]
    return Answers(
        runs=(name,),
        model=manifest["model"],
        experiment=fingerprint([shared, binding["fingerprints"]]),
        scheme=manifest["scheme"],
        label_mask=manifest["label_mask"],
        hard_negatives=float(binding["settings"].get("hard_negatives", 0.0)),
        predicted=predicted.astype(np.int64),
        numbers=tuple(int(seed.name.rpartition("-")[2]) for seed in seeds),
        mask=LabelMask(manifest["label_mask"], np.array(bias, np.float32)) if bias else None,
    )


def f1_values(gold: Ints, predicted: Ints) -> Floats:
    """One value per run and row, [runs, rows]; the mean over rows is the run's micro-F1, a fraction."""
    relation = gold != NO_RELATION
    values = []
    for one in predicted:
        right, given = (one == gold) & relation, one != NO_RELATION
        sums = np.stack([right, relation, right, given], axis=1)
        values.append(by_document(sums[:, None, :], np.ones(len(gold))))
    return np.stack(values)


def level(values: Floats, sentences: Ints) -> Estimate:
    """The mean over runs with its interval, runs crossed with sentences."""
    return crossed_verdict(values, np.zeros((1, values.shape[1])), sentences, against_model=True).interval.within(0.0, 1.0)
