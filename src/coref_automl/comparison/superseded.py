"""Which of several evaluations or runs counts. In: what was found. Out: those that count, and why others do not.

Equal scores make no copy. Evaluations are the same if their bytes are and their models have the same name, objective, step and
seed; runs are the same if every number of their results is, training time included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.errors import CorefError
from coref_automl.evaluation.results import RESULT, StoredEvaluation
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import kind_of_folder
from coref_automl.models.model_files import PARTS, model_fingerprints
from coref_automl.records import grouped
from coref_automl.say import say


def named_folders(paths: Iterable[str]) -> set[Path]:
    """Evaluation folders named in the paths: these are always compared."""
    return {Path(path).resolve() for path in paths if (Path(path) / RESULT).is_file()}


def what_counts(
    stored: Sequence[StoredEvaluation],
    *,
    bases: Callable[[list[StoredEvaluation]], list[StoredEvaluation]] = list,
    look: Callable[[StoredEvaluation], bool] = lambda _: True,
) -> tuple[list[StoredEvaluation], list[str]]:
    """Evaluations of the weights that models have now, each once; and a sentence on the others.

    Replaced weights go first: a copy of such an evaluation in an archive, where nothing can be replaced, still counts. `bases`
    adds those of what is left; of models that it does not `look` at, nothing is known to be replaced.
    """
    seen = [one for one in stored if look(one)]
    today, replaced = drop_replaced_weights(seen)
    gone = {id(one) for one in seen} - {id(one) for one in today}
    once, copies = drop_copies(bases([one for one in stored if id(one) not in gone]))
    return once, [*replaced, *copies]


def drop_replaced_weights(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Drop evaluations of models whose files have since been replaced; a sentence for each dropped one."""
    now = {place: _prints_now(beside) for place, beside in grouped(stored, _place).items()}
    kept, reasons = [], []
    for one in stored:
        if not (what := _changed(one, now[_place(one)])):
            kept.append(one)
            continue
        reason = say(
            f"{one.folder}: {one.evaluation.checkpoint}의 {PARTS[what][0]} 파일이 평가한 뒤에 바뀌었습니다.",
            f"{one.folder} was scored with other {PARTS[what][1]} than {one.evaluation.checkpoint} has now",
        )
        reasons.append(reason)
    return kept, reasons


def changed_since(stored: Sequence[StoredEvaluation]) -> list[str]:
    """A sentence for each model whose files have changed since it was scored. Only files that are younger are read."""
    reasons = {}
    for one in stored:
        folder = Path(one.evaluation.path)
        try:
            scored = datetime.fromisoformat(one.evaluation.evaluated_at).timestamp()
            if one.archived or not folder.is_dir() or all(path.stat().st_mtime <= scored + 1 for path in folder.iterdir()):
                continue
            what = _changed(one, model_fingerprints(one.evaluation.path))
        except (CorefError, OSError, ValueError):
            continue  # what cannot be read now was read when it was scored
        if what:
            reasons[folder] = say(
                f"{one.evaluation.checkpoint}: 평가한 뒤에 {PARTS[what][0]} 파일이 바뀌었습니다. 다시 평가하세요.",
                f"{one.evaluation.checkpoint} has other {PARTS[what][1]} now than when it was scored; evaluate it again.",
            )
    return list(reasons.values())


def items_of(one: StoredEvaluation) -> str:
    return one.evaluation.fingerprints.get("items", "")


def one_dtype_each(
    stored: Sequence[StoredEvaluation], named: set[Path], *, common: bool = False
) -> dict[tuple[str, str], tuple[list[StoredEvaluation], list[str]]]:
    """Evaluations by the fingerprint of their items (empty if `common`) and the version of their scorer, each model in one dtype;
    and a sentence for each dropped one."""
    keyed = grouped(stored, lambda one: ("" if common else items_of(one), one.evaluation.scorer))
    return {key: _keep_one_dtype(found, named) for key, found in keyed.items()}


def _keep_one_dtype(stored: Sequence[StoredEvaluation], named: set[Path]) -> tuple[list[StoredEvaluation], list[str]]:
    """Of a model scored in several dtypes, keep the most frequent dtype, else the newest; a sentence for each dropped one."""
    often = Counter(one.evaluation.dtype for one in stored)
    by_model = grouped(stored, lambda one: (_place(one), one.evaluation.seq_len))
    kept, reasons = [], []
    for one in stored:
        evaluation, same = one.evaluation, by_model[_place(one), one.evaluation.seq_len]
        first = max(same, key=lambda other: (often[other.evaluation.dtype], other.evaluation.evaluated_at))
        if one is first or one.folder.resolve() in named or evaluation.dtype == first.evaluation.dtype:
            kept.append(one)
            continue
        reason = say(
            f"{one.folder}: {evaluation.dtype} 평가입니다. {evaluation.checkpoint}는 {first.evaluation.dtype} 평가를 "
            "씁니다 (둘을 비교하려면 두 폴더를 직접 주세요)",
            f"{one.folder} is in {evaluation.dtype}; {evaluation.checkpoint} is shown in {first.evaluation.dtype} "
            "(pass both folders to compare the two)",
        )
        reasons.append(reason)
    return kept, reasons


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
            now = model_fingerprints(newest.path)
            return now if not all(_changed(one, now) for one in beside) else last
    return last


_WRITTEN_BY_ARCHIVE = ("run", "model", "pretraining")
"""Keys of a run's results that its archive rewrites."""


def model_of(one: StoredEvaluation | Entry) -> tuple[object, ...]:
    """What a model is, wherever it lies: name, weights, objective, step and seed. Without recorded weights, its folder."""
    made, weights = one.evaluation.provenance, one.evaluation.fingerprints.get("weights")
    if not weights:
        return (one.folder.resolve(),)
    trained = (made.objective, made.step, made.seed) if made else ()
    return model_label(one.evaluation.checkpoint), weights, trained


def drop_copies(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Keep one of equal evaluations, preferably one with text; a sentence on the others."""
    equal = grouped(stored, lambda one: (one.evaluation.identity, model_of(one))).values()
    first = [(max(same, key=lambda one: (not one.archived, len(one.evaluation.estimates))), same) for same in equal]
    kept = {id(one) for one, _ in first}
    copies = [(one.folder, str(best.folder)) for best, same in first for one in same if id(one) not in kept]
    return [one for one in stored if id(one) in kept], told_copies(copies)


def copies_of(found: Mapping[Path, TaskRun]) -> dict[Path, tuple[Path, ...]]:
    """The folders of relation or coreference runs, each run once, with its copies: a run rather than its archive."""

    def numbers(folder: Path) -> str:
        result = {name: value for name, value in found[folder].result.to_json().items() if name not in _WRITTEN_BY_ARCHIVE}
        return fingerprint(result) if found[folder].weights else str(folder)

    equal = grouped(sorted(found, key=lambda folder: not kind_of_folder(folder)), numbers)
    copies = {first: tuple(others) for first, *others in equal.values()}
    return {folder: copies[folder] for folder in found if folder in copies}


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
