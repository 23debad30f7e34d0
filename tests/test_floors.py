"""The house: a module imports from its own room and from the floors below it, never from above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import coref_automl

ROOT = Path(coref_automl.__file__).parent
FLOORS = ("ground", "models", "corpus", "evaluation", "comparison", "training", "relation", "coreference", "tuning", "top")
TOP = {"cli", "demo", "line", "line_recipe", "bench", "tune", "__init__"}


def floor_of(module: tuple[str, ...]) -> int:
    if not module or module[0] in TOP:
        return FLOORS.index("top")
    return FLOORS.index(module[0]) if module[0] in FLOORS else FLOORS.index("ground")


def imports(path: Path) -> list[tuple[str, ...]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "coref_automl"]
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_its_floor_or_below(path: Path) -> None:
    own = floor_of(path.relative_to(ROOT).with_suffix("").parts)
    above = [".".join(target) for target in imports(path) if floor_of(target) > own]
    assert not above


def test_the_rule_would_notice_an_upward_import(tmp_path: Path) -> None:
    module = tmp_path / "upward.py"
    module.write_text("from coref_automl.tuning import study\n", "utf-8")
    assert [floor_of(target) for target in imports(module)] == [FLOORS.index("tuning")]
    assert floor_of(("records",)) < floor_of(("models", "load")) < floor_of(("tuning", "study")) < floor_of(("cli", "app"))
