"""What the site changes in a page: links for readers of the repository become links, or names, for readers of the site.

A link to the same page in the other language goes (the header has a switch); a link out of docs/ becomes the name of that file;
a page without a translation says so in the Korean site.
"""

import re
from typing import Any

LANGUAGES = re.compile(r"^\[(?:한국어|English)\]\([\w./-]+\.md\)\n+", re.MULTILINE)
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:benchmarks|recipes|src|scripts|results)/[^)\s]*|[A-Z][\w.-]*)\)")


ALTERNATE = re.compile(r'\s*<link rel="alternate"[^>]*hreflang[^>]*>')
UNTRANSLATED = '!!! note "이 페이지는 영어로 제공됩니다."\n'


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    depth = page.file.src_uri.count("/") + 1
    text = OUTSIDE.sub(lambda link: name(link, depth), LANGUAGES.sub("", markdown))
    return noted(text) if page.url.startswith("ko/") and not page.file.src_uri.endswith(".ko.md") else text


def noted(text: str) -> str:
    """The note stands under the title."""
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{UNTRANSLATED}\n{rest}"


def name(link: re.Match[str], depth: int) -> str:
    """`[speeds](../benchmarks/RESULTS.md)` as "speeds (`benchmarks/RESULTS.md`)"; one that stays inside docs/ is left alone."""
    if link.group().count("../") < depth:
        return link.group()
    words, path = link.group(1), link.group(2)
    return f"`{path}`" if words.strip("`") == path else f"{words} (`{path}` in the repository)"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The language switch of the first pages, relative to the page instead of `/` and `/ko/`: a site may lie in any folder.

    For each language that a page's head names, the theme asks for a sitemap that is not there; the switch does without them.
    """
    root = "../" * page.url.count("/") or "./"
    return re.sub(r'href="/((?:ko/)?)" hreflang', rf'href="{root}\1" hreflang', ALTERNATE.sub("", output))
