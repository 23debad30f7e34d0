"""A command that only reads imports less of the libraries, and says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from coref_automl.cli.app import run

LEFT_OUT = ("torch._dynamo", "torch.distributed.tensor", "scipy")
FILL = """
import sys
from coref_automl.cli.app import run
assert run(sys.argv[1:]) == 0
print(*(name for name in {names} if name in sys.modules), sep="\\n", file=sys.stderr)
import scipy.optimize, torch._dynamo
assert torch.distributed.is_available() and torch._dynamo.config and scipy.optimize.linear_sum_assignment
"""


@pytest.mark.journey
def test_a_light_process_fills_as_any_other(checkpoint: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    models = [word for name in ("bert", "deberta", "modernbert") for word in ("--model", checkpoint(name))]
    command = ["fill", "말1 [MASK] 말2", *models, "--no-nouns", "--json"]
    light = subprocess.run(
        [sys.executable, "-c", FILL.format(names=LEFT_OUT), *command], capture_output=True, text=True, check=True
    )
    assert not set(light.stderr.split()) & set(LEFT_OUT)
    assert run(command) == 0
    here = json.loads(capsys.readouterr().out)
    for light_row, row in zip(json.loads(light.stdout), here, strict=True):
        assert light_row["words"] == row["words"]
        assert light_row["probabilities"] == pytest.approx(row["probabilities"], rel=1e-5)
