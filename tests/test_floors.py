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
from coref_automl.extras.table import EXTRAS

ROOT = Path(coref_automl.__file__).parent
FLOORS = (
    "base", "statistics", "models", "corpus", "evaluation", "comparison", "training", "report", "cli", "extras", "top",
)  # fmt: skip
"""From the bottom up; extras may import all of the core below them, and another extra where the table says so."""
TOP = {"api", "tune", "__init__"}
TABLE = ("extras", "table")
READ_THE_TABLE = {("cli", "app"), ("api",), ("tune",), ("__init__",)}
IMPORT_BY_NAME = {
    "__init__.py": "its public names",
    "base/job.py": "the function that a job names",
    "base/pool.py": "the function that a call names",
    "base/preload.py": "libraries",
    "cli/app.py": "the modules of commands, from its list and the table",
    "evaluation/tasks/__init__.py": "the tasks in its folder",
    "extras/studio/server.py": "the pages in its folder",
    "extras/table.py": "what an extra hands down",
    "models/light_imports.py": "modules of a library",
}
"""Modules that import by a name made at run time, and what."""


def floor_of(module: tuple[str, ...]) -> int:
    return FLOORS.index("top" if not module or module[0] in TOP or module[0] not in FLOORS else module[0])


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


def written(path: Path) -> list[str]:
    """The modules of this package that a text of a module names, as tasks of jobs are."""
    texts = [node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    docs = {node.value.value for node in nodes(path) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return [match for text in texts if text not in docs for match in re.findall(r"coref_automl(?:\.\w+)+", text)]


def imports(path: Path) -> list[tuple[str, ...]]:
    """What a module imports of this package."""
    return [tuple(name.split(".")[1:]) for name in imported(path) if name.split(".")[0] == "coref_automl"]


def for_typing(path: Path) -> set[tuple[str, ...]]:
    """What a module imports under TYPE_CHECKING."""
    blocks = [node for node in nodes(path) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    found = [inner for block in blocks for inner in ast.walk(block) if isinstance(inner, ast.ImportFrom)]
    return {tuple(f"{node.module}.{alias.name}".split(".")[1:]) for node in found for alias in node.names}


def may_import(module: tuple[str, ...], target: tuple[str, ...]) -> bool:
    if target[:2] == TABLE:
        return module in READ_THE_TABLE
    if module[:2] == TABLE:
        return False
    if target[:1] == ("extras",):
        return module[:2] == target[:2] or (module[0] == "extras" and target[1] in EXTRAS[module[1]].builds_on)
    return floor_of(target) <= floor_of(module)


def test_a_module_imports_only_what_stands_below_it() -> None:
    above = {}
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT).with_suffix("").parts
        targets = imports(path)
        if module == ("__init__",):  # types of public names, for who checks them
            targets = [target for target in targets if target not in for_typing(path)]
        targets += [tuple(name.split(".")[1:]) for name in written(path)]
        above[module] = [".".join(target) for target in targets if not may_import(module, target)]
    assert len(above) > 200
    assert {module: result for module, result in above.items() if result} == {}


def test_only_these_modules_import_by_name() -> None:
    named = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if any(map(_by_name, nodes(path)))}
    assert named == set(IMPORT_BY_NAME)


def _by_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")


def test_an_extra_is_a_folder_and_an_entry_of_the_table() -> None:
    assert {path.parent.name for path in ROOT.glob("extras/*/__init__.py")} == set(EXTRAS)
    assert {name for extra in EXTRAS.values() for name in extra.builds_on} <= set(EXTRAS)
    for name, extra in EXTRAS.items():
        folder = ROOT / "extras" / name
        assert (folder / "cli.py").is_file() == bool(extra.commands), name
        assert (folder / "check.py").is_file() == extra.check, name


def test_an_extra_builds_on_those_it_imports_and_on_no_other() -> None:
    used: dict[str, set[str]] = {name: set() for name in EXTRAS}
    for path in ROOT.glob("extras/*/**/*.py"):
        own = path.relative_to(ROOT).parts[1]
        used[own] |= {target[1] for target in imports(path) if target[0] == "extras"} - {own}
    assert used == {name: set(extra.builds_on) for name, extra in EXTRAS.items()}


def test_a_room_has_a_floor() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms <= set(FLOORS)


def test_the_kernels_know_nothing_of_this_package() -> None:
    folder = ROOT.parent / "deberta_kernels"
    outside = {name.split(".")[0] for path in folder.glob("*.py") for name in imported(path)} - set(sys.stdlib_module_names)
    assert outside == {"deberta_kernels", "torch", "transformers", "triton"}


def test_statistics_imports_numpy_and_records_alone() -> None:
    paths = list((ROOT / "statistics").glob("*.py"))
    outside = {name.split(".")[0] for path in paths for name in imported(path)} - set(sys.stdlib_module_names)
    assert outside == {"numpy", "coref_automl"}
    assert {target[0] for path in paths for target in imports(path)} == {"base", "statistics"}
    assert {target[1] for path in paths for target in imports(path) if target[0] == "base"} == {"records"}


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
SPEAKING = ("comparison", "extras/tune")
"""Rooms whose only Korean is what they tell people."""


def test_no_room_below_the_report_knows_html_or_charts() -> None:
    assert len(BELOW_THE_REPORT) > 100
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


def test_the_rules_would_notice_an_upward_import(tmp_path: Path) -> None:
    module = tmp_path / "upward.py"
    module.write_text("from coref_automl.extras.tune import search\nTASK = 'coref_automl.cli.app:run'\n", "utf-8")
    assert imports(module) == [("extras", "tune", "search")]
    assert written(module) == ["coref_automl.cli.app"]
    assert not may_import(("training", "run"), ("extras", "tune", "search"))
    assert not may_import(("training", "run"), ("cli", "app"))
    assert not may_import(("report", "lines"), TABLE)
    assert may_import(("extras", "tune", "cli"), ("extras", "study", "probe"))
    assert not may_import(("extras", "study", "cli"), ("extras", "tune", "search"))
    assert floor_of(("base", "records")) < floor_of(("models", "load")) < floor_of(("cli", "app")) < floor_of(("api",))


def test_one_class_name_has_one_meaning() -> None:
    """A public class name stands once in the package."""
    homes: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        classes = (node for node in nodes(path) if isinstance(node, ast.ClassDef))
        for name in (node.name for node in classes if not node.name.startswith("_")):
            homes.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: result for name, result in homes.items() if len(result) > 1} == {}
