"""The printed block says what the guide says, with intervals, against the best evaluation found on disk."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

from coref_automl.base.records import Estimate, Evaluation
from coref_automl.base.say import align
from coref_automl.evaluation.fill import Filled
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.report.terminal import best_of, format_filled, format_overview, format_result, in_blocks


def evaluation(name: str, real1: float, **more: object) -> Evaluation:
    values = {
        "real1": real1,
        "real5": real1 + 0.2,
        "lambada_top1": 0.3,
        "score": 0.7 * real1 + 0.15,
    }
    estimates = {key: Estimate(value, value - 0.02, value + 0.02, 2400) for key, value in values.items()}
    plain = Evaluation(
        f"a/{name}", f"runs/a/{name}", "set", 1536, "float32", "1", "2026-01-01T00:00:00+00:00", 12.3,
        {"items": "same", "weights": name}, estimates, {"copy-nearest": {"real1": Estimate(0.2, 0.1, 0.3, 9)}},
        {"real": 0.8}, 0.3, 7,
    )  # fmt: skip
    return replace(plain, **more)  # type: ignore[arg-type]


def stored(*evaluations: Evaluation) -> list[StoredEvaluation]:
    return [StoredEvaluation(entry, Path(entry.path)) for entry in evaluations]


def test_the_block_names_everything_the_guide_names() -> None:
    text = "\n".join(format_result(evaluation("checkpoint-131", 0.50), evaluation("checkpoint-65", 0.48)))
    for part in ("a/checkpoint-131", "1536", "2,400", "50.00% [48.00, 52.00]", "70.00%", "30.00%", "12.3초", "80.0%"):
        assert part in text
    for part in ("a/checkpoint-65", "48.00%", "+2.00점", "0.4860", "0.5000", "+0.0140"):
        assert part in text
    assert "coref-automl compare runs/a/checkpoint-65 runs/a/checkpoint-131 --reference runs/a/checkpoint-65" in text


def test_the_block_in_english_has_the_same_lines() -> None:
    current, best = evaluation("checkpoint-131", 0.50), evaluation("checkpoint-65", 0.48)
    assert len(format_result(current, best, "en")) == len(format_result(current, best, "ko"))
    assert "+2.00 points" in "\n".join(format_result(current, best, "en"))


def test_what_was_not_run_is_said_and_not_zero() -> None:
    current = evaluation("checkpoint-131", 0.5)
    bare = replace(current, estimates={"real1": current.estimates["real1"]})
    text = "\n".join(format_result(bare, None))
    assert "종합 점수: 실행 안 함" in text
    assert any(line.startswith("LAMBADA@1") and "실행 안 함" in line for line in text.splitlines())
    assert "비교할 다른 평가가" in text


def test_the_best_is_the_best_of_the_same_items_and_never_itself() -> None:
    now = evaluation("checkpoint-131", 0.50)
    low, high = evaluation("checkpoint-65", 0.40), evaluation("checkpoint-100", 0.60)
    foreign = evaluation("checkpoint-9", 0.99, fingerprints={"items": "other", "weights": "x"})
    older = evaluation("checkpoint-8", 0.98, scorer="0")
    assert best_of(stored(low, high, foreign, older, now), now) == high
    assert best_of(stored(now), now) is None


def test_the_best_has_the_same_tokenizer() -> None:
    now = evaluation("checkpoint-131", 0.50, fingerprints={"items": "same", "weights": "now", "tokenizer": "a"})
    like = evaluation("checkpoint-65", 0.40, fingerprints={"items": "same", "weights": "like", "tokenizer": "a"})
    unlike = evaluation("checkpoint-9", 0.99, fingerprints={"items": "same", "weights": "unlike", "tokenizer": "b"})
    assert best_of(stored(like, unlike, now), now) == like
    assert best_of(stored(unlike, now), now) is None


def test_an_unlike_length_is_named() -> None:
    text = "\n".join(format_result(evaluation("checkpoint-131", 0.5), evaluation("checkpoint-65", 0.4, seq_len=2048)))
    assert "창 길이가 다릅니다: 2048" in text


def test_columns_align_hangul() -> None:
    assert align([("가나", "x"), ("a", "y")]) == ["가나  x", "a     y"]
    assert align([]) == []
    taken_apart = unicodedata.normalize("NFD", "한글")  # as macOS names files
    assert align([(taken_apart, "x"), ("한글", "y")]) == [f"{taken_apart}  x", "한글  y"]


def test_every_table_holds_the_baselines_and_the_ceiling() -> None:
    lines = format_overview([evaluation("checkpoint-65", 0.4), evaluation("checkpoint-131", 0.5)], "en")
    assert [line.split()[0] for line in lines[1:]] == ["a/checkpoint-65", "a/checkpoint-131", "copy-nearest"]
    assert "80.0%" in lines[1]


def test_models_are_columns() -> None:
    lines = format_filled([Filled("a", True, ("나무", "기차"), (0.5, 0.25)), Filled("b", True, ("강변",), (0.125,))])
    assert lines[1].split() == ["1.", "나무", "50.0%", "강변", "12.5%"]
    assert lines[2].split() == ["2.", "기차", "25.0%"]


def test_a_wide_table_comes_in_blocks_that_fit() -> None:
    rows = [("checkpoint", *(f"metric-{n}" for n in range(6))), ("run/checkpoint-65", *("12.34" for _ in range(6)))]
    assert in_blocks(rows, None) == align(rows)
    lines = in_blocks(rows, 40)
    assert max(map(len, lines)) <= 40
    assert sum(line.startswith("run/checkpoint-65") for line in lines) == 3


def test_with_a_folder_of_its_own_the_comparison_is_read_from_there() -> None:
    text = "\n".join(format_result(evaluation("checkpoint-131", 0.5), evaluation("checkpoint-65", 0.4), out=Path("my scores")))
    assert "coref-automl compare 'my scores' --reference runs/a/checkpoint-65" in text
