"""What runs, methods, arms and checkpoints are called. In: training records, and evaluations. Out: names that tell them apart.

A study names its runs METHOD-LENGTH-sSEED; if a record is too old to have the method, the run's name tells it:

    run_name(arm_name("entity", 512), 0)     entity-512-s0
    method_name(the record of that run)      entity
    stem(the record of big_512_seed3)        big                    a run outside a study: its name without length and seed
    arm_label("entity", 512, 2048)           entity 512 @2,048

Evaluations of a group get names that tell them apart (`rename_runs`, then `with_names`):

    one run; two runs                        checkpoint-65; a/checkpoint-65, b/checkpoint-65
    two runs called a, in x/ and in y/       x-a/checkpoint-65, y-a/checkpoint-65     the same for archives
    two window lengths; two dtypes           base@512, base@2048; base@512, base@512 (2)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePath

from coref_automl.base.folders import short_names
from coref_automl.base.records import Provenance, grouped
from coref_automl.base.say import say
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.columns import holds_text
from coref_automl.evaluation.results import StoredEvaluation, run_of

_RUN = re.compile(r"([^-_/\s]+)-(\d+)-s(\d+)")
_SAME_IN_A_RUN = ("seed", "objective", "seq_len", "base_bytes", "dataset_bytes")
"""What all checkpoints of a run have in common; bytes are empty in older records."""


def arm_name(method: str, length: int) -> str:
    return f"{method}-{length}"


def run_name(arm: str, seed: int) -> str:
    return f"{arm}-s{seed}"


def seed_of(name: str) -> int:
    """The seed in the name of a run, or of a step, which ends in the same way."""
    return int(name.rpartition("-s")[2])


def method_name(provenance: Provenance) -> str:
    """The name that a study gave the run's method; empty for a run outside a study."""
    match = None if provenance.method else _RUN.fullmatch(PurePath(provenance.run).name)
    if match is None or (int(match[2]), int(match[3])) != (provenance.seq_len, provenance.seed):
        return provenance.method
    return match[1]


def stem(provenance: Provenance) -> str:
    """A run's name without its length and its seed."""
    words = [word for word in re.split(r"[-_]", PurePath(provenance.run).name) if word]
    settings = {str(provenance.seq_len), f"s{provenance.seed}", f"seed{provenance.seed}"}
    return "-".join(word for word in words if word not in settings) or provenance.objective


def method_candidates(provenance: Provenance, usual: str) -> Iterator[str]:
    """Names for a run's method, best first: the usual one, with its dataset, the name of the run; numbers after it never end."""
    run, dataset = PurePath(provenance.run).name, PurePath(provenance.dataset).name or provenance.data[:8]
    yield from (usual, f"{usual} ({dataset})" if dataset else run, run)
    yield from (f"{run} ({number})" for number in count(2))


def arm_label(method: str, length: int, window: int) -> str:
    """An arm as tables and claims name it."""
    return f"{method} {length:,}" + (f" @{window:,}" if window != length else "")


def base_names(labels: Mapping[str, str]) -> dict[str, str]:
    """The shortest name that tells each base from the others, by origin: start, start/checkpoint-9, start/checkpoint-9 3fa92c."""
    names = {origin: label.split("/")[0] for origin, label in labels.items()}
    with_bytes = {origin: f"{label} {origin[:6]}" for origin, label in labels.items() if origin != label}
    for longer in (labels, with_bytes):
        shared = Counter(names.values())
        names |= {origin: name for origin, name in longer.items() if shared[names[origin]] > 1}
    return names


def rename_runs(evaluations: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Give runs that share a name the names of their folders."""
    shared = _shared_names(evaluations)
    recorded = [(stored, stored.evaluation.provenance) for stored in evaluations]
    ambiguous = [stored for stored, provenance in recorded if provenance is not None and provenance.run in shared]
    names = short_names(map(_run_folder, ambiguous))
    renamed = []
    for stored, provenance in recorded:
        if provenance is not None and provenance.run in shared:
            provenance = replace(provenance, run=names[_run_folder(stored)])
            stored = replace(stored, evaluation=replace(stored.evaluation, provenance=provenance))
        renamed.append(stored)
    return renamed


def runs_in_several_folders(entries: Sequence[Entry]) -> list[str]:
    """A sentence for each run whose checkpoints lie in several folders: one that moved, or several that no record tells apart."""
    by_run = grouped((entry for entry in entries if entry.trained), lambda entry: entry.run)
    folders = {run: sorted({str(Path(_run_folder(entry)).resolve()) for entry in alike}) for run, alike in by_run.items()}
    several = [(run, ", ".join(places)) for run, places in folders.items() if len(places) > 1]
    return [
        say(f"{run}: 기록이 같아 한 실행으로 봅니다 ({places}).", f"{run}: {places} count as one run: their records agree.")
        for run, places in several
    ]


def _run_folder(evaluated: StoredEvaluation | Entry) -> PurePath:
    """The folder of an evaluation's run. An archived path may stand for runs of other archives too, so its own folder counts."""
    folder = evaluated.folder.resolve()
    return PurePath(evaluated.evaluation.path).parent if holds_text(folder) else run_of(folder) or folder.parent


def _shared_names(evaluations: Sequence[StoredEvaluation]) -> set[str]:
    """Names that several runs have: their records differ in a setting of the run, or weights differ at the same step."""
    values: dict[tuple[str, str], set[object]] = defaultdict(set)
    for stored in evaluations:
        provenance = stored.evaluation.provenance
        if provenance is None:
            continue
        values[provenance.run, f"weights at {provenance.step}"].add(stored.evaluation.fingerprints.get("weights", ""))
        for setting in _SAME_IN_A_RUN:
            if getattr(provenance, setting) != "":
                values[provenance.run, setting].add(getattr(provenance, setting))
    return {run for (run, _), different in values.items() if len(different) > 1}


def with_names(entries: Sequence[Entry]) -> list[Entry]:
    """Give entries unique names: a name that several share gets the window length, then a number."""
    short = _short_names(entries)
    shared, taken = Counter(short), Counter[str]()
    out = []
    for entry, label in zip(entries, short, strict=True):
        name = f"{label}@{entry.evaluation.seq_len}" if shared[label] > 1 else label
        taken[name] += 1
        out.append(replace(entry, name=name if taken[name] == 1 else f"{name} ({taken[name]})"))
    return out


def _short_names(entries: Sequence[Entry]) -> list[str]:
    """Run and step for a checkpoint, the step alone if there is one run; for other models the name they were evaluated under."""
    one_run = len({entry.run for entry in entries if entry.trained}) == 1
    stored = Counter((entry.evaluation.checkpoint, entry.evaluation.seq_len) for entry in entries)
    renamed = {entry.run for entry in entries if stored[entry.evaluation.checkpoint, entry.evaluation.seq_len] > 1}

    def short(entry: Entry) -> str:
        name = entry.evaluation.checkpoint
        label = PurePath(name).name
        if not entry.trained:
            return name
        if one_run:
            return label
        return f"{entry.run}/{label}" if entry.run in renamed else name

    return [short(entry) for entry in entries]
