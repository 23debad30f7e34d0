"""What a dataset is made from, known by content. In: a recipe. Out: its readable parts, a fingerprint of each, and what changed.

A local file is known by its bytes, a hub dataset by the revision that was current when the work began (later calls read that
one, and a finished dataset needs no network), a bundled text by the version of this package.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from coref_automl.corpus.manifest import EvalSetFacts, InputFacts, MadeFrom
from coref_automl.corpus.overlap import evaluation_fingerprint
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import BUNDLED, SOURCES, Input, check_source, hub_revision, inputs_of
from coref_automl.errors import SourceError
from coref_automl.progress import Progress
from coref_automl.store import fingerprint_files


def readable_parts(recipe: PrepareRecipe, progress: Progress, *, hub: bool = True) -> tuple[list[Input], list[str]]:
    """Every part of every source, before any work is done; what cannot be read is an error, or with `allow_missing` a note.

    `hub=False` takes it for granted that hub sources can be read.
    """
    parts: list[Input] = []
    broken: list[str] = []
    for name in recipe.sources:
        if name in SOURCES and not hub:
            parts += inputs_of(name)
            continue
        checks = check_source(name, field=recipe.field)
        fine = inputs_of(name) if any(check.readable for check in checks) else []
        parts += [part for part, check in zip(fine, checks, strict=False) if check.readable]
        broken += [check.message for check in checks if not check.readable]
    if broken and not recipe.allow_missing:
        raise SourceError("\n".join([*broken, "Nothing was done; --allow-missing skips unreadable sources."]))
    for message in broken:
        progress.note(progress.say(f"제외: {message}", f"left out: {message}"))
    if not parts:
        raise SourceError("No source is readable, so there is nothing to prepare; see: coref-automl sources --check")
    return parts, broken


def pinned(parts: Sequence[Input], begun: MadeFrom) -> list[Input]:
    """Give hub parts their revision: the one that an earlier call began with, or the current one."""
    held = {entry.get("label", ""): entry.get("bytes") for entry in begun.get("inputs", ())}
    return [
        dataclasses.replace(part, revision=held.get(part.label) or hub_revision(part.name)) if part.name in SOURCES else part
        for part in parts
    ]


def made_from(recipe: PrepareRecipe, parts: Sequence[Input], progress: Progress) -> MadeFrom:
    """Fingerprints of everything that decides a dataset's bytes beside its settings."""
    total = sum(part.path.stat().st_size for part in parts if part.path)
    with progress.stage("fingerprint inputs", total, "bytes") as stage:
        inputs: list[InputFacts] = [{"label": part.label, "bytes": content_of(part, on_bytes=stage.advance)} for part in parts]
    return {"inputs": inputs, **tokenizer_and_sets(recipe)}


def tokenizer_and_sets(recipe: PrepareRecipe) -> MadeFrom:
    """Fingerprints of what every share of a dataset, and their merging, must have in common."""
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    return {"tokenizer_fingerprint": tokenizer_fingerprint(load_tokenizer(recipe.model)), "eval_sets": sets_of(recipe)}


def sets_of(recipe: PrepareRecipe) -> list[EvalSetFacts]:
    return [
        {
            "name": folder.name,
            "fingerprint": evaluation_fingerprint(folder),
            "bytes": fingerprint_files([folder / "documents.jsonl"]),
        }
        for folder in map(Path, recipe.eval_sets)
    ]


def content_of(part: Input, *, on_bytes: Callable[[int], None] | None = None) -> str:
    """The name of a part's content: the same content, the same name."""
    if part.path is not None:
        return fingerprint_files([part.path], on_bytes=on_bytes)
    return f"coref-automl {version('coref-automl')}" if part.name in BUNDLED else part.revision or ""


def difference(held: MadeFrom, now: MadeFrom) -> str | None:
    """What was made from one thing and would now be made from another, as the middle of a sentence; None where all is the same.

    Hub datasets are not compared: the one that was read stays the one that is meant.
    """
    before, after = (Counter(_local(made)) for made in (held, now))
    changed, gone = [label for label, _ in after - before], [label for label, _ in before - after]
    if changed:
        return f"{changed[0]} {'has changed' if changed[0] in gone else 'is new'}"
    if gone:
        return f"{gone[0]} is gone"
    if held.get("tokenizer_fingerprint") != now.get("tokenizer_fingerprint"):
        return "the tokenizer has changed"
    for old, new in zip(held.get("eval_sets", ()), now.get("eval_sets", ()), strict=False):
        if old != new:
            return f"the evaluation set {new.get('name')} has changed"
    return None


def _local(made: MadeFrom) -> list[tuple[str, str]]:
    named = [(entry.get("label", ""), entry.get("bytes", "")) for entry in made.get("inputs", ())]
    return [(label, mark) for label, mark in named if label not in SOURCES]
