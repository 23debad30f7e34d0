"""Marked rows looked at again. In: rows and a marker. Out: every row whose marks are not where they should be, with the reason.

The checks read the finished token ids back into text and share no code with the insertion, so that a fault there shows here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from coref_automl.korean import is_hangul
from coref_automl.models.load import detect_seq_len, load_tokenizer
from coref_automl.models.segmentation import unknown_characters
from coref_automl.models.vocabulary import tokenize, word_starts
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.data import RelationData, RowProblem
from coref_automl.relation.markers import MarkedRow, Marker
from coref_automl.relation.rows import BadRow, Entity, RelationRow
from coref_automl.say import say

_CAUSES = 20


@dataclass(frozen=True, slots=True)
class CheckResult(Record):
    """What one scheme makes of all rows. `cut` counts sentences that were shortened, `unknown` those with an unknown token.

    `causes` are the characters behind unknown tokens, most frequent first.
    """

    scheme: str
    rows: int
    cut: int
    unknown: int
    longest: int
    problems: tuple[RowProblem, ...]
    split: str = ""
    causes: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        wrong = len(self.problems)
        head = f"{self.split}, {self.scheme}: " + say(
            f"행 {self.rows:,}개 검사, 오류 {wrong:,}개, 잘린 행 {self.cut:,}개, 미등록 토큰이 있는 행 {self.unknown:,}개, "
            f"최대 {self.longest}토큰",
            f"{self.rows:,} rows checked, {wrong:,} errors, {self.cut:,} truncated, {self.unknown:,} with an unknown token, "
            f"longest {self.longest} tokens",
        )
        lacking = " ".join(f"{character} ({count:,})" for character, count in list(self.causes.items())[:_CAUSES])
        named = ["  " + say("어휘에 없는 글자", "characters missing from the vocabulary") + f": {lacking}"] if lacking else []
        return [head, *named, *(f"  {problem.in_words()}" for problem in self.problems)]


def check_files(
    splits: Sequence[RelationData], model: str, schemes: Sequence[str], *, max_length: int, progress: Progress | None = None
) -> list[CheckResult]:
    """Every row of every split under every scheme, with a model's tokenizer."""
    limit = min(max_length, detect_seq_len(model))
    return [
        check_rows(data.rows, Marker(load_tokenizer(model), scheme, limit), scheme, split=data.split, progress=progress)
        for data in splits
        for scheme in schemes
    ]


def check_rows(
    rows: Sequence[RelationRow], marker: Marker, scheme: str, *, split: str = "", progress: Progress | None = None
) -> CheckResult:
    """Mark every row and check every mark."""
    reader = _Reader(marker)
    problems: list[RowProblem] = []
    causes: Counter[str] = Counter()
    cut = unknown = longest = 0
    with (progress or quiet()).stage(f"checking {scheme}", len(rows), "rows") as stage:
        for row in rows:
            stage.advance()
            try:
                marked = marker.mark(row)
            except BadRow as error:
                problems.append(RowProblem(row.number, row.guid, str(error)))
                continue
            cut += marked.cut
            if reader.unknown in marked.ids.tolist():
                unknown += 1
                causes += unknown_characters(marker.tokenizer, row.sentence, tokenize(marker.tokenizer, row.sentence))
            longest = max(longest, len(marked.ids))
            if reason := reader.fault(row, marked):
                problems.append(RowProblem(row.number, row.guid, reason))
    return CheckResult(scheme, len(rows), cut, unknown, longest, tuple(problems), split, dict(causes.most_common()))


