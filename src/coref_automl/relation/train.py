"""Training relation extraction. In: a recipe. Out: a run folder with one folder per seed, predictions, and re_results.json.

    RUN/recipe.yaml manifest.json events.ndjson re_results.json DONE
    RUN/seed-0/{resume.pt, model/, result.json, predictions/<split>.jsonl, DONE}

A finished seed is never trained again; an interrupted one resumes from its last whole epoch. Early stopping and the choice of
the epoch look at a sentence-disjoint slice of train, never at the file that is scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.config import expect, recipe_with, to_mapping, to_yaml
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import Binding, check_binding
from coref_automl.locks import claimed
from coref_automl.machine import pick_device
from coref_automl.models.attention import move
from coref_automl.models.load import detect_seq_len, load_tokenizer
from coref_automl.models.model_files import model_prints
from coref_automl.progress import Progress, Shown, as_progress, quiet
from coref_automl.relation.data import RelationData, RowCache, sentence_mark, split_by_sentence
from coref_automl.relation.evaluate import KIND, keep_result, list_problems, summarise
from coref_automl.relation.labels import LABELS, LabelMask, gold_indices
from coref_automl.relation.markers import Marker
from coref_automl.relation.metrics import Scores
from coref_automl.relation.recipe import FREE, RelationRecipe
from coref_automl.relation.results import RelationResult, SeedResult
from coref_automl.relation.scoring import (
    has_predictions,
    mask_rows,
    predict_seed,
    rows_fingerprint,
    run_model,
    store_predictions,
)
from coref_automl.relation.stored import AGAIN, ModelSettings, read_manifest
from coref_automl.say import say, skipped
from coref_automl.store import MANIFEST, is_done, mark_done, write_json, write_text

VALIDATION = "train-holdout"


@dataclass(frozen=True, slots=True)
class _Work:
    """A recipe with its rows: all that one seed needs besides its number."""

    run: Path
    recipe: RelationRecipe
    train: RelationData
    valid: RelationData
    dev: RelationData | None
    mask: LabelMask | None
    max_length: int
    on_epoch: Callable[[int, int, Scores], None] | None = None


def relation(model: str | Path, train: str | Path, *, out: str | Path, progress: Shown = None, **options: Any) -> RelationResult:
    """Fine-tune a model on relation rows and score it, as `coref-automl re train` does.

    Args:
        model: hub id, folder, or bundled:ko-mini.
        train: file or named source of relation rows.
        out: folder of the run.
        progress: True shows progress on standard error.
        options: every option of `coref-automl re train` with underscores: dev, scheme, seeds, epochs, max_rows, ...

    Example:
        >>> import coref_automl as ca
        >>> found = ca.relation(model, rows, out=out, seeds=1, epochs=1, max_rows=40, device="cpu")
        >>> 0 <= found.micro_f1 <= 100
        True
    """
    given = {"model": str(model), "train": str(train), "out": str(out), **options}
    return train_relation(recipe_with(RelationRecipe, None, given, "relation"), progress=as_progress(progress))


def train_relation(
    recipe: RelationRecipe,
    *,
    progress: Progress | None = None,
    cache: RowCache | None = None,
    on_epoch: Callable[[int, int, Scores], None] | None = None,
) -> RelationResult:
    """Train every seed that is not done yet, score `dev` (or, without one, the held-out slice of train), and sum up.

    `on_epoch(seed, epoch, scores)` hears of every epoch on the held-out slice; what it raises stops the run, which can resume.
    """
    from coref_automl.models.precision import rounding_note

    recipe = expect(recipe, RelationRecipe, "train_relation")
    slow = rounding_note(pick_device(recipe.device), recipe.precision)
    cache = cache or RowCache()
    work = replace(_begin(recipe, cache), on_epoch=on_epoch)
    with claimed(work.run, KIND):
        return _train(work, progress or quiet(), cache, slow)


def _train(work: _Work, progress: Progress, cache: RowCache, slow: str | None) -> RelationResult:
    recipe = work.recipe
    _bind(work)
    progress = progress.into(work.run / "events.ndjson")
    if slow:
        progress.note(slow)
    for data in (work.train, work.dev):
        if data is not None:
            list_problems(work.run, data, progress)
    for seed in range(recipe.first_seed, recipe.first_seed + recipe.seeds):
        _bind(work)  # the model may have changed while the seed before was trained
        _run_seed(work, seed, progress, cache)
    result = summarise(work.run, work.dev or work.valid, chosen_here=work.dev is None)
    keep_result(work.run, work.dev or work.valid, result)
    mark_done(work.run)
    return result


def train_one_seed(
    recipe: RelationRecipe, seed: int, *, progress: Progress | None = None, cache: RowCache | None = None
) -> SeedResult:
    """One seed of a run whose folder is held: for an ablation that goes through its variants seed by seed. Does not sum up."""
    cache = cache or RowCache()
    work = _begin(recipe, cache)
    _bind(work)
    return _run_seed(work, seed, (progress or quiet()).into(work.run / "events.ndjson"), cache)


def _begin(recipe: RelationRecipe, cache: RowCache) -> _Work:
    run, max_length = Path(recipe.out), min(recipe.max_length, detect_seq_len(recipe.model))
    marker = Marker(load_tokenizer(recipe.model), recipe.scheme, max_length)
    whole = _usable(recipe.train, marker, recipe, cache, max_rows=recipe.max_rows)
    dev = _usable(recipe.dev, marker, recipe, cache) if recipe.dev else None
    kept, held = split_by_sentence(whole.rows, recipe.holdout)
    mask = None if recipe.label_mask == "off" else LabelMask.learn(kept, recipe.label_mask, support=recipe.mask_support)
    train, valid = RelationData(whole.split, kept, whole.problems), RelationData(VALIDATION, held)
    return _Work(run, recipe, train, valid, dev, mask, max_length)


def _run_seed(work: _Work, seed: int, progress: Progress, cache: RowCache) -> SeedResult:
    folder = work.run / f"seed-{seed}"
    if not is_done(folder):
        _train_seed(work, folder, seed, progress, cache)
    elif not has_predictions(folder, data := work.dev or work.valid):
        predict_seed(folder, data, device=work.recipe.device, progress=progress, cache=cache)
    return read_stored(folder / "result.json", SeedResult, remedy=AGAIN)


def _usable(name: str, marker: Marker, recipe: RelationRecipe, cache: RowCache, *, max_rows: int | None = None) -> RelationData:
    """The rows of a file that can be marked; the others are an error now, before any training, or are skipped and counted."""
    data = cache.read(name, skip_bad=recipe.skip_bad, max_rows=max_rows)
    rows, _, problems = cache.mark(data.rows, marker, progress=quiet(), skip_bad=recipe.skip_bad, name=name)
    return RelationData(data.split, rows, (*data.problems, *problems))


def _train_seed(work: _Work, folder: Path, seed: int, progress: Progress, cache: RowCache) -> None:
    from coref_automl.relation.fit import fit
    from coref_automl.relation.model import build_model, save_model
    from coref_automl.relation.tensors import LabelledRows, RowTensors
    from coref_automl.training.finetuning import RESUME

    recipe, mask, device = work.recipe, work.mask, pick_device(work.recipe.device)
    model, marker = build_model(
        recipe.model,
        recipe.scheme,
        recipe.head_kind,
        dropout=recipe.dropout,
        max_length=work.max_length,
        seed=seed,
        distance=recipe.distance,
        encoder_dropout=recipe.encoder_dropout,
    )
    move(model, device)

    def side(data: RelationData) -> LabelledRows:
        _, marked, _ = cache.mark(data.rows, marker, progress=quiet())
        tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
        return LabelledRows(tensors, gold_indices(data.rows), mask_rows(mask, data.rows, device) if mask else None)

    state = fit(model, side(work.train), side(work.valid), recipe, seed, folder, progress, work.on_epoch)
    settings: ModelSettings = {
        "scheme": recipe.scheme,
        "head": recipe.head_kind,
        "dropout": recipe.dropout,
        "distance": recipe.distance,
        "precision": recipe.precision,
        "label_mask": recipe.label_mask,
        "base": recipe.model,
        "seed": seed,
        "max_length": marker.max_length,
        "labels": list(LABELS),
    }
    if mask:
        settings["mask_bias"] = mask.bias.tolist()
    found: list[tuple[RelationData, Any]] = []
    for data in (work.valid, work.dev):
        if data is not None:
            rows, marked, _ = cache.mark(data.rows, marker, progress=quiet())
            found.append((data, run_model(model, marker, rows, marked, settings, device, progress)))
    if recipe.keep_weights:
        save_model(folder / "model", model, marker, settings)
    for data, probabilities in found:
        if data is work.dev or work.dev is None or not recipe.compact:
            store_predictions(folder, data, probabilities, compact=recipe.compact)
    done = SeedResult(
        seed=seed,
        best_step=state.best_step,
        best_epoch=state.best_epoch,
        epochs_run=state.epoch,
        validation=state.best,
        validation_loss=state.best_loss,
        seconds=round(state.seconds, 2),
        rows_per_second=round(state.rows_seen / max(state.seconds, 1e-9), 1),
    )
    write_json(folder / "result.json", done.to_json())
    mark_done(folder)
    (folder / RESUME).unlink(missing_ok=True)


def _bind(work: _Work) -> None:
    """Write the run's manifest, or refuse a folder that was begun with something else."""
    recipe, rows = work.recipe, (*work.train.rows, *work.valid.rows)
    settings = {key: value for key, value in to_mapping(recipe).items() if key not in (*FREE, "model", "train")}
    binding = Binding(settings=settings, fingerprints={**model_prints(recipe.model), "train": rows_fingerprint(rows)})
    path = work.run / MANIFEST
    if path.is_file():
        check_binding(work.run, read_manifest(work.run)["binding"] or {}, binding)
        return
    write_text(work.run / "recipe.yaml", to_yaml(recipe))
    write_json(
        path,
        {
            "kind": KIND,
            "model": recipe.model,
            "scheme": recipe.scheme,
            "head": recipe.head_kind,
            "train": work.train.split,
            "train_rows": len(work.train.rows),
            "validation_rows": len(work.valid.rows),
            "notes": list(_notes(work)),
            "binding": binding,
            "label_mask": recipe.label_mask,
            "mask_bias": work.mask.bias.tolist() if work.mask else None,
            "train_sentences": sorted({sentence_mark(row.sentence) for row in rows}),
        },
    )


def _notes(work: _Work) -> tuple[str, ...]:
    """What a reader of any number of this run should know."""
    notes = []
    if work.train.problems:
        notes.append(skipped(len(work.train.problems), work.train.split))
    if work.mask is not None:
        forbidden = int(work.mask.forbids(work.train.rows).sum())
        kind, rows = work.mask.kind, len(work.train.rows)
        told = say(
            f"레이블 마스크({kind})가 정답 레이블을 금지하는 행: 학습 행 {rows:,}개 가운데 {forbidden:,}개.",
            f"The {kind} label mask forbids the gold label of {forbidden:,} of {rows:,} training rows.",
        )
        notes.append(told)
    return tuple(notes)
