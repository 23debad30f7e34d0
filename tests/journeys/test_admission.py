"""The admission test, small: controls on the bundled set, and a cheat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.shell import PATIENCE, Shell

pytestmark = pytest.mark.journey
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def admission(shell: Shell) -> dict[str, Any]:
    shell(
        "coref-automl prepare combined --source bundled:synthetic --model bundled:ko-mini --seq-len 256 --holdout 0 "
        "--exact-only --out data"
    )
    script, recipe = ROOT / "benchmarks/admission.py", ROOT / "benchmarks/admission-quick.yaml"
    command = [sys.executable, str(script), "run", "--recipe", str(recipe), "--out", "out"]
    jobs = f"jobs={max(1, (os.cpu_count() or 1) // 2)}"
    done = subprocess.run([*command, jobs], cwd=shell.folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout, done.stdout
    record: dict[str, Any] = json.loads((shell.folder / "out/admission.json").read_text("utf-8"))
    assert f"| {record['metrics'][0]['label']} |" in done.stdout
    return {row["metric"]: row for row in record["metrics"]} | {"": record}


def test_a_bonus_on_visible_nouns_wins_the_plain_metric_and_not_its_mean_with_the_mirror(admission: dict[str, Any]) -> None:
    assert admission["real1"]["tests"]["cheat"]["says"] == "fail"
    assert admission["real1"]["cheat_bonus"] > 0
    assert admission["new1"]["values"]["base"][0] > 5
    assert admission["noun1"]["tests"]["cheat"]["value"] < admission["real1"]["tests"]["cheat"]["value"] / 2


def test_noise_is_ranked_by_every_metric_of_nouns(admission: dict[str, Any]) -> None:
    for metric in ("noun1", "real1", "real5", "new1"):
        values = admission[metric]["values"]
        assert values["base"][0] > values["noise 15%"][0] > values["noise 30%"][0]


def test_hiding_the_antecedents_costs_real_and_leaves_new_as_it_is(admission: dict[str, Any]) -> None:
    assert admission["real1"]["tests"]["context"]["says"] == "pass"
    assert admission["real1"]["tests"]["context"]["value"] > 5
    assert admission["new1"]["tests"]["context"]["value"] == 0


def test_every_contender_was_scored(admission: dict[str, Any]) -> None:
    trained = ("mlm", "words", "nouns", "entity", "copy+link", "rate")
    assert set(admission[""]["runs"]) == {"base", *trained, "noise 15%", "noise 30%", "attention 16"}
