"""A trained run on data. In: its seeds and labelled rows. Out: the mean over seeds with its intervals, and what to know of it.

One seed's model by itself (the best-model of a study) is scored too; nothing is written into its folder.
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

from coref_automl.corpus.batch import skipped
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import Binding
from coref_automl.errors import ModelError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import MANIFEST, kind_of_folder, natural_order
from coref_automl.locks import locked
from coref_automl.models.load import load_tokenizer
from coref_automl.progress import Progress, quiet
from coref_automl.relation import scoring
from coref_automl.relation.data import RelationData, RowCache, sentence_key, sentence_mark, sentence_numbers
from coref_automl.relation.markers import Marker
from coref_automl.relation.metrics import Ints, Scored, estimates, label_table, score
from coref_automl.relation.results import RELATION_FILES, RelationResult, RelationSeed, RowFacts, Scores
from coref_automl.relation.rows import LABELS, LabelMask, MaskKind, gold_indices
from coref_automl.relation.settings import AGAIN, is_model, model_of, settings_of
from coref_automl.say import say
from coref_automl.store import write_jsonl

KIND = "relation run"
METRICS = ("micro_f1", "auprc", "accuracy")
_KNOWN = ("scheme", "head", "model", "train_rows", "validation_rows", "share")
"""What a result says of its run in the words of the manifest."""
_LISTED = 20


class _Newer(TypedDict, total=False):
    """What version 0.2.0 did not write."""

    share: float


class RelationManifest(_Newer):
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
    """The seeds that can answer: the finished ones of a run, or the folder itself where it is one seed's model."""
    return [run] if is_model(run) else finished_seeds(run)


def finished_seeds(run: Path) -> list[Path]:
    if kind_of_folder(run) != KIND:
        raise ModelError(
            f"{run} is not a relation run, nor one seed's model (relation.json and head.safetensors); "
            "make a run with: coref-automl re train --model bundled:ko-mini --train hub:klue/re:train --out runs/re"
        )
    found = sorted((seed for seed in run.glob("seed-*") if (seed / "DONE").exists()), key=lambda path: natural_order(path.name))
    if not found:
        raise ModelError(f"{run} has no finished seed yet; run the same `coref-automl re train` again to resume.")
    return found


def evaluate_relation(
    run: str | Path, data: str, *, skip_bad: bool = False, device: str = "auto", progress: Progress | None = None
) -> RelationResult:
    """Every finished seed of a run, or one seed's model, on a labelled file: micro-F1, AUPRC, accuracy, n, split."""
    run = Path(run)
    with nullcontext() if is_model(run) or not run.is_dir() else locked(run):
        return _evaluate(run, data, skip_bad, device, progress or quiet(), RowCache())


def _evaluate(run: Path, data: str, skip_bad: bool, device: str, progress: Progress, cache: RowCache) -> RelationResult:
    read, seeds = cache.read(data, skip_bad=skip_bad), seeds_of(run)
    if skip_bad:
        settings = settings_of(seeds[0])
        marker = Marker(load_tokenizer(str(model_of(seeds[0]))), settings.scheme, settings.max_length)
        read = cache.usable(data, marker, skip_bad=True)
        list_problems(None if is_model(run) else run, read, progress)
    if is_model(run):
        found = scoring.seed_probabilities(run, read.rows, device=device, progress=progress, cache=cache, name=read.split)
        return _of_model(run, read, found[1])
    for seed in seeds:
        if not scoring.has_predictions(seed, read):
            scoring.predict_seed(seed, read, device=device, progress=progress, cache=cache)
    return _summarised(run, read)[0]


def list_problems(run: Path | None, data: RelationData, progress: Progress) -> None:
    """Report skipped rows, the first of them on the terminal and all in a run's bad-rows-SPLIT.jsonl."""
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


def keep_summary(run: Path, data: RelationData, *, chosen_here: bool) -> RelationResult:
    """The summary, and beside it what micro-F1 needs of every row, so that runs can be compared without the rows themselves."""
    result, probabilities = _summarised(run, data, chosen_here)
    sentences = sentence_numbers(data.rows).astype(np.int32)
    RELATION_FILES.write(run, result, RowFacts.answered(gold_indices(data.rows), probabilities.argmax(2).T, sentences))
    return result


