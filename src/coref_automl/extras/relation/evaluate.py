"""A trained run on data. In: its seeds and labelled rows. Out: the mean over seeds with its intervals, and notes.

A single seed's model (the best-model of a study) can be scored too; nothing is written into its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.binding import Binding
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import ModelError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import MANIFEST, kind_of_folder, natural_order
from coref_automl.base.locks import locked
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.say import say
from coref_automl.base.store import write_jsonl
from coref_automl.corpus.batch import skipped
from coref_automl.extras.relation import scoring
from coref_automl.extras.relation.data import RelationData, RowCache, sentence_fingerprint, sentence_key, sentence_numbers
from coref_automl.extras.relation.markers import Marker
from coref_automl.extras.relation.metrics import Scored, estimates, label_table, score
from coref_automl.extras.relation.recipe import RETRAIN, is_model, model_of, settings_of
from coref_automl.extras.relation.results import RELATION_FILES, RelationResult, RelationSeed, RowFacts, Scores
from coref_automl.extras.relation.rows import LABELS, Ints, LabelMask, MaskKind, gold_indices
from coref_automl.models.load import load_tokenizer

KIND = "relation run"
METRICS = ("micro_f1", "auprc", "accuracy")
_KNOWN = ("scheme", "head", "model", "train_rows", "validation_rows", "share")
"""Fields that a result takes from the manifest."""
_LISTED = 20


class _OptionalFields(TypedDict, total=False):
    """Fields that version 0.2.0 did not write."""

    share: float


class RelationManifest(_OptionalFields):
    model: str
    scheme: str
    head: str
    train: str
    train_rows: int
    validation_rows: int
    notes: list[str]
    binding: Binding
    label_mask: MaskKind
    mask_bias: tuple[tuple[float, ...], ...] | None
    train_sentences: list[str]


def read_manifest(run: Path) -> RelationManifest:
    return read_stored(run / MANIFEST, RelationManifest)


def seeds_of(run: Path) -> list[Path]:
    """List the seeds that can answer: a run's finished ones, or the folder itself if it is a seed's model."""
    return [run] if is_model(run) else finished_seeds(run)


def finished_seeds(run: Path) -> list[Path]:
    if kind_of_folder(run) != KIND:
        raise ModelError(
            f"{run} is not a relation run, nor one seed's model (relation.json and head.safetensors); "
            "make a run with: coref-automl re train --model bundled:ko-mini --train hub:klue/re:train --out runs/re"
        )
    seeds = sorted((seed for seed in run.glob("seed-*") if (seed / "DONE").exists()), key=lambda path: natural_order(path.name))
    if not seeds:
        raise ModelError(f"{run} has no finished seed yet; run the same `coref-automl re train` again to resume.")
    return seeds


def evaluate_relation(
    run: str | Path, data: str, *, skip_bad: bool = False, device: str = "auto", progress: Progress | None = None
) -> RelationResult:
    """Evaluate every finished seed of a run, or a single seed's model, on a labelled file."""
    run = Path(run)
    with nullcontext() if is_model(run) or not run.is_dir() else locked(run):
        return _evaluate(run, data, skip_bad, device, progress or quiet(), RowCache())


def _evaluate(run: Path, data: str, skip_bad: bool, device: str, progress: Progress, cache: RowCache) -> RelationResult:
    rows, seeds = cache.read(data, skip_bad=skip_bad), seeds_of(run)
    if skip_bad:
        settings = settings_of(seeds[0])
        marker = Marker(load_tokenizer(str(model_of(seeds[0]))), settings.scheme, settings.max_length)
        rows = cache.usable(data, marker, skip_bad=True)
        list_problems(None if is_model(run) else run, rows, progress)
    if is_model(run):
        scored = scoring.seed_probabilities(run, rows.rows, device=device, progress=progress, cache=cache, name=rows.split)
        return _model_result(run, rows, scored.probabilities)
    for seed in seeds:
        if not scoring.has_predictions(seed, rows):
            scoring.predict_seed(seed, rows, device=device, progress=progress, cache=cache)
    return _run_result(run, rows)[0]


def list_problems(run: Path | None, data: RelationData, progress: Progress) -> None:
    """Report skipped rows: the first ones on the terminal, all in a run's bad-rows-SPLIT.jsonl."""
    if not data.problems:
        return
    where = ""
    if run is not None:
        path = run / f"bad-rows-{data.split}.jsonl"
        write_jsonl(path, (problem.to_json() for problem in data.problems))
        where = progress.say(f" 전체 목록: {path}", f" All of them: {path}")
    for problem in data.problems[:_LISTED]:
        progress.note(progress.say("제외", "skipped") + f": {data.split} {problem.in_words()}")
    progress.note(skipped(len(data.problems), data.split) + where)


def write_summary(run: Path, data: RelationData, *, selected_here: bool) -> RelationResult:
    """Summarize a run, and write what micro-F1 needs of every row beside it, so that runs can be compared without the rows."""
    result, probabilities = _run_result(run, data, selected_here)
    sentences = sentence_numbers(data.rows).astype(np.int32)
    RELATION_FILES.write(run, result, RowFacts.answered(gold_indices(data.rows), probabilities.argmax(2).T, sentences))
    return result


