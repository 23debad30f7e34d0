"""Shares of several machines. In: the folders that `prepare --shard` made. Out: the dataset that one machine would have made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from coref_automl.config import from_mapping
from coref_automl.corpus.assemble import assemble
from coref_automl.corpus.counts import refuse_empty
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.dedup import require_near
from coref_automl.corpus.encode import Mode
from coref_automl.corpus.inputs import difference, was_noted
from coref_automl.corpus.overlap import evaluation_documents
from coref_automl.corpus.prepare import PART, WORK
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.select import choose_documents
from coref_automl.corpus.shards import build_index
from coref_automl.errors import DatasetError
from coref_automl.locks import claimed
from coref_automl.progress import Progress, quiet
from coref_automl.store import MANIFEST, is_done, read_json, remove


def merge(parts: Sequence[Path], out: Path, *, mode: Mode, progress: Progress | None = None) -> dict[str, Any]:
    """Put the shares of several machines together: the same bytes as one machine would have made."""
    progress = progress or quiet()
    with _undamaged(parts):
        return _merge(parts, out, mode, progress)


def _merge(parts: Sequence[Path], out: Path, mode: Mode, progress: Progress) -> dict[str, Any]:
    works = [folder / WORK for folder in _part_in_order(parts)]
    settings = {**read_json(works[0].parent / MANIFEST)["settings"], "shard": None}
    if settings["mode"] != mode:
        raise DatasetError(
            f"{parts[0]} is a share of a dataset for {settings['mode']}; use: coref-automl prepare {settings['mode']} --merge"
        )
    recipe = from_mapping(PrepareRecipe, settings, str(works[0].parent / MANIFEST))
    if recipe.near_duplicates:
        require_near()
    evaluation = evaluation_documents([Path(folder) for folder in recipe.eval_sets])
    with claimed(out, KIND, fresh=True):
        index = build_index(works, holdout=recipe.holdout)
        near = recipe.near_duplicates
        choice = choose_documents(index, evaluation, near=near, similarity=recipe.similarity, work=out / WORK)
        refuse_empty(index, choice, recipe, progress)
        manifest = assemble(index, choice, recipe, evaluation, out, progress=progress, **read_json(works[0] / "facts.json"))
        remove(out / WORK)
    return manifest


@contextmanager
def _undamaged(parts: Sequence[Path]) -> Iterator[None]:
    """Shares come from other machines: what does not fit together in them was damaged on the way."""
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, EOFError, BadZipFile) as error:
        told = ", ".join(map(str, parts))
        why = " ".join(str(error).split())[:160] or type(error).__name__
        raise DatasetError(f"A share is damaged, of {told} ({why}); copy the shares again, or prepare them anew.") from error


def _part_in_order(parts: Sequence[Path]) -> list[Path]:
    """The folders in the order of their shares; each share once, none missing, all with the same settings."""
    found: dict[int, Path] = {}
    common: dict[str, Any] | None = None
    total = len(parts)
    for folder in parts:
        if not is_done(folder) or read_json(folder / MANIFEST).get("kind") != PART:
            raise DatasetError(f"{folder} is not a finished part; make it with: coref-automl prepare ... --shard 1/{total}")
        manifest = read_json(folder / MANIFEST)
        if not was_noted(manifest):
            raise DatasetError(f"{folder} was made by an earlier version; prepare this share again.")
        settings = dict(manifest["settings"])
        number, of = map(int, str(settings.pop("shard")).split("/"))
        if of != total or number - 1 in found:
            raise DatasetError(
                f"{folder} is share {number} of {of}; merging needs each of the {of} shares once, and {total} were given."
            )
        if common is not None and common != settings:
            raise DatasetError(f"{folder} was prepared with other settings than {parts[0]}; prepare it again with the same ones.")
        common = settings
        if changed := difference(read_json(parts[0] / MANIFEST), manifest):
            raise DatasetError(
                f"{folder} and {parts[0]} were made from different inputs ({changed}); prepare both from the same files."
            )
        found[number - 1] = folder
    return [found[number] for number in range(total)]