def _summarised(run: Path, data: RelationData, chosen_here: bool = False) -> tuple[RelationResult, NDArray[np.float32]]:
    """The mean over the seeds that have predictions for these rows. `chosen_here`: the same rows also chose the epoch."""
    seeds = [folder for folder in finished_seeds(run) if scoring.has_predictions(folder, data)]
    probabilities = np.stack([scoring.read_probabilities(seed, data.split) for seed in seeds])
    trained = [read_stored(seed / "result.json", RelationSeed, remedy=AGAIN) for seed in seeds]
    manifest = read_manifest(run)
    learned = set(manifest["train_sentences"])
    fresh = np.array([sentence_mark(row.sentence) not in learned for row in data.rows])
    mask = LabelMask.stored(manifest["label_mask"], manifest["mask_bias"], MANIFEST)
    shared = _not_independent(data, chosen_here, int((~fresh).sum()), manifest["train"])
    result = _sum_up(
        run,
        data,
        probabilities,
        trained,
        **{name: value for name, value in manifest.items() if name in _KNOWN},
        without_overlap=_without_overlap(gold_indices(data.rows), probabilities, fresh),
        notes=(*manifest["notes"], *_notes(data, mask), *shared),
        fingerprints=_fingerprints(data, manifest["binding"]),
    )
    return result, probabilities


def _of_model(folder: Path, data: RelationData, probabilities: Any) -> RelationResult:
    settings = settings_of(folder)
    alone = say(
        f"{folder}: 시드 {settings.seed} 하나의 모델입니다. 학습 데이터의 기록이 없어 학습 문장과 겹치는 행을 세지 못합니다.",
        f"{folder} is the model of seed {settings.seed} alone, without a record of its training data: rows that share a "
        "sentence with it are not counted.",
    )
    return _sum_up(
        folder,
        data,
        np.stack([probabilities]),
        (),
        scheme=settings.scheme,
        head=settings.head,
        model=settings.base,
        notes=(alone, *_notes(data, settings.mask)),
        fingerprints={"data": scoring.rows_fingerprint(data.rows)},
    )


def _sum_up(
    run: Path, data: RelationData, probabilities: NDArray[np.float32], trained: Sequence[RelationSeed], **known: Any
) -> RelationResult:
    """The mean over seeds, [seeds, rows, labels]; `trained` is what they know of their training, empty for a lone model."""
    gold = gold_indices(data.rows)
    scores = [score(gold, one) for one in probabilities]
    mean: dict[str, Any] = _over_seeds(np.mean, scores)
    return RelationResult(
        run=str(run),
        split=data.split,
        n=len(data.rows),
        **mean,
        spread=_over_seeds(partial(np.std, ddof=1), scores) if len(scores) > 1 else None,
        estimates=estimates(Scored(gold, probabilities, np.array([sentence_key(row.sentence) for row in data.rows]))),
        seeds=tuple(replace(one, scores=own) for one, own in zip(trained, scores, strict=bool(trained))),
        labels=label_table(gold, probabilities.mean(0)),
        **known,
    )


def _over_seeds(of: Callable[[list[float]], Any], scores: Sequence[Scores]) -> dict[str, float]:
    return {name: float(of([getattr(one, name) for one in scores])) for name in METRICS}


def _without_overlap(gold: Ints, probabilities: NDArray[np.float32], fresh: NDArray[np.bool_]) -> Scores | None:
    """The mean over seeds on rows whose sentence is not in train; None where all or none are such."""
    if fresh.all() or not fresh.any():
        return None
    return Scores(**_over_seeds(np.mean, [score(gold[fresh], one[fresh]) for one in probabilities]), n=int(fresh.sum()))


def _fingerprints(data: RelationData, binding: Binding) -> dict[str, str]:
    """Which rows, and which settings: only runs that share both can be compared for their start alone. Seeds may differ."""
    settings = {name: 0 if name == "first_seed" else value for name, value in binding["settings"].items()}
    begun = {name: value for name, value in binding["fingerprints"].items() if name in ("weights", "train")}
    return {**begun, "data": scoring.rows_fingerprint(data.rows), "settings": fingerprint(settings)}


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


def _not_independent(data: RelationData, chosen_here: bool, shared: int, train: str) -> list[str]:
    """Rows that also chose the epoch, or that have a sentence of the training data."""
    if chosen_here:
        return [
            say(
                "에폭을 고를 때 쓴 학습 데이터의 일부로 잰 값이므로 독립적인 측정이 아닙니다.",
                "These rows are the slice of train that also chose the epoch: not an independent measurement.",
            )
        ]
    rows, split = len(data.rows), data.split
    both = say(
        f"{split}의 행 {rows:,}개 가운데 {shared:,}개는 문장이 {train}에도 있습니다.",
        f"{shared:,} of the {rows:,} rows of {split} have a sentence that occurs in {train}.",
    )
    return [both] if shared else []
