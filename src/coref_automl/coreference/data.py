"""Coreference data. In: JSON lines, CoNLL-2012 or CorefUD's CoNLL-U. Out: documents, and every problem with its reason.

A mention is a stretch of characters and the entity it names. Singletons are kept. Mentions may nest or cross; two mentions never
share both edges. A mention in several parts is read as its longest part. Rows of one document (the chunks of a novel) are joined
in file order, and an entity's name means the same entity in all of them. A row with a bad mention is a problem as a whole: its
other offsets cannot be trusted, and text without its mentions would teach that there are none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.corpus.formats import BROKEN, kind_of, opened, stem_of
from coref_automl.errors import CoreferenceDataError
from coref_automl.records import Record
from coref_automl.say import of_row
from coref_automl.store import NOT_JSON, json_fault, refuse_special, write_jsonl

ENDINGS = (".jsonl", ".conll", ".conllu")
JOINT = "\n"
"""The separator between two joined chunks."""
_LISTED = 3


@dataclass(frozen=True, slots=True, order=True)
class Mention(Record):
    """`text[start:end]` names `entity`. `kind` is name, noun or pronoun where the data say so."""

    start: int
    end: int
    entity: str
    kind: str = ""

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class CorefDocument(Record):
    """A text and its mentions in the order of the text, outer before inner."""

    id: str
    text: str
    mentions: tuple[Mention, ...]

    @property
    def chains(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The mentions of each entity as spans, in the order in which entities first appear."""
        found: dict[str, list[tuple[int, int]]] = {}
        for mention in self.mentions:
            found.setdefault(mention.entity, []).append(mention.span)
        return tuple(tuple(spans) for spans in found.values())


@dataclass(frozen=True, slots=True)
class DataProblem(Record):
    """What is wrong with a row; the row is not among the documents."""

    row: int
    id: str
    reason: str

    def __str__(self) -> str:
        """For an error, which is in English."""
        return f"row {self.row}{f' ({self.id})' if self.id else ''}: {self.reason}"

    def in_words(self) -> str:
        return of_row(self.row, self.id, self.reason)


