"""Preparation of a training dataset. In: a recipe. Out: a packed dataset, the same bytes for the same inputs and settings.

survey  fingerprint every file, cut large ones into spans of lines        one pass over their bytes
read    every part of every source into shards of cleaned documents       parallel, resumes after the last finished shard
choose  hold out, exclude evaluation documents, drop duplicates           near-duplicates of a large corpus parallel, by band
tag     one Kiwi with its own threads fills the cache                     not for mlm, not on a cluster
encode  shards into token pieces with mentions                            parallel, resumes after the last finished shard
pack    pieces into blocks, manifest, card

With `--engine ray` parts are read, pairs sought, shards tagged and encoded by tasks of a cluster; the number of workers decides
no byte. What kills its worker again and again is named at the end; `--allow-missing` sets it aside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.config import as_path, expect, to_mapping
from coref_automl.corpus.card import counted, refuse_sources
from coref_automl.corpus.choice import KEPT, Choice, choose_documents
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.dedup import require_near
from coref_automl.corpus.encode import EncodeSettings, set_shard_aside, special_of, store_tokenizer, tokenizer_of
from coref_automl.corpus.inputs import bytes_of, difference, pinned, readable_parts, sets_of, surveyed
from coref_automl.corpus.manifest import AGAIN, ANEW, BegunDataset, MadeFrom, WithSettings, read_prepared
from coref_automl.corpus.overlap import evaluation_documents, write_grams
from coref_automl.corpus.pack import assemble
from coref_automl.corpus.recipe import PrepareRecipe, Texts
from coref_automl.corpus.shards import READ, Index, build_index, finished_shards, set_part_aside
from coref_automl.corpus.sources import BUNDLED, Input
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import SAME, check_binding
from coref_automl.engine.pool import Call, Returned, run_calls
from coref_automl.errors import CorefError, DatasetError, FolderError, WorkerDied, WorkError
from coref_automl.folders import MANIFEST, is_done, kind_of_folder, remove
from coref_automl.korean import Tagger, default_cache, release_kiwi, require_kiwi
from coref_automl.locks import claimed
from coref_automl.machine import usable_cores
from coref_automl.progress import Progress, quiet
from coref_automl.records import Document
from coref_automl.store import atomic_write, read_jsonl, write_json, write_text

WORK, ENCODE, DEDUP, INPUTS, PARTS = "work", "encode", "dedup", "inputs.json", "parts.json"
_SMALL = 4 << 20
_RETRIES = 3
"""Times that a part or shard is tried again when its worker dies: a lost node is not the shard's fault."""


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


def prepare_texts(
    texts: Texts, folder: Path, seq_len: int, model: str, eval_sets: Iterable[Path], progress: Progress, holdout: float = 0.0
) -> Path:
    """One dataset for all runs: blocks with noun chains. They differ in what they hide, and in nothing else."""
    wanted = PrepareRecipe(
        mode="combined", sources=texts.sources, model=model, seq_len=seq_len, eval_sets=tuple(map(str, eval_sets)),
        holdout=holdout, limit=texts.limit, near_duplicates=texts.near_duplicates,
    )  # fmt: skip
    prepare(wanted, folder, progress=progress)
    return folder


def _prepare(
    recipe: PrepareRecipe, parts: list[Input], missing: list[str], evaluation: list[Document], out: Path, progress: Progress
) -> dict[str, Any]:
    made, parts = surveyed(recipe, pinned(parts, _begun(out)), progress)
    _begin(recipe, made, parts, out, progress)
    work, workers = out / WORK, recipe.workers or _fitting_workers(parts)

    _read(parts, recipe, work, workers, progress)
    index = build_index(work, parts=len(parts), holdout=recipe.holdout)
    choice = _choose(index, evaluation, recipe, work, workers, progress)
    try:
        refuse_sources(counted(index, choice), recipe, progress)  # before the long work begins
    except WorkError:
        if not (choice == KEPT).any():
            remove(out)  # nothing is worth resuming, and the corrected command differs
        raise
    if evaluation:
        write_grams(evaluation, work / "grams.npy")
    _encode(index, choice, recipe, work, workers, [part.place for part in parts], progress)
    hub = sorted({part.name for part in parts if not part.is_file})
    opens = np.flatnonzero([part.span is None or part.span.start == 0 for part in parts])
    rows = np.add.reduceat([one["rows"] for one in index.inputs], opens).tolist()
    made["inputs"] = [{**entry, "rows": count} for entry, count in zip(made.get("inputs", ()), rows, strict=True)]
    missing = missing + [path.read_text("utf-8") for path in sorted(work.glob("*/*.failed"))]
    manifest = assemble(index, choice, recipe, evaluation, out, progress=progress, missing=missing, hub=hub, made=made)
    remove(work)
    return manifest


