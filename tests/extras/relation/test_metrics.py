from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.extras.relation.metrics import (
    Scored,
    area,
    areas_by_draw,
    auprc,
    auprc_by_draw,
    estimates,
    label_table,
    method_verdict,
    micro_f1,
    score,
)
from coref_automl.extras.relation.rows import LABELS


def one_hot(labels: list[int], confidence: float = 0.9) -> np.ndarray:
    probabilities = np.full((len(labels), 30), (1 - confidence) / 29)
    probabilities[np.arange(len(labels)), labels] = confidence
    return probabilities


def test_micro_f1_leaves_no_relation_out() -> None:
    gold = np.array([0, 0, 1, 1, 2, 3])
    predicted = np.array([0, 1, 1, 0, 2, 2])
    # right relations: rows 2 and 4; predicted relations: rows 1, 2, 4, 5; gold relations: rows 2, 3, 4, 5
    assert micro_f1(gold, predicted) == pytest.approx(100 * 2 * 2 / (4 + 4))
    assert micro_f1(np.zeros(3, int), np.zeros(3, int)) == 0.0
    assert micro_f1(np.zeros(3, int), np.ones(3, int)) == 0.0


def test_area_is_the_trapezoid_under_the_curve_as_worked_by_hand() -> None:
    # scikit-learn's own example: y = 0 0 1 1, scores .1 .4 .35 .8; points (R, P): (0,1) (.5,1) (.5,.5) (1,2/3) (1,.5)
    value = area(np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8]))
    assert value == pytest.approx(0.5 * 1 + 0.5 * (0.5 + 2 / 3) / 2)


def test_tied_probabilities_are_one_point_of_the_curve() -> None:
    # all four tie: the curve goes from (0, 1) straight to (1, 1/2)
    assert area(np.array([True, False, True, False]), np.full(4, 0.3)) == pytest.approx(0.75)
    assert area(np.array([False, True, True, False]), np.full(4, 0.3)) == pytest.approx(0.75)


def test_auprc_averages_the_labels_that_gold_holds() -> None:
    gold = np.array([0, 0, 1, 1])
    probabilities = np.zeros((4, 30))
    probabilities[:, 1] = [0.1, 0.4, 0.35, 0.8]
    probabilities[:, 0] = 1 - probabilities[:, 1]
    first = area(gold == 1, probabilities[:, 1])
    second = area(gold == 0, probabilities[:, 0])
    assert auprc(gold, probabilities) == pytest.approx(100 * (first + second) / 2)
    assert auprc(gold, one_hot([0, 0, 1, 1])) == pytest.approx(100.0)


def curve_area(positive: list[bool], scores: list[float]) -> float:
    """The definition, slowly: a point for each threshold, precision and recall of what lies at or above it."""
    points = [(0.0, 1.0)]
    for threshold in sorted(set(scores), reverse=True):
        taken = [p for p, s in zip(positive, scores, strict=True) if s >= threshold]
        points.append((sum(taken) / sum(positive), sum(taken) / len(taken)))
    return float(np.trapezoid([p for _, p in points], [r for r, _ in points]))


ROWS = st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])), min_size=1, max_size=20)


@given(ROWS.filter(lambda rows: any(positive for positive, _ in rows)), st.randoms(use_true_random=False))
def test_area_equals_the_definition_and_a_draw_equals_the_rows_it_repeats(rows: list[tuple[bool, float]], random: object) -> None:
    positive, scores = [p for p, _ in rows], [s for _, s in rows]
    assert area(np.array(positive), np.array(scores)) == pytest.approx(curve_area(positive, scores))
    times = np.array([random.randrange(4) for _ in rows])  # type: ignore[attr-defined]
    drawn = areas_by_draw(np.array(positive), np.array(scores), times[None].astype(float))[0]
    repeated = np.repeat(np.array(positive), times)
    if repeated.any():
        assert drawn == pytest.approx(curve_area(repeated.tolist(), np.repeat(np.array(scores), times).tolist()))
    else:
        assert np.isnan(drawn)


def test_score_gives_all_three_on_klues_scale() -> None:
    scores = score(np.array([0, 1, 2, 2]), one_hot([0, 1, 2, 1]))
    assert scores.accuracy == 75.0
    assert scores.micro_f1 == pytest.approx(100 * 2 * 2 / (3 + 3))
    assert scores.n == 4


def test_the_label_table_counts_and_names_the_confusion() -> None:
    gold, given_labels = np.array([1, 1, 1, 2]), [1, 2, 2, 2]
    table = label_table(gold, one_hot(given_labels))
    line = table[1]
    assert (line.label, line.gold, line.predicted, line.confused_with) == (LABELS[1], 3, 1, LABELS[2])
    assert (line.precision, line.recall, line.f1) == pytest.approx((100.0, 100 / 3, 50.0))
    assert table[5].auprc is None
    assert line.given == {LABELS[1]: 1, LABELS[2]: 2}


def scored_rows(accuracy: float, *, seeds: int = 3, n: int = 300, seed: int = 0) -> Scored:
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 30, n)
    rng = np.random.default_rng(seed)
    probabilities = np.stack(
        [one_hot(np.where(rng.random(n) < accuracy, gold, (gold + 1) % 30).tolist(), confidence=0.5) for _ in range(seeds)]
    )
    return Scored(gold, probabilities.astype(np.float32), np.array([f"s{i // 2}" for i in range(n)]))


def test_intervals_hold_the_value_and_widen_with_clusters() -> None:
    scored = scored_rows(0.7)
    intervals = estimates(scored)
    for name in ("micro_f1", "auprc", "accuracy"):
        assert intervals[name].low < intervals[name].value < intervals[name].high
        assert intervals[name].n == 300
    assert intervals["accuracy"].value == pytest.approx(float((scored.probabilities.argmax(2) == scored.gold).mean()))
    twice = Scored(np.tile(scored.gold, 2), np.tile(scored.probabilities, (1, 2, 1)), np.tile(scored.sentences, 2))
    wide = estimates(twice)["micro_f1"]
    assert wide.high - wide.low == pytest.approx(intervals["micro_f1"].high - intervals["micro_f1"].low, rel=0.1)


def test_a_draw_of_auprc_uses_the_labels_it_holds() -> None:
    scored = Scored(np.array([0, 1]), one_hot([0, 1])[None].astype(np.float32), np.array(["a", "b"]))
    assert auprc_by_draw(scored, seed=0, draws=50).tolist() == [1.0] * 50


def test_a_clear_difference_is_shown_and_none_is_not() -> None:
    good, bad = scored_rows(0.9, seed=1), scored_rows(0.5, seed=2)
    assert method_verdict(good, bad).over_documents.low > 0.2
    verdict = method_verdict(good, bad)
    assert verdict.shown
    assert verdict.difference > 0.3
    same = method_verdict(scored_rows(0.7, seed=3), scored_rows(0.7, seed=4))
    assert not same.shown
    assert not method_verdict(scored_rows(0.9, seeds=1), scored_rows(0.5, seeds=1)).shown
    assert method_verdict(good, bad, metric="auprc").over_documents.low > 0.1
