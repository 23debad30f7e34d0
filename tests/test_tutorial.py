"""The tutorial runs from its first cell to its last, and the notebook holds what it said."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "tutorial.ipynb"


def outputs(notebook: dict[str, Any]) -> list[list[tuple[str, tuple[str, ...]]]]:
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    return [[(item["output_type"], tuple(item.get("data", ()))) for item in cell["outputs"]] for cell in cells]


def test_the_notebook_holds_text_and_one_picture() -> None:
    notebook = json.loads(KEPT.read_text("utf-8"))
    kinds = [kind for cell in outputs(notebook) for _, kinds in cell for kind in kinds]
    assert kinds.count("image/png") == 1
    assert kinds.count("text/plain") >= 5
    assert KEPT.stat().st_size < 200_000
    assert "/tmp" not in KEPT.read_text("utf-8")


@pytest.mark.journey
@pytest.mark.slow
def test_every_cell_runs_and_says_as_much_as_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the report extra is not installed")
    pytest.importorskip("kiwipiepy", reason="Kiwi is not installed")
    notebook = json.loads(KEPT.read_text("utf-8"))
    result = runpy.run_path(str(ROOT / "scripts" / "write_tutorial.py"))["executed"](json.loads(json.dumps(notebook)), tmp_path)
    assert outputs(result) == outputs(notebook)
