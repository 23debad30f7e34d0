"""Preparation of a training dataset. In: a recipe. Out: a packed dataset, the same bytes for the same inputs and settings.

survey  fingerprint every file, cut large ones into spans of lines        one pass over their bytes
read    every part of every source into shards of cleaned documents       parallel, resumes after the last finished shard
choose  hold out, exclude evaluation documents, drop duplicates           near-duplicates of a large corpus parallel, by band
tag     one Kiwi with its own threads fills the cache                     not for mlm, not on a cluster
encode  shards into token pieces with mentions                            parallel, resumes after the last finished shard
pack    pieces into blocks, manifest, card

With `--engine ray` the cluster reads parts, finds near-duplicates, and tags and encodes shards; the output does not depend on the
number of workers. Parts and shards that keep killing their worker are listed at the end; --allow-missing skips them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.binding import SAME, check_binding
from coref_automl.base.config import as_path, expect, to_mapping
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import DatasetError, FolderError, WorkError
from coref_automl.base.folders import MANIFEST, is_done, kind_of_folder, remove
from coref_automl.base.korean import Tagger, default_cache, release_kiwi, require_kiwi
from coref_automl.base.locks import claimed
from coref_automl.base.machine import usable_cores
from coref_automl.base.progress import Progress, Stage, quiet
from coref_automl.base.records import Document
from coref_automl.base.store import atomic_write, read_jsonl
from coref_automl.corpus.card import counted, refuse_sources
from coref_automl.corpus.choice import KEPT, Choice, choose_documents, write_grams
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.encode import EncodeSettings, skip_shard, special_of, store_tokenizer, tokenizer_of
from coref_automl.corpus.inputs import bytes_of, difference, eval_documents, eval_set_facts, pin_revisions, readable_parts, survey
from coref_automl.corpus.manifest import AGAIN, Preparation, read_prepared
from coref_automl.corpus.pack import assemble
from coref_automl.corpus.recipe import PrepareRecipe, Texts
from coref_automl.corpus.shards import Index, build_index, finished_shards, skip_part
from coref_automl.corpus.sources import BUNDLED, Input
from coref_automl.corpus.work import DEDUP, ENCODE, INPUTS, READ, WORK, WorkItem, begin, begun_from, failures_of, run_items

_GRAMS, _KEPT = "grams.npy", "kept.npy"
"""In work/: the n-grams of evaluation documents, and which documents are trained on."""
_SMALL = 4 << 20
"""Bytes of local files below which starting worker processes takes longer than the work."""


def prepare(recipe: PrepareRecipe, out: str | Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """Prepare a dataset or resume preparing it, and return its manifest; a finished one is returned as it is."""
    recipe, out = expect(recipe, PrepareRecipe, "prepare"), as_path(out, "out")
    progress = progress or quiet()
    _check_settings(recipe, out)
    if is_done(out) and kind_of_folder(out) == KIND:
        return _finished(recipe, out, progress)
    tokenizer_of.cache_clear()  # a folder may hold another tokenizer than when this process last read it
    special_of(tokenizer_of(recipe.model), recipe.model)  # refuses one without the special tokens
    if recipe.mode != "mlm":
        require_kiwi()
    evaluation = eval_documents([Path(folder) for folder in recipe.eval_sets])
    parts, missing = readable_parts(recipe, progress)
    with claimed(out, KIND):
        if is_done(out):  # by a command that ended just now
            return _finished(recipe, out, progress)
        return _prepare_claimed(recipe, parts, missing, evaluation, out, progress)


def prepare_texts(
    texts: Texts, folder: Path, seq_len: int, model: str, eval_sets: Iterable[Path], progress: Progress, holdout: float = 0.0
) -> Path:
    """Prepare one dataset for all runs of an experiment: objectives differ in what they mask, not in their blocks."""
    recipe = PrepareRecipe(
        mode="combined", sources=texts.sources, model=model, seq_len=seq_len, eval_sets=tuple(map(str, eval_sets)),
        holdout=holdout, limit=texts.limit, near_duplicates=texts.near_duplicates,
    )  # fmt: skip
    prepare(recipe, folder, progress=progress)
    return folder


def _check_settings(recipe: PrepareRecipe, out: Path) -> None:
    """Refuse a folder that was begun or finished with other settings; evaluation sets are compared by their bytes."""
    path = out / (MANIFEST if is_done(out) else f"{WORK}/{INPUTS}")
    if not path.is_file() or kind_of_folder(out) != KIND:
        return
    manifest = read_stored(path, Preparation, error=DatasetError, remedy=AGAIN)
    settings = recipe.settings()
    stored = manifest.get("settings", settings)  # what 0.2.0 left unfinished has none, and is begun anew
    if manifest.get("eval_sets") == eval_set_facts(recipe):
        stored = {**stored, "eval_sets": settings["eval_sets"]}
    check_binding(out, stored, settings, f"{SAME}, or remove it")


def _finished(recipe: PrepareRecipe, out: Path, progress: Progress) -> dict[str, Any]:
    """The manifest of a finished dataset; one whose inputs have changed since is refused."""
    manifest = read_prepared(out)
    parts, _ = readable_parts(recipe, progress, hub=False)
    if changed := difference(manifest, survey(recipe, parts, progress)[0]):
        raise FolderError(
            f"{out} is finished, but {changed} since it was made; choose another --out, or remove {out} to make it again."
        )
    return dict(manifest)


def _prepare_claimed(
    recipe: PrepareRecipe, parts: list[Input], missing: list[str], evaluation: list[Document], out: Path, progress: Progress
) -> dict[str, Any]:
    made_from, parts = survey(recipe, pin_revisions(parts, begun_from(out)), progress)
    begin(recipe, made_from, parts, out, progress)
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
    if recipe.eval_sets:
        write_grams(evaluation, work / _GRAMS)
    _tag_and_encode(index, choice, recipe, work, workers, [part.place for part in parts], progress)
    counts = zip(made_from.get("inputs", ()), _rows_per_input(index, parts), strict=True)
    made_from["inputs"] = [{**facts, "rows": rows} for facts, rows in counts]
    manifest = assemble(
        index, choice, recipe, evaluation, out, progress=progress, missing=[*missing, *failures_of(work)],
        hub=sorted({part.name for part in parts if not part.is_file}), made_from=made_from,
    )  # fmt: skip
    remove(work)
    return manifest


def _read(parts: Sequence[Input], recipe: PrepareRecipe, work: Path, workers: int, progress: Progress) -> None:
    """Read every unfinished part into shards of cleaned documents."""
    folder, items = work / READ, []
    with progress.stage("read and clean", None, "characters") as stage:
        for number, part in enumerate(parts):
            stage.skip(sum(shard["characters"] for shard in finished_shards(folder, number)))
            stem = folder / f"{number:04d}"
            if not stem.with_suffix(".json").is_file():
                arguments = {"part": to_mapping(part), "number": number, "folder": str(folder), "recipe": to_mapping(recipe)}
                skip = partial(skip_part, part, number, folder, near=recipe.near_duplicates)
                items.append(WorkItem(part.place, stem, arguments, skip))
        run_items("coref_automl.corpus.shards:read_job", items, recipe, workers, stage.advance)


def _choose(
    index: Index, evaluation: list[Document], recipe: PrepareRecipe, work: Path, workers: int, progress: Progress
) -> Choice:
    """Decide which documents train; near-duplicates of a small corpus are found in this process."""
    at_once = max(1, recipe.portion // 4)
    small = len(index) <= at_once  # a process would take longer to start than to search
    search_recipe = dataclasses.replace(recipe, engine="local") if small else recipe

    def run(target: str, arguments: list[dict[str, Any]]) -> None:
        names = (f"band-{call['band']:02d}-{call['residue']:05d}" for call in arguments)
        items = [WorkItem(name, work / DEDUP / name, call) for name, call in zip(names, arguments, strict=True)]
        with (quiet() if small else progress).stage("find near-duplicates", len(items)) as stage:
            run_items(target, items, search_recipe, 1 if small else workers, lambda _: stage.advance())

    similarity = recipe.similarity if recipe.near_duplicates else None
    return choose_documents(index, evaluation, work / DEDUP, run, similarity=similarity, at_once=at_once)


def _tag_and_encode(
    index: Index, choice: Choice, recipe: PrepareRecipe, work: Path, workers: int, places: Sequence[str], progress: Progress
) -> None:
    """Tag and encode every unfinished shard."""
    kept = choice == KEPT
    with atomic_write(work / _KEPT, "wb") as handle:
        np.save(handle, kept)
    stems = [work / ENCODE / shard.stem.name for shard in index.shards]
    unfinished = [number for number, stem in enumerate(stems) if not stem.with_suffix(".json").is_file()]
    shares = (kept[index.rows_of(number)].sum() / max(1, index.shards[number].documents) for number in unfinished)
    total = round(sum(share * index.shards[number].characters for share, number in zip(shares, unfinished, strict=True)))
    cache = default_cache() if recipe.engine == "local" else None  # machines of a cluster tag what they encode
    if recipe.mode != "mlm" and cache is not None:
        with progress.stage("tag", total, "characters") as stage:
            _tag(index, unfinished, kept, Tagger(cache, recipe.workers), stage)
        if workers > 1:
            release_kiwi()  # its model is 300 MB, and the next stage has processes of its own
    settings = EncodeSettings(
        tokenizer=store_tokenizer(recipe.model, work / "tokenizer.json"), mode=recipe.mode, seq_len=recipe.seq_len,
        only_names=recipe.only_names, chain_cap=recipe.chain_cap, cache=cache,
        grams=work / _GRAMS if recipe.eval_sets else None,
    )  # fmt: skip
    common = {"kept": str(work / _KEPT), "settings": to_mapping(settings)}
    items = []
    for number in unfinished:
        shard, stem = index.shards[number], stems[number]
        arguments = {"texts": str(shard.texts), "first": int(index.edges[number]), "stem": str(stem), **common}
        skip = partial(skip_shard, kept[index.rows_of(number)], stem)
        items.append(WorkItem(f"shard {stem.name} ({places[shard.part]})", stem, arguments, skip))
    with progress.stage("encode", total, "characters") as stage:
        run_items("coref_automl.corpus.encode:encode_job", items, recipe, workers, stage.advance)


def _tag(index: Index, unfinished: Sequence[int], kept: NDArray[np.bool_], tagger: Tagger, stage: Stage) -> None:
    """Tag the documents of shards in this process, which has all cores for it."""
    for number in unfinished:
        rows = compress(read_jsonl(index.shards[number].texts), kept[index.rows_of(number)].tolist())
        for characters in tagger.fill_cache(row["text"] for row in rows):
            stage.advance(characters)


def _rows_per_input(index: Index, parts: Sequence[Input]) -> list[int]:
    """The rows that were read of every input: the sum over the spans that a large file was cut into."""
    first_spans = np.flatnonzero([part.span is None or part.span.start == 0 for part in parts])
    return [int(rows) for rows in np.add.reduceat([facts["rows"] for facts in index.parts], first_spans)]


def _fitting_workers(parts: Sequence[Input]) -> int:
    """One process for small inputs, else one per core."""
    small = sum(map(bytes_of, parts)) < _SMALL and all(part.is_file or part.name in BUNDLED for part in parts)
    return 1 if small else usable_cores()
