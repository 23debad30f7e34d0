"""A study that is killed twice ends as one that was not: every trial counted once, a recipe to train with."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml

from tests.journeys.foreign import write_foreign
from tests.journeys.shell import Shell

RECIPE = """
models: [bert]
texts: {sources: [local:articles.jsonl], seq_lens: [64], near_duplicates: false}
eval_items: 60
epochs: 3
settings: {batch: 4}
space:
  objective: [mlm, entity]
  learning_rate: {low: 1e-4, high: 1e-2, log: true}
trials: 4
finalists: 1
seeds: 2
"""


def saved(study: Path) -> list[Path]:
    """Checkpoints of all trials so far."""
    return list(study.glob("trials/*/run-*/checkpoint-*/training.json"))


@pytest.mark.journey
def test_a_study_killed_twice_ends_with_every_trial_counted_once(shell: Shell, texts: list[str]) -> None:
    write_foreign("bert", texts, shell.folder / "bert")
    (shell.folder / "study.yaml").write_text(RECIPE, "utf-8")
    line = "coref-automl tune --recipe study.yaml --out study --lang en"
    out = shell.folder / "study"
    for _ in range(2):
        before = len(saved(out))
        said = shell.interrupted(line, lambda before=before: len(saved(out)) > before, signal.SIGKILL)
        assert said.status == -signal.SIGKILL
    told = shell(line)
    result = json.loads(shell(f"{line} --json").out)
    assert result["trials"]["running"] == 0
    assert sum(result["trials"].values()) == 4
    assert (out / "study.html").is_file()
    assert str(out.name) in told.out
    recipes = [path for path in out.glob("*.yaml") if "model" in (yaml.safe_load(path.read_text("utf-8")) or {})]
    assert recipes, sorted(path.name for path in out.iterdir())
