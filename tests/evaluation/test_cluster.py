"""Evaluation on a local Ray cluster: the same numbers in the same order, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import EvaluationError
from coref_automl.base.progress import Progress
from coref_automl.base.records import Evaluation
from coref_automl.evaluation.run import EvaluateRecipe, evaluate, evaluate_job
from tests.evaluation.tiny import freeze_tiny, save_checkpoint

pytestmark = [
    pytest.mark.journey,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # ray leaves its own sockets and pipes open
]
RECIPE = EvaluateRecipe(eval_sets=(Path("evalsets/tiny"),), device="cpu", dtype="float32", budget=64)


def killed_once(target: dict[str, Any], recipe: dict[str, Any]) -> list[dict[str, Any]]:
    """`evaluate_job` whose process is killed after the first batch of one checkpoint, as an out-of-memory killer would."""
    from coref_automl.evaluation.scorer import Scorer

    plain, mark = Scorer.score, Path("killed")

    def score(engine: Any, todo: Any, *given: Any, **more: Any) -> Iterator[Any]:
        for number, batch in enumerate(plain(engine, todo, *given, **more)):
            if number == 1 and not mark.exists():
                mark.write_text(f"{target['label']} {len(todo)}", "utf-8")
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch
        with Path("scored").open("a") as lines:
            lines.write(f"{target['label']} {len(todo)}\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scorer, "score", score)
        return evaluate_job(target, recipe)


def numbers(evaluation: Evaluation) -> dict[str, Any]:
    """All but when, how long, and where."""
    left_out = ("evaluated_at", "seconds", "evalset_path")
    return {name: value for name, value in evaluation.to_json().items() if name not in left_out}


def test_a_cluster_gives_the_same_and_loses_nothing(ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluations = {}
    for engine in ("local", "ray"):
        folder = tmp_path / engine
        folder.mkdir()
        monkeypatch.chdir(folder)
        freeze_tiny(Path("evalsets/tiny"))
        for step, seed in ((131, 2), (65, 1), (200, 3)):
            save_checkpoint(Path(f"runs/a/checkpoint-{step}"), seed=seed)
        if engine == "ray":
            monkeypatch.setattr("coref_automl.evaluation.run.JOB", "tests.evaluation.test_cluster:killed_once")
        evaluations[engine] = evaluate(["runs/a"], replace(RECIPE, engine=engine))
    assert [evaluation.checkpoint for evaluation in evaluations["ray"]] == [
        "a/checkpoint-65",
        "a/checkpoint-131",
        "a/checkpoint-200",
    ]
    assert [numbers(evaluation) for evaluation in evaluations["ray"]] == [
        numbers(evaluation) for evaluation in evaluations["local"]
    ]
    label, requested = Path("killed").read_text("utf-8").split()
    left = dict(line.split() for line in Path("scored").read_text("utf-8").splitlines())
    assert int(left[label]) < int(requested)  # it went on where the killed worker had stopped
    for step in (65, 131, 200):
        folder = Path(f"runs/a/evaluations/tiny-128/checkpoint-{step}")
        assert (folder / "DONE").exists()
        same = tmp_path / "local" / folder / "items.jsonl"
        assert (folder / "items.jsonl").read_text("utf-8") == same.read_text("utf-8")


def test_what_is_known_is_not_scored_again_and_a_damaged_checkpoint_is_listed(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    freeze_tiny(Path("evalsets/tiny"))
    for step in (65, 131):
        save_checkpoint(Path(f"runs/a/checkpoint-{step}"), seed=step)
    first = evaluate(["runs/a/checkpoint-65"], RECIPE)
    (tmp_path / "runs/a/checkpoint-131/config.json").write_text("{", "utf-8")
    heard: list[Evaluation] = []
    with pytest.raises(EvaluationError, match="1 of 2 checkpoints could not be scored: a/checkpoint-131"):
        evaluate(["runs/a"], replace(RECIPE, engine="ray"), progress=Progress(shown=False), on_result=heard.append)
    assert heard == first
