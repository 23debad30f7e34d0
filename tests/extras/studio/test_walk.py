"""Every page in a real browser: clicks, filters, Korean typed in; no console message, and no request to anywhere else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.progress import parse_events
from tests.browser import console, opened, until
from tests.extras.studio.conftest import RUN, Visitor, serving
from tests.extras.studio.test_user_files import annotated

pytest.importorskip("vl_convert", reason="the report extra is not installed")
READY = (
    "return !document.getElementById('wait') && !document.getElementById('later')"
    " && document.documentElement.dataset.drawn === 'yes'"
)
CHOOSE = (
    "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
    "field.dispatchEvent(new Event('change', {bubbles: true}))"
)
"""Give a control a value, as a hand would; its form sends itself."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def walk(browser: Any, visit: Visitor) -> Iterator[Any]:
    """The browser on the studio; afterwards it has said nothing and asked nobody else."""
    browser.get_log("performance")
    console(browser)
    browser.get(visit.address)
    yield browser
    assert console(browser) == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    own = ("chrome:", "chrome-untrusted:")  # the browser's first page
    asked = {request["request"]["url"] for request in sent if not request["documentURL"].startswith(own)}
    assert asked
    assert {url for url in asked if not url.startswith((visit.address, "data:"))} == set()


def show(driver: Any, address: str) -> None:
    driver.get(address)
    until(driver, READY)


def text(driver: Any, selector: str) -> str:
    return str(driver.execute_script("return document.querySelector(arguments[0]).textContent", selector))


def test_compare_draws_and_leads_to_the_items_it_counts(walk: Any, visit: Visitor) -> None:
    show(walk, f"{visit.address}/compare")
    marks = "return [...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('g.mark-symbol path').length)"
    assert min(walk.execute_script(marks)) > 0
    assert text(walk, "#verdict")
    walk.execute_script(CHOOSE, "select[name=metric]", "real1")
    assert "metric" not in walk.current_url  # a choice sends nothing halfway
    walk.execute_script("document.querySelector('form.filters').requestSubmit()")
    until(walk, "return location.search.includes('metric=real1')")
    until(walk, READY)
    count = text(walk, "#counts a").split()[-1]
    walk.execute_script("document.querySelector('#counts a').click()")
    until(walk, "return location.pathname === '/items'")
    until(walk, READY)
    assert text(walk, "#count").startswith(f"{count}개")


def test_items_are_filtered_searched_and_unfolded(walk: Any, visit: Visitor) -> None:
    show(walk, f"{visit.address}/items")
    from selenium.webdriver.common.keys import Keys

    field = walk.find_element("css selector", "input[name=q]")
    field.send_keys("도서관", Keys.ENTER)
    until(walk, "return new URL(location).searchParams.get('q') === '도서관'")
    until(walk, READY)
    assert "도서관" in text(walk, "#items .item")
    address = walk.current_url
    walk.execute_script(CHOOSE, "select[name=which]", "both-wrong")
    assert "which" not in walk.current_url  # a choice sends nothing before Search is pressed
    walk.execute_script("document.querySelector('#item-filters').requestSubmit()")
    until(walk, "return location.search.includes('which=both-wrong')")
    until(walk, READY)
    assert walk.execute_script("return document.querySelectorAll('#items > .item > .answers .right').length") == 0
    show(walk, address)  # as a colleague opens it
    assert walk.execute_script("return document.querySelector('input[name=q]').value") == "도서관"
    show(walk, f"{visit.address}/items?q=window.hacked")
    assert walk.execute_script("return window.hacked") is None
    assert "<script>" in text(walk, "#items .passage")


@pytest.mark.journey
def test_play_fills_a_gap_and_colours_chains(walk: Any, visit: Visitor, made: Path) -> None:
    show(walk, f"{visit.address}/play")
    field = walk.find_element("css selector", "#text")
    field.clear()
    field.send_keys("사람들은 아침마다 [MASK]을 지나 일하러 갔다.")
    other = next(path for path in (made / "runs/mlm").glob("checkpoint-*[0-9]"))
    walk.execute_script("document.querySelector('select[name=b]').value = arguments[0]", f"{made.name}/runs/mlm/{other.name}")
    walk.execute_script("document.querySelector('select[name=words]').value = 'all'")
    walk.execute_script("document.querySelector('#play').requestSubmit()")
    until(walk, "return document.querySelectorAll('#answer .filled').length === 2")
    assert walk.execute_script("return document.querySelectorAll('#answer .filled tr').length") == 20
    walk.execute_script("document.querySelectorAll('.tabs a')[1].click()")
    until(walk, "return location.search.includes('chains') && !!document.querySelector('#play')")
    walk.execute_script("document.querySelector('#play').requestSubmit()")
    until(walk, "return document.querySelectorAll('#answer mark').length > 3")
    colours = "return [...document.querySelectorAll('#answer mark')].map(m => getComputedStyle(m).backgroundColor)"
    assert len(set(walk.execute_script(colours))) == 2
    walk.execute_script("document.querySelectorAll('.tabs a')[2].click()")
    until(walk, "return location.search.includes('relation') && !!document.querySelector('#play')")
    sentence = "const text = document.querySelector('#text'); text.focus(); text.setSelectionRange(arguments[0], arguments[1]);"
    for role, span in (("subject", (0, 3)), ("object", (5, 7))):
        walk.execute_script(sentence + f"document.querySelector('[data-take={role}]').click()", *span)
        walk.execute_script(f"document.querySelector('select[name={role}_type]').value = 'PER'")
    assert walk.execute_script("return [subject.value, subject_start.value, object.value, object_start.value]") == [
        "이순신", "0", "조선", "5",
    ]  # fmt: skip
    walk.execute_script("document.querySelector('#play').requestSubmit()")
    until(walk, "return document.querySelectorAll('#answer tr').length === 8")


