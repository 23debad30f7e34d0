"""Entity markers. In: a checked row and a tokenizer. Out: token ids with both entities marked, and positions of the marks.

Marks are inserted between tokens, by character offsets: a particle after an entity stays a continuation piece (`[/E1] ##은`). A
long sentence is cut around both entities before it is marked, so no mark can be lost; a row that cannot be marked is an error,
never a row without marks. E1 is the subject, E2 the object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.config import choose
from coref_automl.base.errors import ModelError
from coref_automl.base.korean import ends_in_consonant, splits_syllable
from coref_automl.extras.relation.rows import LONGER, TYPES, BadRow, Entity, RelationRow
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.spans import trimmed
from coref_automl.models.vocabulary import FastTokenizer, Pieces, split_at, tokenize, word_ids

Marks = Literal["none", "plain", "typed", "punct", "typed-punct"]


@dataclass(frozen=True, slots=True)
class MarkerScheme:
    """How entities are marked, and whether a question about them precedes the sentence."""

    marks: Marks
    question: bool = False

    @property
    def has_starts(self) -> bool:
        """Whether a row has two start marks that a head can read."""
        return self.marks != "none"


SCHEMES = {
    "none": MarkerScheme("none"),
    "plain": MarkerScheme("plain"),
    "typed": MarkerScheme("typed"),
    "punct": MarkerScheme("punct"),
    "typed-punct": MarkerScheme("typed-punct"),
    "typed-question": MarkerScheme("typed", question=True),
    "typed-punct-question": MarkerScheme("typed-punct", question=True),
}

TYPE_WORDS = {"PER": "사람", "ORG": "단체", "LOC": "장소", "DAT": "날짜", "POH": "기타", "NOH": "수량"}
ROLE_WORDS = {"E1": "주체", "E2": "대상"}
_PUNCTUATION = ("@", "#", "*", "^", "&", "%", "$", "+", "=", "|", "~", "/", "<", ">", ";", "·", "!", "?")
"""In order of preference for (subject, object, subject's type, object's type); those a vocabulary lacks are skipped."""


@dataclass(frozen=True, slots=True, eq=False)
class MarkedRow:
    """Input of a model. `subject_at` and `object_at` are the positions of the start marks, -1 if the scheme has none."""

    ids: NDArray[np.int32]
    subject_at: int
    object_at: int
    cut: bool = False


def special_tokens(scheme: str) -> tuple[str, ...]:
    """List the entries a scheme adds to the vocabulary; punctuation schemes add none."""
    marks = choose(scheme, SCHEMES, "scheme").marks
    if marks == "plain":
        return ("[E1]", "[/E1]", "[E2]", "[/E2]")
    if marks == "typed":
        return (*(f"[{role}-{kind}]" for role in ROLE_WORDS for kind in TYPES), "[/E1]", "[/E2]")
    return ()


class Marker:
    """Marks rows for one tokenizer, scheme and length. New entries are added to the tokenizer.

    `vocabulary` identifies the original tokenizer, `name` all that decides a marked row.
    """

    def __init__(self, tokenizer: FastTokenizer, scheme: str, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.scheme = choose(scheme, SCHEMES, "scheme")
        self.max_length = max_length
        self.vocabulary = tokenizer_fingerprint(tokenizer)
        self.name = f"{self.vocabulary} {scheme} {max_length}"
        if added := special_tokens(scheme):
            tokenizer.add_tokens(list(added), special_tokens=True)
        self.marks = _mark_ids(tokenizer, self.scheme.marks)
        self.first = _special_id(tokenizer, "cls_token_id", "bos_token_id")
        self.last = _special_id(tokenizer, "sep_token_id", "eos_token_id")

    def mark(self, row: RelationRow, pieces: Pieces | None = None) -> MarkedRow:
        """Mark a row; raise `BadRow` with the reason if it cannot be. `pieces` are those of the sentence, if known already."""
        lead = [*tokenize(self.tokenizer, question(row)).ids.tolist(), self.last] if self.scheme.question else []
        subject, object_ = self.marks["E1", row.subject.type], self.marks["E2", row.object.type]
        capacity = self.max_length - 2 - len(lead) - sum(len(part) for part in (*subject, *object_))
        entities = (row.subject, row.object)
        spans = [trimmed(row.sentence, entity.start, entity.end) for entity in entities]
        pieces = split_at(self.tokenizer, row.sentence, pieces or tokenize(self.tokenizer, row.sentence), spans)
        covered = [_covered(pieces, span, entity, row.sentence) for span, entity in zip(spans, entities, strict=True)]
        if covered[0] == covered[1]:
            raise BadRow(f"subject and object are the same tokens ({row.subject.word!r})")
        kept, covered, cut = _window(pieces.ids, covered, capacity)
        body, starts = _insert(kept, covered, (subject, object_))
        shift = 1 + len(lead)
        ids = np.concatenate([[self.first], lead, body, [self.last]]).astype(np.int32)
        if not self.scheme.has_starts:
            return MarkedRow(ids, -1, -1, cut)
        return MarkedRow(ids, starts[0] + shift, starts[1] + shift, cut)


def question(row: RelationRow) -> str:
    """Ask for the relation: '비틀즈와 조지 해리슨의 관계는?', with the particle that fits the subject's last syllable."""
    subject, object_ = row.subject.word.strip(), row.object.word.strip()
    return f"{subject}{'과' if ends_in_consonant(subject) else '와'} {object_}의 관계는?"


