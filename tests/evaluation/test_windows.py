"""A window holds the gap and, where it can, the antecedent; what stands around the gap is what the document says."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from coref_automl.base.errors import ModelError, RecipeError
from coref_automl.evaluation import windows
from coref_automl.evaluation.windows import Lengths, WindowMaker, bounds, distance_between, maker_for, special_edges
from coref_automl.models.vocabulary import tokenize
from tests.evaluation.tiny import TEXTS, item, items, tokenizer_of

KINDS = ("wordpiece", "pairs", "bytes", "unigram")


@st.composite
def places(draw: st.DrawFn) -> tuple[int, tuple[int, int], tuple[int, int] | None, int]:
    count = draw(st.integers(3, 400))
    start = draw(st.integers(0, count - 1))
    gap = (start, draw(st.integers(start + 1, min(count, start + 4))))
    before = st.integers(0, max(0, gap[0] - 1)).map(lambda low: (low, min(low + 2, gap[0])) if gap[0] else None)
    after = st.integers(min(gap[1], count - 1), count - 1).map(lambda low: (low, low + 1) if low >= gap[1] else None)
    return count, gap, draw(st.one_of(st.none(), before, after)), draw(st.integers(8, 500))


@given(places())
def test_bounds_keep_gap_and_antecedent_and_fill_the_room(case: tuple[int, tuple[int, int], tuple[int, int] | None, int]) -> None:
    count, gap, antecedent, room = case
    low, high, in_reach = bounds(count, gap, antecedent, room)
    outside = (gap[0] - low) + (high - gap[1])
    assert 0 <= low <= gap[0]
    assert gap[1] <= high <= count
    assert outside == min(room, count - (gap[1] - gap[0]))
    if antecedent:
        held = low <= antecedent[0] and antecedent[1] <= high
        needed = max(gap[0] - antecedent[0], antecedent[1] - gap[1])
        assert in_reach == (needed <= room)
        assert held or not in_reach
    else:
        assert in_reach


def test_out_of_reach_centres_on_the_gap() -> None:
    assert bounds(1000, (900, 901), (10, 11), 100) == (850, 951, False)


def test_in_reach_centres_the_stretch_from_antecedent_to_gap() -> None:
    assert bounds(1000, (540, 541), (500, 501), 100) == (470, 571, True)
    assert bounds(1000, (500, 501), (540, 541), 100) == (470, 571, True)


def test_room_that_one_side_cannot_use_goes_to_the_other() -> None:
    assert bounds(1000, (10, 11), (5, 6), 100) == (0, 101, True)
    assert bounds(1000, (990, 991), (985, 986), 100) == (899, 1000, True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_is_the_document_with_masks_in_the_gap(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    maker = WindowMaker(tokenizer, Lengths.fixed(512))
    for case in items():
        window = maker.window(case, TEXTS[int(case.document)])
        row = window.filled([maker.mask_id] * 2)
        assert list(row).count(maker.mask_id) == 2
        assert row[window.gap] == row[window.gap + 1] == maker.mask_id
        text = TEXTS[int(case.document)]
        assert _letters(tokenizer.decode(window.before, skip_special_tokens=True)) == _letters(text[: case.start])
        assert _letters(tokenizer.decode(window.after, skip_special_tokens=True)) == _letters(text[case.end :])
        assert not window.out_of_reach


def _letters(text: str) -> str:
    return text.replace(" ", "").replace("##", "")


def test_the_particle_after_the_gap_stays_a_continuation() -> None:
    tokenizer = tokenizer_of("wordpiece")
    window = WindowMaker(tokenizer, Lengths.fixed(128)).window(item("1", "도서관", 1), TEXTS[1])
    assert tokenizer.convert_ids_to_tokens(int(window.after[0])) == "##은"


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_window_keeps_its_length_and_its_antecedent(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    text = " ".join(TEXTS * 6)
    case = item("0", "도서관", 9, text=text)
    seen_outside = False
    for length in (24, 40, 64, 200):
        window = WindowMaker(tokenizer, Lengths.fixed(length)).window(case, text)
        assert window.length(len(window.pieces)) <= length
        assert window.before[0] == tokenizer.cls_token_id
        assert window.after[-1] == tokenizer.sep_token_id
        held = "도서관" in tokenizer.decode(window.before).replace(" ##", "").replace("##", "")
        assert held or window.out_of_reach
        seen_outside = seen_outside or window.out_of_reach
    assert not window.out_of_reach


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [16, 40])
def test_a_stretch_of_a_long_document_gives_the_window_of_the_whole(
    kind: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tokenizer_of(kind)
    text = " ".join(TEXTS * 40)
    cases = [item("0", word, occurrence, text=text) for word in ("도서관", "나무", "한빛전자") for occurrence in (1, 20, 60, 79)]
    cases += [replace(case, antecedent=(case.start - 1500, case.start - 1497)) for case in cases if case.start > 1500]
    read: list[int] = []
    monkeypatch.setattr(windows, "tokenize", lambda t, part: read.append(len(part)) or tokenize(t, part))
    sliced = [WindowMaker(tokenizer, Lengths.fixed(length)).window(case, text) for case in cases]
    assert min(read) < len(text) // 4
    monkeypatch.setattr(windows, "_CHARACTERS", 10_000)
    for case, single in zip(cases, sliced, strict=True):
        whole = WindowMaker(tokenizer, Lengths.fixed(length)).window(case, text)
        assert np.array_equal(single.before, whole.before)
        assert np.array_equal(single.after, whole.after)
        assert (single.own_distance, single.out_of_reach) == (whole.own_distance, whole.out_of_reach)


def test_a_stretch_that_is_too_short_is_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(TEXTS * 40)
    case = item("0", "도서관", 60, text=text)
    expected = WindowMaker(tokenizer_of("wordpiece"), Lengths.fixed(64)).window(case, text)
    monkeypatch.setattr(windows, "_CHARACTERS", 1)
    window = WindowMaker(tokenizer_of("wordpiece"), Lengths.fixed(64)).window(case, text)
    assert np.array_equal(window.before, expected.before)
    assert np.array_equal(window.after, expected.after)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("characters", [1, 4])
def test_windows_of_many_items_are_those_cut_one_by_one(kind: str, characters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, long = tokenizer_of(kind), " ".join(TEXTS * 40)
    monkeypatch.setattr(windows, "_CHARACTERS", characters)
    monkeypatch.setattr(windows, "_BATCH", 3)
    wanted = [(item("0", word, at, text=long), long) for word in ("도서관", "나무", "한빛전자") for at in (1, 20, 60, 79)]
    wanted += [(item("1", "도서관", 1), TEXTS[1]), (item("1", "도서관", 2), TEXTS[1]), wanted[0]]
    alone = [WindowMaker(tokenizer, Lengths.fixed(40)).window(*pair) for pair in wanted]
    read: list[str] = []
    monkeypatch.setattr(windows, "tokenize", lambda t, part: read.append(part) or tokenize(t, part))
    together = WindowMaker(tokenizer, Lengths.fixed(40))
    together.prepare(wanted)
    assert bool(read) is (characters == 1)  # only a stretch that turns out too short is read by itself
    read.clear()
    cut = [together.window(*pair) for pair in wanted]
    together.prepare(wanted)
    assert not read
    assert [together.window(*pair) for pair in wanted] == cut  # the very same: windows compare by identity
    for window, single in zip(cut, alone, strict=True):
        assert np.array_equal(window.before, single.before)
        assert np.array_equal(window.after, single.after)
        assert (window.own_distance, window.out_of_reach) == (single.own_distance, single.out_of_reach)


def test_own_distance_counts_the_pieces_between() -> None:
    tokenizer = tokenizer_of("wordpiece")
    case = item("1", "도서관", 1)
    window = WindowMaker(tokenizer, Lengths.fixed(128)).window(case, TEXTS[1])
    assert case.antecedent is not None
    between = TEXTS[1][case.antecedent[1] : case.start]
    assert window.own_distance == len(tokenize(tokenizer, "도서관" + between)) - 1
    assert distance_between((5, 6), None) == -1
    assert distance_between((5, 6), (8, 9)) == 2
    assert distance_between((5, 6), (2, 4)) == 1


def test_windows_grow_where_the_antecedent_needs_it() -> None:
    tokenizer, text = tokenizer_of("wordpiece"), " ".join(TEXTS * 60)
    maker = WindowMaker(tokenizer, Lengths.of(256, 2048))
    places = [at for at in range(len(text)) if text.startswith("도서관", at)]
    near = item("0", "도서관", 60, text=text)
    wanted = {"near": near}
    for name, back in (("half", 8), ("far", 24), ("beyond", 110)):
        start = places[60 - back] if back < 60 else places[0]
        wanted[name] = replace(near, antecedent=(start, start + 3))
    lengths, reach = {}, {}
    for name, case in wanted.items():
        for task in ("real", "real-far"):
            window = maker.window(replace(case, task=task), text)
            lengths[name, task], reach[name, task] = window.length(), not window.out_of_reach
            assert window.own_distance < window.length() or window.out_of_reach
    assert lengths["near", "real"] == lengths["near", "real-far"] == 256
    assert lengths["half", "real"] == lengths["half", "real-far"] in (256, 512)
    assert (lengths["far", "real"], lengths["beyond", "real"]) == (512, 512)
    assert lengths["far", "real-far"] <= lengths["beyond", "real-far"] <= 2048
    assert reach["beyond", "real-far"]
    assert not reach["beyond", "real"]
    fixed = WindowMaker(tokenizer, Lengths.of(64, 2048))
    assert {fixed.window(case, text).length() for case in wanted.values()} == {64}


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_an_entry_only_with_token_edges_in_the_document_itself(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    entries = 0
    for case in items():
        text = TEXTS[int(case.document)]
        window, pieces = WindowMaker(tokenizer, Lengths.fixed(128)).window(case, text), tokenize(tokenizer, text)
        low, high = pieces.cover(case.start, case.end)
        exact = (pieces.starts[low], pieces.ends[high - 1]) == (case.start, case.end)
        assert window.whole == exact
        assert (window.entry is not None) == (exact and high == low + 1)
        if window.entry is not None:
            entries += 1
            assert window.pieces == (window.entry,) == (pieces.ids[low],)
    assert entries or kind in ("bytes", "unigram", "pairs")


def test_a_window_without_context_is_refused() -> None:
    with pytest.raises(RecipeError, match="--seq-len 11"):
        WindowMaker(tokenizer_of("wordpiece"), Lengths.fixed(8))


def test_special_edges_are_the_tokenizers_own() -> None:
    opening, closing = special_edges(tokenizer_of("bytes"))
    assert opening.tolist() == [tokenizer_of("bytes").cls_token_id]
    assert closing.tolist() == [tokenizer_of("bytes").sep_token_id]


def test_a_tokenizer_without_mask_is_refused() -> None:
    from transformers import PreTrainedTokenizerFast

    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer_of("wordpiece").backend_tokenizer, unk_token="[UNK]")
    with pytest.raises(ModelError, match="no mask token"):
        WindowMaker(bare, Lengths.fixed(128))


def test_checkpoints_of_one_tokenizer_share_their_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(windows, "tokenize", lambda t, part: read.append(part) or tokenize(t, part))
    case = item("1", "도서관", 2)
    first = windows.maker_for(tokenizer_of("wordpiece"), Lengths.fixed(33)).window(case, TEXTS[1])
    copy = deepcopy(tokenizer_of("wordpiece"))
    assert windows.maker_for(copy, Lengths.fixed(33)).window(replace(case, id="other"), TEXTS[1]) is first
    assert len(read) == 1
    assert windows.maker_for(copy, Lengths.fixed(34)).window(case, TEXTS[1]) is not first
    other = TEXTS[1].replace("시민", "학생")
    assert windows.maker_for(copy, Lengths.fixed(33)).window(case, other) is not first


def test_tokenizers_with_another_frame_do_not_share_windows() -> None:
    framed = tokenizer_of("wordpiece")
    bare = deepcopy(framed)
    bare.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    case = item("1", "도서관")
    first, second = (maker_for(tokenizer, Lengths.fixed(64)).window(case, TEXTS[1]) for tokenizer in (framed, bare))
    assert len(first.before) == len(second.before) + 1
