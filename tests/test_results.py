"""The published results are what the kept evaluations give, byte for byte."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from coref_automl.extras.pages import charts

ROOT = Path(__file__).resolve().parent.parent
INTERVAL = r"[-+\d.]+ \[[-+\d.]+, [-+\d.]+\]"


@pytest.fixture(scope="module")
def writer() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("write_results", ROOT / "scripts" / "write_results.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.KEPT.is_dir():
        pytest.skip("no evaluations are kept in results/experiment yet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "runtime", lambda: "window.vegaEmbed = undefined;")  # another version of it changes no number
        yield module


def without_library(page: str) -> str:
    """The page without the drawing library and without the hashes of scripts."""
    page = re.sub(r'content="default-src[^"]*"', "", page)
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


@pytest.mark.journey
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_the_pages_come_from_the_kept_evaluations(writer: ModuleType, lang: str) -> None:
    for path, text in writer.pages(lang).items():
        stored = path.read_text("utf-8")
        assert (without_library(stored) == without_library(text)) if path.suffix == ".html" else (stored == text)


@pytest.mark.journey
def test_the_carry_over_page_has_the_verdicts_of_the_kept_study(writer: ModuleType) -> None:
    page = writer.CARRY_OVER.read_text("utf-8")
    assert writer.between_markers(page, writer.carry_over_tables()) == page
    nouns = writer.noun_table()
    assert writer.between_markers(page, nouns, *writer.NOUNS) == page
    elsewhere = r"## What changed with the items.*?(?=## How it was judged)"  # runs of which no archive is kept
    intervals = re.findall(INTERVAL, re.sub(elsewhere, "", page.split(writer.BEGIN)[0], flags=re.DOTALL))  # written by hand
    assert intervals
    experiment = (writer.DOCS / "results.md").read_text("utf-8").replace("\\-", "-")
    published = re.findall(INTERVAL, (writer.STUDY / "verdicts.md").read_text("utf-8") + experiment + nouns)
    published += estimates(json.loads((writer.STUDY / "answer.json").read_text("utf-8")))  # uncorrected, too
    assert set(intervals) <= {*published, *(item.replace("+", "") for item in published)}


def estimates(record: Any) -> list[str]:
    """Every estimate in a record, in points as pages print it."""
    if isinstance(record, list):
        return [text for entry in record for text in estimates(entry)]
    if not isinstance(record, dict):
        return []
    ends = [record.get(name) for name in ("value", "low", "high")]
    own = [] if None in ends else ["{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * end for end in ends))]
    return own + [text for entry in record.values() for text in estimates(entry)]


@pytest.mark.journey
def test_the_page_on_deberta_has_the_tables_of_its_runs(writer: ModuleType) -> None:
    page = writer.KF_DEBERTA.read_text("utf-8")
    assert writer.BEGIN in page
    assert writer.between_markers(page, writer.deberta_tables()) == page


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_the_readme_says_what_the_results_say(writer: ModuleType, name: str) -> None:
    readme = (writer.ROOT / name).read_text("utf-8")
    published = writer.DOCS / "results.md", writer.CARRY_OVER, writer.KF_DEBERTA
    pages = "".join(path.read_text("utf-8") for path in (*published, writer.ROOT / "benchmarks" / "ADMISSION.md"))
    numbers = [set(re.findall(INTERVAL, text)) for text in (readme, pages.replace("\\-", "-"))]
    assert len(numbers[0]) >= 6
    assert numbers[0] <= numbers[1]  # no script writes its sentences


def test_the_page_is_light_and_what_is_kept_has_no_text(writer: ModuleType) -> None:
    assert (writer.DOCS / "results.html").stat().st_size < 1_600_000
    files = [path for path in writer.KEPT.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    assert not any(path.name in ("items.jsonl", "documents.jsonl") for path in files)
    for path in files:
        content = ""
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as columns:
                content = "".join(
                    "".join(map(str, columns[name].ravel())) for name in columns.files if columns[name].dtype.kind == "U"
                )
        elif path.suffix == ".json":
            content = path.read_text("utf-8")
        assert not re.search(r"[가-힣]", content)
        assert '"/' not in content  # no path of a machine
