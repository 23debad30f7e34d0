"""What runs and checkpoints are called. In: training records, and evaluations. Out: names.

A study names its runs METHOD-LENGTH-sSEED; records of before they kept the method have it there alone:

    run_name(arm_name("entity", 512), 0)     entity-512-s0
    method_name(the record of that run)      entity
    stem(the record of big_512_seed3)        big             a run by itself: its name without length and seed

Evaluations of a group get names that tell them apart (`rename_runs`, then `with_names`):

    one run; two runs                        checkpoint-65; a/checkpoint-65, b/checkpoint-65
    two runs called a, in x/ and in y/       x-a/checkpoint-65, y-a/checkpoint-65     of archives, too
    two window lengths; two dtypes           base@512, base@2048; base@512, base@512 (2)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.results import StoredEvaluation, run_of
from coref_automl.folders import short_names
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
    """The name that its owner gave a method in a study; empty for a run by itself."""
    found = None if made.method else _RUN.fullmatch(PurePath(made.run).name)
    if found is None or (int(found[2]), int(found[3])) != (made.seq_len, made.seed):
        return made.method
    return found[1]


def stem(made: Provenance) -> str:
    """A run's name without its length and its seed."""
    words = [word for word in re.split(r"[-_]", PurePath(made.run).name) if word]
    gone = {str(made.seq_len), f"s{made.seed}", f"seed{made.seed}"}
    return "-".join(word for word in words if word not in gone) or made.objective


def rename_runs(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Name runs by their folders where several have one name."""
    shared = _shared_names(stored)
    recorded = [one for one in stored if (made := one.evaluation.provenance) is not None and made.run in shared]
    names = short_names(map(_run_folder, recorded))
    out = []
    for one in stored:
        made = one.evaluation.provenance
        if made is not None and made.run in shared:
            one = replace(one, evaluation=replace(one.evaluation, provenance=replace(made, run=names[_run_folder(one)])))
        out.append(one)
    return out


def _run_folder(one: StoredEvaluation) -> PurePath:
    """Where a run lies. The path of an archived one is a name that runs of other archives may share: its own folder counts."""
    folder = one.folder.resolve()
    return run_of(folder) or folder.parent if one.archived else PurePath(one.evaluation.path).parent


def _shared_names(stored: Sequence[StoredEvaluation]) -> set[str]:
    """Names of several runs: records differ in a setting of the run, or weights differ at the same step."""
    values: dict[tuple[str, str], set[object]] = defaultdict(set)
    for one in stored:
        made = one.evaluation.provenance
        if made is None:
            continue
        values[made.run, f"weights at {made.step}"].add(one.evaluation.fingerprints.get("weights", ""))
        for setting in _OF_A_RUN:
            if getattr(made, setting) != "":
                values[made.run, setting].add(getattr(made, setting))
    return {run for (run, _), found in values.items() if len(found) > 1}


def with_names(entries: Sequence[Entry]) -> list[Entry]:
    """Unique names: where several share the short one, with the length; then with a number."""
    short = _short_names(entries)
    shared, taken = Counter(short), Counter[str]()
    out = []
    for entry, own in zip(entries, short, strict=True):
        name = f"{own}@{entry.evaluation.seq_len}" if shared[own] > 1 else own
        taken[name] += 1
        out.append(replace(entry, name=name if taken[name] == 1 else f"{name} ({taken[name]})"))
    return out


def _short_names(entries: Sequence[Entry]) -> list[str]:
    """Of a checkpoint its run and step, the step alone if there is one run; of any other model its own."""
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
