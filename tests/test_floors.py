"""The house: a module imports from its own room and from the floors below it, never from above and never in a circle."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import coref_automl

ROOT = Path(coref_automl.__file__).parent
FLOORS = (
    "ground", "engine", "statistics", "models", "corpus", "evaluation", "comparison", "training", "relation", "coreference",
    "tuning", "report", "studio", "top",
)  # fmt: skip
"""From the bottom up. A room that does not exist yet has its floor already."""
TOP = {"api", "cli", "experiment", "bench", "tune", "__init__"}


def floor_of(module: tuple[str, ...]) -> int:
    if not module or module[0] in TOP:
        return FLOORS.index("top")
    return FLOORS.index(module[0]) if module[0] in FLOORS else FLOORS.index("ground")


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def imported(path: Path) -> list[str]:
    result = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            result += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            result += [f"{node.module}.{alias.name}" for alias in node.names]
    return result


def imports(path: Path) -> list[tuple[str, ...]]:
    """What a module imports of this package."""
    return [tuple(name.split(".")[1:]) for name in imported(path) if name.split(".")[0] == "coref_automl"]


def test_a_module_imports_only_from_its_floor_or_below() -> None:
    above = {}
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT).with_suffix("").parts
        above[module] = [".".join(target) for target in imports(path) if floor_of(target) > floor_of(module)]
    assert len(above) > 200
    assert {module: result for module, result in above.items() if result} == {}


def test_a_room_has_a_floor() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms <= set(FLOORS) | TOP


def test_statistics_imports_numpy_and_records_alone() -> None:
    paths = list((ROOT / "statistics").glob("*.py"))
    outside = {name.split(".")[0] for path in paths for name in imported(path)} - set(sys.stdlib_module_names)
    assert outside == {"numpy", "coref_automl"}
    assert {target[0] for path in paths for target in imports(path)} == {"records", "statistics"}


def name_of(path: Path, root: Path) -> str:
    return ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")


def import_graph(root: Path) -> dict[str, set[str]]:
    """Of every module of a package those that it imports: at its top, inside a function or for typing alone."""
    modules = {name_of(path, root): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        result = imported(path)
        owners = {target if target in modules else target.rpartition(".")[0] for target in result}
        graph[name] = (owners & modules.keys()) - {name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """The modules that import each other: each reaches itself, and all others of its circle, which reach it back."""
    reached = {name: _reached(name, graph) for name in graph}
    alike = (tuple(sorted(other for other in result if name in reached[other])) for name, result in reached.items())
    return sorted({circle for circle in alike if circle})


def _reached(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    result, waiting = set[str](), [name]
    while waiting:
        new = graph[waiting.pop()] - result
        result |= new
        waiting += new
    return result


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for typing count: a circle is a circle, whenever it closes."""
    graph = import_graph(ROOT)
    assert len(graph) > 200
    result = circles(graph)
    assert not result, "\n".join(", ".join(circle) for circle in result)


def test_a_circle_is_found_by_whatever_import_closes_it(tmp_path: Path) -> None:
    root = tmp_path / "house"
    texts = {
        "__init__": "",
        "below": "",
        "top": "from house.below import x\nimport house.local\n",
        "local": "def f():\n    from house import typed\n",
        "typed": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from house.top import y\n",
        "room/__init__": "from house.room.one import z\n",
        "room/one": "def f():\n    from house.room import z\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").write_text(text, "utf-8")
    assert circles(import_graph(root)) == [("house.local", "house.top", "house.typed"), ("house.room", "house.room.one")]


BELOW_THE_REPORT = [
    path for path in sorted(ROOT.rglob("*.py")) if floor_of(path.relative_to(ROOT).parts) < FLOORS.index("report")
]
MARKUP = re.compile(r"</(html|body|div|p|table|td|mark|strong)>|<!doctype|vega", re.IGNORECASE)
SPEAKING = ("comparison", "tuning")
"""Rooms whose only Korean is what they tell people."""


def test_no_room_below_the_report_knows_html_or_charts() -> None:
    assert len(BELOW_THE_REPORT) > 150
    for path in BELOW_THE_REPORT:
        constants = [node.value for node in nodes(path) if isinstance(node, ast.Constant)]
        assert not [text for text in constants if isinstance(text, str) and MARKUP.search(text)], path
        assert not {"jinja2", "vl_convert"} & {name.split(".")[0] for name in imported(path)}, path


@pytest.mark.parametrize("room", SPEAKING)
def test_what_a_room_tells_in_korean_it_tells_in_english_beside_it(room: str) -> None:
    """A Korean text is half of a pair: an argument of `say`, an entry of a tuple or of a dict, with its English next to it."""
    alone = []
    for path in (ROOT / room).glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        pairs = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Tuple | ast.Dict)]
        paired = {id(inner) for node in pairs for inner in ast.walk(node)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        spoken = [node for node in texts if re.search("[가-힣]", node.value) and not _is_docstring(node, tree)]
        alone += [f"{path.name}:{node.lineno}" for node in spoken if id(node) not in paired]
    assert not alone


def _is_docstring(text: ast.Constant, tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Expr) and node.value is text for node in ast.walk(tree))


def test_the_rule_would_notice_an_upward_import(tmp_path: Path) -> None:
    module = tmp_path / "upward.py"
    module.write_text("from coref_automl.extras.tune import search\n", "utf-8")
    assert [floor_of(target) for target in imports(module)] == [FLOORS.index("tuning")]
    assert floor_of(("records",)) < floor_of(("models", "load")) < floor_of(("tuning", "search")) < floor_of(("cli", "app"))


def test_one_class_name_has_one_meaning() -> None:
    """A public class name stands once in the package."""
    homes: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        classes = (node for node in nodes(path) if isinstance(node, ast.ClassDef))
        for name in (node.name for node in classes if not node.name.startswith("_")):
            homes.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: result for name, result in homes.items() if len(result) > 1} == {}
