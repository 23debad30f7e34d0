"""Training relation extraction. In: a recipe. Out: a run folder with a seed a folder, predictions, and re_results.json.

    RUN/recipe.yaml manifest.json events.ndjson re_results.json DONE
    RUN/seed-0/{resume.pt, model/, result.json, predictions/<split>.jsonl, DONE}

A finished seed is never trained again; an interrupted one goes on from its last whole epoch. Early stopping and the choice of
the epoch look at a sentence-disjoint slice of train, never at the file that is scored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coref_automl.config import to_mapping, to_yaml
from coref_automl.errors import FolderError
from coref_automl.models.load import detect_seq_len, load_tokenizer, pick_device, weights_fingerprint
from coref_automl.progress import Progress, quiet
from coref_automl.relation.cache import RowCache
from coref_automl.relation.data import RelationData, sentence_key, split_by_sentence
from coref_automl.relation.evaluate import (
    KIND,
    has_predictions,
    mask_rows,
    predict_seed,
    rows_fingerprint,
    run_model,
    sentence_mark,
    store_predictions,
    summarise,
)
from coref_automl.relation.labels import LabelMask, gold_indices
from coref_automl.relation.markers import Marker
from coref_automl.relation.recipe import FREE, RelationRecipe
from coref_automl.relation.results import RESULTS, RelationResult, SeedResult
from coref_automl.store import MANIFEST, claim_folder, is_done, mark_done, read_json, write_json, write_text

VALIDATION = "train-holdout"


def train_relation(recipe: RelationRecipe, *, progress: Progress | None = None, cache: RowCache | None = None) -> RelationResult:
    """Train every seed that is not done yet, score `dev` (or, without one, the held-out slice of train), and sum up."""
    run, cache = Path(recipe.out), cache or RowCache()
    marker = Marker(load_tokenizer(recipe.model), recipe.scheme, min(recipe.max_length, detect_seq_len(recipe.model)))
    whole = _usable(recipe.train, marker, recipe, cache, max_rows=recipe.max_rows)
    dev = _usable(recipe.dev, marker, recipe, cache) if recipe.dev else None
    kept, held = split_by_sentence(whole.rows, recipe.holdout)
    train, valid = RelationData(whole.split, kept, whole.problems), RelationData(VALIDATION, held)
    claim_folder(run, KIND)
    mask = None if recipe.label_mask == "off" else LabelMask.learn(kept, recipe.label_mask, support=recipe.mask_support)
    _bind(run, recipe, train, valid, _notes(train, valid, dev, mask))
    progress = (progress or quiet()).into(run / "events.ndjson")
    for seed in range(recipe.first_seed, recipe.first_seed + recipe.seeds):
        folder = run / f"seed-{seed}"
        if not is_done(folder):
            _train_seed(folder, recipe, seed, train, valid, dev, mask, progress, cache)
        elif dev and not has_predictions(folder, dev):
            predict_seed(folder, dev, device=recipe.device, progress=progress, cache=cache)
    result = summarise(run, dev or valid, chosen_here=dev is None)
    write_json(run / RESULTS, result.to_json())
    mark_done(run)
    return result


def _usable(name: str, marker: Marker, recipe: RelationRecipe, cache: RowCache, *, max_rows: int | None = None) -> RelationData:
    """The rows of a file that can be marked; the others are an error now, before any training, or are skipped and counted."""
    data = cache.read(name, skip_bad=recipe.skip_bad, max_rows=max_rows)
    rows, _, problems = cache.mark(data.rows, marker, progress=quiet(), skip_bad=recipe.skip_bad)
    return RelationData(data.split, rows, (*data.problems, *problems))


def _train_seed(
    folder: Path,
    recipe: RelationRecipe,
    seed: int,
    train: RelationData,
    valid: RelationData,
    dev: RelationData | None,
    mask: LabelMask | None,
    progress: Progress,
    cache: RowCache,
) -> None:
    import torch

    from coref_automl.relation.batches import RowTensors
    from coref_automl.relation.fit import RESUME, Side, fit
    from coref_automl.relation.model import build_model, save_model

    device = pick_device(recipe.device)
    if device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
    head = recipe.head_kind
    model, marker = build_model(
        recipe.model,
        recipe.scheme,
        head,
        dropout=recipe.dropout,
        max_length=min(recipe.max_length, detect_seq_len(recipe.model)),
        seed=seed,
    )
    model.to(device)

    def side(data: RelationData) -> Side:
        _, marked, _ = cache.mark(data.rows, marker, progress=quiet())
        tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
        return Side(tensors, gold_indices(data.rows), mask_rows(mask, data.rows, device) if mask else None)

    state = fit(model, side(train), side(valid), recipe, seed, folder, progress)
    settings: dict[str, Any] = {
        "scheme": recipe.scheme,
        "head": head,
        "dropout": recipe.dropout,
        "precision": recipe.precision,
        "label_mask": recipe.label_mask,
        "base": recipe.model,
        "seed": seed,
    }
    if mask:
        settings["mask_bias"] = mask.bias.tolist()
    for data in (valid, dev):
        if data is not None:
            rows, marked, _ = cache.mark(data.rows, marker, progress=quiet())
            store_predictions(folder, data, run_model(model, marker, rows, marked, settings, device))
    if recipe.keep_weights:
        save_model(folder / "model", model, marker, settings)
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


def _bind(run: Path, recipe: RelationRecipe, train: RelationData, valid: RelationData, notes: tuple[str, ...]) -> None:
    """Write the run's manifest, or refuse a folder that was begun with something else."""
    settings = {key: value for key, value in to_mapping(recipe).items() if key not in (*FREE, "model", "train")}
    prints = {"weights": weights_fingerprint(recipe.model), "train": rows_fingerprint((*train.rows, *valid.rows))}
    binding = {"settings": settings, "fingerprints": prints}
    path = run / MANIFEST
    if path.is_file():
        held = read_json(path)["binding"]
        for name, value in {**settings, **prints}.items():
            before = {**held["settings"], **held["fingerprints"]}.get(name)
            if before != value:
                raise FolderError(
                    f"{run} was begun with {name} {before!r} and this command has {value!r}; "
                    "give the same to go on, or choose another --out."
                )
        return
    write_text(run / "recipe.yaml", to_yaml(recipe))
    write_json(
        path,
        {
            "kind": KIND,
            "model": recipe.model,
            "scheme": recipe.scheme,
            "head": recipe.head_kind,
            "train_rows": len(train.rows),
            "validation_rows": len(valid.rows),
            "notes": list(notes),
            "binding": binding,
            "train_sentences": sorted({sentence_mark(row.sentence) for row in (*train.rows, *valid.rows)}),
        },
    )


def _notes(train: RelationData, valid: RelationData, dev: RelationData | None, mask: LabelMask | None) -> tuple[str, ...]:
    """What a reader of the numbers should know."""
    notes = []
    if train.problems:
        notes.append(f"{len(train.problems):,} bad rows of {train.split} were skipped.")
    if mask is not None:
        sides = [(data.split, int(mask.forbids(data.rows).sum()), len(data.rows)) for data in (train, valid, dev) if data]
        forbidden = ", ".join(f"{count:,} of {n:,} in {split}" for split, count, n in sides)
        notes.append(f"The {mask.kind} label mask forbids the gold label of {forbidden}.")
    seen = {sentence_key(row.sentence) for row in (*train.rows, *valid.rows)}
    if dev and (shared := sum(sentence_key(row.sentence) in seen for row in dev.rows)):
        notes.append(f"{shared:,} of {len(dev.rows):,} rows of {dev.split} have a sentence that occurs in train.")
    return tuple(notes)
