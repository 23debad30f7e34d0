"""The site in Chromium: every page of both languages opens, draws, and asks nothing of another host; search answers in both."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser import console, until
from tests.pages.test_site import build

pytestmark = pytest.mark.journey


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = build(tmp_path_factory.mktemp("site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def asked(driver: Any) -> list[str]:
    """Addresses asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


def test_every_page_opens_without_an_outside_request(served: tuple[Path, str], browser: Any) -> None:
    folder, host = served
    pages = sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("index.html"))
    assert sum(name.startswith("ko") for name in pages) * 2 == len(pages)
    asked(browser)
    for name in pages:
        browser.get(f"{host}/{'' if name == '.' else name + '/'}")
        until(browser, "return document.readyState === 'complete' && document.querySelector('h1') !== null")
        assert console(browser) == [], name
    assert [url for url in asked(browser) if not url.startswith((host, "data:", "blob:", "chrome"))] == []


@pytest.mark.parametrize(("start", "word"), [("", "checkpoint"), ("ko/", "체크포인트")])
def test_search_answers_in_both_languages(served: tuple[Path, str], browser: Any, start: str, word: str) -> None:
    _, host = served
    browser.get(f"{host}/{start}")
    box = "document.querySelector('[data-md-component=search-query]')"
    until(browser, f"return {box} !== null")
    browser.execute_script(
        f"const box = {box}; box.focus(); box.value = {json.dumps(word)}; box.dispatchEvent(new Event('keyup'));"
    )
    until(browser, "return document.querySelectorAll('.md-search-result__item').length > 0")