def _same_settings(recipe: PrepareRecipe, out: Path) -> None:
    """A folder that another recipe began, or finished, is refused; evaluation sets are known by their bytes."""
    held = out / (MANIFEST if is_done(out) else f"{WORK}/{INPUTS}")
    if not held.is_file() or kind_of_folder(out) != KIND:
        return
    made = read_stored(held, WithSettings, error=DatasetError, remedy=AGAIN)
    now = recipe.settings()
    before = made.get("settings", now)  # what 0.2.0 left unfinished has none, and is begun anew
    if made.get("eval_sets") == sets_of(recipe):
        before = {**before, "eval_sets": now["eval_sets"]}
    check_binding(out, before, now, f"{SAME}, or remove it")


def _as_it_stands(recipe: PrepareRecipe, out: Path, progress: Progress) -> dict[str, Any]:
    """A finished dataset, if it would be made from the same inputs today; one of other inputs is never handed out in silence."""
    manifest = read_prepared(out)
    parts, _ = readable_parts(recipe, progress, hub=False)
    if changed := difference(manifest, surveyed(recipe, parts, progress)[0]):
        raise FolderError(
            f"{out} is finished, but {changed} since it was made; choose another --out, or remove {out} to make it again."
        )
    return dict(manifest)


def _begun(out: Path) -> BegunDataset:
    """What an unfinished dataset was begun from; empty where nothing was begun."""
    held = out / WORK / INPUTS
    return read_stored(held, BegunDataset, error=DatasetError, remedy=ANEW) if held.is_file() else {}


def _begin(recipe: PrepareRecipe, made: MadeFrom, parts: list[Input], out: Path, progress: Progress) -> None:
    """Resume what an earlier call left only if it saw the same inputs. What was read whole serves --allow-missing too."""
    work = out / WORK
    settings = recipe.settings()
    inputs: BegunDataset = {**made, "settings": settings, "allow_missing": recipe.allow_missing, "portion": recipe.portion}
    begun = _begun(out)
    if begun and {**begun, "settings": settings} not in (inputs, {**inputs, "allow_missing": False}):
        progress.note(
            "시작한 뒤 입력이나 --portion이 바뀌어 처음부터 다시 만듭니다.",
            "The inputs or --portion have changed since this dataset was started, so it is started again.",
        )
        remove(work)
    write_json(work / PARTS, [{"place": part.place, "bytes": bytes_of(part)} for part in parts])
    write_json(work / INPUTS, inputs)
    for folder in (READ, DEDUP, ENCODE):
        (work / folder).mkdir(exist_ok=True)
        for mark in [*(work / folder).glob("*.started"), *(work / folder).glob("*.failed")]:  # of an earlier command
            if not mark.with_suffix(".json").is_file():
                mark.unlink()


def _read(parts: list[Input], recipe: PrepareRecipe, work: Path, workers: int, progress: Progress) -> None:
    folder = work / READ
    with progress.stage("read and clean", None, "characters") as stage:
        for number in range(len(parts)):
            stage.skip(sum(shard["characters"] for shard in finished_shards(folder, number)))
        common = {"folder": str(folder), "recipe": to_mapping(recipe)}
        left = [number for number in range(len(parts)) if not (folder / f"{number:04d}.json").is_file()]
        jobs = [{"part": to_mapping(parts[number]), "number": number, **common} for number in left]
        named = [(parts[number].place, folder / f"{number:04d}") for number in left]
        aside = lambda job: set_part_aside(parts[left[job]], left[job], folder, near=recipe.near_duplicates)  # noqa: E731
        _each("coref_automl.corpus.shards:read_job", named, jobs, workers, recipe, stage.advance, aside)


