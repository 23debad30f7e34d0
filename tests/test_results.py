"""The published results are what the kept evaluations give, byte for byte."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from coref_automl.report import charts

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
        held = path.read_text("utf-8")
        assert (without_library(held) == without_library(text)) if path.suffix == ".html" else (held == text)


def test_the_carry_over_page_has_the_verdicts_of_the_kept_study(writer: ModuleType) -> None:
    page = writer.CARRY_OVER.read_text("utf-8")
    assert writer.between_markers(page, writer.carry_over_tables()) == page
    elsewhere = r"## On rows that took no part.*?(?=## How it was judged)"  # runs of which no archive is kept
    said = re.findall(INTERVAL, re.sub(elsewhere, "", page.split(writer.BEGIN)[0], flags=re.DOTALL))  # written by hand
    assert said
    kept = [(folder / "verdicts.md").read_text("utf-8") for folder in (writer.STUDY, writer.ALL_ROWS, writer.FOUR_TIMES)]
    matched = {"0.97 [0.34, 1.60]", "-0.29 [-0.62, +0.03]"}  # four times against once, the seeds that both have
    assert set(said) - matched - {"2.0 [0.6, 3.4]"} <= set(re.findall(INTERVAL, "".join(kept)))


@pytest.mark.slow
def test_the_page_on_deberta_has_the_tables_of_its_runs(writer: ModuleType) -> None:
    page = writer.KF_DEBERTA.read_text("utf-8")
    assert writer.BEGIN in page
    assert writer.between_markers(page, writer.deberta_tables()) == page


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_the_readme_says_what_the_results_say(writer: ModuleType, lang: str) -> None:
    readme = writer.READMES[lang].read_text("utf-8")
    page = (writer.DOCS / {"en": "results.md", "ko": "results.ko.md"}[lang]).read_text("utf-8")
    assert writer.with_headline(readme, page) == readme
    page += "".join(path.read_text("utf-8") for path in (writer.CARRY_OVER, writer.KF_DEBERTA))
    numbers = [set(re.findall(INTERVAL, text)) for text in (readme, page.replace("\\-", "-"))]
    assert len(numbers[0]) > 20
    assert numbers[0] <= numbers[1]  # its sentences too, which no script writes


def test_the_headline_has_methods_of_several_seeds_and_their_base_at_their_lengths(writer: ModuleType) -> None:
    bases = [f"| base @{length} | – | – | 42.0 |" for length in ("512", "1,536", "2,048")]
    methods = ["| mlm 512 | 3 | 9M | 41.0 |", "| mlm 1,536 | one seed | 9M | 40.0 |"]
    head = ["| method, length | seeds | tokens | Real@1 |", "| --- | ---: | ---: | ---: |"]
    text = "\n## Side by side\n\n" + "\n".join([*head, *bases, *methods]) + "\n"
    assert writer.headline(text).splitlines() == [*head, bases[0], methods[0]]
    single = "\n## Side by side\n\n" + "\n".join([*head, *bases, methods[1]]) + "\n"
    assert writer.headline(single).splitlines() == [*head, *bases, methods[1]]


def test_the_page_is_light_and_what_is_kept_has_no_text(writer: ModuleType) -> None:
    assert (writer.DOCS / "results.html").stat().st_size < 1_600_000
    files = [path for path in writer.KEPT.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    assert not any(path.name in ("items.jsonl", "documents.jsonl") for path in files)
    for path in files:
        held = ""
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as columns:
                held = "".join(
                    "".join(map(str, columns[name].ravel())) for name in columns.files if columns[name].dtype.kind == "U"
                )
        elif path.suffix == ".json":
            held = path.read_text("utf-8")
        assert not re.search(r"[가-힣]", held)
        assert '"/' not in held  # no path of a machine
