"""One model, several evaluations. In: evaluations of the same items. Out: one for each model and length, and why others are not.

Evaluations never overwrite each other, so a checkpoint may have been scored in float32 and in bfloat16, or before and after its
weights were replaced. Beside each other they would be two points of one curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from coref_automl.errors import CorefError
from coref_automl.evaluation.results import CHECKPOINT, RESULT, StoredEvaluation
from coref_automl.models.files import weights_fingerprint


def named_folders(paths: Iterable[str]) -> set[Path]:
    """Evaluations that were asked for by their own folders: these are always compared."""
    return {Path(path).resolve() for path in paths if (Path(path) / RESULT).is_file()}


def of_weights_today(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Without evaluations of weights that have been replaced where they stood; and a sentence for each of those."""
    held: dict[Path, list[StoredEvaluation]] = {}
    for one in stored:
        held.setdefault(_place(one), []).append(one)
    now = {place: _weights_now(beside) for place, beside in held.items()}
    kept, told = [], []
    for one in stored:
        if _weights(one) == now[_place(one)]:
            kept.append(one)
        else:
            told.append(f"{one.folder} was scored with other weights than {one.evaluation.checkpoint} has now")
    return kept, told


def in_one_dtype(stored: Sequence[StoredEvaluation], named: set[Path]) -> tuple[list[StoredEvaluation], list[str]]:
    """Of a model that was scored in several dtypes: that of most evaluations, else the newest; and a sentence for each other."""
    often = Counter(one.evaluation.dtype for one in stored)
    held: dict[tuple[Path, int], list[StoredEvaluation]] = {}
    for one in stored:
        held.setdefault((_place(one), one.evaluation.seq_len), []).append(one)
    kept, told = [], []
    for one in stored:
        evaluation = one.evaluation
        first = max(
            held[_place(one), evaluation.seq_len],
            key=lambda other: (often[other.evaluation.dtype], other.evaluation.evaluated_at),
        )
        if one is first or one.folder.resolve() in named or evaluation.dtype == first.evaluation.dtype:
            kept.append(one)
        else:
            told.append(
                f"{one.folder} is in {evaluation.dtype}, and {evaluation.checkpoint} stands here in {first.evaluation.dtype} "
                "(pass the folders themselves to compare the two)"
            )
    return kept, told


def _place(one: StoredEvaluation) -> Path:
    """Where a model's evaluations stand: the folder without the part that names the set and the length."""
    folder = one.folder.resolve()
    return folder.parents[1] / folder.name if CHECKPOINT.fullmatch(folder.name) else folder.parent


def _weights(one: StoredEvaluation) -> str:
    return one.evaluation.fingerprints.get("weights", "")


def _weights_now(beside: Sequence[StoredEvaluation]) -> str:
    """The weights of the model today; where it is gone, or was never told apart, those that were scored last."""
    newest = max(beside, key=lambda one: one.evaluation.evaluated_at)
    if len({_weights(one) for one in beside}) > 1 and Path(newest.evaluation.path).is_dir():
        try:
            now = weights_fingerprint(newest.evaluation.path)
        except (CorefError, OSError):
            return _weights(newest)
        if any(_weights(one) == now for one in beside):
            return now
    return _weights(newest)
