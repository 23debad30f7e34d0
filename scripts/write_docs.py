"""Write what the code itself says: docs/cli.md from the commands, the tree in docs/architecture.md from docstrings."""

import ast
import sys
from pathlib import Path

from coref_automl.cli.app import reference

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "coref_automl"
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->"
ROOMS = (
    "", "statistics", "models", "corpus", "evaluation", "comparison", "training", "relation", "coreference", "tuning", "report",
    "study", "bench", "cli",
)  # fmt: skip
REST = """\
assets/                     the bundled encoder, evaluation set and texts
recipes/                    YAML, one per experiment; read them top to bottom
scripts/                    the evaluation guide's commands, each a few lines over the package
benchmarks/                 longer measurements; RESULTS.md has the figures
docs/  tests/               pages for users; tests mirror the package
"""


def tree() -> str:
    """One line per file, room by room from the ground up."""
    lines = ["src/coref_automl/"]
    for room in ROOMS:
        lines += listing(PACKAGE / room, 1 if room else 0)
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
    house = ROOT / "docs" / "architecture.md"
    return {ROOT / "docs" / "cli.md": reference(), house: with_tree(house.read_text("utf-8"))}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
        print(path.relative_to(ROOT), file=sys.stderr)
