"""A trained run on data. In: its seeds and labelled rows. Out: the mean over seeds with its intervals, and what to know of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.errors import ModelError
from coref_automl.models.load import load_tokenizer
from coref_automl.progress import Progress, quiet
from coref_automl.relation.cache import RowCache
from coref_automl.relation.data import RelationData, sentence_key, sentence_mark
from coref_automl.relation.intervals import Scored, estimates
from coref_automl.relation.labels import LABELS, NO_RELATION, LabelMask, gold_indices
from coref_automl.relation.markers import Marker
from coref_automl.relation.metrics import Scores, label_table, score
from coref_automl.relation.results import RESULTS, ROWS, RelationResult, SeedResult, read_probabilities
from coref_automl.relation.scoring import has_predictions, predict_seed, rows_fingerprint, run_settings
from coref_automl.store import fingerprint, kind_of_folder, natural_order, read_json, write_json, write_jsonl, written_whole

KIND = "relation run"
_TOLD = 20


def finished_seeds(run: Path) -> list[Path]:
    """The seeds of a run that are done, in order."""
    if kind_of_folder(run) != KIND:
        raise ModelError(f"{run} is no relation run; make one with: coref-automl re train --out {run}")
    found = sorted((mark.parent for mark in run.glob("seed-*/DONE")), key=lambda path: natural_order(path.name))
    if not found:
        raise ModelError(f"{run} has no finished seed yet; run the same `coref-automl re train` again to go on.")
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
    """Every finished seed of a run on a labelled file: micro-F1, AUPRC, accuracy, n, split."""
    progress, cache, run = progress or quiet(), cache or RowCache(), Path(run)
    read = cache.read(data, skip_bad=skip_bad)
    seeds = finished_seeds(run)
    if skip_bad:
        settings = read_json(run_settings(seeds[0]))
        marker = Marker(load_tokenizer(str(seeds[0] / "model")), settings["scheme"], settings["max_length"])
        rows, _, problems = cache.mark(read.rows, marker, progress=quiet(), skip_bad=True)
        read = RelationData(read.split, rows, (*read.problems, *problems))
        list_problems(run, read, progress)
    for seed in seeds:
        if not has_predictions(seed, read):
            predict_seed(seed, read, device=device, progress=progress, cache=cache)
    result = summarise(run, read)
    if not (run / RESULTS).is_file():  # a run of an ablation: trained seed by seed, never summed up
        keep_result(run, read, result)
    return result


def list_problems(run: Path, data: RelationData, progress: Progress) -> None:
    """Tell of the rows that were skipped, the first of them on the terminal and all in bad-rows-SPLIT.jsonl."""
    if not data.problems:
        return
    path = run / f"bad-rows-{data.split}.jsonl"
    write_jsonl(path, (problem.to_json() for problem in data.problems))
    for problem in data.problems[:_TOLD]:
        progress.note(f"skipped {data.split} {problem}")
    progress.note(f"{len(data.problems):,} bad rows of {data.split} are skipped; all of them: {path}")


def keep_result(run: Path, data: RelationData, result: RelationResult) -> None:
    """The summary, and beside it what micro-F1 needs of every row, so that runs can be compared without the rows themselves.

    rows.npz: is there a relation, was one given, was it the right one (a column a seed), and a number for the row's sentence.
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
    manifest = read_json(run / "manifest.json")
    gold = gold_indices(data.rows)
    found, seeds = [], []
    for seed in (folder for folder in finished_seeds(run) if has_predictions(folder, data)):
        probabilities = read_probabilities(seed / "predictions", data.split)
        found.append(probabilities)
        held = SeedResult.from_json(read_json(seed / "result.json"))
        seeds.append(SeedResult.from_json({**held.to_json(), "scores": score(gold, probabilities).to_json()}))
    stacked = np.stack(found)
    sentences = np.array([sentence_key(row.sentence) for row in data.rows])
    scores = [entry.scores for entry in seeds if entry.scores is not None]
    mean = {name: float(np.mean([getattr(one, name) for one in scores])) for name in ("micro_f1", "auprc", "accuracy")}
    spread = {name: float(np.std([getattr(one, name) for one in scores], ddof=1)) for name in mean} if len(scores) > 1 else None
    mark_notes = (*manifest["notes"], *_notes(data, manifest, overlap=not chosen_here))
    if chosen_here:
        mark_notes += ("These rows are the slice of train that also chose the epoch: not an independent measurement.",)
    return RelationResult(
        run=str(run),
        split=data.split,
        n=len(data.rows),
        micro_f1=mean["micro_f1"],
        auprc=mean["auprc"],
        accuracy=mean["accuracy"],
        spread=spread,
        estimates=estimates(Scored(gold, stacked, sentences)),
        seeds=tuple(seeds),
        scheme=manifest["scheme"],
        head=manifest["head"],
        model=manifest["model"],
        train_rows=manifest["train_rows"],
        validation_rows=manifest["validation_rows"],
        without_overlap=_without(data, stacked, gold, set(manifest["train_sentences"])),
        labels=label_table(gold, stacked.mean(0)),
        notes=mark_notes,
        fingerprints={**manifest["binding"]["fingerprints"], **_named(data, manifest)},
    )


def _named(data: RelationData, manifest: dict[str, Any]) -> dict[str, str]:
    """Which rows, and which settings: only runs that share both can be compared for their start alone."""
    return {"data": rows_fingerprint(data.rows), "settings": fingerprint(manifest["binding"]["settings"])}


def _notes(data: RelationData, manifest: dict[str, Any], *, overlap: bool) -> tuple[str, ...]:
    """What a reader of numbers on these rows should know."""
    notes = []
    if data.problems:
        notes.append(f"{len(data.problems):,} bad rows of {data.split} were skipped.")
    if manifest["mask_bias"]:
        mask = LabelMask(manifest["label_mask"], np.array(manifest["mask_bias"], np.float32))
        forbidden = int(mask.forbids(data.rows).sum())
        notes.append(f"The label mask forbids the gold label of {forbidden:,} of the {len(data.rows):,} rows scored.")
    if (present := len({row.label for row in data.rows})) < len(LABELS):
        notes.append(f"AUPRC averages the {present} of {len(LABELS)} labels that {data.split} holds.")
    train = set(manifest["train_sentences"])
    if overlap and (shared := sum(sentence_mark(row.sentence) in train for row in data.rows)):
        notes.append(
            f"{shared:,} of the {len(data.rows):,} rows of {data.split} have a sentence that occurs in {manifest['train']}."
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
