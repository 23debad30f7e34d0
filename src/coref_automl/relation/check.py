"""Marked rows read back. In: rows, a tokenizer, marker schemes. Out: every row that is marked wrongly, with the reason.

The finished token ids are decoded and compared with the sentence as a string with the marks in it: a fault of the insertion,
which works on tokens, shows here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from coref_automl.corpus.batch import RowProblem
from coref_automl.models.load import detect_seq_len, load_tokenizer
from coref_automl.models.segmentation import unknown_characters
from coref_automl.models.vocabulary import tokenize
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.data import RelationData
from coref_automl.relation.markers import MarkedRow, Marker, question
from coref_automl.relation.rows import BadRow, RelationRow, with_marks
from coref_automl.say import say

_CAUSES = 20


@dataclass(frozen=True, slots=True)
class CheckResult(Record):
    """One scheme over all rows of a split: `cut` counts shortened sentences, `unknown` those with an unknown token, and
    `causes` the characters behind unknown tokens, most frequent first."""

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
    """Mark every row and read it back."""
    problems: list[RowProblem] = []
    causes: Counter[str] = Counter()
    cut = unknown = longest = 0
    for row in (progress or quiet()).track(rows, f"checking {scheme}", len(rows), "rows"):
        try:
            marked = marker.mark(row)
        except BadRow as error:
            problems.append(RowProblem(row.number, row.guid, str(error)))
            continue
        cut += marked.cut
        longest = max(longest, len(marked.ids))
        if marker.tokenizer.unk_token_id in marked.ids.tolist():
            unknown += 1
            causes += unknown_characters(marker.tokenizer, row.sentence, tokenize(marker.tokenizer, row.sentence))
        if reason := misread(row, marked, marker):
            problems.append(RowProblem(row.number, row.guid, reason))
    return CheckResult(scheme, len(rows), cut, unknown, longest, tuple(problems), split, dict(causes.most_common()))


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
    pattern = re.escape(read).replace(re.escape(marker.tokenizer.unk_token or "\0"), ".+")
    if marked.cut or re.fullmatch(pattern, expected, re.DOTALL):
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
    lead = {
        "none": "",
        "entities": "".join(f"{opening}{normalise(row.sentence[a:b])}{closing}" for a, b, opening, closing in marks),
        "question": normalise(question(row)),
    }[marker.scheme.lead]
    body = with_marks(row.sentence, marks if marker.scheme.inline else (), normalise)
    return _letters(f"{lead}{decode([marker.last])}{body}" if lead else body)


def _letters(text: str) -> str:
    return "".join(unicodedata.normalize("NFC", text).split())
