"""Inputs of a preparation, known by content. In: a recipe. Out: its readable parts, a fingerprint of each, and what changed.

A file is known by its bytes, wherever it is; a hub dataset by the revision that was current when the work began (later calls
read that one, and a finished dataset needs no network); a bundled text by the version of this package; an evaluation set by the
fingerprint of its items and the bytes of its documents.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from coref_automl.base.decoder import read_stored, read_stored_rows
from coref_automl.base.errors import EvalSetError, SourceError
from coref_automl.base.fingerprints import chunks_of, fingerprint_files
from coref_automl.base.folders import MANIFEST
from coref_automl.base.progress import Progress
from coref_automl.base.records import Document
from coref_automl.corpus.clean import normalise
from coref_automl.corpus.files import ByteRange, remote_chunks, size_of
from coref_automl.corpus.formats import LINES
from coref_automl.corpus.manifest import EvalSetFacts, InputFacts, MadeFrom
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import BUNDLED, SOURCES, Input, check_source, hub_revision, inputs_of


def readable_parts(recipe: PrepareRecipe, progress: Progress, *, hub: bool = True) -> tuple[list[Input], list[str]]:
    """Every part of every source, and why others cannot be read: an error, or with `allow_missing` a note.

    `hub=False` assumes that hub sources can be read.
    """
    parts: list[Input] = []
    unreadable: list[str] = []
    for name in recipe.sources:
        if name in SOURCES and not hub:
            parts += inputs_of(name)
            continue
        checks = check_source(name, field=recipe.field)
        of_source = inputs_of(name) if any(check.readable for check in checks) else []
        parts += [part for part, check in zip(of_source, checks, strict=False) if check.readable]
        unreadable += [check.message for check in checks if not check.readable]
    if unreadable and not recipe.allow_missing:
        raise SourceError("\n".join([*unreadable, "Nothing was done; --allow-missing skips unreadable sources."]))
    for message in unreadable:
        progress.note(f"제외: {message}", f"left out: {message}")
    if not parts:
        raise SourceError("No source is readable, so there is nothing to prepare; see: coref-automl sources --check")
    return parts, unreadable


def pin_revisions(parts: Sequence[Input], made_from: MadeFrom) -> list[Input]:
    """Give hub parts their revision: the one that an earlier call began with, or the current one."""
    revisions = {facts.get("label", ""): facts.get("bytes") for facts in made_from.get("inputs", ())}
    return [
        dataclasses.replace(part, revision=revisions.get(part.label) or hub_revision(part.name)) if part.name in SOURCES else part
        for part in parts
    ]


def survey(recipe: PrepareRecipe, parts: Sequence[Input], progress: Progress) -> tuple[MadeFrom, list[Input]]:
    """Fingerprint everything that decides a dataset's bytes beside its settings, and cut large files into spans of lines.

    One pass over the bytes of a file gives both its fingerprint and the lines at which it can be cut.
    """
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    inputs: list[InputFacts] = []
    spans: list[Input] = []
    with progress.stage("fingerprint inputs", sum(map(bytes_of, parts)), "bytes") as stage:
        for part in parts:
            cutter = _Cutter(recipe.portion * _PORTIONS, stage.advance)
            inputs.append({"label": part.label, "bytes": content_of(part, cutter.watch)})
            uncut = recipe.limit or not part.is_file or Path(part.label).suffix.lower() not in LINES
            spans += [part] if uncut else [dataclasses.replace(part, span=span) for span in cutter.spans()]
    tokenizer = tokenizer_fingerprint(load_tokenizer(recipe.model))
    return {"inputs": inputs, "tokenizer_fingerprint": tokenizer, "eval_sets": eval_set_facts(recipe)}, spans


_PORTIONS = 16
"""Bytes of a span per character of a portion: a span fills a few shards."""


class _Cutter:
    """Finds the lines at which a file can be cut while its bytes are read for something else."""

    def __init__(self, size: int, on_bytes: Callable[[int], None]) -> None:
        self._size, self._on_bytes = size, on_bytes
        self._at, self._lines, self._target = 0, 0, size
        self._cuts = [(0, 0)]

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
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

    def spans(self) -> list[ByteRange | None]:
        """The spans, or None for a file that stays whole."""
        cuts = [cut for cut in self._cuts if cut[0] < self._at]
        ends = [start for start, _ in cuts[1:]] + [self._at]
        return [ByteRange(start, end, lines) for (start, lines), end in zip(cuts, ends, strict=True)] if len(cuts) > 1 else [None]


def bytes_of(part: Input) -> int:
    """The size of a file or a span; 0 for other parts."""
    if part.span:
        return part.span.end - part.span.start
    return size_of(part.url) if part.url else part.path.stat().st_size if part.path else 0


def content_of(part: Input, watch: Callable[[Iterable[bytes]], Iterable[bytes]] = iter) -> str:
    """The fingerprint of a part's content. The bytes of a file go through `watch`."""
    if part.is_file:
        path = part.path or Path(part.label)
        return fingerprint_files([path], read=lambda path: watch(remote_chunks(part.url) if part.url else chunks_of(path)))
    return f"coref-automl {version('coref-automl')}" if part.name in BUNDLED else part.revision or ""