@dataclass(frozen=True, slots=True)
class CorefData:
    """What a file holds. `notes` counts what was read otherwise than written, by reason."""

    name: str
    documents: tuple[CorefDocument, ...]
    problems: tuple[DataProblem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mentions(self) -> int:
        return sum(len(document.mentions) for document in self.documents)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row as its file gives it, before it is checked and joined. `given` is a mention's text where the file repeats it."""

    row: int
    id: str
    document: str
    text: str
    clusters: tuple[tuple[Mention, ...], ...]
    given: tuple[tuple[str | None, ...], ...] = ()


class BadChunk(Exception):
    """A row that cannot be used; the message is the reason."""


def read_coref(name: str | Path, *, skip_bad: bool = False) -> CorefData:
    """The documents of a file. A bad row is an error that names it, or is skipped and kept among the problems."""
    data = inspect_coref(name)
    if data.problems and not skip_bad:
        raise bad_rows(data)
    if not data.mentions:
        raise CoreferenceDataError(f"{name} has no mentions; pass a file with annotated clusters.")
    return data


def bad_rows(data: CorefData) -> CoreferenceDataError:
    listed = "; ".join(str(problem) for problem in data.problems[:_LISTED])
    more = f"; and {len(data.problems) - _LISTED:,} more" if len(data.problems) > _LISTED else ""
    return CoreferenceDataError(f"{data.name}: {listed}{more}. Correct the file, or skip these rows: --skip-bad.")


def inspect_coref(name: str | Path) -> CorefData:
    """Every good document and every problem, whatever their number."""
    from coref_automl.coreference.conll import conll_chunks, corefud_chunks

    path = Path(name)
    kind = kind_of(path).lower()
    if kind not in ENDINGS:
        raise CoreferenceDataError(
            f"{name} is not a .jsonl, .conll or .conllu file (also .xz, .gz, .bz2, .zst); convert it to one of them."
        )
    readers: dict[str, Callable[[str], Iterable[Chunk | DataProblem]]] = {
        ".jsonl": _jsonl_chunks,
        ".conll": conll_chunks,
        ".conllu": corefud_chunks,
    }
    notes: Counter[str] = Counter()
    chunks: list[Chunk] = []
    problems: list[DataProblem] = []
    for found in readers[kind](_text(path)):
        if isinstance(found, DataProblem):
            problems.append(found)
            continue
        try:
            chunks.append(_checked(found, notes))
        except BadChunk as error:
            problems.append(DataProblem(found.row, found.id, str(error)))
    chunks = _without_copies(chunks, problems)
    problems.sort(key=lambda problem: problem.row)
    listed = tuple(f"{count:,} {reason}" for reason, count in sorted(notes.items()))
    return CorefData(stem_of(path, ENDINGS), tuple(_joined(chunks)), tuple(problems), listed)


def write_documents(path: Path, documents: Iterable[CorefDocument]) -> None:
    """The same documents in the format that the file's ending names."""
    from coref_automl.coreference.conll import write_conll, write_corefud

    writers = {".jsonl": _write_jsonl, ".conll": write_conll, ".conllu": write_corefud}
    if path.suffix not in writers:
        raise CoreferenceDataError(f"{path} should end in .jsonl, .conll or .conllu.")
    writers[path.suffix](path, documents)


def clusters_of(document: CorefDocument) -> list[list[dict[str, Any]]]:
    """The clusters as JSON lines have them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for mention in document.mentions:
        entry = {"start": mention.start, "end": mention.end, "text": document.text[mention.start : mention.end]}
        kind = {"kind": mention.kind} if mention.kind else {}
        found.setdefault(mention.entity, []).append({**entry, "entity": mention.entity, **kind})
    return list(found.values())


def _write_jsonl(path: Path, documents: Iterable[CorefDocument]) -> None:
    write_jsonl(path, ({"doc_id": each.id, "text": each.text, "clusters": clusters_of(each)} for each in documents))


def _jsonl_chunks(text: str) -> Iterator[Chunk | DataProblem]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
        except json.JSONDecodeError as error:
            yield DataProblem(number, "", f"not JSON ({error.msg} at column {error.colno})")
            continue
        except NOT_JSON as error:
            yield DataProblem(number, "", f"not JSON ({json_fault(error)})")
            continue
        try:
            yield _chunk(raw, number)
        except BadChunk as error:
            yield DataProblem(number, str(raw.get("doc_id", "")) if isinstance(raw, dict) else "", str(error))


def _chunk(raw: Any, number: int) -> Chunk:
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str) or not isinstance(raw.get("clusters"), list):
        raise BadChunk("a row needs doc_id, text and clusters: [[{start, end, entity}]]")
    if (half := half_character(raw["text"])) is not None:
        raise BadChunk(f"character {half} of the text is half of a surrogate pair")
    name = str(_given(raw, "doc_id", number))
    clusters, given = [], []
    for place, cluster in enumerate(raw["clusters"]):
        try:
            members = [(entry["start"], entry["end"], entry) for entry in cluster]
        except (TypeError, KeyError) as error:
            raise BadChunk(f"cluster {place + 1} holds a mention without start and end") from error
        if any(type(edge) is not int for start, end, _ in members for edge in (start, end)):
            raise BadChunk(f"cluster {place + 1} has an offset that is not a whole number")
        clusters.append(
            tuple(
                Mention(start, end, str(_given(entry, "entity", f"{name}#{place + 1}")), str(_given(entry, "kind", "")))
                for start, end, entry in members
            )
        )
        given.append(tuple(entry.get("text") for _, _, entry in members))
    document = str(_given(raw, "document", _given(raw, "novel", name)))
    return Chunk(number, name, document, raw["text"], tuple(clusters), tuple(given))


def half_character(text: str) -> int | None:
    """Where a text holds half of a surrogate pair, which JSON allows and no tokenizer takes; None: nowhere."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def _given(row: dict[str, Any], name: str, default: Any) -> Any:
    """What a row holds under a name; null is nothing."""
    held = row.get(name)
    return default if held is None else held


def _checked(chunk: Chunk, notes: Counter[str]) -> Chunk:
    """The chunk with each mention once, or the reason why it cannot be used."""
    text, owner, entities = chunk.text, dict[tuple[int, int], int](), dict[str, int]()
    strays: list[str] = []
    clusters = []
    for place, cluster in enumerate(chunk.clusters):
        given = chunk.given[place] if chunk.given else (None,) * len(cluster)
        kept: dict[tuple[int, int], Mention] = {}
        for mention, form in zip(cluster, given, strict=True):
            if not 0 <= mention.start < mention.end <= len(text):
                raise BadChunk(f"mention {mention.start}:{mention.end} lies outside the text of {len(text):,} characters")
            found = text[mention.start : mention.end]
            if form is not None and form != found:
                strays.append(f"at {mention.start}:{mention.end} the text is {found!r}, not {form!r}")
            if owner.setdefault(mention.span, place) != place:
                raise BadChunk(
                    f"the mention {found!r} at {mention.start} is in clusters {owner[mention.span] + 1} and {place + 1}"
                )
            if entities.setdefault(mention.entity, place) != place:
                raise BadChunk(
                    f"the entity {mention.entity!r} has clusters {entities[mention.entity] + 1} and {place + 1}; join them"
                )
            if mention.span in kept:
                notes["mentions repeated in their cluster, counted once"] += 1
            kept[mention.span] = mention
        if len({mention.entity for mention in kept.values()}) > 1:
            raise BadChunk(f"cluster {place + 1} mixes the entities {', '.join(sorted({m.entity for m in kept.values()}))}")
        clusters.append(tuple(kept.values()))
    if strays:
        count = sum(len(cluster) for cluster in chunk.clusters)
        raise BadChunk(f"{len(strays)} of {count} mentions do not match the text ({strays[0]})")
    return Chunk(chunk.row, chunk.id, chunk.document, text, tuple(clusters))


def _without_copies(chunks: Sequence[Chunk], problems: list[DataProblem]) -> list[Chunk]:
    """One chunk for each id of a document; of two with one text the one with more mentions, the first of equals."""
    best: dict[tuple[str, str], Chunk] = {}
    for chunk in chunks:
        key = chunk.document, chunk.id
        held = best.setdefault(key, chunk)
        if held is chunk:
            continue
        better = held.text == chunk.text and _size(chunk) > _size(held)
        best[key], out = (chunk, held) if better else (held, chunk)
        problems.append(DataProblem(out.row, out.id, f"duplicate id of row {best[key].row}"))
    return sorted(best.values(), key=lambda chunk: chunk.row)


def _size(chunk: Chunk) -> int:
    return sum(len(cluster) for cluster in chunk.clusters)


def _joined(chunks: Iterable[Chunk]) -> Iterator[CorefDocument]:
    parts: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        parts.setdefault(chunk.document, []).append(chunk)
    for name, members in parts.items():
        texts, mentions, shift = [], list[Mention](), 0
        for chunk in members:
            for cluster in chunk.clusters:
                mentions += [Mention(m.start + shift, m.end + shift, m.entity, m.kind) for m in cluster]
            texts.append(chunk.text)
            shift += len(chunk.text) + len(JOINT)
        yield CorefDocument(name, JOINT.join(texts), in_order(mentions))


def in_order(mentions: Iterable[Mention]) -> tuple[Mention, ...]:
    return tuple(sorted(mentions, key=lambda mention: (mention.start, -mention.end)))


def _text(path: Path) -> str:
    refuse_special(path)
    try:
        with opened(path) as stream:
            return stream.read().decode("utf-8-sig")
    except OSError as error:
        if error.errno is None:  # what gzip and bz2 say of damaged bytes
            raise CoreferenceDataError(f"{path} is damaged ({error}); copy it again.") from error
        raise CoreferenceDataError(
            f"Cannot read {path} ({error.strerror or error}); give the path of an annotated file."
        ) from error
    except UnicodeDecodeError as error:
        raise CoreferenceDataError(f"{path} is not UTF-8 (at byte {error.start:,}); save it as UTF-8.") from error
    except BROKEN as error:
        raise CoreferenceDataError(f"{path} is damaged ({error}); copy it again.") from error
