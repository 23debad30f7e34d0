"""Training relation extraction. In: a recipe. Out: a run folder with one folder per seed, predictions, and re_results.json.

    RUN/recipe.yaml manifest.json events.ndjson bad-rows-<split>.jsonl re_results.json rows.npz DONE
    RUN/seed-0/{resume.pt, model/, result.json, predictions/{<split>.jsonl, <split>.json}, DONE}

A finished seed is never trained again; an interrupted one resumes from its last whole epoch. Early stopping and the selection of
the epoch use a sentence-disjoint part of train, never the file that is scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.base.binding import Binding, begin_run
from coref_automl.base.config import expect, recipe_with, to_mapping
from coref_automl.base.folders import EVENTS, is_done, mark_done
from coref_automl.base.locks import claimed
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import Progress, Shown, as_progress, quiet
from coref_automl.base.say import say
from coref_automl.corpus.batch import skipped
from coref_automl.extras.relation import scoring
from coref_automl.extras.relation.data import RelationData, RowCache, sentence_fingerprint, split_by_sentence
from coref_automl.extras.relation.evaluate import KIND, list_problems, write_summary
from coref_automl.extras.relation.markers import Marker
from coref_automl.extras.relation.recipe import FREE, ModelSettings, RelationRecipe
from coref_automl.extras.relation.results import RelationResult, RelationSeed, Scores
from coref_automl.extras.relation.rows import LABELS, LabelMask, RelationRow
from coref_automl.models.load import load_tokenizer
from coref_automl.models.model_files import detect_seq_len, model_fingerprints

VALIDATION = "train-holdout"
OnEpoch = Callable[[int, int, Scores], None]
"""Called with the seed, the number of the epoch that just ended (from 1), and its validation scores."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A recipe with its rows: all that a seed needs besides its number. `drawn_from` are the rows that a seed may learn from."""

    run: Path
    recipe: RelationRecipe
    drawn_from: tuple[RelationRow, ...]
    train: RelationData
    valid: RelationData
    dev: RelationData | None
    mask: LabelMask | None
    max_length: int


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
        >>> result = ca.relation(model, rows, out=out, seeds=1, epochs=1, max_rows=40, device="cpu")
        >>> 0 <= result.micro_f1 <= 100
        True
    """
    values = {"model": str(model), "train": str(train), "out": str(out), **options}
    return train_relation(recipe_with(RelationRecipe, None, values, "relation"), progress=as_progress(progress))


def train_relation(
    recipe: RelationRecipe, *, progress: Progress | None = None, cache: RowCache | None = None, on_epoch: OnEpoch | None = None
) -> RelationResult:
    """Train every unfinished seed, score `dev` (or, without one, the held-out part of train), and summarize.

    What `on_epoch` raises stops the run, which can be resumed.
    """
    from coref_automl.models.execution import bfloat16_note

    recipe = expect(recipe, RelationRecipe, "train_relation")
    precision_note = bfloat16_note(pick_device(recipe.device), recipe.precision)
    cache = cache or RowCache()
    work = _begin(recipe, cache)
    with claimed(work.run, KIND):
        _bind(work)
        progress = (progress or quiet()).into(work.run / EVENTS)
        if precision_note:
            progress.note(precision_note)
        for data in (work.train, work.dev):
            if data is not None:
                list_problems(work.run, data, progress)
        for seed in range(recipe.first_seed, recipe.first_seed + recipe.seeds):
            _bind(work)  # the model may have changed while the previous seed was trained
            if not is_done(folder := work.run / f"seed-{seed}"):
                seed_work = _begin(recipe, cache, seed) if recipe.redraw else work
                _train_seed(seed_work, folder, seed, progress, cache, on_epoch)
            elif not scoring.has_predictions(folder, data := work.dev or work.valid):
                scoring.predict_seed(folder, data, device=recipe.device, progress=progress, cache=cache)
        result = write_summary(work.run, work.dev or work.valid, selected_here=work.dev is None)
        mark_done(work.run)
    return result


def _begin(recipe: RelationRecipe, cache: RowCache, draw: int | None = None) -> _Work:
    run, max_length = Path(recipe.out), min(recipe.max_length, detect_seq_len(recipe.model))
    marker = Marker(load_tokenizer(recipe.model), recipe.scheme, max_length)
    whole = cache.usable(recipe.train, marker, skip_bad=recipe.skip_bad, max_rows=recipe.max_rows, draw=draw)
    dev = cache.usable(recipe.dev, marker, skip_bad=recipe.skip_bad) if recipe.dev else None
    kept, held_out = split_by_sentence(whole.rows, recipe.holdout)
    mask = None if recipe.label_mask == "off" else LabelMask.learn(kept, recipe.label_mask, support=recipe.mask_support)
    drawn_from = cache.read(recipe.train, skip_bad=recipe.skip_bad).rows if recipe.redraw else (*kept, *held_out)
    return _Work(run, recipe, drawn_from, replace(whole, rows=kept), RelationData(VALIDATION, held_out), dev, mask, max_length)


def _train_seed(work: _Work, folder: Path, seed: int, progress: Progress, cache: RowCache, on_epoch: OnEpoch | None) -> None:
    from coref_automl.extras.relation.fit import train_model
    from coref_automl.extras.relation.model import LabelledRows, build_model, probabilities, save_model
    from coref_automl.models.execution import move
    from coref_automl.training.finetuning import finish_seed

    recipe, device, settings = work.recipe, pick_device(work.recipe.device), _model_settings(work, seed)
    model, marker = build_model(settings, encoder_dropout=recipe.encoder_dropout)
    move(model, device)

    def as_tensors(data: RelationData) -> LabelledRows:
        return LabelledRows.of(data.rows, cache.mark(data.rows, marker, progress=quiet())[1], marker, work.mask, device)

    train, valid = as_tensors(work.train), as_tensors(work.valid)
    state = train_model(model, train, valid, recipe, seed, folder, progress, on_epoch)
    scored = [(work.valid, probabilities(model, valid, recipe.precision, progress=progress))]
    if work.dev is not None:
        scored.append((work.dev, probabilities(model, as_tensors(work.dev), recipe.precision, progress=progress)))
    if recipe.keep_weights:
        save_model(folder / "model", model, marker, settings)
    for data, predicted in scored:  # after the weights, whose fingerprint they carry
        scoring.store_predictions(folder, data, predicted)
    result = RelationSeed(
        seed=seed,
        best_step=state.best_step,
        best_epoch=state.best_epoch,
        epochs_run=state.epoch,
        validation=Scores.from_json(state.best),
        validation_loss=state.best_loss,
        seconds=round(state.seconds, 2),
        rows_per_second=round(state.rows_seen / max(state.seconds, 1e-9), 1),
    )
    finish_seed(folder, result)


def _model_settings(work: _Work, seed: int) -> ModelSettings:
    return ModelSettings(
        **{name: getattr(work.recipe, name) for name in ("scheme", "dropout", "distance", "precision", "label_mask")},
        head=work.recipe.head_kind,
        max_length=work.max_length,
        labels=LABELS,
        base=work.recipe.model,
        seed=seed,
        mask_bias=work.mask.as_rows() if work.mask else None,
    )


def _bind(work: _Work) -> None:
    recipe = work.recipe
    settings = {key: value for key, value in to_mapping(recipe).items() if key not in (*FREE, "model", "train")}
    fingerprints = {**model_fingerprints(recipe.model), "train": scoring.rows_fingerprint(work.drawn_from)}
    begin_run(work.run, recipe, Binding(settings=settings, fingerprints=fingerprints), lambda: _manifest(work))


def _manifest(work: _Work) -> dict[str, Any]:
    recipe = work.recipe
    return {
        "kind": KIND,
        "model": recipe.model,
        "scheme": recipe.scheme,
        "head": recipe.head_kind,
        "train": work.train.split,
        "train_rows": len(work.train.rows),
        "validation_rows": len(work.valid.rows),
        "share": work.train.share,
        "notes": _notes(work),
        "label_mask": recipe.label_mask,
        "mask_bias": work.mask.as_rows() if work.mask else None,
        "train_sentences": sorted({sentence_fingerprint(row.sentence) for row in work.drawn_from}),
    }


def _notes(work: _Work) -> list[str]:
    rows, problems = len(work.train.rows), len(work.train.problems)
    notes = [skipped(problems, work.train.split)] if problems else []
    if work.mask is not None:
        kind, forbidden = work.mask.kind, int(work.mask.forbids(work.train.rows).sum())
        notes.append(
            say(
                f"레이블 마스크({kind})가 정답 레이블을 금지하는 행: 학습 행 {rows:,}개 가운데 {forbidden:,}개.",
                f"The {kind} label mask forbids the gold label of {forbidden:,} of {rows:,} training rows.",
            )
        )
    return notes
