from __future__ import annotations

import numpy as np
import pytest

from coref_automl.coreference.data import CorefDocument, Mention
from coref_automl.coreference.head import quotations, surfaces
from coref_automl.coreference.tokens import edges, lay, segments, windows
from coref_automl.models.build import train_tokenizer

GLUING = train_tokenizer(["나를 부른 사람은 그를 보았다. 나를 불렀다. 가 나 그"] * 20, vocab_size=1_000)
"""A vocabulary in which a pronoun and its particle are one entry."""


def test_a_mention_inside_a_token_is_reached_by_cutting_its_particle_off() -> None:
    text = "나를 부른 사람은 그를 보았다."
    document = CorefDocument("d", text, (Mention(0, 1, "a"), Mention(10, 11, "b")))
    (laid,) = lay(GLUING, [document])
    assert laid.trim.tolist() == [1, 1]
    spans = [laid.span(*map(int, place)) for place in zip(laid.first, laid.last, laid.trim, strict=True)]
    assert spans == [(0, 1), (10, 11)]
    found = edges([laid])
    assert (found.on_edges, found.reachable, found.mentions) == (0, 2, 2)


def test_what_cannot_be_reached_is_counted_with_its_reason() -> None:
    text = "나를 불렀다. " + "가 " * 40
    document = CorefDocument("d", text, (Mention(0, 9, "c"), Mention(1, 2, "a"), Mention(8, 88, "b")))
    found = edges(lay(GLUING, [document]))
    assert found.reachable == 0
    assert found.lost == {"runs over the end of a sentence": 1, "begins inside a token": 1, "wider than 16 tokens": 1}


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 101])
def test_windows_keep_every_token_once_and_far_from_their_edges(length: int) -> None:
    found = windows(length, 8, 2)
    assert [token for part in found for token in range(part.keep_low, part.keep_high)] == list(range(length))
    assert all(part.low <= part.keep_low < part.keep_high <= part.high <= part.low + 8 for part in found)


def test_segments_cover_a_document_and_differ_by_epoch() -> None:
    cuts = [list(segments(1000, 100, np.random.default_rng((0, epoch)))) for epoch in range(2)]
    for cut in cuts:
        assert [token for low, high in cut for token in range(low, high)] == list(range(1000))
        assert max(high - low for low, high in cut) <= 100
    assert cuts[0] != cuts[1]


def test_quotations_are_told_apart_and_an_open_one_ends_by_itself() -> None:
    text = '그는 "나요" 했다. "너냐?" "' + "가" * 1500
    found = quotations(text)
    assert found[text.index("나요")] == 1
    assert found[text.index("너냐")] == 2
    assert found[text.index("했다")] == 0
    assert found[len(text) - 1] == 0


def test_surfaces_say_equal_contained_and_nested() -> None:
    text = "김 첨지 첨지 김 첨지 그의 집"
    own = surfaces(text, [(0, 4), (5, 7), (8, 12), (13, 17), (13, 14)], np.array([0, 2, 3, 5, 5]))
    surface = own.of(slice(0, 5), slice(0, 5))[2]
    assert surface[1, 0] == 2  # ends in it
    assert surface[2, 0] == 1  # equal
    assert surface[3, 0] == 0
    assert surface[4, 3] == 5  # one inside the other
