"""Duplicates: found word for word and nearly, the earlier one kept, protected ones never dropped."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from coref_automl.corpus import dedup
from coref_automl.corpus.dedup import first_of_each, near_duplicates, signature, text_key
from coref_automl.errors import SourceError
from tests.corpus.conftest import korean_text


def signatures(texts: list[str]) -> dedup.Signatures:
    return np.array([signature(text) for text in texts], np.uint32)


def edited(text: str, every: int) -> str:
    """One word in `every` is another."""
    return " ".join("바뀐말" if number % every == every - 1 else word for number, word in enumerate(text.split()))


def test_a_text_key_sees_words_and_not_blanks() -> None:
    assert text_key("가나 다") == text_key("가나\n다 ") != text_key("가나다")


def test_first_of_each_points_at_the_first() -> None:
    assert first_of_each(np.array([5, 3, 5, 3, 9], np.uint64)).tolist() == [0, 1, 0, 1, 4]


def test_a_slightly_edited_copy_is_found_and_a_different_text_is_not() -> None:
    original = korean_text(1, 40)
    texts = [original, korean_text(2, 40), edited(original, 200), edited(original, 5)]
    assert near_duplicates(signatures(texts), similarity=0.8) == {2: 0}


def test_the_estimate_is_close_to_the_true_similarity() -> None:
    first, second = korean_text(1, 60), edited(korean_text(1, 60), 40)
    a, b = ({tuple(t.split()[i : i + 5]) for i in range(len(t.split()) - 4)} for t in (first, second))
    true = len(a & b) / len(a | b)
    estimate = np.mean(np.array(signature(first)) == np.array(signature(second)))
    assert abs(estimate - true) < 0.13  # three standard errors of 120 draws


def test_what_resembles_a_dropped_text_only_stays() -> None:
    base = np.arange(dedup.PERMUTATIONS, dtype=np.uint32)
    middle, far = base.copy(), base.copy()
    middle[-20:] += 1000
    far[-40:] += 1000
    far[-20:] += 1000
    found = near_duplicates(np.stack([base, middle, far]), similarity=0.8)
    assert found == {1: 0}  # `far` is near `middle` alone, and `middle` is gone


def test_protected_texts_are_kept_even_when_they_repeat_each_other() -> None:
    text = korean_text(3, 40)
    assert near_duplicates(signatures([text, text, text]), similarity=0.8, protected=2) == {2: 0}


def test_a_crowded_bucket_is_searched_without_comparing_all_pairs() -> None:
    same = np.tile(np.array(signature(korean_text(1)), np.uint32), (500, 1))
    assert near_duplicates(same, similarity=0.8) == dict.fromkeys(range(1, 500), 0)


def test_signatures_are_the_same_in_another_process() -> None:
    code = "from coref_automl.corpus.dedup import signature; print(signature('가 나 다 라 마 바 사'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(signature("가 나 다 라 마 바 사"))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(SourceError, match=r"pip install rensa, or pass --exact-only"):
        dedup.require_near()
