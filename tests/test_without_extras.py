"""The core without extras: remove the folders and the entries of the table, and it imports, lists its commands and compares."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import coref_automl
from coref_automl.extras.table import EXTRAS

PACKAGE = Path(coref_automl.__file__).parent
SAMPLE = Path(__file__).parents[1] / "benchmarks" / "sample"
CODE = """
import json, sys
from importlib import import_module
from pathlib import Path
import coref_automl
from coref_automl.cli.app import COMMANDS, run
root = Path(coref_automl.__file__).parent
names = [".".join(path.relative_to(root.parent).with_suffix("").parts) for path in sorted(root.rglob("*.py"))]
for name in names:
    if not name.endswith(("__main__", "preload")):  # these act when imported
        import_module(name.removesuffix(".__init__"))
print(json.dumps({"root": str(root), "modules": len(names), "commands": list(COMMANDS), "public": coref_automl.__all__}))
sys.exit(run(sys.argv[1:]))
"""


def dependents(names: set[str]) -> set[str]:
    """These extras, and all that build on them."""
    more = {name for name, extra in EXTRAS.items() if names & set(extra.builds_on)}
    return names if more <= names else dependents(names | more)


def without(names: set[str], home: Path) -> Path:
    """A copy of the packages without these extras."""
    source = home / "src"
    copy = source / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    (copy / "assets").symlink_to(PACKAGE / "assets")
    (source / "deberta_kernels").symlink_to(PACKAGE.parent / "deberta_kernels")
    for name in names:
        shutil.rmtree(copy / "extras" / name)
    table = copy / "extras" / "table.py"
    tree = ast.parse(table.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "EXTRAS":
            entries = node.value
            assert isinstance(entries, ast.Dict)
            pairs = zip(entries.keys, entries.values, strict=True)
            kept = [(key, value) for key, value in pairs if isinstance(key, ast.Constant) and key.value not in names]
            entries.keys, entries.values = [key for key, _ in kept], [value for _, value in kept]
    table.write_text(ast.unparse(tree), "utf-8")
    return source


@pytest.mark.parametrize("removed", ["relation", "all"])
def test_the_core_imports_and_compares_without_extras(removed: str, tmp_path: Path) -> None:
    names = set(EXTRAS) if removed == "all" else dependents({removed})
    source = without(names, tmp_path)
    runs = [str(SAMPLE / f"{method}-512-s{seed}") for method in ("mlm", "combined") for seed in (0, 1)]
    environment = {**os.environ, "PYTHONPATH": str(source), "COREF_AUTOML_LANG": "en"}
    words = [sys.executable, "-c", CODE, "compare", *runs, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    first, _, rest = done.stdout.partition("\n")
    found = json.loads(first)
    assert Path(found["root"]).is_relative_to(tmp_path)
    gone = {verb for name in names for verb in EXTRAS[name].commands}
    assert gone
    assert not gone & set(found["commands"])
    assert {"prepare", "train", "evaluate", "compare"} <= set(found["commands"])
    assert not {word for name in names for words in EXTRAS[name].names.values() for word in words.split()} & set(found["public"])
    assert len(json.loads(rest)["rows"]) > 2