def difference(stored: MadeFrom, current: MadeFrom) -> str | None:
    """The first input that has changed since a dataset was made, as the middle of a sentence; None if none has.

    Hub datasets are not compared: the revision that was read remains the one that is meant.
    """
    named = ([(facts.get("label", ""), facts.get("bytes", "")) for facts in made.get("inputs", ())] for made in (stored, current))
    before, after = (Counter(entry for entry in entries if entry[0] not in SOURCES) for entries in named)
    changed, gone = [label for label, _ in after - before], [label for label, _ in before - after]
    if changed:
        return f"{changed[0]} {'has changed' if changed[0] in gone else 'is new'}"
    if gone:
        return f"{gone[0]} is gone"
    if stored.get("tokenizer_fingerprint") != current.get("tokenizer_fingerprint"):
        return "the tokenizer has changed"
    for old, new in zip(stored.get("eval_sets", ()), current.get("eval_sets", ()), strict=False):
        if old != new:
            return f"the evaluation set {new.get('name')} has changed"
    return None


class _Frozen(TypedDict, total=False):
    """The part of a manifest that is read, be it an evaluation set's or a dataset's."""

    fingerprint: str


class _FrozenDocument(TypedDict, total=False):
    """A document of an evaluation set. A dataset lists its documents under the same file name, without their texts."""

    id: str
    text: str
    source: str
    title: str


def eval_set_facts(recipe: PrepareRecipe) -> list[EvalSetFacts]:
    return [
        {"name": folder.name, "fingerprint": frozen_fingerprint(folder), "bytes": fingerprint_files([folder / "documents.jsonl"])}
        for folder in map(Path, recipe.eval_sets)
    ]


def frozen_fingerprint(folder: Path) -> str:
    return read_stored(folder / MANIFEST, _Frozen, error=EvalSetError).get("fingerprint", "")


def eval_documents(folders: Sequence[Path]) -> list[Document]:
    """The documents of evaluation sets, normalised as those that train are."""
    documents, build = list[Document](), "Build one: coref-automl prepare eval --source SOURCE --model MODEL --out DIR"
    for folder in folders:
        path, what = folder / "documents.jsonl", f"{folder} is not an evaluation set"
        if not path.is_file():
            raise EvalSetError(f"{what} (no documents.jsonl). {build}")
        for row in read_stored_rows(path, _FrozenDocument, error=EvalSetError):
            if "id" not in row or "text" not in row:
                raise EvalSetError(f"{what}: its documents have no text. {build}")
            documents.append(Document(row["id"], row.get("source", ""), normalise(row["text"]), row.get("title", "")))
    return documents
