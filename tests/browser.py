"""A real browser for pages opened from disk. In: a folder for its profile. Out: a driver, or a skip that says what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.masked import program

CHROMIUM, DRIVER = program("chromium"), program("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1280,1000",
)  # fmt: skip
SET = (
    "const one = document.getElementById(arguments[0]); one.value = arguments[1];"
    "one.dispatchEvent(new Event('input', {bubbles: true}))"
)
"""Give the control of this id a value, as a hand would."""


@contextmanager
def opened(profile: Path) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=webdriver.ChromeService(DRIVER), options=options)
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Any, page: Path) -> Any:
    """Open a report and wait until every chart is drawn."""
    driver.get(page.resolve().as_uri())
    until(driver, "return document.documentElement.dataset.drawn === 'yes'")
    return driver


def until(driver: Any, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 60).until(lambda here: here.execute_script(script))


def console(driver: Any) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser")]


def requests_of_files(driver: Any) -> list[str]:
    """The addresses that pages from disk have asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if one["documentURL"].startswith("file:")]
