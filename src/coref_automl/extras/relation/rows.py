"""KLUE-RE's rows, labels and types. In: raw rows. Out: checked rows, labels in KLUE's order, label masks by type pair."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import ModelError
from coref_automl.base.records import Record
from coref_automl.base.store import lone_surrogate

Ints = NDArray[np.int64]
TYPES = ("PER", "ORG", "LOC", "DAT", "POH", "NOH")
LONGEST = 5000
"""Characters. Longer text is a document, and which of its sentences is meant cannot be guessed."""

LONGER = "raise max_length"
"""The advice for a row whose marked entities do not fit. How to follow it depends on the command: see `data.bad_rows`."""

_FLAT = ("{role}_{key}", "{role}_entity_{key}", "{role}_entity.{key}")
_KEYS = ("word", "start_idx", "end_idx", "type")


@dataclass(frozen=True, slots=True)
class Entity(Record):
    """A span of the sentence: `sentence[start:end] == word`."""

    word: str
    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class RelationRow(Record):
    """`number` is the row's position in its file, from 1; 0 without a file."""

    guid: str
    sentence: str
    subject: Entity
    object: Entity
    label: str | None = None
    source: str = ""
    number: int = 0


class BadRow(ValueError):
    """The reason why a row cannot be used; caught where its file and number are known."""


def parse_row(raw: Any, *, number: int, labels: tuple[str, ...], labelled: bool = True) -> RelationRow:
    if not isinstance(raw, Mapping):
        raise BadRow(f"it is {type(raw).__name__}, not an object with sentence, subject_entity, object_entity and label")
    sentence = raw.get("sentence")
    if not isinstance(sentence, str) or not sentence.strip():
        raise BadRow("the sentence is missing or empty")
    if len(sentence) > LONGEST:
        raise BadRow(
            f"the sentence has {len(sentence):,} characters, and more than {LONGEST:,} is a document; pass the sentence meant"
        )
    if (half := lone_surrogate(sentence)) is not None:
        raise BadRow(f"character {half} of the text is half of a surrogate pair")
    subject, object_ = _entity(raw, "subject", sentence), _entity(raw, "object", sentence)
    if reason := why_not_together(subject, object_):
        raise BadRow(reason)
    guid = raw.get("guid", raw.get("id"))
    return RelationRow(
        guid=str(number) if guid is None or guid == "" else str(guid),
        sentence=sentence,
        subject=subject,
        object=object_,
        label=_label(raw.get("label"), labels) if labelled else None,
        source=str(raw.get("source") or ""),
        number=number,
    )


def why_not_together(subject: Entity, object_: Entity) -> str | None:
    """Return the reason why two spans cannot both be marked, if there is one."""
    a, b = (subject.start, subject.end), (object_.start, object_.end)
    if a == b:
        return f"subject and object are the same span {a[0]}..{a[1] - 1} ({subject.word!r})"
    first, second = sorted((a, b), key=lambda span: (span[0], -span[1]))
    if first[1] > second[0] and second[1] > first[1]:
        return f"subject and object cross (characters {first[0]}..{first[1] - 1} and {second[0]}..{second[1] - 1})"
    return None


def _entity(raw: Mapping[str, Any], role: str, sentence: str) -> Entity:
    cell = _cell(raw, role)
    missing = [key for key in _KEYS if cell.get(key) in (None, "")]
    if missing:
        raise BadRow(f"the {role} entity has no {missing[0]!r}")
    word, kind = str(cell["word"]), str(cell["type"])
    if kind not in TYPES:
        raise BadRow(f"the {role}'s type {kind!r} is not one of {', '.join(TYPES)}")
    start, last = _whole(cell["start_idx"], role, "start_idx"), _whole(cell["end_idx"], role, "end_idx")
    if sentence[max(0, start) : last + 1] != word or start < 0 or not word.strip():
        raise BadRow(_why_no_match(word, start, last, role, sentence))
    return Entity(word, start, last + 1, kind)


