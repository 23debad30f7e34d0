from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.base.errors import ModelError, RecipeError
from coref_automl.extras.relation.markers import SCHEMES, MarkedRow, Marker, question, special_tokens
from coref_automl.extras.relation.rows import LABELS, TYPES, BadRow, Entity, RelationRow, parse_row
from tests.extras.relation.reading_back import misread

from .conftest import TOKENIZERS, raw_row


def row_of(*parts: str, types: tuple[str, str] = ("PER", "LOC"), flip: bool = False) -> RelationRow:
    raw = raw_row("r", parts, types, "no_relation", flip=flip)  # type: ignore[arg-type]
    return parse_row(raw, number=1, labels=LABELS)


def tokens(marker: Marker, marked: MarkedRow) -> list[str]:
    return list(marker.tokenizer.convert_ids_to_tokens(marked.ids.tolist()))


BORN = ("", "이순신", "은 ", "서울", "에서 태어났다.")


def test_typed_markers_stand_around_the_entities_and_particles_continue(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "typed", 64)
    marked = marker.mark(row_of(*BORN))
    seen = tokens(marker, marked)
    first, second = seen.index("[/E1]"), seen.index("[/E2]")
    assert seen[0] == "[CLS]"
    assert seen[-1] == "[SEP]"
    assert seen[marked.subject_at] == "[E1-PER]"
    assert seen[marked.object_at] == "[E2-LOC]"
    assert "".join(seen[marked.subject_at + 1 : first]).replace("##", "") == "이순신"
    assert seen[first + 1].startswith("##은")
    assert "".join(seen[marked.object_at + 1 : second]).replace("##", "") == "서울"
    assert seen[second + 1].startswith("##")


def test_the_subject_keeps_its_mark_when_it_comes_second(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "plain", 64)
    marked = marker.mark(row_of(*BORN, flip=True))
    seen = tokens(marker, marked)
    assert marked.object_at < marked.subject_at
    assert (seen[marked.subject_at], seen[marked.object_at]) == ("[E1]", "[E2]")


def test_typed_punctuation_uses_the_vocabulary_at_hand(fresh_tokenizer: Any) -> None:
    tokenizer = fresh_tokenizer()
    size = len(tokenizer)
    marker = Marker(tokenizer, "typed-punct", 64)
    marked = marker.mark(row_of(*BORN))
    seen = " ".join(tokens(marker, marked)).replace(" ##", "")
    assert len(tokenizer) == size
    assert "[UNK]" not in seen
    assert "@ * 사람 * 이순신 @은" in seen.replace(" 은", "은") or "@ * 사람 * 이순신 @" in seen
    assert "# ^ 장소 ^ 서울 #" in seen


def test_a_vocabulary_without_the_usual_signs_takes_the_next_ones(fresh_tokenizer: Any) -> None:
    from coref_automl.models.build import train_tokenizer

    poor = train_tokenizer(["이순신은 사람 단체 장소 날짜 기타 수량 & % $ + 서울"] * 3, vocab_size=200)
    marker = Marker(poor, "punct", 64)
    assert marker.tokenizer.convert_ids_to_tokens(marker.marks["E1", "PER"][0]) == ["&"]
    none = train_tokenizer(["이순신은 사람"] * 3, vocab_size=100)
    with pytest.raises(ModelError, match="fewer than four"):
        Marker(none, "punct", 64)
    wordless = train_tokenizer(["이순신은 & % $ + 서울"] * 3, vocab_size=200)
    with pytest.raises(ModelError, match="type word"):
        Marker(wordless, "typed-punct", 64)


def test_all_six_types_have_their_own_mark(fresh_tokenizer: Any) -> None:
    for scheme in ("typed", "typed-punct"):
        marks = Marker(fresh_tokenizer(), scheme, 64).marks
        assert len({tuple(marks[role, kind][0]) for role in ("E1", "E2") for kind in TYPES}) == 12


def test_nested_entities_nest_their_marks(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "plain", 64)
    sentence = "서울대학교는 크다."
    outer, inner = Entity("서울대학교", 0, 5, "ORG"), Entity("서울", 0, 2, "LOC")
    marked = marker.mark(RelationRow("n", sentence, outer, inner))
    seen = [token for token in tokens(marker, marked) if token.startswith(("[E", "[/E"))]
    assert seen == ["[E1]", "[E2]", "[/E2]", "[/E1]"]
    last = Entity("학교", 3, 5, "ORG")
    marked = marker.mark(RelationRow("n", sentence, last, outer))
    assert [t for t in tokens(marker, marked) if t.startswith(("[E", "[/E"))] == ["[E2]", "[E1]", "[/E1]", "[/E2]"]


def test_adjacent_entities_close_before_they_open(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "plain", 64)
    marked = marker.mark(row_of("", "서울", "", "대학교", "는 크다."))
    assert [t for t in tokens(marker, marked) if t.startswith(("[E", "[/E"))] == ["[E1]", "[/E1]", "[E2]", "[/E2]"]


def test_a_blank_at_an_entitys_edge_is_left_outside(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "plain", 64)
    marked = marker.mark(row_of("제갈량(", "181년 ", "~ ", "234년", ")은 재상이다."))
    seen = tokens(marker, marked)
    assert "".join(seen[marked.subject_at + 1 : seen.index("[/E1]")]).replace("##", "") == "181년"


def test_marker_text_in_the_sentence_is_not_a_marker(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "plain", 64)
    marked = marker.mark(row_of("[E1] [SEP] ", "이순신", "은 ", "서울", "에 있다."))
    ids = marked.ids.tolist()
    assert ids.count(marker.marks["E1", "PER"][0][0]) == 1
    assert ids.count(marker.tokenizer.sep_token_id) == 1


