from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import CoreferenceDataError
from coref_automl.extras.coreference.documents import CorefDocument, Mention
from coref_automl.extras.coreference.head import Surfaces, _form_relations
from coref_automl.extras.coreference.tokens import quotations, segments, tokenize_documents, windows
from coref_automl.models.build import train_tokenizer

GLUING = train_tokenizer(["나를 부른 사람은 그를 보았다. 나를 불렀다. 가 나 그"] * 20, vocab_size=1_000)
"""A vocabulary in which a pronoun and its particle are one entry."""


def test_a_mention_inside_a_token_is_reached_by_cutting_its_particle_off() -> None:
    text = "나를 부른 사람은 그를 보았다."
    document = CorefDocument("d", text, (Mention(0, 1, "a"), Mention(10, 11, "b")))
    (doc,) = tokenize_documents(GLUING, [document])
    assert doc.trailing.tolist() == [1, 1]
    spans = [doc.span(*map(int, tokens)) for tokens in zip(doc.first, doc.last, doc.trailing, strict=True)]
    assert spans == [(0, 1), (10, 11)]
    assert doc.reachable.tolist() == [True, True]


def test_what_is_out_of_reach() -> None:
    """Over the end of a sentence, from inside a token, and wider than 16 tokens."""
    text = "나를 불렀다. " + "가 " * 40
    document = CorefDocument("d", text, (Mention(0, 9, "c"), Mention(1, 2, "a"), Mention(8, 88, "b")))
    assert not tokenize_documents(GLUING, [document])[0].reachable.any()


def test_a_text_without_a_token_is_named() -> None:
    with pytest.raises(CoreferenceDataError, match="makes no token of the text of 'd'"):
        tokenize_documents(GLUING, [CorefDocument("d", "\u200b", (Mention(0, 1, "a"),))])


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 101])
def test_windows_keep_every_token_once_and_far_from_their_edges(length: int) -> None:
    parts = windows(length, 8, 2)
    assert [token for window in parts for token in range(window.keep_low, window.keep_high)] == list(range(length))
    assert all(window.low <= window.keep_low < window.keep_high <= window.high <= window.low + 8 for window in parts)


def test_segments_cover_a_document_and_differ_by_epoch() -> None:
    cuts = [list(segments(1000, 100, np.random.default_rng((0, epoch)))) for epoch in range(2)]
    for cut in cuts:
        assert [token for low, high in cut for token in range(low, high)] == list(range(1000))
        assert max(high - low for low, high in cut) <= 100
    assert cuts[0] != cuts[1]


def test_quotations_are_told_apart_and_an_open_one_ends_by_itself() -> None:
    text = '그는 "나요" 했다. "너냐?" "' + "가" * 1500
    quotes = quotations(text)
    assert quotes[text.index("나요")] == 1
    assert quotes[text.index("너냐")] == 2
    assert quotes[text.index("했다")] == 0
    assert quotes[len(text) - 1] == 0


@given(st.lists(st.text("가나 ", max_size=5), unique=True, max_size=6))
def test_forms_are_related_by_what_they_contain(forms: list[str]) -> None:
    table = _form_relations(forms)
    for a, first in enumerate(forms):
        for b, second in enumerate(forms):
            short, long = sorted((first, second), key=len)
            inside = bool(short) and short in long
            kind = 1 if a == b else 0 if not inside else 2 if long.endswith(short) else 3 if long.startswith(short) else 4
            assert table[a, b] == kind


def test_repeats_count_runs_of_tokens_in_the_whole_document() -> None:
    (doc,) = tokenize_documents(GLUING, [CorefDocument("d", "가 나 그 가 나 가 가 가", ())])
    assert doc.recurrence[:, 0].tolist() == [3, 1, 0, 3, 1, 3, 3, 3]  # five times, twice, once
    assert doc.recurrence[:, 1].tolist() == [1, 0, 0, 1, 0, 1, 1, 0]  # 가 나 and 가 가 twice
    assert not doc.recurrence[:, 2:].any()


def test_surfaces_say_equal_contained_and_nested() -> None:
    text = "김 첨지 첨지 김 첨지 그의 집"
    (doc,) = tokenize_documents(GLUING, [CorefDocument("d", text, ())])
    facts = Surfaces(doc, [(0, 4), (5, 7), (8, 12), (13, 17), (13, 14)], np.array([0, 2, 3, 5, 5]))
    surface = facts.pair_features(slice(0, 5), slice(0, 5))[2]
    assert surface[1, 0] == 2  # ends in it
    assert surface[2, 0] == 1  # equal
    assert surface[3, 0] == 0
    assert surface[4, 3] == 5  # one inside the other