def _run_result(run: Path, data: RelationData, selected_here: bool = False) -> tuple[RelationResult, NDArray[np.float32]]:
    """Average the seeds that have predictions for these rows; `selected_here` if the same rows also selected the epoch."""
    folders = [folder for folder in finished_seeds(run) if scoring.has_predictions(folder, data)]
    probabilities = np.stack([scoring.read_probabilities(folder, data.split) for folder in folders])
    seeds = [read_stored(folder / "result.json", RelationSeed, remedy=RETRAIN) for folder in folders]
    manifest = read_manifest(run)
    trained_on = set(manifest["train_sentences"])
    unseen = np.array([sentence_fingerprint(row.sentence) not in trained_on for row in data.rows])
    mask = LabelMask.stored(manifest["label_mask"], manifest["mask_bias"], MANIFEST)
    overlap = _overlap_notes(data, selected_here, int((~unseen).sum()), manifest["train"])
    result = _average(
        run,
        data,
        probabilities,
        seeds,
        **{name: value for name, value in manifest.items() if name in _KNOWN},
        without_overlap=_without_overlap(gold_indices(data.rows), probabilities, unseen),
        notes=(*manifest["notes"], *_notes(data, mask), *overlap),
        fingerprints=_fingerprints(data, manifest["binding"]),
    )
    return result, probabilities


def _model_result(folder: Path, data: RelationData, probabilities: NDArray[np.float32]) -> RelationResult:
    settings = settings_of(folder)
    note = say(
        f"{folder}: 시드 {settings.seed} 하나의 모델입니다. 학습 데이터의 기록이 없어 학습 문장과 겹치는 행을 세지 못합니다.",
        f"{folder} is the model of seed {settings.seed} alone, without a record of its training data: rows that share a "
        "sentence with it are not counted.",
    )
    return _average(
        folder,
        data,
        np.stack([probabilities]),
        (),
        scheme=settings.scheme,
        head=settings.head,
        model=settings.base,
        notes=(note, *_notes(data, settings.mask)),
        fingerprints={"data": scoring.rows_fingerprint(data.rows)},
    )


def _average(
    run: Path, data: RelationData, probabilities: NDArray[np.float32], seeds: Sequence[RelationSeed], **known: Any
) -> RelationResult:
    """Average over the seeds of probabilities [seeds, rows, labels]; `seeds` describe their training, empty for a lone model."""
    gold = gold_indices(data.rows)
    scores = [score(gold, of_seed) for of_seed in probabilities]
    mean: dict[str, Any] = _over_seeds(np.mean, scores)
    return RelationResult(
        run=str(run),
        split=data.split,
        n=len(data.rows),
        **mean,
        spread=_over_seeds(partial(np.std, ddof=1), scores) if len(scores) > 1 else None,
        estimates=estimates(Scored(gold, probabilities, np.array([sentence_key(row.sentence) for row in data.rows]))),
        seeds=tuple(replace(seed, scores=own) for seed, own in zip(seeds, scores, strict=bool(seeds))),
        labels=label_table(gold, probabilities.mean(0)),
        **known,
    )


def _over_seeds(statistic: Callable[[list[float]], Any], scores: Sequence[Scores]) -> dict[str, float]:
    return {name: float(statistic([getattr(of_seed, name) for of_seed in scores])) for name in METRICS}


def _without_overlap(gold: Ints, probabilities: NDArray[np.float32], unseen: NDArray[np.bool_]) -> Scores | None:
    """Average over seeds on rows whose sentence is not in train; None if all or none are such."""
    if unseen.all() or not unseen.any():
        return None
    return Scores(**_over_seeds(np.mean, [score(gold[unseen], p[unseen]) for p in probabilities]), n=int(unseen.sum()))


def _fingerprints(data: RelationData, binding: Binding) -> dict[str, str]:
    """Fingerprint rows and settings: only runs that share both can be compared by their start. Seeds may differ."""
    settings = {name: 0 if name == "first_seed" else value for name, value in binding["settings"].items()}
    inputs = {name: value for name, value in binding["fingerprints"].items() if name in ("weights", "train")}
    return {**inputs, "data": scoring.rows_fingerprint(data.rows), "settings": fingerprint(settings)}


def _notes(data: RelationData, mask: LabelMask | None) -> list[str]:
    rows, split = len(data.rows), data.split
    notes = [skipped(len(data.problems), split)] if data.problems else []
    if mask is not None:
        forbidden = int(mask.forbids(data.rows).sum())
        notes.append(
            say(
                f"레이블 마스크가 정답 레이블을 금지하는 행: 평가한 {rows:,}개 가운데 {forbidden:,}개.",
                f"The label mask forbids the gold label of {forbidden:,} of the {rows:,} rows scored.",
            )
        )
    if (present := len({row.label for row in data.rows})) < len(LABELS):
        notes.append(
            say(
                f"AUPRC는 레이블 {len(LABELS)}개 가운데 {split}에 있는 {present}개의 평균입니다.",
                f"AUPRC averages the {present} of {len(LABELS)} labels that occur in {split}.",
            )
        )
    return notes


def _overlap_notes(data: RelationData, selected_here: bool, shared: int, train: str) -> list[str]:
    """Note rows that also selected the epoch, or that share a sentence with the training data."""
    if selected_here:
        return [
            say(
                "에폭을 고를 때 쓴 학습 데이터의 일부로 잰 값이므로 독립적인 측정이 아닙니다.",
                "These rows are the slice of train that also chose the epoch: not an independent measurement.",
            )
        ]
    rows, split = len(data.rows), data.split
    note = say(
        f"{split}의 행 {rows:,}개 가운데 {shared:,}개는 문장이 {train}에도 있습니다.",
        f"{shared:,} of the {rows:,} rows of {split} have a sentence that occurs in {train}.",
    )
    return [note] if shared else []
