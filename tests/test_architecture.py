"""docs/architecture.md speaks of modules and tables that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import coref_automl

PACKAGE = Path(coref_automl.__file__).parent
PAGE = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text("utf-8").split("## The tree")[0]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:/|\.py|))`", PAGE))))
def test_a_module_that_the_page_names_exists(name: str) -> None:
    path = PACKAGE / name
    assert path.exists() or path.with_suffix(".py").is_file() or (PACKAGE.parents[1] / name).exists()


@pytest.mark.parametrize(
    ("module", "table"),
    [
        ("evaluation.tasks", "_FILES"),
        ("training.masking", "OBJECTIVES"),
        ("corpus.sources", "SOURCES"),
        ("relation.markers", "SCHEMES"),
        ("report.sections", "SECTIONS"),
        ("coreference.metrics", "METRICS"),
        ("cli.app", "_MODULES"),
    ],
)
def test_a_table_that_the_page_names_has_lines(module: str, table: str) -> None:
    assert f"`{table}`" in PAGE
    assert len(getattr(importlib.import_module(f"coref_automl.{module}"), table)) > 1
