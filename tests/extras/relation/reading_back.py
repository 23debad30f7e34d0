"""Marked rows read back: token ids are decoded and compared with the sentence as a string with the marks in it.

No code is shared with the insertion, which works on tokens.
"""

from __future__ import annotations

import unicodedata

from coref_automl.corpus.clean import with_marks
from coref_automl.extras.relation.markers import MarkedRow, Marker, question
from coref_automl.extras.relation.rows import RelationRow


def misread(row: RelationRow, marked: MarkedRow, marker: Marker) -> str | None:
    """What is wrong with a marked row, if anything: its length, a start mark, or what it reads as."""
    ids = marked.ids.tolist()
    if len(ids) > marker.max_length:
        return f"{len(ids)} tokens, more than {marker.max_length}"
    if marker.scheme.has_starts:
        for role, entity, at in (("E1", row.subject, marked.subject_at), ("E2", row.object, marked.object_at)):
            opening = marker.marks[role, entity.type][0]
            if not 0 < at < len(ids) or ids[at : at + len(opening)] != opening:
                return f"no start mark of {entity.word!r} at its place {at}"
    read, expected = _letters(marker.tokenizer.decode(ids[1:-1])), _expected(row, marker)
    if marked.cut or _reads_as(read.split(marker.tokenizer.unk_token or "\0"), expected):
        return None
    return f"the row reads as {read!r}, not {expected!r}"


def _expected(row: RelationRow, marker: Marker) -> str:
    """The letters of the sentence with its marks, and of what precedes it."""
    decode, normalizer = marker.tokenizer.decode, marker.tokenizer.backend_tokenizer.normalizer
    normalise = normalizer.normalize_str if normalizer else str
    marks = []
    for role, entity in (("E1", row.subject), ("E2", row.object)):
        opening, closing = marker.marks[role, entity.type]
        marks.append((entity.start, entity.end, decode(opening), decode(closing)))
    lead = f"{normalise(question(row))}{decode([marker.last])}" if marker.scheme.question else ""
    return _letters(lead + with_marks(row.sentence, marks, normalise))


def _reads_as(known: list[str], expected: str) -> bool:
    """Whether a text consists of these parts, with at least one letter, of an unknown token, between each two."""
    first, *rest = known
    if not rest or not expected.startswith(first):
        return first == expected
    *middle, last = rest
    at = len(first)
    for part in middle:
        start = expected.find(part, at + 1)  # the first place leaves most for what follows
        if start < 0:
            return False
        at = start + len(part)
    return expected.endswith(last) and len(expected) - len(last) > at


def _letters(text: str) -> str:
    return "".join(unicodedata.normalize("NFC", text).split())