def test_a_text_without_a_gap_is_explained(walk: Any, visit: Visitor) -> None:
    show(walk, f"{visit.address}/play?text=%EA%B0%80%EB%82%98%EB%8B%A4")
    until(walk, "return !!document.querySelector('#answer .failed')")
    assert "no gap" in text(walk, "#answer")


def test_the_theme_stays_pages_fit_a_phone_and_the_keyboard_reaches_everything(walk: Any, visit: Visitor) -> None:
    from selenium.webdriver.common.keys import Keys

    paper = "return getComputedStyle(document.body).backgroundColor"
    show(walk, visit.address)
    before = walk.execute_script(paper)
    walk.execute_script("document.getElementById('theme').click()")
    dark = walk.execute_script(paper)
    assert dark != before
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    walk.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    for path in ("/", "/compare", "/items", "/runs", "/chains", "/play"):
        show(walk, f"{visit.address}{path}")
        assert walk.execute_script(paper) == dark
        assert walk.execute_script("return document.documentElement.scrollWidth") <= 390
    walk.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    walk.execute_script("document.getElementById('theme').click()")
    show(walk, f"{visit.address}/items")
    seen = set()
    for _ in range(20):
        walk.switch_to.active_element.send_keys(Keys.TAB)
        seen.add(walk.execute_script("return document.activeElement.name || document.activeElement.tagName"))
    assert {"A", "a", "b", "which", "q"} <= seen
    walk.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert walk.execute_script("return getComputedStyle(document.querySelector('.filters')).display") == "none"
    walk.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


PAINTED = "return document.readyState === 'complete' && performance.getEntriesByType('paint').length > 0"
"""Before its first paint the browser drops what is typed on a page."""
TYPED = (
    "for (const key of arguments[0])"
    " document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}))"
)
"""Keys pressed before the page that the first of them asks for can come."""


def press(driver: Any, *keys: str) -> None:
    """Type into whatever has the focus, as a person does."""
    from selenium.webdriver import ActionChains

    until(driver, PAINTED)
    for key in keys:
        ActionChains(driver).send_keys(key).perform()


@pytest.fixture
def mine(browser: Any, copied: Path) -> Iterator[tuple[Any, Visitor]]:
    """A studio over a copy that may be written to."""
    annotated(copied)
    with serving(copied, lang="en") as visitor:
        browser.get(visitor.address)
        yield browser, visitor
        assert console(browser) == []
        browser.get("about:blank")


ITEM = "return location.pathname === '/item' && !!document.getElementById('tag') && new URL(location).searchParams.get('id')"


def tagged(driver: Any, tag: str) -> None:
    until(driver, f"return [...document.querySelectorAll('button.tag')].some(b => b.textContent.startsWith('{tag}'))")


