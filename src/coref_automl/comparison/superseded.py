"""Which of several evaluations or runs counts. In: what lies behind paths. Out: those that count, and why the others do not.

Equal scores do not make a copy. Evaluations are the same if their bytes are and their models have the same name, objective, step
and seed; runs are the same if every number of their results is, training time included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from coref_automl.base.errors import CorefError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import is_folder, kind_of_folder
from coref_automl.base.records import grouped
from coref_automl.base.say import say
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.models.model_files import PARTS, model_fingerprints

Condition = tuple[str, str, str]
"""Items, version of the scorer, tokenizer."""


def drop_superseded(
    evaluations: Sequence[StoredEvaluation],
    *,
    add_bases: Callable[[list[StoredEvaluation]], list[StoredEvaluation]] = list,
    may_be_replaced: Callable[[StoredEvaluation], bool] = lambda _: True,
) -> tuple[list[StoredEvaluation], list[str]]:
    """Keep evaluations of the weights that models have now, each once; return them with a sentence on the others.

    Replaced weights go first: a copy of such an evaluation in an archive, where nothing can be replaced, still counts. Then
    `add_bases` adds the base models of what is left. Evaluations that `may_be_replaced` rejects are never dropped as replaced.
    """
    checked = [stored for stored in evaluations if may_be_replaced(stored)]
    current, replaced = drop_replaced_weights(checked)
    dropped = {id(stored) for stored in checked} - {id(stored) for stored in current}
    kept, copies = drop_copies(add_bases([stored for stored in evaluations if id(stored) not in dropped]))
    return kept, [*replaced, *copies]


def drop_replaced_weights(evaluations: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Drop evaluations of models whose files have since been replaced; return the rest, and a sentence for each dropped one."""
    current = {folder: _current_fingerprints(alike) for folder, alike in grouped(evaluations, _model_folder).items()}
    kept, reasons = [], []
    for stored in evaluations:
        if not (part := _changed_part(stored, current[_model_folder(stored)])):
            kept.append(stored)
            continue
        reason = say(
            f"{stored.folder}: {stored.evaluation.checkpoint}의 {PARTS[part][0]} 파일이 평가한 뒤에 바뀌었습니다.",
            f"{stored.folder} was scored with other {PARTS[part][1]} than {stored.evaluation.checkpoint} has now",
        )
        reasons.append(reason)
    return kept, reasons


def changed_since(evaluations: Sequence[StoredEvaluation]) -> list[str]:
    """A sentence for each model whose files have changed since it was scored. Only files younger than the scores are read."""
    reasons = {}
    for stored in evaluations:
        folder = Path(stored.evaluation.path)
        try:
            scored = datetime.fromisoformat(stored.evaluation.evaluated_at).timestamp()
            if stored.archived or not folder.is_dir() or all(path.stat().st_mtime <= scored + 1 for path in folder.iterdir()):
                continue
            part = _changed_part(stored, model_fingerprints(stored.evaluation.path))
        except (CorefError, OSError, ValueError):
            continue  # what cannot be read now was read when it was scored
        if part:
            reasons[folder] = say(
                f"{stored.evaluation.checkpoint}: 평가한 뒤에 {PARTS[part][0]} 파일이 바뀌었습니다. 다시 평가하세요.",
                f"{stored.evaluation.checkpoint} has other {PARTS[part][1]} now than when it was scored; evaluate it again.",
            )
    return list(reasons.values())


def items_of(stored: StoredEvaluation) -> str:
    """The fingerprint of the items that an evaluation was scored on."""
    return stored.evaluation.fingerprints.get("items", "")


def one_dtype_each(
    evaluations: Sequence[StoredEvaluation], named: set[Path], *, common: bool = False
) -> dict[Condition, tuple[list[StoredEvaluation], list[str]]]:
    """Group evaluations by their items (by none if `common`), the version of their scorer and their tokenizer,
    under one noun table of each set and each model in one dtype. Each group has a sentence for every evaluation
    dropped from it. Another dtype in `named` folders is kept."""

    def condition_of(stored: StoredEvaluation) -> Condition:
        items, tokenizer = _vocabulary(stored)
        return "" if common else items, stored.evaluation.scorer, tokenizer

    by_condition = grouped(evaluations, condition_of)
    groups = {}
    for condition, alike in by_condition.items():
        under_one_table, earlier = _keep_one_table(alike)
        kept, in_other_dtypes = _keep_one_dtype(under_one_table, named)
        groups[condition] = kept, [*earlier, *in_other_dtypes]
    return groups


