"""Texts to inspect tokenizers on. In: rows, chains, cloze items or plain text; a source; a set. Out: texts with entities marked.

What a file holds is known by its first row: `sentence` is relation data, `clusters` annotated chains, a `text` with a blank and
its `answer` a cloze passage, any other `text` plain text. Bad rows are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from coref_automl.coreference.data import inspect_coref
from coref_automl.corpus.formats import BROKEN, KNOWN, LISTS, READERS, TEXT, kind_of, stem_of
from coref_automl.corpus.sources import open_source
from coref_automl.errors import SourceError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.tasks.lambada import BLANK, read_passage
from coref_automl.models.segmentation import AnnotatedText, Span
from coref_automl.relation.data import inspect_relations
from coref_automl.store import NOT_JSON, json_fault, refuse_special

Kind = Literal["relation rows", "annotated chains", "cloze items", "plain text"]
LIMIT = 2_000
"""Documents of a source that are read, unless more are asked for."""

_ROWS = {**LISTS, **READERS}
_CHAINS = (".conll", ".conllu")


@dataclass(frozen=True, slots=True)
class AnnotatedTexts:
    """The texts of one file, source or set; `bad` rows of it were left out."""

    name: str
    kind: Kind
    texts: tuple[AnnotatedText, ...]
    bad: int = 0

    @property
    def entities(self) -> int:
        return sum(len(text.spans) for text in self.texts)


def read_data(name: str) -> AnnotatedTexts:
    """The texts of a file, of `hub:OWNER/NAME:SPLIT` or of `bundled:relations`."""
    if name.startswith(("hub:", "bundled:")):
        return _relations(name)
    path = Path(name)
    if kind_of(path).lower() in _CHAINS:
        return _chains(name)
    first = next((row for _, row in _rows(path) if isinstance(row, dict)), {})
    if "sentence" in first:
        return _relations(name)
    if "clusters" in first:
        return _chains(name)
    if "answer" in first and BLANK in str(first.get(TEXT)):
        return _passages(path)
    return _plain(path)


def read_source(name: str, *, limit: int = LIMIT) -> AnnotatedTexts:
    """The first documents of a text source."""
    flaws: list[Any] = []
    texts = tuple(AnnotatedText(document.text) for document in islice(open_source(name, on_flaw=flaws.append), limit))
    return _found(AnnotatedTexts(name, "plain text", texts, len(flaws)))


def read_set(folder: Path) -> AnnotatedTexts:
    """The documents of an evaluation set, with the answers of its items."""
    held = EvalSet.open(folder)
    spans: dict[str, list[Span]] = {}
    for item in held.select():
        spans.setdefault(item.document, []).append(Span(item.start, item.end, item.task))
    texts = tuple(AnnotatedText(text, tuple(spans.get(name, ()))) for name, text in held.documents.items())
    return _found(AnnotatedTexts(held.name, "cloze items", texts))


def _relations(name: str) -> AnnotatedTexts:
    data = inspect_relations(name, labelled=False)
    texts = tuple(
        AnnotatedText(row.sentence, tuple(Span(one.start, one.end, one.type) for one in (row.subject, row.object)))
        for row in data.rows
    )
    return _found(AnnotatedTexts(data.split, "relation rows", texts, len(data.problems)))


def _chains(name: str) -> AnnotatedTexts:
    data = inspect_coref(name)
    texts = tuple(
        AnnotatedText(one.text, tuple(Span(mention.start, mention.end, mention.kind or "mention") for mention in one.mentions))
        for one in data.documents
    )
    return _found(AnnotatedTexts(data.name, "annotated chains", texts, len(data.problems)))


def _passages(path: Path) -> AnnotatedTexts:
    name = stem_of(path, _ROWS)
    read = [read_passage(row, number, name) if isinstance(row, dict) else row for number, row in _rows(path)]
    texts = tuple(AnnotatedText(one.document.text, (Span(*one.gap, "answer"),)) for one in read if not isinstance(one, str))
    return _found(AnnotatedTexts(name, "cloze items", texts, len(read) - len(texts)))


def _plain(path: Path) -> AnnotatedTexts:
    rows = [row for _, row in _rows(path)]
    texts = tuple(
        AnnotatedText(row[TEXT]) for row in rows if isinstance(row, dict) and isinstance(row.get(TEXT), str) and row[TEXT].strip()
    )
    if rows and not texts and isinstance(rows[0], dict):
        raise SourceError(f"{path} has rows of {', '.join(map(str, rows[0])) or 'nothing'}; name the field with the text `text`.")
    return _found(AnnotatedTexts(stem_of(path, _ROWS), "plain text", texts, len(rows) - len(texts)))


def _found(read: AnnotatedTexts) -> AnnotatedTexts:
    if not any(text.text.strip() for text in read.texts):
        why = f"no usable row ({read.bad:,} bad ones)" if read.bad else "no text in it"
        raise SourceError(f"{read.name} has {why}; give rows, annotated texts or plain text.")
    return read


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The rows of a file. What cannot be read is one sentence."""
    reader = _ROWS.get(kind_of(path).lower())
    if reader is None:
        raise SourceError(f"{path} has an unknown file type; known types: .json, .conll, .conllu, {KNOWN}.")
    refuse_special(path)
    try:
        yield from reader(path)
    except FileNotFoundError as error:
        raise SourceError(f"{path} does not exist; give the path of a file, or a source with --source.") from error
    except BROKEN as error:
        raise SourceError(f"{path} cannot be read ({error}); copy it again.") from error
    except NOT_JSON as error:
        raise SourceError(f"{path} is not JSON: {json_fault(error)}.") from error
