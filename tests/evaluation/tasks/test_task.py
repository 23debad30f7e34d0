"""What every task shares: distances, tags of spans, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.korean import Tags
from coref_automl.base.records import ClozeItem, Document
from coref_automl.evaluation.tasks.task import ParsedDocument, parse_document, spread
from coref_automl.models.vocabulary import tokenize
from tests.evaluation.sketch import sketch
from tests.evaluation.tiny import TEXTS, tokenizer_of

NO_TAGS = Tags(np.zeros((0, 2), np.int32), np.zeros(0, np.uint8), np.zeros(0, np.int32))


def read_with(kind: str, text: str) -> ParsedDocument:
    return parse_document(Document("d", "s", text), NO_TAGS, tokenizer_of(kind))


@pytest.mark.parametrize("kind", ["wordpiece", "pairs", "bytes", "unigram"])
@given(data=st.data())
def test_a_distance_is_what_stands_between_the_pieces_that_cover_two_spans(kind: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(["  ".join(TEXTS), TEXTS[0], "\n ".join(TEXTS)]))
    letters = [offset for offset, letter in enumerate(text) if not letter.isspace()]
    a, b, c, d = sorted(data.draw(st.lists(st.sampled_from(letters), min_size=4, max_size=4, unique=True)))
    doc, pieces = read_with(kind, text), tokenize(tokenizer_of(kind), text)
    first, other = (a, b), (c, d)
    expected = max(0, pieces.cover(*other)[0] - pieces.cover(*first)[1])
    assert doc.distance(first, other) == doc.distance(other, first) == expected


def test_a_span_s_tag_is_that_of_the_nouns_in_it() -> None:
    doc = sketch([("NNG", "도시"), ("", " 큰 "), ("NNP", "서울"), ("", "은 "), ("NNG", "강")])
    assert doc.tag_of((0, 2)) == "NNG"
    assert doc.tag_of((0, 7)) == "NNP"
    assert doc.tag_of((3, 4)) == ""


def item(document: str, number: int) -> ClozeItem:
    return ClozeItem(f"{document}{number}", "real", document, document, "s", 0, 1, "가", "NNG")


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 20))
def test_a_limit_is_shared_out_among_documents(counts: list[int], most: int) -> None:
    items = [item(f"d{offset}-", number) for offset, count in enumerate(counts) for number in range(count)]
    kept = spread(items, most, 0)
    assert len(kept) == len(set(kept)) == min(most, len(items))
    counts_kept = [sum(entry.document == f"d{offset}-" for entry in kept) for offset in range(len(counts))]
    for mine, count in zip(counts_kept, counts, strict=True):
        assert mine in (count, *range(max(counts_kept) - 1, max(counts_kept) + 1))
