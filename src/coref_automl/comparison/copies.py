"""What was found twice. In: evaluations or runs, some beside a copy or an archive of them. Out: each once, and its copies.

Equal scores make no copy. Evaluations are the same if their bytes are and their models have the same name, objective, step and
seed; runs are the same if every number of their results is, training time included, and their folders have the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.say import say
from coref_automl.store import fingerprint, kind_of_folder

_WRITTEN_BY_ARCHIVE = ("run", "model", "conditions", "pretraining")
"""Keys of a run's results that its archive adds or rewrites."""


class _Run(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def result(self) -> dict[str, Any]: ...

    @property
    def weights(self) -> str: ...

    @property
    def copies(self) -> tuple[Path, ...]: ...


def model_of(one: StoredEvaluation | Entry) -> tuple[object, ...]:
    """What a model is, wherever it lies: name, weights, objective, step and seed. Without recorded weights, its folder."""
    made, weights = one.evaluation.provenance, one.evaluation.fingerprints.get("weights")
    if not weights:
        return (one.folder.resolve(),)
    trained = (made.objective, made.step, made.seed) if made else ()
    return model_label(one.evaluation.checkpoint), weights, trained


def drop_copies(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Keep one of equal evaluations, preferably one with text; a sentence on the others."""
    held: dict[tuple[object, ...], list[StoredEvaluation]] = {}
    for one in stored:
        held.setdefault((one.evaluation.identity, model_of(one)), []).append(one)
    first = {key: max(same, key=_is_whole) for key, same in held.items()}
    kept = {id(one) for one in first.values()}
    copies = [(one.folder, str(first[key].folder)) for key, same in held.items() for one in same if id(one) not in kept]
    return [one for one in stored if id(one) in kept], told_copies(copies)


def _is_whole(one: StoredEvaluation) -> tuple[bool, int]:
    return not one.archived, len(one.evaluation.estimates)


def copies_of(found: Mapping[Path, _Run]) -> dict[Path, tuple[Path, ...]]:
    """The folders of relation or coreference runs, each run once, with its copies: a run rather than its archive."""
    alike: dict[str, list[Path]] = {}
    for folder in sorted(found, key=lambda folder: not kind_of_folder(folder)):
        result = {name: value for name, value in found[folder].result.items() if name not in _WRITTEN_BY_ARCHIVE}
        alike.setdefault(fingerprint(result) if found[folder].weights else str(folder), []).append(folder)
    out: dict[Path, tuple[Path, ...]] = {}
    for folders in alike.values():
        first: list[Path] = []
        for folder in folders:
            same = next((one for one in first if folder.name in _names(one) or one.name in _names(folder)), None)
            if same is None:
                first.append(folder)
            out |= {folder: ()} if same is None else {same: (*out[same], folder)}
    return {folder: out[folder] for folder in found if folder in out}


def _names(folder: Path) -> set[str]:
    """What an archive may call a run: its folder, preceded by as many parents as it took to be unique."""
    return {"-".join(folder.parts[-depth:]) for depth in range(1, len(folder.parts) + 1)}


def repeated(runs: Iterable[_Run]) -> list[str]:
    """One sentence on the copies of runs."""
    return told_copies((copy, run.name) for run in runs for copy in run.copies)


def told_copies(copies: Iterable[tuple[Path, str]]) -> list[str]:
    """One sentence on all copies; each comes with what it repeats."""
    listed = list(copies)
    if not listed:
        return []
    copy, first = listed[0]
    if len(listed) == 1:
        return [say(f"{copy}: 같은 결과가 {first}에 있습니다", f"{copy} repeats {first}")]
    return [
        say(
            f"두 번 나온 결과 {len(listed):,}개 (예: {copy}, 같은 결과가 {first}에 있습니다)",
            f"{len(listed):,} results that were found twice, such as {copy}, which repeats {first}",
        )
    ]
