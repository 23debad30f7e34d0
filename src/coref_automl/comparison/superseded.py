"""Which of several evaluations of a model counts. In: stored evaluations. Out: those that count, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from coref_automl.errors import CorefError
from coref_automl.evaluation.results import CHECKPOINT, RESULT, StoredEvaluation
from coref_automl.models.model_files import weights_fingerprint
from coref_automl.say import say


def named_folders(paths: Iterable[str]) -> set[Path]:
    """Evaluation folders named in the paths: these are always compared."""
    return {Path(path).resolve() for path in paths if (Path(path) / RESULT).is_file()}


def drop_replaced_weights(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Drop evaluations of weights that have since been replaced; a sentence for each dropped one."""
    held: dict[Path, list[StoredEvaluation]] = {}
    for one in stored:
        held.setdefault(_place(one), []).append(one)
    now = {place: _weights_now(beside) for place, beside in held.items()}
    kept, told = [], []
    for one in stored:
        if _weights(one) == now[_place(one)]:
            kept.append(one)
        else:
            told.append(
                say(
                    f"{one.folder}: {one.evaluation.checkpoint}의 가중치가 평가한 뒤에 바뀌었습니다.",
                    f"{one.folder} was scored with other weights than {one.evaluation.checkpoint} has now",
                )
            )
    return kept, told


def keep_one_dtype(stored: Sequence[StoredEvaluation], named: set[Path]) -> tuple[list[StoredEvaluation], list[str]]:
    """Of a model scored in several dtypes, keep the most frequent dtype, else the newest; a sentence for each dropped one."""
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
                say(
                    f"{one.folder}: {evaluation.dtype} 평가입니다. {evaluation.checkpoint}는 {first.evaluation.dtype} 평가를 "
                    "씁니다 (둘을 비교하려면 두 폴더를 직접 주세요)",
                    f"{one.folder} is in {evaluation.dtype}; {evaluation.checkpoint} is shown in {first.evaluation.dtype} "
                    "(pass both folders to compare the two)",
                )
            )
    return kept, told


def _place(one: StoredEvaluation) -> Path:
    """The folder of a model's evaluations, without the part that names set and length."""
    folder = one.folder.resolve()
    return folder.parents[1] / folder.name if CHECKPOINT.fullmatch(folder.name) else folder.parent


def _weights(one: StoredEvaluation) -> str:
    return one.evaluation.fingerprints.get("weights", "")


def _weights_now(beside: Sequence[StoredEvaluation]) -> str:
    """The current weights of the model; those scored last if it is gone or if only one fingerprint is known."""
    newest = max(beside, key=lambda one: one.evaluation.evaluated_at)
    if len({_weights(one) for one in beside}) > 1 and Path(newest.evaluation.path).is_dir():
        try:
            now = weights_fingerprint(newest.evaluation.path)
        except (CorefError, OSError):
            return _weights(newest)
        if any(_weights(one) == now for one in beside):
            return now
    return _weights(newest)
