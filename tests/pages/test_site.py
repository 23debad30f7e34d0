"""The site: it builds without a warning, in both languages, leads nowhere dead, and asks nothing of another host."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.pages.markdown import DOCS, ROOT

pytestmark = pytest.mark.journey  # `make site` builds it too, with warnings as errors
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that a link can name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.places |= {held[name] for name in ("id", "name") if name in held}
        if tag == "a" and "href" in held:
            self.links.append(held["href"])
        if tag in LOADS and LOADS[tag] in held and held.get("rel") not in ("canonical", "alternate"):
            self.loads.append(held[LOADS[tag]])


def build(out: Path) -> Path:
    """The site, as `make site` builds it."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    pytest.importorskip("mkdocs_static_i18n", reason="the extra `docs` is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = build(tmp_path_factory.mktemp("site"))
    return {path: Page(path) for path in sorted(out.rglob("index.html"))}


def test_every_page_is_there_in_both_languages(site: dict[Path, Page]) -> None:
    root = min(site, key=lambda path: len(path.parts)).parent
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_name(page.name.split(".")[0])
        folder = name.parent if name.name == "index" else name
        assert root / folder / "index.html" in site
        assert root / "ko" / folder / "index.html" in site


def test_a_korean_page_without_a_translation_says_so(site: dict[Path, Page]) -> None:
    root = min(site, key=lambda path: len(path.parts)).parent
    for name in ("install", "machines"):
        said = "이 페이지는 영어로 제공됩니다" in (root / "ko" / name / "index.html").read_text("utf-8")
        assert said != (DOCS / f"{name}.ko.md").is_file()


def test_no_link_is_dead(site: dict[Path, Page]) -> None:
    dead = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            if not target.is_file() or (place and target in site and place not in site[target].places):
                dead.append(f"{path}: {link}")
    assert dead == []


def test_nothing_is_loaded_from_another_host(site: dict[Path, Page]) -> None:
    assert len(site) > 30
    assert {load for page in site.values() for load in page.loads if urlsplit(load).netloc} == set()