class _Reader:
    def __init__(self, marker: Marker) -> None:
        self.marker = marker
        self.tokenizer = marker.tokenizer
        self.unknown = self.tokenizer.unk_token_id
        self.starts = word_starts(self.tokenizer)
        normalizer = self.tokenizer.backend_tokenizer.normalizer
        self._normalise = normalizer.normalize_str if normalizer else str

    def fault(self, row: RelationRow, marked: MarkedRow) -> str | None:
        """The first thing that is wrong with a marked row, if anything is."""
        ids = marked.ids.tolist()
        if len(ids) > self.marker.max_length:
            return f"{len(ids)} tokens, more than {self.marker.max_length}"
        if not self.marker.scheme.has_starts:
            return None
        roles = [("E1", row.subject, marked.subject_at), ("E2", row.object, marked.object_at)]
        roles.sort(key=lambda entry: len(entry[1].word))  # a nested one before the one around it
        return self._follow(ids, roles, row, marked, set(), [])

    def _follow(
        self,
        ids: list[int],
        roles: list[tuple[str, Entity, int]],
        row: RelationRow,
        marked: MarkedRow,
        marks: set[int],
        after: list[tuple[int, Entity]],
    ) -> str | None:
        """Find the marks of one entity after the other. A sign of the text can look like a mark: all readings are tried."""
        if not roles:
            if marked.cut or not self.marker.scheme.inline:
                return None
            reasons = (self._particle(ids, place, row, entity, marks) for place, entity in after)
            return next((reason for reason in reasons if reason), None) or self._rest(ids, marks, row)
        role, entity, at = roles[0]
        opening, closing = self.marker.marks[role, entity.type]
        first = at + len(opening)
        if not 0 < at < len(ids) or ids[at:first] != opening:
            return f"no start mark of {entity.word!r} at its place {at}"
        reason: str | None = f"the text between its marks is not {entity.word!r}"
        for end in self._closings(ids, first, closing, entity, marks):
            own = {*range(at, first), *range(end, end + len(closing))}
            reason = self._follow(ids, roles[1:], row, marked, marks | own, [*after, (end + len(closing), entity)])
            if reason is None:
                return None
        return reason

    def _closings(self, ids: list[int], first: int, closing: list[int], entity: Entity, marks: set[int]) -> Iterator[int]:
        """Where the closing mark may be so that what precedes it reads as the entity."""
        wanted = self._letters(self._normalise(entity.word))
        for end in range(first + 1, len(ids)):
            if ids[end : end + len(closing)] != closing or end in marks:
                continue
            inner = [entry for place, entry in enumerate(ids[first:end], first) if place not in marks]
            if self._reads_as(inner, wanted):
                yield end

    def _particle(self, ids: list[int], place: int, row: RelationRow, entity: Entity, marks: set[int]) -> str | None:
        """Hangul written on to a Hangul entity continues its word; the token that carries it must say so."""
        follows = row.sentence[entity.end : entity.end + 1]
        if not follows or not is_hangul(follows) or not is_hangul(entity.word[-1]):
            return None
        token = next(entry for at, entry in enumerate(ids[place:], place) if at not in marks)
        if token == self.unknown or not self.starts[token]:
            return None
        return f"{follows!r} after {entity.word!r} is not a continuation piece"

    def _rest(self, ids: list[int], marks: set[int], row: RelationRow) -> str | None:
        """Without its marks the row reads as the sentence."""
        if self.marker.scheme.lead != "none":
            return None
        body = [entry for place, entry in enumerate(ids) if place not in marks][1:-1]
        if not self._reads_as(body, self._letters(self._normalise(row.sentence))):
            return "without its marks the row does not read as the sentence"
        return None

    def _reads_as(self, ids: list[int], wanted: str) -> bool:
        """Do tokens spell these letters? An unknown token matches one letter or more."""
        if self.unknown not in ids:
            return bool(ids) and self._read(ids) == wanted
        pattern = "".join(
            ".+" if unknown else re.escape(self._read(list(part)))
            for unknown, part in groupby(ids, lambda entry: entry == self.unknown)
        )
        return re.fullmatch(pattern, wanted, re.DOTALL) is not None

    def _read(self, ids: list[int]) -> str:
        """The letters that tokens spell. A decoder keeps the `##` of the first one, which continues a word outside."""
        text = self.tokenizer.decode(ids)
        first = self.tokenizer.convert_ids_to_tokens(ids[0])
        return self._letters(text.removeprefix("##") if first.startswith("##") and len(first) > 2 else text)

    @staticmethod
    def _letters(text: str) -> str:
        return "".join(unicodedata.normalize("NFC", text).split())