def _choose(
    index: Index, evaluation: list[Document], recipe: PrepareRecipe, work: Path, workers: int, progress: Progress
) -> Choice:
    at_once = max(1, recipe.portion // 4)
    small = len(index) <= at_once  # a process would take longer to start than to seek

    def run(target: str, jobs: list[dict[str, Any]]) -> None:
        named = [(name := f"band-{job['band']:02d}-{job['residue']:05d}", work / DEDUP / name) for job in jobs]
        near = dataclasses.replace(recipe, engine="local" if small else recipe.engine)
        with (quiet() if small else progress).stage("find near-duplicates", len(jobs)) as stage:
            _each(target, named, jobs, 1 if small else workers, near, lambda _: stage.advance(), None)

    similarity = recipe.similarity if recipe.near_duplicates else None
    return choose_documents(index, evaluation, work / DEDUP, run, similarity=similarity, at_once=at_once)


def _encode(
    index: Index, choice: Choice, recipe: PrepareRecipe, work: Path, workers: int, places: list[str], progress: Progress
) -> None:
    kept = choice == KEPT
    with atomic_write(work / "kept.npy", "wb") as handle:
        np.save(handle, kept)
    stems = [work / ENCODE / shard.stem.name for shard in index.shards]
    left = [number for number, stem in enumerate(stems) if not stem.with_suffix(".json").is_file()]
    total = sum(index.shards[number].characters for number in left)
    cache = default_cache() if recipe.engine == "local" else None  # machines of a cluster tag what they encode
    if recipe.mode != "mlm" and cache is not None:
        with progress.stage("tag", total, "characters") as stage:
            tagger = Tagger(cache, recipe.workers)
            for number in left:
                rows = compress(read_jsonl(index.shards[number].texts), kept[index.rows_of(number)].tolist())
                for amount in tagger.fill_cache(row["text"] for row in rows):
                    stage.advance(amount)
        if workers > 1:
            release_kiwi()  # its model is 300 MB, and the next stage has processes of its own
    settings = EncodeSettings(
        tokenizer=store_tokenizer(recipe.model, work / "tokenizer.json"), mode=recipe.mode, seq_len=recipe.seq_len,
        only_names=recipe.only_names, chain_cap=recipe.chain_cap, cache=cache,
        grams=work / "grams.npy" if recipe.eval_sets else None,
    )  # fmt: skip
    with progress.stage("encode", total, "characters") as stage:
        common = {"kept": str(work / "kept.npy"), "settings": to_mapping(settings)}
        jobs = [
            {"texts": str(index.shards[number].texts), "first": int(index.edges[number]), "stem": str(stems[number]), **common}
            for number in left
        ]
        named = [(f"shard {stems[number].name} ({places[index.shards[number].input]})", stems[number]) for number in left]
        aside = lambda job: set_shard_aside(np.flatnonzero(kept[index.rows_of(left[job])]).tolist(), stems[left[job]])  # noqa: E731
        _each("coref_automl.corpus.encode:encode_job", named, jobs, workers, recipe, stage.advance, aside)


def _fitting_workers(parts: list[Input]) -> int:
    """A process costs seconds to start: small inputs are done in this one."""
    small = sum(map(bytes_of, parts)) < _SMALL and all(part.is_file or part.name in BUNDLED for part in parts)
    return 1 if small else usable_cores()


def _each(
    target: str,
    named: Sequence[tuple[str, Path]],
    jobs: list[dict[str, Any]],
    workers: int,
    recipe: PrepareRecipe,
    advance: Callable[[Any], None],
    aside: Callable[[int], None] | None,
) -> None:
    """Run every job, here or in processes; each writes its own files, so the number of workers decides no byte.

    `named` holds the name of each for people, and the stem of its files. One that no worker survives stops no other; at the end
    it goes to `aside` under --allow-missing, or is the error.
    """
    deadly: dict[int, str] = {}
    calls = [Call(name, target, job) for (name, _), job in zip(named, jobs, strict=True)]

    def heard(outcome: Returned) -> None:
        if isinstance(outcome.error, WorkerDied):
            job = calls.index(outcome.call)
            deadly[job] = f"{outcome.call.name}: {outcome.error}"
            write_text(named[job][1].with_suffix(".failed"), deadly[job])
        elif isinstance(outcome.error, CorefError):
            raise outcome.error
        elif outcome.error is not None:
            raise WorkError(f"{type(outcome.error).__name__}: {outcome.error}") from outcome.error
        else:
            advance(outcome.value)

    devices = ("cpu",) if recipe.engine == "ray" else None
    run_calls(calls, workers=workers, devices=devices, engine=recipe.engine, retries=_RETRIES, on_return=heard)
    if deadly and not (recipe.allow_missing and aside):
        listed = "; ".join(deadly[job] for job in sorted(deadly))
        raise WorkError(
            f"{listed}. Everything else is done and stays: give the workers more memory and run the same command again, or leave "
            "it out with --allow-missing."
        )
    for job in sorted(deadly):
        if aside:
            aside(job)
