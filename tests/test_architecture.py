"""docs/architecture.md speaks of modules and tables that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import coref_automl

PACKAGE = Path(coref_automl.__file__).parent
PAGE = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text("utf-8").split("## The tree")[0]


def test_a_module_that_the_page_names_exists() -> None:
    names = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:/|\.py|))`", PAGE))
    assert len(names) > 50
    places = {name: (PACKAGE / name, (PACKAGE / name).with_suffix(".py"), PACKAGE.parents[1] / name) for name in names}
    assert [name for name, some in places.items() if not any(path.exists() for path in some)] == []


@pytest.mark.parametrize(
    ("module", "table"),
    [
        ("evaluation.tasks", "_FILES"),
        ("extras.table", "EXTRAS"),
        ("training.masking", "OBJECTIVES"),
        ("corpus.sources", "SOURCES"),
        ("extras.relation.markers", "SCHEMES"),
        ("extras.pages.checkpoint_report", "SECTIONS"),
        ("extras.coreference.metrics", "METRICS"),
        ("cli.app", "COMMANDS"),
    ],
)
def test_a_table_that_the_page_names_has_lines(module: str, table: str) -> None:
    assert f"`{table}`" in PAGE
    assert len(getattr(importlib.import_module(f"coref_automl.{module}"), table)) > 1
