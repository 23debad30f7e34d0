"""A trained run on data. In: its seeds and labelled rows. Out: the mean over seeds with its intervals, and what to know of it.

One seed's model by itself (the best-model of a study) is scored too; nothing is written into its folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.decoder import read_stored
from coref_automl.errors import ModelError
from coref_automl.locks import locked
from coref_automl.models.load import load_tokenizer
from coref_automl.progress import Progress, quiet
from coref_automl.relation.data import RelationData, RowCache, sentence_key, sentence_mark
from coref_automl.relation.labels import LABELS, NO_RELATION, LabelMask, gold_indices
from coref_automl.relation.markers import Marker
from coref_automl.relation.metrics import Scored, Scores, estimates, label_table, score
from coref_automl.relation.results import RESULTS, ROWS, RelationResult, SeedResult, read_probabilities
from coref_automl.relation.scoring import (
    has_predictions,
    is_model,
    predict_seed,
    rows_fingerprint,
    run_settings,
    seed_probabilities,
    settings_of,
)
from coref_automl.relation.stored import AGAIN, RunManifest, read_manifest
from coref_automl.say import say, skipped
from coref_automl.store import (
    fingerprint,
    kind_of_folder,
    natural_order,
    write_json,
    write_jsonl,
    written_whole,
)

KIND = "relation run"
_LISTED = 20


def seeds_of(run: Path) -> list[Path]:
    """The seeds that can answer: the finished ones of a run, or the folder itself where it is one seed's model."""
    return [run] if is_model(run) else finished_seeds(run)


def finished_seeds(run: Path) -> list[Path]:
    """The seeds of a run that are done, in order."""
    if kind_of_folder(run) != KIND:
        raise ModelError(
            f"{run} is not a relation run, nor one seed's model (relation.json and head.safetensors); "
            f"make a run with: coref-automl re train --out {run}"
        )
    found = sorted((mark.parent for mark in run.glob("seed-*/DONE")), key=lambda path: natural_order(path.name))
    if not found:
        raise ModelError(f"{run} has no finished seed yet; run the same `coref-automl re train` again to resume.")
    return found


def evaluate_relation(
    run: str | Path,
    data: str,
    *,
    skip_bad: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    cache: RowCache | None = None,
) -> RelationResult:
    """Every finished seed of a run, or one seed's model, on a labelled file: micro-F1, AUPRC, accuracy, n, split."""
    progress, cache, run = progress or quiet(), cache or RowCache(), Path(run)
    with nullcontext() if is_model(run) or not run.is_dir() else locked(run):
        return _evaluate(run, data, skip_bad, device, progress, cache)


def _evaluate(run: Path, data: str, skip_bad: bool, device: str, progress: Progress, cache: RowCache) -> RelationResult:
    read = cache.read(data, skip_bad=skip_bad)
    seeds = seeds_of(run)
    if skip_bad:
        path = run_settings(seeds[0])
        settings = settings_of(seeds[0])
        marker = Marker(load_tokenizer(str(path.parent)), settings["scheme"], settings["max_length"])
        rows, _, problems = cache.mark(read.rows, marker, progress=quiet(), skip_bad=True)
        read = RelationData(read.split, rows, (*read.problems, *problems))
        list_problems(None if is_model(run) else run, read, progress)
    if is_model(run):
        return _of_model(run, read, seed_probabilities(run, read, device=device, progress=progress, cache=cache))
    for seed in seeds:
        if not has_predictions(seed, read):
            predict_seed(seed, read, device=device, progress=progress, cache=cache)
    result = summarise(run, read)
    if not (run / RESULTS).is_file():  # a run of an ablation: trained seed by seed, never summed up
        keep_result(run, read, result)
    return result


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


def keep_result(run: Path, data: RelationData, result: RelationResult) -> None:
    """The summary, and beside it what micro-F1 needs of every row, so that runs can be compared without the rows themselves.

    rows.npz: is there a relation, was one given, was it the right one (one column per seed), and a number for the row's sentence.
    """
    gold = gold_indices(data.rows)
    seeds = [run / f"seed-{one.seed}" / "predictions" for one in result.seeds]
    predicted = np.stack([read_probabilities(folder, data.split).argmax(1) for folder in seeds], axis=1)
    relation = gold != NO_RELATION
    right = (predicted == gold[:, None]) & relation[:, None]
    sentences = np.unique([sentence_key(row.sentence) for row in data.rows], return_inverse=True)[1].astype(np.int32)
    with written_whole(run / ROWS, "wb") as handle:
        np.savez_compressed(handle, gold=relation, right=right, given=predicted != NO_RELATION, sentences=sentences)
    write_json(run / RESULTS, result.to_json())


def summarise(run: Path, data: RelationData, *, chosen_here: bool = False) -> RelationResult:
    """The mean over the seeds that have predictions for these rows. `chosen_here`: the same rows also chose the epoch."""
    manifest = read_manifest(run)
    seeds = [folder for folder in finished_seeds(run) if has_predictions(folder, data)]
    stacked = np.stack([read_probabilities(seed / "predictions", data.split) for seed in seeds])
    held = [read_stored(seed / "result.json", SeedResult, remedy=AGAIN) for seed in seeds]
    return _sum_up(run, data, manifest, held, stacked, chosen_here=chosen_here)


