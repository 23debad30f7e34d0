"""What runs, methods and checkpoints are called. In: records and stored evaluations. Out: names that tell them apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.results import StoredEvaluation, marked, target_of
from coref_automl.models.model_files import model_place
from coref_automl.paths import short_names
from coref_automl.records import Provenance

_RUN = re.compile(r"([^-_/\s]+)-(\d+)-s(\d+)")
_OF_A_RUN = ("seed", "objective", "seq_len", "base_bytes", "dataset_bytes")
"""What every checkpoint of a run has in common; bytes are empty in older records."""


def arm_name(method: str, length: int) -> str:
    return f"{method}-{length}"


def run_name(arm: str, seed: int) -> str:
    return f"{arm}-s{seed}"


def seed_of(name: str) -> int:
    """The seed of a run's name, or of a step's that ends as it does."""
    return int(name.rpartition("-s")[2])


def method_name(made: Provenance) -> str:
    """The name that its owner gave a method in a study; empty for a run by itself.

    Records of before it was kept have it in the name of the run alone: entity-512-s0.
    """
    found = None if made.method else _RUN.fullmatch(PurePath(made.run).name)
    named = found is not None and (int(found[2]), int(found[3])) == (made.seq_len, made.seed)
    return found[1] if found and named else made.method


def stem(made: Provenance) -> str:
    """A run's name without its length and its seed."""
    words = [word for word in re.split(r"[-_]", PurePath(made.run).name) if word]
    gone = {str(made.seq_len), f"s{made.seed}", f"seed{made.seed}"}
    return "-".join(word for word in words if word not in gone) or made.objective


def rename_runs(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Name runs by their folders where two of the same name differ in a setting of the run, or in weights at the same step."""
    settings: dict[tuple[str, object], set[object]] = {}
    for one in stored:
        if (made := one.evaluation.provenance) is not None:
            settings.setdefault((made.run, made.step), set()).add(one.evaluation.fingerprints.get("weights", ""))
            for name in _OF_A_RUN:
                if (value := getattr(made, name)) != "":
                    settings.setdefault((made.run, name), set()).add(value)
    twice = {run for (run, _), values in settings.items() if len(values) > 1}
    made_in = [(made, PurePath(one.evaluation.path).parent) for one in stored if (made := one.evaluation.provenance)]
    names = short_names(folder for made, folder in made_in if made.run in twice)
    out = []
    for one in stored:
        if (made := one.evaluation.provenance) is not None and made.run in twice:
            run = names[PurePath(one.evaluation.path).parent]
            one = replace(one, evaluation=replace(one.evaluation, provenance=replace(made, run=run)))
        out.append(one)
    return out


def with_names(entries: Sequence[Entry]) -> list[Entry]:
    """Unique names: without the run if there is only one; then, where several share a name, with the length or a number."""
    one_run = len({entry.run for entry in entries if entry.trained}) == 1
    times = Counter((entry.evaluation.checkpoint, entry.evaluation.seq_len) for entry in entries)
    renamed = {entry.run for entry in entries if times[entry.evaluation.checkpoint, entry.evaluation.seq_len] > 1}

    def short(entry: Entry) -> str:
        name, label = entry.evaluation.checkpoint, Path(entry.evaluation.checkpoint).name
        if not entry.trained or (not one_run and entry.run not in renamed):
            return name
        return label if one_run else f"{entry.run}/{label}"

    names = [short(entry) for entry in entries]
    names = [
        f"{name}@{entry.evaluation.seq_len}" if names.count(name) > 1 else name
        for name, entry in zip(names, entries, strict=True)
    ]
    places = [names[: number + 1].count(name) for number, name in enumerate(names)]
    return [
        replace(entry, name=name if place == 1 else f"{name} ({place})")
        for entry, name, place in zip(entries, names, places, strict=True)
    ]


def rename_bases(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Rename the bases of runs where two models share a folder name, so that each run finds its own."""
    present = [one.evaluation for one in stored if not one.archived and Path(one.evaluation.path).is_dir()]
    owners = {evaluation.checkpoint: model_place(evaluation.path) for evaluation in present}
    out = []
    for one in stored:
        made = one.evaluation.provenance
        if made is not None and Path(made.base).is_dir() and not one.archived and not (plain := target_of(made.base)).in_run:
            own, place = marked(plain).name, model_place(made.base)
            if owners.get(own) == place or owners.get(plain.name, place) != place:
                one = replace(one, evaluation=replace(one.evaluation, provenance=replace(made, base=own)))
        out.append(one)
    return out
