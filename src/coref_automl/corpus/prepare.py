"""Preparation of a training dataset. In: a recipe. Out: a packed dataset, the same bytes for the same inputs and settings.

read    every part of every source into shards of cleaned documents       parallel, resumes after the last finished shard
choose  hold out, exclude evaluation documents, drop duplicates           seconds, in memory
tag     one Kiwi with its own threads fills the cache                     not for mlm
encode  shards into token pieces with mentions                            parallel, resumes after the last finished shard
pack    pieces into blocks, manifest, card

With `--engine ray` shards are read, tagged and encoded by tasks of a cluster; the number of workers decides no byte.
"""

from __future__ import annotations

import dataclasses
import json
from itertools import compress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import as_path, expect
from coref_automl.corpus.card import refuse_empty
from coref_automl.corpus.choice import DocumentChoice, choose_documents
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.dedup import require_near
from coref_automl.corpus.encode import EncodeSettings, special_of, tokenizer_of
from coref_automl.corpus.inputs import difference, made_from, pinned, readable_parts, sets_of
from coref_automl.corpus.manifest import (
    AGAIN,
    ANEW,
    BegunDataset,
    MadeFrom,
    WithSettings,
    read_prepared,
)
from coref_automl.corpus.overlap import evaluation_documents, write_grams
from coref_automl.corpus.pack import assemble
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import READ, Index, ReadSettings, build_index, finished_shards
from coref_automl.corpus.sources import BUNDLED, Input
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import SAME, check_binding
from coref_automl.engine.pool import Call, Engine, Returned, run_calls
from coref_automl.errors import CorefError, DatasetError, FolderError, WorkError
from coref_automl.korean import Tagger, default_cache, release_kiwi, require_kiwi
from coref_automl.locks import claimed
from coref_automl.machine import usable_cores
from coref_automl.progress import Progress, Stage, quiet
from coref_automl.records import Document
from coref_automl.store import (
    MANIFEST,
    is_done,
    kind_of_folder,
    read_jsonl,
    remove,
    write_json,
)

__all__ = ["PrepareRecipe", "prepare"]

WORK, ENCODE, SETTINGS, INPUTS = "work", "encode", "settings.json", "inputs.json"
_SMALL = 4 << 20


