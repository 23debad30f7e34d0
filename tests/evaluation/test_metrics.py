"""Every number is defined once: hits, composites, estimates, breakdowns; what was not run is absent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coref_automl.errors import RecipeError
from coref_automl.evaluation.metrics import (
    METRICS,
    PRIMARY,
    breakdown,
    bucket,
    hits,
    single_entry_share,
    summarise_all,
)
from coref_automl.records import ItemScore, Task
from coref_automl.statistics.intervals import bootstrap_mean


def score(number: int, strict: int, lenient: int, word: int | None = None, task: Task = "real", **more: object) -> ItemScore:
    score = ItemScore(
        f"{task}{number}", task, f"document {number // 2}", "wiki", "나무", "NNG", 10, strict, lenient, (), 1, word_rank=word
    )
    return replace(score, **more)  # type: ignore[arg-type]


REAL = [score(0, 1, 1, 1), score(1, 0, 1, 2), score(2, 6, 5, 1), score(3, 3, 3, None), score(4, 0, 0, 1)]
LAMBADA = [score(0, 1, 1, task="lambada"), score(1, 2, 1, task="lambada"), score(2, 9, 2, task="lambada")]


def test_hits_count_ranks_and_zero_is_no_rank() -> None:
    assert hits(REAL, "real1")[1].tolist() == [True, True, False, False, False]
    assert hits(REAL, "real5")[1].tolist() == [True, True, True, True, False]
    assert hits(REAL, "real1_strict")[1].tolist() == [True, False, False, False, False]
    assert hits(REAL, "real5_strict")[1].tolist() == [True, False, False, True, False]


def test_hits_leave_out_items_whose_words_were_not_run() -> None:
    ids, hit, clusters = hits(REAL, "real_word")
    assert ids == ["real0", "real1", "real2", "real4"]
    assert hit.tolist() == [True, False, True, True]
    assert clusters.tolist() == ["document 0", "document 0", "document 1", "document 2"]


def test_hits_of_another_task_are_empty() -> None:
    ids, hit, clusters = hits(REAL, "lambada_top1")
    assert (ids, len(hit), len(clusters)) == ([], 0, 0)


def test_a_composite_has_no_hits_and_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="real1, real5, lambada_top1"):
        hits(REAL, "score")
    with pytest.raises(RecipeError, match="real1_strict"):
        hits(REAL, "real1_strikt")


def test_the_composite_is_its_formula() -> None:
    estimates = summarise_all([REAL + LAMBADA])[0]
    value = {name: estimates[name].value for name in estimates}
    assert value["score"] == pytest.approx(0.4 * value["real1"] + 0.3 * value["real5"] + 0.3 * value["lambada_top1"])
    parts = 0.4 * value["real1_strict"] + 0.3 * value["real5_strict"] + 0.3 * value["lambada_top1_strict"]
    assert value["score_strict"] == pytest.approx(parts)
    assert estimates["score"].low <= value["score"] <= estimates["score"].high


def test_the_weights_of_a_composite_sum_to_one() -> None:
    for metric in METRICS.values():
        assert not metric.parts or sum(weight for _, weight in metric.parts) == pytest.approx(1)
    assert PRIMARY in METRICS


def test_what_was_not_run_is_absent_never_zero() -> None:
    estimates = summarise_all([REAL])[0]
    assert not {"lambada_top1", "score", "score_strict", "gold_word", "real_far1"} & set(estimates)
    assert "score" not in estimates
    assert summarise_all([[]])[0] == {}


def test_summarise_equals_one_bootstrap_a_metric() -> None:
    rng = np.random.default_rng(0)
    many = [score(n, int(rng.integers(0, 3)), int(rng.integers(0, 7)), int(rng.integers(1, 4))) for n in range(60)]
    estimates = summarise_all([many], seed=3)[0]
    for name in ("real1", "real5", "real1_strict", "real_word"):
        _, hit, clusters = hits(many, name)
        assert estimates[name] == bootstrap_mean(hit, clusters, seed=3)
    other = [replace(entry, lenient_rank=1) for entry in many]
    assert summarise_all([many, other], seed=3)[0] == estimates
    assert summarise_all([many, other], seed=3)[1]["real1"].value == 1


def test_breakdown_by_distance_in_order_of_distance() -> None:
    far = [score(n, 1, 1, 1, "real-far", distance=distance) for n, distance in enumerate((1600, 0, 127, 128, 700, 1200))]
    estimates = breakdown(far, "real_far1_strict", "distance")
    assert list(estimates) == ["0-127", "128-511", "512-1023", "1024-1535", "1536-1999"]
    assert [entry.n for entry in estimates.values()] == [2, 1, 1, 1, 1]


def test_breakdown_adds_up() -> None:
    mixed = [replace(entry, source=source) for entry, source in zip(REAL, "aabbb", strict=True)]
    estimates = breakdown(mixed, "real1", "source")
    assert {name: (entry.value, entry.n) for name, entry in estimates.items()} == {"a": (1.0, 2), "b": (0.0, 3)}
    reach = breakdown([replace(REAL[0], out_of_reach=True), *REAL[1:]], "real1", "reach")
    assert reach["out of reach"].n == 1
    assert breakdown(LAMBADA, "real1", "tag") == {}


def test_buckets() -> None:
    assert [bucket(distance) for distance in (-1, 0, 511, 2000)] == ["none", "0-127", "128-511", "2000+"]


def test_the_ceiling_of_strict_is_that_of_the_real_items() -> None:
    assert single_entry_share(REAL + LAMBADA) == pytest.approx(3 / 5)
    assert single_entry_share(LAMBADA) == 1
    assert single_entry_share([]) == 0
