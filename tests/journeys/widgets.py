"""Every control of a report, used as a hand would. In: a page open in a browser. Out: assertions about what it then shows."""

from __future__ import annotations

from typing import Any

from tests.browser import until


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
