"""Run docs/tutorial.ipynb and keep what it says: text outputs, and one picture.

python scripts/write_tutorial.py          its cells run in a folder of their own, on the CPU, in a few minutes
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "tutorial.ipynb"


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, which run one after the other in the folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        count = 0
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = _run("".join(cell["source"]), names, count)
    finally:
        os.chdir(before)
    return notebook


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    out: list[dict[str, Any]] = []
    if printed.getvalue():
        out.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data: dict[str, Any] = {"text/plain": _lines(repr(value))}
        if (picture := getattr(value, "_repr_png_", lambda: None)()) is not None:
            data["image/png"] = base64.b64encode(picture).decode()
        out.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return out


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        made = executed(json.loads(NOTEBOOK.read_text("utf-8")), Path(folder))
    NOTEBOOK.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(NOTEBOOK, file=sys.stderr)
