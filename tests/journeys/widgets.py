"""Every control of a report, used as a hand would. In: a page open in a browser. Out: assertions about what it then shows."""

from __future__ import annotations

from typing import Any

from tests.browser import SET, until


def use_contents(page: Any) -> None:
    """Every link of the contents leads to a part that has a heading."""
    links = page.execute_script("return [...document.querySelectorAll('header nav a')].map(a => a.getAttribute('href'))")
    assert links
    for link in links:
        page.execute_script("document.querySelector(`header nav a[href='${arguments[0]}']`).click()", link)
        assert page.execute_script("return location.hash") == link
        assert page.execute_script("return document.querySelector(`${location.hash} :is(h1, h2)`).textContent.trim()")


def use_answers(page: Any) -> None:
    """Every question of the answer table opens its own section."""
    links = page.execute_script("return [...document.querySelectorAll('.answer-table a')].map(a => a.getAttribute('href'))")
    assert links
    for link in links:
        page.execute_script("document.querySelector(`.answer-table a[href='${arguments[0]}']`).click()", link)
        until(page, f"return document.querySelector('{link} > details').open")


def use_theme(page: Any) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = page.execute_script(paper)
    page.find_element("id", "theme").click()
    assert page.execute_script(paper) != before
    page.find_element("id", "theme").click()
    assert page.execute_script(paper) == before


def use_charts(page: Any) -> None:
    """Those of the second screen at once, those of a folded section when it is opened."""
    page.execute_script("document.querySelectorAll('section.fold > details').forEach(fold => { fold.open = true })")
    until(page, "return [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))")
    marks = page.execute_script(
        "return [...document.querySelectorAll('.chart')]"
        ".map(c => c.querySelectorAll('g[class*=mark-] path, g[class*=mark-] line').length)"
    )
    assert marks
    assert min(marks) > 0


def use_explorer(page: Any) -> None:
    """Both models, the five filters, the tasks, the search, `more` and the other models' answers."""
    right = "[...i.querySelectorAll('.answers')[0].children].map(c => c.classList.contains('right'))"
    shown = f"return [...document.querySelectorAll('#items .item')].map(i => {right})"
    wanted = {"a-not-b": [True, False], "b-not-a": [False, True], "both-wrong": [False, False], "both-right": [True, True]}
    assert _values(page, "which") == [*wanted, "all"]
    seen = 0
    for which, pair in wanted.items():
        page.execute_script(SET, "which", which)
        found = page.execute_script(shown)
        assert all(answers == pair for answers in found), which
        seen += len(found)
    assert seen > 0
    page.execute_script(SET, "which", "all")
    for task in _values(page, "task")[1:]:
        page.execute_script(SET, "task", task)
        facts = page.execute_script(
            "return [...document.querySelectorAll('#items .facts span:first-child')].map(s => s.textContent)"
        )
        assert facts
        assert set(facts) == {task}
    page.execute_script(SET, "task", "")
    for name in ("model-a", "model-b"):
        for number in _values(page, name):
            page.execute_script(SET, name, number)
            label = page.execute_script("const s = document.getElementById(arguments[0]); return s.selectedOptions[0].text", name)
            models = page.execute_script("return [...document.querySelectorAll('#items .item .model')].map(m => m.textContent)")
            assert label in models
    _use_search_and_more(page)
    details = "document.querySelector('#items .item details')"
    page.execute_script(f"{details}.querySelector('summary').click()")
    assert page.execute_script(f"return {details}.open")


def _use_search_and_more(page: Any) -> None:
    count = "return document.querySelectorAll('#items .item').length"
    page.execute_script(SET, "search", "없는 낱말이다")
    assert page.execute_script(count) == 0
    page.execute_script(SET, "search", "")
    before = page.execute_script(count)
    if page.execute_script("return !document.getElementById('more').hidden"):
        page.execute_script("document.getElementById('more').click()")
        assert page.execute_script(count) > before


def passages(page: Any) -> tuple[int, int]:
    """How many items are listed, and how many of them show a passage with its gap."""
    page.execute_script(SET, "which", "all")
    items = page.execute_script("return document.querySelectorAll('#items .item').length")
    return items, page.execute_script("return document.querySelectorAll('#items .item .passage .gap').length")


def _values(page: Any, name: str) -> list[str]:
    return list(page.execute_script("return [...document.getElementById(arguments[0]).options].map(o => o.value)", name))
