"""A noun of the document needs no model, and is ranked as a model's words are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import copy_scores, summarise_with_baselines
from tests.evaluation.tiny import freeze_tiny, item

TEXT = "나무 나무는 나무 기차 강변 기차 나무 강변"


@pytest.fixture
def evalset(tmp_path: Path) -> EvalSet:
    return freeze_tiny(tmp_path / "tiny", tasks=("real", "new"))


def ranked(evalset: EvalSet, name: str, answer: str, occurrence: int, text: str = TEXT) -> tuple[int, tuple[str, ...]]:
    shown = replace(evalset, documents={"0": text}, nouns={"0": ("나무", "기차", "강변")})
    score = copy_scores([item("0", answer, occurrence, text=text)], shown)[name][0]
    return score.rank, score.top


def test_the_most_frequent_noun_outside_the_gap_comes_first(evalset: EvalSet) -> None:
    assert ranked(evalset, "copy-most-frequent", "나무", 3) == (1, ("나무", "기차", "강변"))
    assert ranked(evalset, "copy-most-frequent", "기차", 1)[1][0] == "나무"


def test_the_nearest_noun_on_either_side_comes_first(evalset: EvalSet) -> None:
    rank, top = ranked(evalset, "copy-nearest", "기차", 1)
    assert set(top[:2]) == {"강변", "나무"}
    assert (rank, top[-1]) == (3, "기차")


def test_the_gap_itself_does_not_count(evalset: EvalSet) -> None:
    rank, top = ranked(evalset, "copy-nearest", "나무", 0, "나무 강변")
    assert rank > 1000
    assert top == ("강변",)


def test_baselines_stand_beside_a_model_on_the_items_that_it_counts(evalset: EvalSet) -> None:
    scores = copy_scores(evalset.select(), evalset)["copy-nearest"]
    scores = [replace(score, rank=1 if score.cluster == "document 1" else 0) for score in scores]
    estimates, baselines = summarise_with_baselines(scores, evalset)
    assert set(baselines) == {"copy-most-frequent", "copy-nearest"}
    for rows in baselines.values():
        assert {name: rows[name].n for name in rows} == {name: estimate.n for name, estimate in estimates.items()}
    assert estimates["real1"].n == 3