def _mark_ids(tokenizer: FastTokenizer, marks: Marks) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """Map (role, type) to the tokens before and after the entity."""
    names = {"plain": "[{role}]", "typed": "[{role}-{kind}]"}
    signs = _signs(tokenizer) if marks in ("punct", "typed-punct") else []
    mark_ids: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for number, role in enumerate(ROLE_WORDS):
        for kind, word in TYPE_WORDS.items():
            if marks == "none":
                mark_ids[role, kind] = [], []
            elif marks in names:
                tokens = names[marks].format(role=role, kind=kind), f"[/{role}]"
                opening, closing = ([int(tokenizer.convert_tokens_to_ids(token))] for token in tokens)
                mark_ids[role, kind] = opening, closing
            else:
                outer, inner = signs[number], signs[number + 2]
                typed = [*inner, *_known(tokenizer, word), *inner] if marks == "typed-punct" else []
                mark_ids[role, kind] = [*outer, *typed], outer
    return mark_ids


def _signs(tokenizer: FastTokenizer) -> list[list[int]]:
    """Pick four signs in the vocabulary, in order of preference; with metaspaces one may be two pieces, a blank and itself."""
    candidates = [word_ids(tokenizer, sign) for sign in _PUNCTUATION]
    signs = [ids for ids in candidates if 1 <= len(ids) <= 2 and tokenizer.unk_token_id not in ids]
    if len(signs) < 4:
        raise ModelError("This vocabulary has fewer than four punctuation marks to use as entity markers; choose --scheme typed.")
    return signs[:4]


def _known(tokenizer: FastTokenizer, word: str) -> list[int]:
    ids = word_ids(tokenizer, word)
    if not ids or tokenizer.unk_token_id in ids:
        raise ModelError(f"This vocabulary cannot spell the type word {word!r}; choose --scheme punct or typed.")
    return ids


def _special_id(tokenizer: FastTokenizer, *names: str) -> int:
    for name in names:
        if getattr(tokenizer, name) is not None:
            return int(getattr(tokenizer, name))
    raise ModelError(f"The tokenizer has neither {names[0]} nor {names[1]}; relation extraction needs one of them.")


def _covered(pieces: Pieces, span: tuple[int, int], entity: Entity, sentence: str) -> tuple[int, int]:
    """Return the pieces of a span; none may extend beyond it, or the mark would fall inside a token or a syllable."""
    low, high = pieces.cover(*span)
    if low == high:
        raise BadRow(f"the tokenizer leaves nothing of {entity.word!r}")
    if any(splits_syllable(sentence, edge) for edge in span):
        raise BadRow(f"no token boundary at the edges of {entity.word!r}: one falls inside a decomposed letter (not NFC)")
    if pieces.starts[low] < span[0] or pieces.ends[high - 1] > span[1]:
        raise BadRow(f"no token boundary at the edges of {entity.word!r}")
    return low, high


def _window(
    ids: NDArray[np.int32], covered: list[tuple[int, int]], capacity: int
) -> tuple[NDArray[np.int32], list[tuple[int, int]], bool]:
    """Cut the tokens around both entities to the capacity, and between them if they are too far apart."""
    if len(ids) <= capacity:
        return ids, covered, False
    low, high = min(a for a, _ in covered), max(b for _, b in covered)
    if high - low <= capacity:
        start = int(np.clip(low - (capacity - (high - low)) // 2, 0, len(ids) - capacity))
        return ids[start : start + capacity], [(a - start, b - start) for a, b in covered], True
    (a1, b1), (a2, b2) = sorted(covered)
    nested = b2 <= b1
    needed = high - low if nested else (b1 - a1) + (b2 - a2)
    if nested or needed > capacity:
        raise BadRow(f"both entities need {needed} tokens and {max(0, capacity)} are left; {LONGER}")
    spare = capacity - needed
    left_of, between = min(spare // 4, a1), spare // 2
    right_of = min(spare - left_of - between, len(ids) - b2)
    between = min(spare - left_of - right_of, a2 - b1)
    after_first = between // 2
    first, second = (a1 - left_of, b1 + after_first), (a2 - (between - after_first), b2 + right_of)
    shift = first[1] - first[0] - second[0]
    new = {(a1, b1): (a1 - first[0], b1 - first[0]), (a2, b2): (a2 + shift, b2 + shift)}
    return np.concatenate([ids[slice(*first)], ids[slice(*second)]]), [new[span] for span in covered], True


def _insert(
    ids: NDArray[np.int32], covered: list[tuple[int, int]], marks: tuple[tuple[list[int], list[int]], ...]
) -> tuple[NDArray[np.int32], tuple[int, int]]:
    """Put each entity's marks around its tokens. At one position, closing marks come before opening ones, and nesting is kept."""
    events = []
    for which, ((low, high), (opening, closing)) in enumerate(zip(covered, marks, strict=True)):
        events.append((low, 1, -high, which, opening))
        events.append((high, 0, -low, which, closing))
    parts: list[NDArray[np.int32]] = []
    starts = [-1, -1]
    done = length = 0
    for position, is_opening, _, which, mark in sorted(events, key=lambda event: event[:3]):
        parts += [ids[done:position], np.array(mark, np.int32)]
        length += position - done
        if is_opening:
            starts[which] = length
        length += len(mark)
        done = position
    return np.concatenate([*parts, ids[done:]]), (starts[0], starts[1])
