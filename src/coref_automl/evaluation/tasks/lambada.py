"""LAMBADA items. In: rows in Ko-LAMBADA's columns (`text` with one `_`, and `answer`). Out: passages with the answer filled in,
and one item per passage with its gap at the `_`. Every word of the vocabulary may answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.records import Document
from coref_automl.corpus.sources import SOURCES, bundled_rows, hub_rows
from coref_automl.evaluation.tasks import task
from coref_automl.evaluation.tasks.far import nearest_occurrence

BLANK = "_"
BUNDLED = "bundled:cloze"
HUB = SOURCES["ko-lambada"].hub


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage with its answer filled in. Passages of one work (its title) are one cluster."""

    document: Document
    gap: task.Span


def open_rows(source: str) -> Iterator[task.Row | str]:
    """The rows of `local:PATH`, of the hub's dataset (`ko-lambada` or its id), or of the bundled passages; a string instead of a
    row says why it cannot be read."""
    if source == BUNDLED:
        return bundled_rows("cloze")
    if source in ("ko-lambada", HUB):
        return hub_rows("ko-lambada")
    return task.local_rows(source, needs=("text", "answer"))


def lambada_items(doc: task.ParsedDocument, passage: Passage) -> task.Found:
    """The one item of a passage."""
    answer = doc.text[slice(*passage.gap)]
    nearest = nearest_occurrence(doc, passage.gap, task.occurrences(doc.text, answer))
    title = passage.document.title
    cluster = fingerprint(title)[: task.HASH] if title else doc.identity
    return task.Found([doc.item("lambada", passage.gap, nearest[0] if nearest else None, cluster)])


def read_passage(row: task.Row, number: int, name: str) -> Passage | str:
    """A row with one blank as a passage, or why it is not one."""
    text, answer = row.get("text"), row.get("answer")
    if not isinstance(text, str) or not isinstance(answer, str):
        return "text or answer is missing"
    if text.count(BLANK) != 1:
        return "no blank" if BLANK not in text else "more than one blank"
    # Normalise each side by itself, so that the offsets of the gap do not move.
    before, after = (unicodedata.normalize("NFC", side) for side in text.split(BLANK))
    answer = unicodedata.normalize("NFC", answer).strip()
    if not answer:
        return "an empty answer"
    index = number if row.get("index") in (None, "") else row["index"]
    title = row.get("title") if isinstance(row.get("title"), str) else ""
    source = row.get("source") if isinstance(row.get("source"), str) else name
    document = Document(f"{name}-{index}", str(source), before + answer + after, str(title))
    return Passage(document, (len(before), len(before) + len(answer)))


TASK = task.ClozeTask(
    name="lambada",
    label="LAMBADA",
    find=lambda doc, entry, _: lambada_items(doc, entry),
    rows=task.Rows(open_rows, read_passage),
    any_word=True,
)
