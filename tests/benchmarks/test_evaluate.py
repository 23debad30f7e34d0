"""The benchmark runs both ways on the same windows and says whether their hits agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import EvaluateBench, evaluate
from coref_automl.base.errors import EvalSetError
from coref_automl.base.korean import Tagger
from coref_automl.base.records import ItemScore
from coref_automl.evaluation.answers import build_table, save_table
from coref_automl.models.load import tokenizer_fingerprint
from tests.evaluation.tiny import freeze_tiny, save_checkpoint, tokenizer_of
from throughput import main


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("bench")
    freeze_tiny(tmp_path / "set", kinds=())
    tokenizer = tokenizer_of("wordpiece")
    save_table(tmp_path / "set", tokenizer_fingerprint(tokenizer), build_table(tokenizer, Tagger()))
    save_checkpoint(tmp_path / "model", "deberta-tiny")
    return tmp_path


@pytest.fixture(autouse=True)
def _all_nouns_among_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "TOP", len(tokenizer_of("wordpiece")))


@pytest.mark.journey
def test_both_ways_agree_and_the_last_line_is_the_ratio(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", str(place / "model"), "--eval-set", str(place / "set"), "--items", "8", "--seq-len", "64"]
    main(["evaluate", *arguments, "--device", "cpu"])
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"ratio [\d.]+ \(ours [\d.]+ items/s, usual way [\d.]+ items/s\)", lines[-1])
    agreement = next(line for line in lines if line.startswith("hits on"))
    assert "hits on 8 items: 0 differ at @1, 0 differ at @5" in agreement


def test_a_disagreement_is_counted() -> None:
    scores = {name: ItemScore(name, "real", "d", "s", "도서관", "NNG", 3, rank, (), 1) for name, rank in (("a", 1), ("b", 2))}
    told = evaluate._agreement(scores, {"a": (True, True, 9), "b": (True, False, 9)})
    assert "hits on 2 items: 1 differ at @1, 1 differ at @5" in told


def test_a_set_without_real_items_is_refused(tmp_path: Path) -> None:
    freeze_tiny(tmp_path / "set", tasks=("lambada",))
    with pytest.raises(EvalSetError, match="no Real items"):
        evaluate.run(EvaluateBench(eval_set=str(tmp_path / "set"), device="cpu"))