FAR = ("", "이순신", "은 " + "태어났다 " * 200, "서울", "에서 졸업했다." + " 노래다" * 100)


@pytest.mark.parametrize("scheme", [name for name, scheme in SCHEMES.items() if scheme.has_starts])
@pytest.mark.parametrize("parts", [FAR, ("정부는 " * 300, "이순신", "은 ", "서울", "에 있다. " + "노래다 " * 300)])
def test_a_long_sentence_keeps_both_marked_entities(fresh_tokenizer: Any, scheme: str, parts: tuple[str, ...]) -> None:
    marker = Marker(fresh_tokenizer(), scheme, 48)
    row = row_of(*parts)
    marked = marker.mark(row)
    assert marked.cut
    assert len(marked.ids) == 48
    assert misread(row, marked, marker) is None
    text = marker.tokenizer.decode(marked.ids.tolist()).replace(" ", "")
    assert "이순신" in text
    assert "서울" in text


def test_entities_that_cannot_fit_are_an_error_not_a_row_without_marks(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "typed", 16)
    with pytest.raises(BadRow, match="raise max_length"):
        marker.mark(row_of("", "조지 해리슨 " * 6 + "조지", " 은 ", "서울", "에 있다."))


def test_the_question_has_the_right_particle() -> None:
    assert question(row_of(*BORN)) == "이순신과 서울의 관계는?"
    assert question(row_of("", "비틀즈", "의 ", "서울", " 공연")) == "비틀즈와 서울의 관계는?"


def test_an_unknown_scheme_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="'typed-punct'"):
        special_tokens("typed_punct")


def test_the_check_notices_a_mark_in_the_wrong_place(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "typed", 64)
    row = row_of(*BORN)
    good = marker.mark(row)
    assert misread(row, good, marker) is None
    moved = MarkedRow(good.ids, good.subject_at + 1, good.object_at)
    assert "no start mark" in str(misread(row, moved, marker))
    swapped = good.ids.copy()
    at = good.subject_at
    swapped[[at + 1, at + 2]] = swapped[[at + 2, at + 1]]
    assert "the row reads as" in str(misread(row, MarkedRow(swapped, at, good.object_at), marker))
    late = good.ids.copy()
    end = late.tolist().index(marker.marks["E1", "PER"][1][0])
    late[[end, end + 1]] = late[[end + 1, end]]
    assert "the row reads as" in str(misread(row, MarkedRow(late, at, good.object_at), marker))


def test_an_edge_inside_a_syllable_written_in_parts_is_refused(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "plain", 64)
    with pytest.raises(BadRow, match="inside a decomposed letter"):
        marker.mark(row_of("\u1112", "\u1161@", "", "서울", ""))
    marker.mark(row_of("", "\u1112\u1161", "@", "서울", ""))


def test_the_check_reads_through_unknown_tokens(fresh_tokenizer: Any) -> None:
    marker = Marker(fresh_tokenizer(), "typed", 64)
    row = row_of("", "이순신☃", "은 ", "서울", "에서 ☃ 태어났다.")
    good = marker.mark(row)
    assert marker.tokenizer.unk_token_id in good.ids.tolist()
    assert misread(row, good, marker) is None
    lost = [entry for entry in good.ids.tolist() if entry != marker.tokenizer.convert_tokens_to_ids("서울")]
    assert misread(row, MarkedRow(np.array(lost, np.int32), good.subject_at, good.object_at), marker) is not None


WORDS = st.text(
    st.sampled_from("가나다라서울이순신비틀즈은는을를 abXY019諸葛.,()@#*^'\"-·é《》\u1112\u1161"), min_size=1, max_size=12
)
GAPS = st.one_of(st.sampled_from(["", " ", "은 ", "의 ", ", ", "(", ")는 "]), WORDS)
MAKERS = {name: maker().backend_tokenizer.to_str() for name, maker in TOKENIZERS.items()}


@st.composite
def generated_rows(draw: st.DrawFn) -> RelationRow:
    before, after, between = draw(GAPS), draw(GAPS), draw(GAPS)
    first = draw(WORDS.filter(lambda text: bool(text.strip())))
    second = draw(WORDS.filter(lambda text: bool(text.strip())))
    types = (draw(st.sampled_from(TYPES)), draw(st.sampled_from(TYPES)))
    row = row_of(before, first, between, second, after, types=types, flip=draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0 and len(row.subject.word) > 1:  # one entity inside the other
        low = draw(st.integers(row.subject.start, row.subject.end - 1))
        high = draw(st.integers(low + 1, row.subject.end))
        inner = Entity(row.sentence[low:high], low, high, row.object.type)
        if inner.word.strip() and (low, high) != (row.subject.start, row.subject.end):
            row = RelationRow("nested", row.sentence, row.subject, inner)
    return row


@pytest.mark.parametrize("kind", list(TOKENIZERS))
@pytest.mark.parametrize("scheme", ["plain", "typed", "typed-punct", "typed-question"])
@settings(max_examples=12)
@given(rows=st.lists(generated_rows(), min_size=1, max_size=4))
def test_every_generated_row_is_marked_or_refused_with_a_reason(kind: str, scheme: str, rows: list[RelationRow]) -> None:
    marker = _marker(kind, scheme)
    allowed = ("same tokens", "leaves nothing", "no token boundary", "raise max_length")
    for row in rows:
        reason: str | None
        try:
            reason = misread(row, marker.mark(row), marker)
        except BadRow as error:
            reason = None if any(known in str(error) for known in allowed) else str(error)
        assert reason is None


@cache
def _marker(kind: str, scheme: str) -> Marker:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from coref_automl.models.build import SPECIAL

    return Marker(PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(MAKERS[kind]), **SPECIAL), scheme, 96)
