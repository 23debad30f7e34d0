"""What a dataset is made from, known by content. In: a recipe. Out: its readable parts, a fingerprint of each, and what changed.

A file is known by its bytes, wherever it lies; a hub dataset by the revision that was current when the work began (later calls
read that one, and a finished dataset needs no network); a bundled text by the version of this package.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from coref_automl.corpus.files import ByteRange, remote_chunks, size_of
from coref_automl.corpus.formats import LINES
from coref_automl.corpus.manifest import EvalSetFacts, InputFacts, MadeFrom
from coref_automl.corpus.overlap import frozen_fingerprint
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import BUNDLED, SOURCES, Input, check_source, hub_revision, inputs_of
from coref_automl.errors import SourceError
from coref_automl.fingerprints import chunks_of, fingerprint_files
from coref_automl.progress import Progress


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
        progress.note(f"제외: {message}", f"left out: {message}")
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


def surveyed(recipe: PrepareRecipe, parts: Sequence[Input], progress: Progress) -> tuple[MadeFrom, list[Input]]:
    """Fingerprints of everything that decides a dataset's bytes beside its settings, and the parts, large files cut into spans.

    One pass over the bytes of a file gives both: where lines begin, and how many come before, is known when they have gone by.
    """
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    inputs: list[InputFacts] = []
    split: list[Input] = []
    with progress.stage("fingerprint inputs", sum(map(bytes_of, parts)), "bytes") as stage:
        for part in parts:
            spans = _Spans(recipe.portion * _PORTIONS, stage.advance)
            inputs.append({"label": part.label, "bytes": content_of(part, spans.passing)})
            whole = recipe.limit or not part.is_file or Path(part.label).suffix.lower() not in LINES
            split += [part] if whole else [dataclasses.replace(part, span=span) for span in spans.found()]
    tokenizer = tokenizer_fingerprint(load_tokenizer(recipe.model))
    return {"inputs": inputs, "tokenizer_fingerprint": tokenizer, "eval_sets": sets_of(recipe)}, split


_PORTIONS = 16
"""Bytes of a span for every character of a portion: a file is cut where a few shards end."""


class _Spans:
    """Finds the lines at which a file can be cut while its bytes pass by."""

    def __init__(self, size: int, on_bytes: Callable[[int], None]) -> None:
        self._size, self._on_bytes = size, on_bytes
        self._at, self._lines, self._target = 0, 0, size
        self._cuts = [(0, 0)]

    def passing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            end = self._at + len(chunk)
            while self._target < end and (line := chunk.find(b"\n", max(0, self._target - self._at))) >= 0:
                cut = self._at + line + 1
                self._cuts.append((cut, self._lines + chunk.count(b"\n", 0, line + 1)))
                self._target = cut + self._size
            self._lines += chunk.count(b"\n")
            self._at = end
            self._on_bytes(len(chunk))
            yield chunk

    def found(self) -> list[ByteRange | None]:
        """The spans, or None for a file that is one."""
        cuts = [cut for cut in self._cuts if cut[0] < self._at]
        ends = [start for start, _ in cuts[1:]] + [self._at]
        return [ByteRange(start, end, lines) for (start, lines), end in zip(cuts, ends, strict=True)] if len(cuts) > 1 else [None]


def bytes_of(part: Input) -> int:
    """The size of a file or a span; 0 for what is not a file."""
    if part.span:
        return part.span.end - part.span.start
    return size_of(part.url) if part.url else part.path.stat().st_size if part.path else 0


def sets_of(recipe: PrepareRecipe) -> list[EvalSetFacts]:
    return [
        {"name": folder.name, "fingerprint": frozen_fingerprint(folder), "bytes": fingerprint_files([folder / "documents.jsonl"])}
        for folder in map(Path, recipe.eval_sets)
    ]


def content_of(part: Input, passing: Callable[[Iterable[bytes]], Iterable[bytes]] = iter) -> str:
    """The name of a part's content: the same content, the same name. Its bytes go through `passing`."""
    if part.is_file:
        name = part.path or Path(part.label)
        return fingerprint_files([name], read=lambda path: passing(remote_chunks(part.url) if part.url else chunks_of(path)))
    return f"coref-automl {version('coref-automl')}" if part.name in BUNDLED else part.revision or ""


def difference(held: MadeFrom, now: MadeFrom) -> str | None:
    """What was made from one thing and would now be made from another, as the middle of a sentence; None where all is the same.

    Hub datasets are not compared: the one that was read stays the one that is meant.
    """
    named = ([(entry.get("label", ""), entry.get("bytes", "")) for entry in made.get("inputs", ())] for made in (held, now))
    before, after = (Counter(one for one in entries if one[0] not in SOURCES) for entries in named)
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
