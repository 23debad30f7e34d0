"""No page links to a file or a heading that is not there, and every page can be reached from the navigation."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.pages.markdown import DOCS, ROOT, anchors, links, pages


def dead(page: Path, root: Path = ROOT) -> list[str]:
    """The links of a page that lead nowhere."""
    gone = []
    for link in links(page.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        there = target.exists() and target.is_relative_to(root)
        if there and anchor:
            there = target.suffix == ".md" and anchor in anchors(target.read_text("utf-8"))
        if not there:
            gone.append(link)
    return gone


def test_every_link_leads_somewhere() -> None:
    found = {str(page.relative_to(ROOT)): dead(page) for page in pages()}
    assert {page: links for page, links in found.items() if links} == {}


def test_a_dead_link_and_a_dead_anchor_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](gone.md) [b](#one-two) [c](#three)\n```\n[d](in-code.md)\n```\n", "utf-8")
    assert [link for link in links(page.read_text("utf-8")) if link.endswith(".md")] == ["gone.md"]
    assert dead(page, tmp_path) == ["gone.md", "#three"]


def test_the_navigation_has_every_page_once() -> None:
    held = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if ".ko." not in path.name)
    held.remove("research.md")  # outside the menu: docs/relation-extraction.md links to it
    listed = entries(yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader=_AnyTag)["nav"])
    assert sorted(name for name in listed if name.endswith(".md")) == held, "add a new page to `nav` of mkdocs.yml"


def test_the_korean_navigation_has_every_page_in_korean_and_no_other() -> None:
    languages = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader=_AnyTag)["plugins"][1]["i18n"]["languages"]
    held = sorted(str(path.relative_to(DOCS)).replace(".ko.", ".") for path in DOCS.rglob("*.ko.md"))
    assert sorted(entries(languages[1]["nav"])) == held


def test_a_korean_page_has_its_english_one() -> None:
    assert [path.name for path in DOCS.rglob("*.ko.md") if not path.with_name(path.name.replace(".ko.", ".")).exists()] == []


def entries(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    assert not isinstance(inner, (str, bytes))
    return [entry for part in inner for entry in entries(part)]  # type: ignore[union-attr]


class _AnyTag(yaml.SafeLoader):
    """mkdocs.yml names a function of a Markdown extension by a Python tag; the navigation has none."""


_AnyTag.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