def _keep_one_table(evaluations: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Keep the evaluations under the newest noun table of each set, which says what may answer; return a
    sentence for each other one. Older versions recorded no table."""
    recorded = [stored for stored in evaluations if stored.evaluation.fingerprints.get("nouns")]
    recorded.sort(key=lambda stored: stored.evaluation.evaluated_at)
    newest = {_vocabulary(stored): stored.evaluation.fingerprints["nouns"] for stored in recorded}
    earlier = [stored for stored in recorded if stored.evaluation.fingerprints["nouns"] != newest[_vocabulary(stored)]]
    reasons = [
        say(
            f"{stored.folder}: 이전 명사표로 평가해 답이 될 수 있는 단어가 다릅니다. 다시 평가하세요",
            f"{stored.folder} was scored under an earlier noun table, where other words could answer; evaluate it again",
        )
        for stored in earlier
    ]
    return [stored for stored in evaluations if stored not in earlier], reasons


def _vocabulary(stored: StoredEvaluation) -> tuple[str, str]:
    return items_of(stored), stored.evaluation.fingerprints.get("tokenizer", "")


def _keep_one_dtype(evaluations: Sequence[StoredEvaluation], named: set[Path]) -> tuple[list[StoredEvaluation], list[str]]:
    """Keep a model's evaluation in the most frequent dtype, else the newest; return a sentence for each dropped one."""
    frequency = Counter(stored.evaluation.dtype for stored in evaluations)
    by_model = grouped(evaluations, lambda stored: (_model_folder(stored), stored.evaluation.seq_len))
    kept, reasons = [], []
    for stored in evaluations:
        evaluation, alike = stored.evaluation, by_model[_model_folder(stored), stored.evaluation.seq_len]
        first = max(alike, key=lambda other: (frequency[other.evaluation.dtype], other.evaluation.evaluated_at))
        if stored is first or stored.folder.resolve() in named or evaluation.dtype == first.evaluation.dtype:
            kept.append(stored)
            continue
        reason = say(
            f"{stored.folder}: {evaluation.dtype} 평가입니다. {evaluation.checkpoint}는 {first.evaluation.dtype} 평가를 "
            "씁니다 (둘을 비교하려면 두 폴더를 직접 주세요)",
            f"{stored.folder} is in {evaluation.dtype}; {evaluation.checkpoint} is shown in {first.evaluation.dtype} "
            "(pass both folders to compare the two)",
        )
        reasons.append(reason)
    return kept, reasons


def _model_folder(stored: StoredEvaluation) -> Path:
    """The folder of a model's evaluations, without the part that names set and length."""
    folder = stored.folder.resolve()
    return folder.parents[1] / folder.name if CHECKPOINT.fullmatch(folder.name) else folder.parent


def _changed_part(stored: StoredEvaluation, current: Mapping[str, str]) -> str:
    """The part of a model (weights, tokenizer ...) that differs from what was scored; empty if none does. Older versions recorded
    fewer parts."""
    scored = stored.evaluation.fingerprints
    return next((part for part, value in current.items() if scored.get(part, value) not in ("", value)), "")


def _current_fingerprints(evaluations: Sequence[StoredEvaluation]) -> dict[str, str]:
    """A model's files as they are now; as last scored if it is gone, or if all its evaluations agree."""
    newest = max(evaluations, key=lambda stored: stored.evaluation.evaluated_at).evaluation
    last = {part: value for part, value in newest.fingerprints.items() if part in PARTS}
    if any(_changed_part(stored, last) for stored in evaluations) and is_folder(newest.path):
        with suppress(CorefError, OSError):
            now = model_fingerprints(newest.path)
            return now if not all(_changed_part(stored, now) for stored in evaluations) else last
    return last


_WRITTEN_BY_ARCHIVE = ("run", "model", "pretraining")
"""Keys of a run's results that its archive rewrites."""


def model_of(evaluated: StoredEvaluation | Entry) -> tuple[object, ...]:
    """What identifies a model wherever it lies: name, weights, objective, step, seed; its folder if no weights are recorded."""
    provenance, weights = evaluated.evaluation.provenance, evaluated.evaluation.fingerprints.get("weights")
    if not weights:
        return (evaluated.folder.resolve(),)
    trained = (provenance.objective, provenance.step, provenance.seed) if provenance else ()
    return model_label(evaluated.evaluation.checkpoint), weights, trained


def drop_copies(evaluations: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[str]]:
    """Keep one of equal evaluations, preferably one with text; return those kept, and a sentence on the others."""
    equal = grouped(evaluations, lambda stored: (stored.evaluation.identity, model_of(stored))).values()
    best = [max(alike, key=lambda stored: (not stored.archived, len(stored.evaluation.estimates))) for alike in equal]
    kept = {id(stored) for stored in best}
    pairs = zip(best, equal, strict=True)
    copies = [(stored.folder, str(first.folder)) for first, alike in pairs for stored in alike if stored is not first]
    return [stored for stored in evaluations if id(stored) in kept], copies_note(copies)


def copies_of(runs: Mapping[Path, TaskRun]) -> dict[Path, tuple[Path, ...]]:
    """The folders of an outside check's runs, each run once, with its copies; a run counts rather than its archive."""

    def numbers(folder: Path) -> str:
        result = {name: value for name, value in runs[folder].result.to_json().items() if name not in _WRITTEN_BY_ARCHIVE}
        return fingerprint(result) if runs[folder].weights else str(folder)

    equal = grouped(sorted(runs, key=lambda folder: not kind_of_folder(folder)), numbers)
    copies = {first: tuple(others) for first, *others in equal.values()}
    return {folder: copies[folder] for folder in runs if folder in copies}


def copies_note(copies: Iterable[tuple[Path, str]]) -> list[str]:
    """One sentence on all copies, given as pairs of a copy and what it repeats; none without copies."""
    pairs = list(copies)
    if not pairs:
        return []
    copy, original = pairs[0]
    if len(pairs) == 1:
        return [say(f"{copy}: 같은 결과가 {original}에 있습니다", f"{copy} repeats {original}")]
    return [
        say(
            f"두 번 나온 결과 {len(pairs):,}개 (예: {copy}, 같은 결과가 {original}에 있습니다)",
            f"{len(pairs):,} results that were found twice, such as {copy}, which repeats {original}",
        )
    ]
