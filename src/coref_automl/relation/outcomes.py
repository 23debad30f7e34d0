"""Stored predictions, row by row. In: folders of relation runs, the rows they scored. Out: answers by variant, F1 per row.

Runs that differ in markers, label mask and hard negatives alone are variants of one experiment and can be compared. Micro-F1 is a
ratio of sums, not a mean over rows: each row gets the value by which it moves the ratio, and their mean is micro-F1, so that
runs can be crossed with sentences as they are for any mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import CorefError, RelationDataError
from coref_automl.records import Estimate
from coref_automl.relation.data import RelationData
from coref_automl.relation.evaluate import KIND, finished_seeds, read_manifest
from coref_automl.relation.markers import SCHEMES
from coref_automl.relation.rows import NO_RELATION, LabelMask, gold_indices
from coref_automl.relation.scoring import has_predictions, read_probabilities
from coref_automl.statistics.crossed import crossed_verdict
from coref_automl.statistics.methods import by_document
from coref_automl.store import MANIFEST, fingerprint, kind_of_folder, natural_order, short_names

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
VARIED = ("scheme", "label_mask", "hard_negatives", "first_seed")
"""Settings in which the runs of one experiment differ: the variant, and the seed."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What the seeds of one variant answered: `by_seed` holds one label index per row. `runs` are the folders.

    `experiment` is the same for variants that can be compared: same start, training rows and other settings.
    """

    runs: tuple[str, ...]
    model: str
    experiment: str
    scheme: str
    label_mask: str
    hard_negatives: float
    by_seed: dict[int, Ints]
    mask: LabelMask | None = None

    @property
    def variant(self) -> str:
        """`typed`, `typed + hard mask`, `typed + hard negatives 0.2`."""
        mask = [f"{self.label_mask} mask"] if self.label_mask != "off" else []
        return " + ".join([self.scheme, *mask, *([f"hard negatives {self.hard_negatives:g}"] if self.hard_negatives else [])])

    @property
    def predicted(self) -> Ints:
        """[seeds, rows]"""
        return np.stack(list(self.by_seed.values()))


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
    def experiments(self) -> list[tuple[Answers, ...]]:
        """Variants that can be compared, the most first."""
        names = dict.fromkeys(one.experiment for one in self.answers)
        return sorted((tuple(one for one in self.answers if one.experiment == name) for name in names), key=len, reverse=True)


def find_answers(paths: Sequence[str | Path], data: RelationData) -> Outcomes:
    """The runs under the paths that have predictions for these rows; seeds of one variant are put together."""
    manifests = (found for path in paths for found in sorted(Path(path).rglob(MANIFEST), key=natural_order))
    folders = list({found.parent.resolve(): found.parent for found in manifests if kind_of_folder(found.parent) == KIND}.values())
    if not folders:
        raise RelationDataError(f"No relation run under {', '.join(map(str, paths))}; make one with: coref-automl re train")
    names, by_variant, left_out = short_names(folders), dict[tuple[str, str], Answers](), []
    for folder in folders:
        try:
            run = _answers(folder, names[folder], data)
        except CorefError as error:
            left_out.append(str(error))
            continue
        earlier = by_variant.setdefault((run.experiment, run.variant), run)
        if earlier is run:
            continue
        if run.by_seed.keys() & earlier.by_seed.keys():
            left_out.append(f"{folder} repeats seeds of another run of its settings; each counts once.")
        if run.by_seed.keys() - earlier.by_seed.keys():
            both = replace(earlier, runs=(*earlier.runs, *run.runs), by_seed={**run.by_seed, **earlier.by_seed})
            by_variant[run.experiment, run.variant] = replace(both, by_seed=dict(sorted(both.by_seed.items())))
    if not by_variant:
        raise RelationDataError(f"No run has predictions for these rows; the first: {left_out[0]}")
    experiments, schemes = list(dict.fromkeys(name for name, _ in by_variant)), list(SCHEMES)

    def place(one: Answers) -> tuple[int, int, float, bool]:
        """Experiments as they were found; within one, no markers first, then plain and typed, then what is added to them."""
        return experiments.index(one.experiment), schemes.index(one.scheme), one.hard_negatives, one.label_mask != "off"

    return Outcomes(data, tuple(sorted(by_variant.values(), key=place)), tuple(left_out))


def _answers(folder: Path, name: str, data: RelationData) -> Answers:
    manifest = read_manifest(folder)
    seeds = [seed for seed in finished_seeds(folder) if has_predictions(seed, data)]
    if not seeds:
        raise RelationDataError(
            f"{folder} has no predictions for these rows of {data.split}; make them with: "
            f"coref-automl re evaluate {folder} --data FILE"
        )
    binding = manifest["binding"] or {"settings": {}, "fingerprints": {}}
    shared = {key: value for key, value in binding["settings"].items() if key not in VARIED}
    return Answers(
        runs=(name,),
        model=manifest["model"],
        experiment=fingerprint([shared, binding["fingerprints"]]),
        scheme=manifest["scheme"],
        label_mask=manifest["label_mask"],
        hard_negatives=float(binding["settings"].get("hard_negatives", 0.0)),
        by_seed={
            int(seed.name.rpartition("-")[2]): read_probabilities(seed, data.split).argmax(1).astype(np.int64) for seed in seeds
        },
        mask=LabelMask.stored(manifest["label_mask"], manifest["mask_bias"], MANIFEST),
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