def _cell(raw: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    """Read the entity from an object, a text cell that spells one, or flat columns (subject_word, subject_start_idx ...)."""
    value = raw.get(f"{role}_entity")
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str) and value.strip():
        for parse in (ast.literal_eval, json.loads):
            try:
                cell = parse(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(cell, Mapping):
                return cell
        raise BadRow(f"the cell {role}_entity is not a dict: {value[:40]!r}")
    for pattern in _FLAT:
        flat = {key: raw.get(pattern.format(role=role, key=key)) for key in _KEYS}
        if any(entry is not None for entry in flat.values()):
            return flat
    raise BadRow(f"there is no {role}_entity, nor columns {role}_word, {role}_start_idx, {role}_end_idx, {role}_type")


def _whole(value: Any, role: str, key: str) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise BadRow(f"the {role}'s {key} is {value!r}, not a whole number") from None


def _why_no_match(word: str, start: int, last: int, role: str, sentence: str) -> str:
    """Say what is at the offsets and where the word is, for the user to correct the file."""
    if not word.strip():
        return f"the {role}'s word is blank"
    if not 0 <= start <= last < len(sentence):
        actual = f"characters {start}..{last} are outside the sentence of {len(sentence):,}"
    else:
        actual = f"characters {start}..{last} are {sentence[start : last + 1]!r}"
    if word not in sentence:
        return f"the {role} {word!r} does not occur in the sentence; {actual}"
    if sentence[max(0, start) : last] == word:
        return f"the {role} {word!r} ends at {last - 1}, not {last}: end_idx is inclusive; {actual}"
    index = sentence.index(word)
    return f"the {role}'s {actual}, not {word!r}, which is at {index}..{index + len(word) - 1}"


def _label(value: Any, labels: tuple[str, ...]) -> str:
    """Read a label by name, or by number in KLUE's order, as the hub's rows have it."""
    if value is None or value == "":
        raise BadRow("the label is missing")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(labels):
        return labels[value]
    if value in labels:
        return str(value)
    if not isinstance(value, str):
        raise BadRow(f"the label {value!r} is not one of KLUE's 30, which as numbers go from 0 to {len(labels) - 1}")
    near = difflib.get_close_matches(value.strip().lower(), labels, n=1, cutoff=0.0)
    raise BadRow(f"the label {value!r} is not one of KLUE's 30 (the nearest is {near[0]!r})")


_ORGANISATION = (
    "dissolved founded place_of_headquarters alternate_names member_of members political/religious_affiliation product "
    "founded_by top_members/employees number_of_employees/members"
)
_PERSON = (
    "date_of_birth date_of_death place_of_birth place_of_death place_of_residence origin employee_of schools_attended "
    "alternate_names parents children siblings spouse other_family colleagues product religion title"
)
LABELS = ("no_relation", *(f"org:{name}" for name in _ORGANISATION.split()), *(f"per:{name}" for name in _PERSON.split()))
"""The order of KLUE's relation_list.json and of the hub's `klue`/`re`. Course material uses another: never compare indices."""

NO_RELATION = 0
INDEX = {label: index for index, label in enumerate(LABELS)}

MaskKind = Literal["off", "hard", "soft"]
_FORBIDDEN = -1e4
"""Minus infinity in practice: exp(-1e4) is 0 in every float type, and a gradient through it is 0 and not NaN."""
IMPOSSIBLE = -1e3
"""A label with a logit or bias up to this cannot be answered."""


@dataclass(frozen=True, slots=True)
class LabelMask:
    """A bias on the logits of a row by its pair of types, learned from the training rows alone."""

    kind: MaskKind
    bias: NDArray[np.float32]

    @classmethod
    def learn(cls, rows: Sequence[RelationRow], kind: MaskKind, *, support: int = 1, smoothing: float = 1.0) -> LabelMask:
        """`hard` forbids a label seen fewer than `support` times with the pair; `soft` adds log P(label | pair), smoothed.

        no_relation is never forbidden, and a pair never seen in train forbids nothing.
        """
        counts = np.zeros((len(TYPES) ** 2, len(LABELS)))
        for row in rows:
            if row.label is not None:
                counts[pair_index(row), INDEX[row.label]] += 1
        bias = np.zeros(counts.shape, np.float32)
        if kind == "hard":
            forbidden = counts < support
            forbidden[:, NO_RELATION] = False
            forbidden[counts.sum(1) == 0] = False
            bias[forbidden] = _FORBIDDEN
        elif kind == "soft":
            share = (counts + smoothing) / (counts + smoothing).sum(1, keepdims=True)
            bias = np.log(share).astype(np.float32)
        return cls(kind, bias)

    @classmethod
    def stored(cls, kind: MaskKind, bias: Sequence[Sequence[float]] | None, file: str) -> LabelMask | None:
        """Rebuild the mask stored in a file of a run or model; None if it is off."""
        if kind == "off":
            return None
        if bias is None or len(bias) != len(TYPES) ** 2 or any(len(row) != len(LABELS) for row in bias):
            raise ModelError(f"{file} has a damaged label mask; train that seed again.")
        return cls(kind, np.array(bias, np.float32))

    def as_rows(self) -> tuple[tuple[float, ...], ...]:
        return tuple(map(tuple, self.bias.tolist()))

    def for_rows(self, rows: Sequence[RelationRow]) -> NDArray[np.float32]:
        return np.asarray(self.bias[[pair_index(row) for row in rows]])

    def forbids(self, rows: Sequence[RelationRow]) -> NDArray[np.bool_]:
        """For each row, whether the mask rules out its gold label: it cannot be answered correctly."""
        gold = np.array([INDEX[row.label] if row.label else NO_RELATION for row in rows], np.int64)
        return np.asarray(self.for_rows(rows)[np.arange(len(rows)), gold] <= _FORBIDDEN)


def pair_index(row: RelationRow) -> int:
    return TYPES.index(row.subject.type) * len(TYPES) + TYPES.index(row.object.type)


def gold_indices(rows: Sequence[RelationRow]) -> Ints:
    """Labels of rows as indices; every row must have one."""
    return np.array([INDEX[row.label] for row in rows if row.label is not None], np.int64)