def prepare(recipe: PrepareRecipe, out: str | Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """Make the dataset, or resume making it; a finished one is returned as it is."""
    recipe, out = expect(recipe, PrepareRecipe, "prepare"), as_path(out, "out")
    progress = progress or quiet()
    _same_settings(recipe, out)
    if is_done(out) and kind_of_folder(out) == KIND:
        return _as_it_stands(recipe, out, progress)
    tokenizer_of.cache_clear()  # in one process too, a folder may hold another tokenizer than a while ago
    special_of(tokenizer_of(recipe.model), recipe.model)
    if recipe.near_duplicates:
        require_near()
    if recipe.mode != "mlm":
        require_kiwi()
    evaluation = evaluation_documents([Path(folder) for folder in recipe.eval_sets])
    parts, missing = readable_parts(recipe, progress)
    with claimed(out, KIND):
        if is_done(out):  # by a command that ended just now
            return _as_it_stands(recipe, out, progress)
        return _prepare(recipe, parts, missing, evaluation, out, progress)


def _prepare(
    recipe: PrepareRecipe, parts: list[Input], missing: list[str], evaluation: list[Document], out: Path, progress: Progress
) -> dict[str, Any]:
    parts = pinned(parts, _begun(out))
    made = made_from(recipe, parts, progress)
    _begin(recipe, made, out, progress)
    work, workers = out / WORK, recipe.workers or _fitting_workers(parts)

    _read(parts, recipe, work, workers, progress)
    index = build_index(work, parts=len(parts), holdout=recipe.holdout)
    choice = choose_documents(index, evaluation, near=recipe.near_duplicates, similarity=recipe.similarity, work=work)
    try:
        refuse_empty(index, choice, recipe, progress)
    except WorkError:
        if not choice.kept.any():
            remove(out)  # nothing is worth resuming, and the corrected command differs
        raise
    if evaluation:
        write_grams(evaluation, work / "grams.npy")
    _encode(index, choice, recipe, work, workers, progress)
    hub = sorted({part.name for part in parts if part.path is None})
    manifest = assemble(index, choice, recipe, evaluation, out, progress=progress, missing=missing, hub=hub, made=made)
    remove(work)
    return manifest


def _same_settings(recipe: PrepareRecipe, out: Path) -> None:
    """A folder that another recipe began, or finished, is refused; evaluation sets are known by their bytes."""
    held = out / (MANIFEST if is_done(out) else f"{WORK}/{SETTINGS}")
    if not held.is_file() or kind_of_folder(out) != KIND:
        return
    if held.name == MANIFEST:
        made = read_stored(held, WithSettings, error=DatasetError, remedy=AGAIN)
        before, sets = made.get("settings", {}), made.get("eval_sets")
    else:
        before, sets = read_stored(held, dict[str, Any], error=DatasetError, remedy=AGAIN), _begun(out).get("eval_sets")
    now = recipe.settings()
    if sets == sets_of(recipe):
        before = {**before, "eval_sets": now["eval_sets"]}
    check_binding(out, before, now, f"{SAME}, or remove it")


def _as_it_stands(recipe: PrepareRecipe, out: Path, progress: Progress) -> dict[str, Any]:
    """A finished dataset, if it would be made from the same inputs today; one of other inputs is never handed out in silence."""
    manifest = read_prepared(out)
    held = cast(MadeFrom, manifest)
    parts, _ = readable_parts(recipe, progress, hub=False)
    if changed := difference(held, made_from(recipe, parts, progress)):
        raise FolderError(
            f"{out} is finished, but {changed} since it was made; choose another --out, or remove {out} to make it again."
        )
    return manifest


def _begun(out: Path) -> BegunDataset:
    """What an unfinished dataset was begun from; empty where nothing was begun."""
    held = out / WORK / INPUTS
    return read_stored(held, BegunDataset, error=DatasetError, remedy=ANEW) if held.is_file() else {}


def _begin(recipe: PrepareRecipe, made: MadeFrom, out: Path, progress: Progress) -> None:
    """Resume what an earlier call left only if it saw the same inputs."""
    work = out / WORK
    inputs: BegunDataset = {**made, "allow_missing": recipe.allow_missing}
    if _begun(out) not in ({}, inputs):
        progress.note(
            progress.say(
                "시작한 뒤 입력이 바뀌어 처음부터 다시 만듭니다.",
                "The inputs have changed since this dataset was started, so it is started again.",
            )
        )
        remove(work)
    write_json(work / SETTINGS, recipe.settings())
    write_json(work / INPUTS, inputs)


def _read(parts: list[Input], recipe: PrepareRecipe, work: Path, workers: int, progress: Progress) -> None:
    settings = ReadSettings(
        recipe.filters(),
        near=recipe.near_duplicates,
        field=recipe.field,
        limit=recipe.limit,
        broken_ok=recipe.allow_missing,
        shard_characters=recipe.portion,
    )
    folder = work / READ
    with progress.stage("read and clean", None, "characters") as stage:
        for number in range(len(parts)):
            stage.skip(sum(shard["characters"] for shard in finished_shards(folder, number)))
        common = {"folder": str(folder), "settings": _plain(settings)}
        jobs = [{"part": _plain(part), "number": number, **common} for number, part in enumerate(parts)]
        _each("coref_automl.corpus.shards:read_job", jobs, workers, recipe.engine, stage)


def _encode(index: Index, choice: DocumentChoice, recipe: PrepareRecipe, work: Path, workers: int, progress: Progress) -> None:
    keeps = kept_by_shard(index, choice)
    stems = [work / ENCODE / shard.stem.name for shard in index.shards]
    left = [number for number, stem in enumerate(stems) if not stem.with_suffix(".json").is_file()]
    total = sum(index.shards[number].characters for number in left)
    cache = default_cache() if recipe.engine == "local" else None  # machines of a cluster tag what they encode
    if recipe.mode != "mlm" and cache is not None:
        with progress.stage("tag", total, "characters") as stage:
            tagger = Tagger(cache, workers)
            for number in left:
                rows = compress(read_jsonl(index.shards[number].texts), keeps[number].tolist())
                for amount in tagger.remember(row["text"] for row in rows):
                    stage.advance(amount)
        release_kiwi()  # its model is 300 MB, and the next stage has processes of its own
    settings = EncodeSettings(
        model=recipe.model,
        mode=recipe.mode,
        seq_len=recipe.seq_len,
        only_names=recipe.only_names,
        chain_cap=recipe.chain_cap,
        cache=cache,
        grams=work / "grams.npy" if recipe.eval_sets else None,
    )
    with progress.stage("encode", total, "characters") as stage:
        jobs = [
            {"texts": str(index.shards[number].texts), "keep": np.flatnonzero(keeps[number]).tolist(), "stem": str(stems[number])}
            for number in left
        ]
        common = {"settings": _plain(settings)}
        _each("coref_automl.corpus.encode:encode_job", [{**job, **common} for job in jobs], workers, recipe.engine, stage)


def kept_by_shard(index: Index, choice: DocumentChoice) -> list[NDArray[np.bool_]]:
    """For every shard: which of its documents are kept."""
    kept = choice.kept
    return [kept[index.rows_of(number)] for number in range(len(index.shards))]


def _fitting_workers(parts: list[Input]) -> int:
    """A process costs seconds to start: small inputs are done in this one."""
    known = sum(part.path.stat().st_size for part in parts if part.path is not None)
    small = known < _SMALL and all(part.path is not None or part.name in BUNDLED for part in parts)
    return 1 if small else usable_cores()


def _each(target: str, jobs: list[dict[str, Any]], workers: int, engine: Engine, stage: Stage) -> None:
    """Run every job, here or in processes; each writes its own files, so the number of workers decides no byte."""

    def heard(outcome: Returned) -> None:
        if outcome.error is not None:
            raise _as_ours(outcome.error) from outcome.error
        stage.advance(outcome.value)

    named = [Call(f"{target} {number}", target, job) for number, job in enumerate(jobs)]
    devices = ("cpu",) if engine == "ray" else None
    run_calls(named, workers=min(workers, len(named)), devices=devices, engine=engine, on_return=heard)


def _as_ours(error: Exception) -> CorefError:
    return error if isinstance(error, CorefError) else WorkError(f"{type(error).__name__}: {error}")


def _plain(settings: Any) -> dict[str, Any]:
    """A frozen dataclass as JSON values, as jobs carry them."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings), default=str))
    return values
