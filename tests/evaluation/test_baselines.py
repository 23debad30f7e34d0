"""Copying a word of the document needs no model, and is ranked as a model's words are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import chance, copy_scores, summarise_with_baselines
from coref_automl.records import ItemScore
from tests.evaluation.tiny import documents, freeze_tiny, item, items

TEXT = "나무 나무 나무 기차 강변 기차 나무 강변"


def ranked(name: str, answer: str, occurrence: int) -> tuple[int, tuple[str, ...]]:
    case = item("0", answer, occurrence, text=TEXT)
    score = copy_scores([case], {"0": TEXT})[name][0]
    assert score.strict_rank == score.lenient_rank == score.word_rank
    return score.strict_rank, score.top


def test_the_most_frequent_noun_outside_the_gap_comes_first() -> None:
    rank, top = ranked("copy-most-frequent", "나무", 3)
    assert (rank, top[0], set(top)) == (1, "나무", {"나무", "강변", "기차"})
    assert ranked("copy-most-frequent", "기차", 1)[1][0] == "나무"


def test_the_nearest_noun_on_either_side_comes_first() -> None:
    rank, top = ranked("copy-nearest", "기차", 1)
    assert top[0] in ("강변", "나무")
    assert top[-1] == "기차"
    assert rank == 3


def test_the_gap_itself_does_not_count() -> None:
    case = item("0", "나무", 0, text="나무 강변")
    assert [score.strict_rank for (score,) in copy_scores([case], {"0": "나무 강변"}).values()] == [2, 2]


def test_chance_is_one_over_the_candidates() -> None:
    cases = [replace(case, candidates=(("a",), ("b",), ("c",), ("d",))) for case in items()]
    blind = chance(cases)
    assert blind is not None
    assert blind.value == pytest.approx(0.25)
    assert chance([]) is None


def test_baselines_stand_beside_a_model_on_the_items_whose_words_it_ranked(tmp_path: Path) -> None:
    evalset = freeze_tiny(tmp_path / "tiny", tasks=("real",))
    scores = [replace(score, word_rank=1 if score.cluster == "document 1" else None) for score in copies(evalset)]
    estimates, baselines = summarise_with_baselines(scores, evalset)
    assert {name: rows["real_word"].n for name, rows in baselines.items()} == {
        "copy-most-frequent": 3, "copy-nearest": 3, "chance": 3,
    }  # fmt: skip
    assert {rows["real1"].n for name, rows in baselines.items() if name != "chance"} == {estimates["real1"].n} == {11}
    without = summarise_with_baselines([replace(score, word_rank=None) for score in scores], evalset)[1]
    assert [name for name, rows in without.items() if "real_word" in rows] == []


def copies(evalset: EvalSet) -> list[ItemScore]:
    return copy_scores(evalset.select(), evalset.documents)["copy-nearest"]


def test_every_item_with_candidates_is_scored() -> None:
    assert {name: len(scores) for name, scores in copy_scores(items(), documents()).items()} == {
        "copy-most-frequent": len(items()),
        "copy-nearest": len(items()),
    }
