"""The page in a real browser: charts drawn, the filter works, no console error, no request to anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coref_automl.extras.pages.checkpoint_report import report
from tests.browser import console, opened, requests_of_files, show, until


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def page(browser: Any, study_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report, opened from disk with every chart drawn."""
    pytest.importorskip("vl_convert", reason="the report extra is not installed")
    return show(browser, Path(report(study_source, tmp_path_factory.mktemp("page") / "out", lang="ko")))


def test_folded_charts_are_drawn_when_opened_all_with_marks(page: Any) -> None:
    first = page.execute_script("return document.querySelectorAll('.chart svg').length")
    assert first == page.execute_script("return document.querySelectorAll('#evidence .chart').length")
    page.execute_script("document.querySelectorAll('section.fold > details').forEach(fold => { fold.open = true })")
    until(page, "return [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))")
    marks = page.execute_script(
        "return [...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('g.mark-symbol path, g.mark-rect path'))"
        ".map(found => found.length)"
    )
    assert len(marks) >= 7
    assert min(marks) > 0


def test_the_theme_can_be_changed_and_the_page_fits_a_phone(page: Any) -> None:
    def paper() -> str:
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    before = paper()
    page.execute_script("document.getElementById('theme').click()")
    assert paper() != before
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_first_screen_holds_the_whole_answer_and_its_axis_names_where_zero_is_drawn(page: Any) -> None:
    metrics = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.execute_script("window.scrollTo(0, 0)")
    assert page.execute_script("return document.querySelector('.answer-table').getBoundingClientRect().bottom") < 800
    zeros = page.execute_script(
        "const middle = one => { const box = one.getBoundingClientRect(); return box.left + box.width / 2 };"
        "const label = [...document.querySelectorAll('.axis span')].find(one => one.textContent === '0');"
        "return [middle(label), ...[...document.querySelectorAll('.forest .zero')].map(middle)]"
    )
    assert len(zeros) > 1
    assert max(zeros) - min(zeros) < 2


def test_a_question_opens_its_section_and_the_path_is_copied(page: Any) -> None:
    page.execute_script("document.querySelectorAll('section.fold > details').forEach(fold => { fold.open = false })")
    page.execute_script(
        "document.documentElement.style.scrollBehavior = 'auto'"
    )  # else it still glides when the button is clicked
    page.find_element("css selector", ".answer-table a").click()
    until(page, "return document.querySelector(location.hash + ' > details').open")
    button = page.find_element("css selector", "[data-copy=keep-path]")
    page.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", button)
    button.click()
    until(page, "return document.querySelector('[data-copy=keep-path]').textContent === '복사됨'")


def test_intervals_are_drawn_and_their_numbers_shown_on_request(page: Any) -> None:
    numbers = "document.querySelectorAll('table:not(.answer-table) td .range')"
    seen = f"return [...{numbers}].filter(range => getComputedStyle(range).display !== 'none').length"
    assert page.execute_script(seen) == 0
    assert page.execute_script("return document.querySelector('td[title] svg.bar') !== null")
    page.find_element("id", "ranges").click()
    assert page.execute_script(seen) > 50
    page.find_element("id", "ranges").click()


def test_no_console_message_and_no_request_beyond_the_file(page: Any) -> None:
    assert console(page) == []
    ours = requests_of_files(page)
    assert ours
    assert all(url.startswith(("file:", "data:")) for url in ours)
