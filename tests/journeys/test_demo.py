"""The first five minutes: the demo, what it says on the screen, and every control of its report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.config import to_mapping
from coref_automl.extras.study.adapt import demo_recipe
from tests.browser import console, requests_of_files, show
from tests.journeys import widgets
from tests.journeys.shell import Screen, Shell
from tests.printed import printed_in, wrong_with

CHAINS = "[영수]1는 시장에서 [어머니]2를"
TOOK = re.compile(r"Took ((\d+) h )?((\d+) min )?[\d.]+ s; peak memory \d+\.\d GB\.")


def read_back(shell: Shell, said: Screen, out: str) -> dict[str, Any]:
    """What the screen promises is on disk."""
    result: dict[str, Any] = json.loads((shell.folder / out / "result.json").read_text("utf-8"))
    assert result["answer"] in said.out
    assert TOOK.search(said.out.splitlines()[-1])
    assert (shell.folder / result["report"]).is_file()
    kept = result["chosen"]
    assert (
        kept == "bundled:ko-mini"
        if "Keep the base" in result["answer"]
        else (shell.folder / kept / "model.safetensors").is_file()
    )
    for step in result["next_steps"]:
        assert step in said.out
    return result


def use_page(browser: Any, report: Path) -> Any:
    page = show(browser, report)
    widgets.use_contents(page)
    widgets.use_answers(page)
    widgets.use_theme(page)
    widgets.use_charts(page)
    assert console(page) == []
    assert all(url.startswith(("file:", "data:")) for url in requests_of_files(page))
    return page


@pytest.mark.journey
def test_the_quick_demo_runs_to_a_report_whose_controls_work(shell: Shell, browser: Any) -> None:
    said = shell("coref-automl demo --quick --out quick --lang en")
    assert CHAINS in said.out
    result = read_back(shell, said, "quick")
    use_page(browser, shell.folder / result["report"])


@pytest.mark.journey
def test_the_demo_shows_that_adapting_beats_the_base(shell: Shell, browser: Any) -> None:
    said = shell("coref-automl demo --lang en")
    assert CHAINS in said.out
    result = read_back(shell, said, "demo")
    assert re.match(r"Use \w+-128-s0/checkpoint-\d+\.", result["answer"])
    assert "One seed per method: it says nothing about methods." in result["answer"]
    told = shell(result["next_steps"][0]).out
    assert "all documents" in told
    assert " better" in told
    assert result["answer"].split(":")[0] in told  # the same checkpoint
    page = use_page(browser, shell.folder / result["report"])
    assert page.execute_script("return document.querySelector('.headline').textContent") in result["answer"]
    assert shell("coref-automl demo --lang en").out.splitlines()[:-1] == said.out.splitlines()[:-1]  # but for the time it took
    moved = shell.folder / "옮긴 폴더" / "내 연구"
    moved.parent.mkdir()
    (shell.folder / "demo").rename(moved)
    for verb in (f"compare '{moved}'", f"report '{moved}' --out again"):
        told = shell(f"coref-automl {verb} --lang en").out
        (again,) = (line for line in printed_in(told) if " train --recipe" in line)
        assert not wrong_with(again)
        assert shell(f"{again} --dry-run").out


@pytest.mark.journey
def test_with_the_training_switched_off_nothing_is_shown(shell: Shell, browser: Any) -> None:
    """The demo's own recipe with a learning rate of 0."""
    recipe = to_mapping(demo_recipe())
    recipe["train"] |= {"learning_rate": 0.0}
    recipe["methods"] = {"mlm": {}}
    del recipe["checks"]
    (shell.folder / "off.yaml").write_text(json.dumps(recipe), "utf-8")
    said = shell("coref-automl adapt --recipe off.yaml --out off --lang en")
    assert read_back(shell, said, "off")["answer"].startswith("Keep the base")
    page = show(browser, shell.folder / "off" / "report" / "report.html")
    headline = page.execute_script("return document.querySelector('.headline').textContent")
    assert headline == "Keep the base: nothing here is shown to beat it"
