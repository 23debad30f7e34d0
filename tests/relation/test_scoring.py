from __future__ import annotations

import numpy as np
import pytest

from coref_automl.relation.scoring import corrected, share, temperature

TRAIN = np.full(30, 0.7 / 29)
TRAIN[0] = 0.3
NEW = np.full(30, 0.4 / 29)
NEW[0] = 0.6


def answers(prior: np.ndarray, rows: int, seed: int, *, sharper: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Gold labels drawn from a prior, and what a model would say that knows the rows as they are and the prior of TRAIN."""
    rng = np.random.default_rng(seed)
    gold = rng.choice(30, rows, p=prior / prior.sum())
    evidence = rng.normal(0, 1, (rows, 30))
    evidence[np.arange(rows), gold] += 2.5
    logits = sharper * (2.5 * evidence + np.log(TRAIN))
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return gold, powers / powers.sum(1, keepdims=True)


def test_a_temperature_undoes_over_confidence() -> None:
    gold, sharp = answers(TRAIN, 4000, 0, sharper=3.0)
    assert temperature(sharp, gold) == pytest.approx(3.0, rel=0.1)
    gold, honest = answers(TRAIN, 4000, 1)
    assert temperature(honest, gold) == pytest.approx(1.0, rel=0.1)


def test_the_prior_of_new_rows_is_found_without_their_labels_and_lifts_accuracy() -> None:
    gold, found = answers(NEW, 3000, 2)
    better, prior = corrected(found, 1.0, 0.3)
    assert prior == pytest.approx(0.6, abs=0.03)
    assert better.sum(1) == pytest.approx(np.ones(3000), abs=1e-4)
    assert (better.argmax(1) == gold).mean() > (found.argmax(1) == gold).mean() + 0.005


def test_rows_with_the_prior_of_train_are_hardly_changed() -> None:
    _, found = answers(TRAIN, 3000, 3)
    same, prior = corrected(found, 1.0, 0.3)
    assert prior == pytest.approx(0.3, abs=0.03)
    assert (same.argmax(1) == found.argmax(1)).mean() > 0.97


def test_calibration_makes_the_estimate_better() -> None:
    gold, held = answers(TRAIN, 3000, 4, sharper=4.0)
    truth, sharp = answers(NEW, 3000, 5, sharper=4.0)
    raw, calibrated = (corrected(sharp, heat, 0.3)[0] for heat in (1.0, temperature(held, gold)))
    assert (calibrated.argmax(1) == truth).mean() > (raw.argmax(1) == truth).mean()


def test_relations_keep_their_proportions() -> None:
    _, found = answers(NEW, 500, 6)
    better, _ = corrected(found, 1.0, 0.3)
    assert better[:, 5] / better[:, 9] == pytest.approx(found[:, 5] / found[:, 9], rel=1e-3)


def test_a_share_is_never_none_or_all() -> None:
    assert share(np.array([0, 0, 1])) == pytest.approx(3 / 5)
    assert 0 < share(np.array([1, 2])) < share(np.array([0, 0])) < 1
