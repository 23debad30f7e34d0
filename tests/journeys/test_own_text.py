"""One's own text and a model from elsewhere: the whole line by one command, and its report read back."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.browser import console, show
from tests.journeys.foreign import FAMILIES, write_foreign
from tests.journeys.shell import Shell

LINE = "coref-automl adapt --model {family} --source local:articles.jsonl --out out-{family} --recipe small.yaml --lang en"
SMALL = """
lengths: [128]
texts: {near_duplicates: false}
methods: {mlm: {}, entity: {}}
train: {epochs: 1, batch: 4, learning_rate: 1e-3, save_every: 0}
evaluate: {tasks: [real]}
"""


@pytest.fixture(scope="module")
def models(shell: Shell, texts: list[str]) -> None:
    (shell.folder / "small.yaml").write_text(SMALL, "utf-8")
    for family in FAMILIES:
        write_foreign(family, texts, shell.folder / family)


def check(shell: Shell, family: str) -> dict[str, Any]:
    """Adapt, and read what a user reads: the screen, the folder, the table, the page as text."""
    said = shell(LINE.format(family=family))
    out = shell.folder / f"out-{family}"
    result: dict[str, Any] = json.loads((out / "result.json").read_text("utf-8"))
    assert result["answer"] in said.out
    assert "Took " in said.out
    assert "peak memory" in said.out
    with (out / "report" / "results.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert {row["run"] for row in rows} >= {"mlm-128-s0", "entity-128-s0"}
    assert [row["name"] for row in rows if row["finding"] == ""] == [row["name"] for row in rows if row["tokens"] == ""]
    assert result["answer"].split(":")[0] in (out / "report" / "report.md").read_text("utf-8")
    chosen = Path(result["best_trained"])
    assert (shell.folder / chosen / "model.safetensors").is_file()
    return result


@pytest.mark.journey
def test_adapt_a_bert_from_a_folder(shell: Shell, models: None) -> None:
    result = check(shell, "bert")
    before = {path: path.stat().st_mtime_ns for path in (shell.folder / "out-bert").rglob("model.safetensors")}
    again = shell(LINE.format(family="bert"))
    assert result["answer"] in again.out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    command = next(step for step in result["next_steps"] if step.startswith("coref-automl compare"))
    told = shell(command).out
    assert "all documents" in told
    filled = shell(
        f'coref-automl fill "도서관은 시민의 [MASK]이다." --model bert --model {shlex.quote(result["best_trained"])}'
    ).out
    assert len(filled.splitlines()) > 1


@pytest.mark.journey
@pytest.mark.parametrize("family", FAMILIES[1:])
def test_adapt_other_families_from_a_folder(shell: Shell, models: None, family: str) -> None:
    check(shell, family)


@pytest.mark.journey
def test_the_report_opens_with_its_answers(shell: Shell, models: None, browser: Any) -> None:
    check(shell, "bert")
    page = show(browser, shell.folder / "out-bert" / "report" / "report.html")
    assert page.execute_script("return document.querySelectorAll('.answer-table tbody tr').length") > 0
    assert console(page) == []


@pytest.mark.journey
def test_models_of_two_families_are_compared_in_a_pair(shell: Shell, models: None) -> None:
    """Different vocabularies: each has a table of its own, and the pair is named."""
    for family in ("bert", "roberta"):
        check(shell, family)
    shell(
        "coref-automl prepare eval --source local:articles.jsonl --task real --model bert --model roberta --all-documents "
        "--out both"
    )
    shell("coref-automl evaluate bert roberta --eval-set both --seq-len 128 --out scored")
    told = shell("coref-automl compare scored").out
    assert "have different tokenizers" in told
