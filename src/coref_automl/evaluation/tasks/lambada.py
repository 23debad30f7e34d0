"""LAMBADA items. In: rows in Ko-LAMBADA's columns (`text` with one `_`, `answer`, `candidate`). Out: passages with the answer
filled in, and one item per passage with its gap at the `_`."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from coref_automl.corpus.sources import SOURCES, bundled_rows, hub_rows
from coref_automl.evaluation.tasks import task
from coref_automl.evaluation.tasks.far import nearest_occurrence
from coref_automl.records import Document

VERSION = 1
BLANK = "_"
BUNDLED = "bundled:cloze"
HUB = SOURCES["ko-lambada"].hub


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage with its answer filled in. `candidates` are the wrong words that the row names."""

    document: Document
    gap: task.Span
    cluster: str
    candidates: tuple[str, ...]


def open_rows(source: str) -> Iterator[task.Row | str]:
    """The rows of `local:PATH`, of the hub's dataset (`ko-lambada` or its id), or of the bundled passages; a string instead of a
    row says why it cannot be read."""
    if source == BUNDLED:
        return bundled_rows("cloze")
    if source in ("ko-lambada", HUB):
        return hub_rows("ko-lambada")
    return task.local_rows(source, needs=("text", "answer"))


def lambada_items(doc: task.ParsedDocument, passage: Passage, *, seed: int) -> task.Found:
    """One item, ranked against the row's own candidates and the passage's other nouns."""
    answer = doc.text[slice(*passage.gap)]
    forms = [mention.form for mention in doc.mentions]
    candidates = task.choose_candidates(answer, forms, draw=(seed, doc.identity), first=passage.candidates)
    if len(candidates) < 2:
        return task.Found([], Counter({task.NO_CHOICE: 1}))
    nearest = nearest_occurrence(doc, passage.gap, task.occurrences(doc.text, answer))
    facts = {"cluster": passage.cluster, "candidates": candidates}
    item = doc.item("lambada", VERSION, passage.gap, nearest[0] if nearest else None, **facts)
    overlaps = sum(not task.is_apart(word, answer) for word in passage.candidates)
    return task.Found([item], +Counter({"the row's candidate contains its answer": overlaps}))


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
    wrong = row.get("candidate")
    words = wrong if isinstance(wrong, list | tuple) else [wrong]
    candidates = tuple(unicodedata.normalize("NFC", word).strip() for word in words if isinstance(word, str) and word.strip())
    return Passage(document, (len(before), len(before) + len(answer)), str(title) or f"{name}-{index}", candidates)


TASK = task.ClozeTask(
    name="lambada",
    label="LAMBADA",
    version=VERSION,
    find=lambda doc, entry, choices: lambada_items(doc, entry, seed=choices.seed),
    rows=task.Rows(open_rows, read_passage),
    any_word=True,
)