def test_a_walk_by_keyboard_alone_from_the_leaderboard_to_tagged_items(mine: tuple[Any, Visitor], copied: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    driver, _ = mine
    until(driver, READY)
    press(driver, "?")
    until(driver, "return document.getElementById('keys').open")
    press(driver, Keys.ESCAPE)
    until(driver, "return !document.getElementById('keys').open")
    press(driver, "g", "i")
    until(driver, "return location.pathname === '/items'")
    until(driver, READY)
    press(driver, "3")
    until(driver, "return location.search.includes('which=both-wrong')")
    until(driver, READY)
    items = driver.execute_script("return [...document.querySelectorAll('#items [name=id]')].map(box => box.value)")
    press(driver, "j", "x", "j", "j", "x", "t", "odd", Keys.ENTER)  # the first and the third are chosen, and tagged
    until(driver, "return location.search.includes('saved=1') && !!document.querySelector('a.tag')")
    until(driver, READY)
    press(driver, "j", Keys.ENTER)
    until(driver, f"{ITEM} === '{items[0]}'")
    tagged(driver, "odd")
    press(driver, "j")
    until(driver, f"{ITEM} === '{items[1]}'")
    assert "which=both-wrong" in driver.current_url  # filters stay
    press(driver, "t", "unfair", Keys.ENTER)
    tagged(driver, "unfair")
    press(driver, "j")
    until(driver, f"{ITEM} === '{items[2]}'")
    until(driver, PAINTED)
    driver.execute_script(TYPED, "rjjr")  # faster than pages come: none of the keys is lost
    until(driver, f"{ITEM} === '{items[4]}'")
    tagged(driver, "unfair")
    held = json.loads(next(copied.glob("items-*.notes.json")).read_text("utf-8"))["tags"]
    assert held == {
        items[0]: ["odd"], items[1]: ["unfair"], items[2]: ["odd", "unfair"], items[4]: ["unfair"],
    }  # fmt: skip
    press(driver, "1")
    until(driver, "return location.pathname === '/items' && location.search.includes('which=a-not-b')")


def test_chains_are_corrected_by_key_and_by_click_saved_and_undone(mine: tuple[Any, Visitor], copied: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    driver, visitor = mine
    driver.get(f"{visitor.address}/chains?file={copied.name}/chains.jsonl&by=kim&doc=one")
    until(driver, "return document.querySelectorAll('#text mark').length === 3")
    saved = "return document.getElementById('saved').textContent === 'saved'"
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert driver.execute_script("return document.querySelector('.picked').firstChild.textContent") == "그"
    press(driver, "s")
    until(driver, "return document.querySelectorAll('#chains li').length === 2")
    until(driver, saved)
    press(driver, "u")
    until(driver, "return document.querySelectorAll('#chains li').length === 1")
    driver.execute_script("document.querySelectorAll('#text mark')[1].click()")
    press(driver, "i")  # the next word, with its particle, which is then cut off
    until(driver, "return document.querySelectorAll('#chains li').length === 2")
    press(driver, "a")
    until(driver, "return location.search.includes('doc=two')")
    held = json.loads((copied / "chains.kim.jsonl").read_text("utf-8").splitlines()[0])
    assert [len(chain) for chain in held["clusters"]] == [3, 1]
    assert held["clusters"][1][0]["text"] == "손을"


def test_two_windows_that_write_one_note_lose_nothing(mine: tuple[Any, Visitor], copied: Path) -> None:
    driver, visitor = mine
    address = f"{visitor.address}/run?key={copied.name}/runs/mlm"
    show(driver, address)
    assert visitor.post("/note", key=f"{copied.name}/runs/mlm", text="of another window", tags="", version="").status == 303
    driver.execute_script("document.querySelector('textarea[name=text]').value = 'of this one'")
    driver.execute_script("document.querySelector('#note').requestSubmit()")
    until(driver, "return !!document.querySelector('[role=alert]')")
    assert "of another window" in text(driver, "pre")
    driver.execute_script("document.querySelector('.note-form').requestSubmit()")
    until(driver, "return location.pathname === '/run' && document.querySelector('textarea').value === 'of this one'")
    console(driver)  # the browser notes the status 409


def hold_after_a_step(training: subprocess.Popen[bytes], events: Path) -> int:
    """Stop a training in the middle, however fast the machine is, and say the last step that it has told of."""

    def told() -> list[int]:
        return [row["step"] for row in parse_events(events.read_bytes()) if row["event"] == "step"] if events.is_file() else []

    while not told():
        assert training.poll() is None
        time.sleep(0.001)
    training.send_signal(signal.SIGSTOP)
    os.waitpid(training.pid, os.WUNTRACED)  # it stands still
    return told()[-1]


@pytest.mark.journey
def test_a_run_moves_while_its_page_is_open(browser: Any, copied: Path) -> None:
    """Trained by the command while the page is open: the page is loaded once, and follows it to the end."""
    with serving(copied) as visitor:
        show(browser, f"{visitor.address}/runs")
        browser.execute_script("window.same = true")
        line = "train --model new:tiny --tokenizer tokenizer --dataset data --objective mlm --epochs 12 --batch 4 --checkpoints 3"
        run = [sys.executable, "-m", "coref_automl.cli", *line.split(), "--eval-set", "evalsets/mine", "--out", "runs/live"]
        training = subprocess.Popen([*run, "--device", "cpu"], cwd=copied, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        card = "[...document.querySelectorAll('.run')].find(run => run.textContent.includes('runs/live'))"
        step = f"{card}.querySelectorAll('dl.facts dd')[3].textContent"
        try:
            held = hold_after_a_step(training, copied / "runs/live/events.ndjson")
            until(browser, f"const run = {card}; return run && run.classList.contains('training') && run.querySelector('dd')")
            until(browser, f"return {step} === '{held}'")
            training.send_signal(signal.SIGCONT)
            assert training.wait() == 0
        finally:
            training.kill()
        until(browser, f"return {card}.classList.contains('finished')")
        assert int(browser.execute_script(f"return {step}")) > held
        assert browser.execute_script(f"return {card}.querySelectorAll('tr').length") == 3
        assert browser.execute_script("return window.same") is True
        assert RUN in browser.execute_script("return document.querySelector('#training').textContent")
        assert console(browser) == []
        browser.get("about:blank")
