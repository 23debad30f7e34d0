"""Duplicates: found word for word and nearly, the earlier one kept, protected ones never dropped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.corpus import dedup
from coref_automl.corpus.dedup import BANDS, ROWS, band_job, first_of_each, near_duplicates, signature, text_key, write_signatures
from tests.corpus.conftest import korean_text


def signatures(texts: list[str]) -> dedup.Signatures:
    return np.array([signature(text) for text in texts], np.uint32)


def in_turn(_: str, jobs: list[dict[str, Any]]) -> None:
    for job in jobs:
        band_job(**job)


def near(
    folder: Path, signatures: dedup.Signatures, similarity: float, protected: int = 0, at_once: int = 1000, shard: int = 7
) -> dict[int, int]:
    """Entry and original, of signatures that lie in shards of a few."""
    folder.mkdir(exist_ok=True)
    parts = [signatures[low : low + shard] for low in range(0, len(signatures), shard)]
    stems = [folder / f"s{number}" for number in range(len(parts))]
    for stem, part in zip(stems, parts, strict=True):
        write_signatures(stem, part)
    entries, counts = np.arange(len(signatures)), list(map(len, parts))
    return dict(
        near_duplicates(stems, counts, entries, folder, in_turn, similarity=similarity, at_once=at_once, protected=protected)
    )


def plainly(signatures: dedup.Signatures, similarity: float, protected: int) -> dict[int, int]:
    """The same by comparing every pair."""
    dropped: dict[int, int] = {}
    for later in range(protected, len(signatures)):
        for earlier in range(later):
            same = signatures[later] == signatures[earlier]
            if earlier not in dropped and same.reshape(BANDS, ROWS).all(axis=1).any() and same.mean() >= similarity:
                dropped[later] = earlier
                break
    return dropped


@pytest.mark.parametrize("at_once", [1000, 20, 3])
def test_however_documents_are_divided_the_same_are_found(tmp_path: Path, at_once: int) -> None:
    random = np.random.default_rng(5)
    signatures = random.integers(0, 1 << 32, (60, dedup.PERMUTATIONS), np.uint32)
    for copy in range(20, 60):  # chains of copies: many resemble one that is dropped itself
        signatures[copy] = signatures[random.integers(0, copy)]
        signatures[copy, random.integers(0, dedup.PERMUTATIONS, random.integers(1, 24))] += 1
    expected = plainly(signatures, 0.8, protected=25)
    assert 10 < len(expected) < 35
    assert near(tmp_path, signatures, 0.8, protected=25, at_once=at_once) == expected


def edited(text: str, every: int) -> str:
    """One word in `every` is another."""
    return " ".join("바뀐말" if number % every == every - 1 else word for number, word in enumerate(text.split()))


def test_a_text_key_sees_words_and_not_blanks() -> None:
    assert text_key("가나 다") == text_key("가나\n다 ") != text_key("가나다")


def test_first_of_each_points_at_the_first() -> None:
    assert first_of_each(np.array([5, 3, 5, 3, 9], np.uint64)).tolist() == [0, 1, 0, 1, 4]


def test_a_slightly_edited_copy_is_found_and_a_different_text_is_not(tmp_path: Path) -> None:
    original = korean_text(1, 40)
    texts = [original, korean_text(2, 40), edited(original, 200), edited(original, 5)]
    assert near(tmp_path, signatures(texts), 0.8) == {2: 0}


def test_the_estimate_is_close_to_the_true_similarity() -> None:
    first, second = korean_text(1, 60), edited(korean_text(1, 60), 40)
    a, b = ({tuple(t.split()[i : i + 5]) for i in range(len(t.split()) - 4)} for t in (first, second))
    true = len(a & b) / len(a | b)
    estimate = np.mean(np.array(signature(first)) == np.array(signature(second)))
    assert abs(estimate - true) < 0.13  # three standard errors of 120 draws


def test_what_resembles_a_dropped_text_only_stays(tmp_path: Path) -> None:
    base = np.arange(dedup.PERMUTATIONS, dtype=np.uint32)
    middle, far = base.copy(), base.copy()
    middle[-20:] += 1000
    far[-40:] += 1000
    far[-20:] += 1000
    dropped = near(tmp_path, np.stack([base, middle, far]), 0.8)
    assert dropped == {1: 0}  # `far` is near `middle` alone, and `middle` is gone


def test_protected_texts_are_kept_even_when_they_repeat_each_other(tmp_path: Path) -> None:
    text = korean_text(3, 40)
    assert near(tmp_path, signatures([text, text, text]), 0.8, protected=2) == {2: 0}


def test_a_crowded_bucket_is_searched_without_comparing_all_pairs(tmp_path: Path) -> None:
    same = np.tile(np.array(signature(korean_text(1)), np.uint32), (500, 1))
    assert near(tmp_path, same, 0.8, shard=250) == dict.fromkeys(range(1, 500), 0)


def test_signatures_are_the_same_in_another_process() -> None:
    code = "from coref_automl.corpus.dedup import signature; print(signature('가 나 다 라 마 바 사'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(signature("가 나 다 라 마 바 사"))
