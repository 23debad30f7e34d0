"""Every number is defined once: hits, composites, estimates, breakdowns; what was not run is absent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coref_automl.base.errors import RecipeError
from coref_automl.base.records import ItemScore, Task
from coref_automl.evaluation.metrics import (
    METRICS,
    PRIMARY,
    breakdown,
    bucket,
    counted,
    counted_names,
    hits,
    leading,
    metric_named,
    summarise_all,
)
from coref_automl.statistics.intervals import bootstrap_mean


def score(number: int, rank: int, task: Task = "real", **more: object) -> ItemScore:
    score = ItemScore(f"{task}{number}", task, f"document {number // 2}", "wiki", "나무", "NNG", 10, rank, (), 1)
    return replace(score, **more)  # type: ignore[arg-type]


REAL = [score(0, 1), score(1, 0), score(2, 5), score(3, 6), score(4, 1, tag="NNP"), score(5, 0, tag="NNP")]
NEW = [score(0, 1, "new"), score(1, 2, "new")]
LAMBADA = [score(0, 1, "lambada"), score(1, 2, "lambada"), score(2, 0, "lambada")]


def test_hits_leave_out_items_that_are_not_counted() -> None:
    ids, hit, clusters = hits(REAL, "real1")
    assert ids == ["real0", "real2", "real3", "real4"]
    assert hit.tolist() == [True, False, False, True]
    assert clusters.tolist() == ["document 0", "document 1", "document 1", "document 2"]
    assert hits(REAL, "real5")[1].tolist() == [True, True, False, True]
    assert hits(REAL, "lambada_top1")[0] == []


def test_a_composite_has_no_hits_and_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="real1, real5, lambada_top1"):
        hits(REAL, "score")
    with pytest.raises(RecipeError, match="noun1"):
        metric_named("noum1")


@pytest.mark.parametrize("name", ["noun1", "NOUN1", "Noun@1", "noun@1"])
def test_a_metric_goes_by_its_name_or_its_label(name: str) -> None:
    assert metric_named(name) is METRICS["noun1"]


def test_composites_are_their_formulas() -> None:
    estimates = summarise_all([REAL + NEW + LAMBADA])[0]
    value = {name: estimates[name].value for name in estimates}
    assert value["score"] == pytest.approx(0.4 * value["real1"] + 0.3 * value["real5"] + 0.3 * value["lambada_top1"])
    assert value["noun1"] == pytest.approx((value["real1"] + value["new1"]) / 2)
    assert estimates["noun1"].low <= value["noun1"] <= estimates["noun1"].high
    for metric in METRICS.values():
        assert not metric.parts or sum(weight for _, weight in metric.parts) == pytest.approx(1)


def test_what_was_not_run_is_absent_and_the_first_metric_with_estimates_leads() -> None:
    assert set(summarise_all([REAL])[0]) == {"real1", "real5"}
    assert summarise_all([[]])[0] == summarise_all([[replace(NEW[0], rank=0)]])[0] == {}
    assert next(iter(METRICS)) == PRIMARY == leading(summarise_all([REAL + NEW])[0])
    assert leading(summarise_all([REAL])[0]) == "real1"


def test_summarise_equals_one_bootstrap_a_metric() -> None:
    rng = np.random.default_rng(0)
    many = [score(n, int(rng.integers(0, 7))) for n in range(60)]
    estimates = summarise_all([many], seed=3)[0]
    for name in ("real1", "real5"):
        _, hit, clusters = hits(many, name)
        assert estimates[name] == bootstrap_mean(hit, clusters, seed=3)
    other = [replace(entry, rank=1) for entry in many]
    assert summarise_all([many, other], seed=3)[0] == estimates
    assert summarise_all([many, other], seed=3)[1]["real1"].value == 1


def test_breakdown_by_distance_in_order_of_distance() -> None:
    far = [score(n, 1, "real-far", distance=distance) for n, distance in enumerate((1600, 0, 127, 128, 700, 1200))]
    estimates = breakdown(far, "real_far1", "distance")
    assert list(estimates) == ["0-127", "128-511", "512-1023", "1024-1535", "1536-1999"]
    assert [entry.n for entry in estimates.values()] == [2, 1, 1, 1, 1]


def test_breakdown_adds_up_also_for_a_composite() -> None:
    mixed = [replace(entry, source=source) for entry, source in zip(REAL, "aabbbb", strict=True)]
    estimates = breakdown(mixed, "real1", "source")
    assert {name: (entry.value, entry.n) for name, entry in estimates.items()} == {"a": (1.0, 1), "b": (1 / 3, 3)}
    assert breakdown(REAL + NEW, "noun1", "tag")["NNG"].value == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert breakdown([replace(REAL[0], out_of_reach=True), *REAL[1:]], "real1", "reach")["out of reach"].n == 1
    assert breakdown(LAMBADA, "real1", "tag") == {}


def test_buckets() -> None:
    assert [bucket(distance) for distance in (-1, 0, 511, 2000)] == ["none", "0-127", "128-511", "2000+"]


def test_the_share_of_counted_items_is_told_by_task_and_of_names() -> None:
    assert counted(REAL + LAMBADA) == {"real": pytest.approx(4 / 6), "lambada": pytest.approx(2 / 3)}
    assert counted_names(REAL) == 0.5
    assert (counted([]), counted_names(NEW)) == ({}, 0)
