"""Write what the code itself says: docs/cli.md and docs/cli/ from the commands, docs/api.md and the tree from docstrings."""

import ast
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from coref_automl import api
from coref_automl.cli.app import load_commands
from coref_automl.extras.coreference.predict import coreference
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.relation.api import predict_relations
from coref_automl.extras.relation.train import relation
from coref_automl.extras.study.api import adapt
from coref_automl.report.printout import compare, recommend

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "coref_automl"
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->"
ROOMS = (
    "", "base", "statistics", "models", "corpus", "evaluation", "comparison", "training", "report", "cli", "extras",
)  # fmt: skip
assert {file.parent.name for file in PACKAGE.glob("*/__init__.py")} <= {*ROOMS}, "a room has no place in the tree"
REST = """\
assets/                     the bundled encoder, evaluation set and texts
recipes/                    YAML, one per experiment; read them top to bottom
scripts/                    the evaluation guide's commands, each a few lines over the package
benchmarks/                 longer measurements; RESULTS.md has the figures
docs/  tests/               pages for users; tests mirror the package
"""


FUNCTIONS = (
    adapt, api.evaluate, compare, recommend, report, api.load, api.path, api.fill, coreference, relation,
    predict_relations, api.train,
)  # fmt: skip
API = """\
# Python

`import coref_automl as ca`. Options have the names of the command line's, with underscores; margins are in points; `lang` is `ko`
or `en` and defaults to `COREF_AUTOML_LANG` or the locale. Results print in one line, show a table in a notebook, and list
themselves as dictionaries (`to_rows()`) or, where pandas is installed, as a frame (`to_frame()`). An error is a `ca.CorefError`
with one sentence. From text to verdict: [tutorial.ipynb](tutorial.ipynb). Written by `make docs`; a test runs the examples.

The examples are for paths and models of yours, under these names; define them first, with your own values:

```python
model = "bundled:ko-mini"  # a hub id, a folder, or a bundled model
out = "runs/example"  # folder to write: a new one for each example
runs = "runs/news"  # folder of evaluated runs, such as ca.adapt's OUT/evaluations
eval_set = "evalsets/news"  # written by: coref-automl prepare eval
dataset = "prepared_datasets/news"  # written by: coref-automl prepare combined
tokenizer = "bundled:ko-mini"  # whose tokenizer prepared the dataset
rows = "klue-re-v1.1_train.json"  # relation rows in the format of KLUE-RE
```
"""


_WIDTH = 100


def reference() -> dict[str, str]:
    """The command reference in Markdown, the same on every machine: the page of the tool (""), and one page per command."""
    os.environ["COLUMNS"] = str(_WIDTH)
    (_, tool), *rest = _walk("coref-automl", typer.main.get_command(load_commands()))
    held: dict[str, list[str]] = {}
    for path, command in rest:
        name = path.split()[1]
        level = "##" if name in held else "#"
        held.setdefault(name, []).append(f"{level} {path}\n\n```\n{_help(path, command)}\n```\n")
    links = " · ".join(f"[{name}](cli/{name}.md)" for name in held)
    first = f"# Commands\n\nOne page per command: {links}\n\n```\n{_help('coref-automl', tool)}\n```\n"
    return {"": first, **{name: "\n".join(parts) for name, parts in held.items()}}


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{path} {name}", child)


def _help(path: str, command: Any) -> str:
    with command.make_context(path, [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH) as context:
        lines = command.get_help(context).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


def python() -> str:
    """One section per function: how it is called, and its docstring."""
    return API + "".join(f"\n## ca.{one.__name__}\n\n```python\n{_signature(one)}\n```\n\n{_text(one)}\n" for one in FUNCTIONS)


def _signature(function: Any) -> str:
    """One line, or one line per parameter if it is long."""
    signature = inspect.signature(function)
    parts = [_parameter(one) for one in signature.parameters.values()]
    kinds = [one.kind for one in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    first, last = f"ca.{function.__name__}(", f") -> {signature.return_annotation}"
    line = f"{first}{', '.join(parts)}{last}"
    return line if len(line) <= 110 else "\n".join([first, *(f"    {part}," for part in parts), last])


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    default = "" if one.default is one.empty else f" = {one.default!r}"
    return f"{stars}{one.name}: {one.annotation}{default}"


def _text(function: Any) -> str:
    """A docstring as Markdown: arguments as a list, the example as code."""
    out: list[str] = []
    inside = ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if line in ("Args:", "Example:"):
            inside = line
            out += ["```python"] if line == "Example:" else []
        elif inside == "Args:" and line.startswith("    "):
            name, _, rest = line.strip().partition(": ")
            out.append(f"- `{name}`: {rest}" if not line.startswith("      ") else f"  {line.strip()}")
        else:
            out.append(line[4:] if inside == "Example:" else line)
    return "\n".join([*out, "```"] if inside == "Example:" else out)


def tree() -> str:
    """One line per file, room by room from the ground up."""
    lines = ["src/coref_automl/"]
    for room in ROOMS:
        lines += listing(PACKAGE / room, 1 if room else 0)
    kernels = PACKAGE.parent / "deberta_kernels"
    lines += [entry(0, f"src/{kernels.name}/", kernels / "__init__.py"), *listing(kernels, 0)]
    return "\n".join(lines) + "\n" + REST


def listing(folder: Path, depth: int) -> list[str]:
    """A folder, its modules and the packages inside it; the package itself lists its own modules alone."""
    lines = [entry(depth, f"{folder.name}/", folder / "__init__.py")] if depth else []
    lines += [entry(depth + 1, path.name, path) for path in sorted(folder.glob("*.py")) if not path.name.startswith("__")]
    for inner in sorted(folder.glob("*/__init__.py")) if depth else []:
        lines += listing(inner.parent, depth + 1)
    return lines


def entry(depth: int, name: str, path: Path) -> str:
    return f"{'  ' * depth}{name:<{28 - 2 * depth}}{first_sentence(path)}"


def first_sentence(path: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split())
    return text.split(". ")[0].rstrip(".")


def with_tree(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + tree() + END + rest.split(END, 1)[1]


def pages() -> dict[Path, str]:
    """Every generated page as it should read."""
    docs = ROOT / "docs"
    house = docs / "architecture.md"
    commands = {docs / "cli" / f"{name}.md" if name else docs / "cli.md": text for name, text in reference().items()}
    return {**commands, docs / "api.md": python(), house: with_tree(house.read_text("utf-8"))}


if __name__ == "__main__":
    made = pages()
    for gone in set((ROOT / "docs" / "cli").glob("*.md")) - set(made):
        gone.unlink()
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        print(path.relative_to(ROOT), file=sys.stderr)