def _of_model(folder: Path, data: RelationData, probabilities: Any) -> RelationResult:
    """The scores of one seed's model by itself, with what it knows in place of a run's manifest."""
    settings = settings_of(folder)
    alone = say(
        f"{folder}: 시드 {settings['seed']} 하나의 모델입니다. 학습 데이터의 기록이 없어 학습 문장과 겹치는 행을 세지 못합니다.",
        f"{folder} is the model of seed {settings['seed']} alone, without a record of its training data: rows that share a "
        "sentence with it are not counted.",
    )
    manifest: RunManifest = {
        "model": settings["base"],
        "scheme": settings["scheme"],
        "head": settings["head"],
        "train": "",
        "train_rows": None,
        "validation_rows": None,
        "notes": [alone],
        "binding": None,
        "label_mask": settings.get("label_mask", "off"),
        "mask_bias": settings.get("mask_bias"),
        "train_sentences": [],
    }
    return _sum_up(folder, data, manifest, (), np.stack([probabilities]))


def _sum_up(
    run: Path,
    data: RelationData,
    manifest: RunManifest,
    held: Sequence[SeedResult],
    stacked: Any,
    *,
    chosen_here: bool = False,
) -> RelationResult:
    """The mean over stacked probabilities, a seed each; `held` is what the seeds know of their training, if anything."""
    gold = gold_indices(data.rows)
    scores = [score(gold, probabilities) for probabilities in stacked]
    sentences = np.array([sentence_key(row.sentence) for row in data.rows])
    mean = {name: float(np.mean([getattr(one, name) for one in scores])) for name in ("micro_f1", "auprc", "accuracy")}
    spread = {name: float(np.std([getattr(one, name) for one in scores], ddof=1)) for name in mean} if len(scores) > 1 else None
    mark_notes = (*manifest["notes"], *_notes(data, manifest, overlap=not chosen_here))
    if chosen_here:
        told = say(
            "에폭을 고를 때 쓴 학습 데이터의 일부로 잰 값이므로 독립적인 측정이 아닙니다.",
            "These rows are the slice of train that also chose the epoch: not an independent measurement.",
        )
        mark_notes += (told,)
    return RelationResult(
        run=str(run),
        split=data.split,
        n=len(data.rows),
        micro_f1=mean["micro_f1"],
        auprc=mean["auprc"],
        accuracy=mean["accuracy"],
        spread=spread,
        estimates=estimates(Scored(gold, stacked, sentences)),
        seeds=tuple(replace(one, scores=own) for one, own in zip(held, scores, strict=bool(held))),
        scheme=manifest["scheme"],
        head=manifest["head"],
        model=manifest["model"],
        train_rows=manifest["train_rows"],
        validation_rows=manifest["validation_rows"],
        without_overlap=_without(data, stacked, gold, set(manifest["train_sentences"])),
        labels=label_table(gold, stacked.mean(0)),
        notes=mark_notes,
        fingerprints=_fingerprints(data, manifest),
    )


def _fingerprints(data: RelationData, manifest: RunManifest) -> dict[str, str]:
    """Which rows, and which settings: only runs that share both can be compared for their start alone. Seeds may differ."""
    rows, binding = {"data": rows_fingerprint(data.rows)}, manifest["binding"]
    if not binding:
        return rows
    settings = {name: 0 if name == "first_seed" else value for name, value in binding["settings"].items()}
    begun = {name: value for name, value in binding["fingerprints"].items() if name in ("weights", "train")}
    return {**begun, **rows, "settings": fingerprint(settings)}


def _notes(data: RelationData, manifest: RunManifest, *, overlap: bool) -> tuple[str, ...]:
    """What a reader of numbers on these rows should know."""
    notes = []
    if data.problems:
        notes.append(skipped(len(data.problems), data.split))
    if manifest["mask_bias"]:
        mask = LabelMask(manifest["label_mask"], np.array(manifest["mask_bias"], np.float32))
        forbidden = int(mask.forbids(data.rows).sum())
        notes.append(
            say(
                f"레이블 마스크가 정답 레이블을 금지하는 행: 평가한 {len(data.rows):,}개 가운데 {forbidden:,}개.",
                f"The label mask forbids the gold label of {forbidden:,} of the {len(data.rows):,} rows scored.",
            )
        )
    if (present := len({row.label for row in data.rows})) < len(LABELS):
        notes.append(
            say(
                f"AUPRC는 레이블 {len(LABELS)}개 가운데 {data.split}에 있는 {present}개의 평균입니다.",
                f"AUPRC averages the {present} of {len(LABELS)} labels that occur in {data.split}.",
            )
        )
    train = set(manifest["train_sentences"])
    if overlap and (shared := sum(sentence_mark(row.sentence) in train for row in data.rows)):
        notes.append(
            say(
                f"{data.split}의 행 {len(data.rows):,}개 가운데 {shared:,}개는 문장이 {manifest['train']}에도 있습니다.",
                f"{shared:,} of the {len(data.rows):,} rows of {data.split} have a sentence that occurs in {manifest['train']}.",
            )
        )
    return tuple(notes)


def _without(data: RelationData, stacked: Any, gold: Any, train: set[str]) -> Scores | None:
    """The mean over seeds on rows whose sentence is not in train; None when there is no overlap."""
    fresh = np.array([sentence_mark(row.sentence) not in train for row in data.rows])
    if fresh.all() or not fresh.any():
        return None
    each = [score(gold[fresh], probabilities[fresh]) for probabilities in stacked]
    names = ("micro_f1", "auprc", "accuracy")
    return Scores(**{name: float(np.mean([getattr(one, name) for one in each])) for name in names}, n=int(fresh.sum()))
