"""Which of several evaluations of a model counts. In: stored evaluations. Out: those that count, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from coref_automl.errors import CorefError
from coref_automl.evaluation.results import CHECKPOINT, RESULT, StoredEvaluation
from coref_automl.models.model_files import PARTS, model_prints
from coref_automl.say import say


def named_folders(paths: Iterable[str]) -> set[Path]:
    """Evaluation folders named in the paths: these are always compared."""
    return {Path(path).resolve() for path in paths if (Path(path) / RESULT).is_file()}


def drop_replaced_weights(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Drop evaluations of models whose files have since been replaced; a sentence for each dropped one."""
    held: dict[Path, list[StoredEvaluation]] = {}
    for one in stored:
        held.setdefault(_place(one), []).append(one)
    now = {place: _prints_now(beside) for place, beside in held.items()}
    kept, told = [], []
    for one in stored:
        if not (what := _changed(one, now[_place(one)])):
            kept.append(one)
        else:
            told.append(
                say(
                    f"{one.folder}: {one.evaluation.checkpoint}의 {PARTS[what][0]} 파일이 평가한 뒤에 바뀌었습니다.",
                    f"{one.folder} was scored with other {PARTS[what][1]} than {one.evaluation.checkpoint} has now",
                )
            )
    return kept, told


def changed_since(stored: Sequence[StoredEvaluation]) -> list[str]:
    """A sentence for each model whose files have changed since it was scored. Only files that are younger are read."""
    told = {}
    for one in stored:
        folder = Path(one.evaluation.path)
        try:
            scored = datetime.fromisoformat(one.evaluation.evaluated_at).timestamp()
            if one.archived or not folder.is_dir() or all(path.stat().st_mtime <= scored + 1 for path in folder.iterdir()):
                continue
            what = _changed(one, model_prints(one.evaluation.path))
        except (CorefError, OSError, ValueError):
            continue  # what cannot be read now was read when it was scored
        if what:
            told[folder] = say(
                f"{one.evaluation.checkpoint}: 평가한 뒤에 {PARTS[what][0]} 파일이 바뀌었습니다. 다시 평가하세요.",
                f"{one.evaluation.checkpoint} has other {PARTS[what][1]} now than when it was scored; evaluate it again.",
            )
    return list(told.values())


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


def _changed(one: StoredEvaluation, now: Mapping[str, str]) -> str:
    """What of a model differs from what was scored; empty where nothing does. Earlier versions recorded less."""
    held = one.evaluation.fingerprints
    return next((name for name, value in now.items() if held.get(name, value) not in ("", value)), "")


def _prints_now(beside: Sequence[StoredEvaluation]) -> dict[str, str]:
    """The current files of the model; those scored last if it is gone or if only one state of it is known."""
    newest = max(beside, key=lambda one: one.evaluation.evaluated_at).evaluation
    last = {name: value for name, value in newest.fingerprints.items() if name in PARTS}
    if any(_changed(one, last) for one in beside) and Path(newest.path).is_dir():
        with suppress(CorefError, OSError):
            now = model_prints(newest.path)
            return now if not all(_changed(one, now) for one in beside) else last
    return last
