"""What the site changes in a page: links for readers of the repository become links, or names, for readers of the site.

A link to the same page in the other language goes (the header has a switch); a link out of docs/ becomes the name of that file.
"""

import re
from pathlib import Path
from shutil import copyfile
from typing import Any

LANGUAGES = re.compile(r"^\[(?:한국어|English)\]\([\w./-]+\.md\)\n+", re.MULTILINE)
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:benchmarks|recipes|src|scripts|results)/[^)\s]*|[A-Z][\w.-]*)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    depth = page.file.src_uri.count("/") + 1
    text = LANGUAGES.sub("", markdown)
    return OUTSIDE.sub(lambda link: name(link, depth), text)


def name(link: re.Match[str], depth: int) -> str:
    """`[speeds](../benchmarks/RESULTS.md)` as "speeds (`benchmarks/RESULTS.md`)"; one that stays inside docs/ is left alone."""
    if link.group().count("../") < depth:
        return link.group()
    words, path = link.group(1), link.group(2)
    return f"`{path}`" if words.strip("`") == path else f"{words} (`{path}` in the repository)"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The language switch of the first pages, relative to the page instead of `/` and `/ko/`: a site may lie in any folder."""
    root = "../" * page.url.count("/") or "./"
    return re.sub(r'href="/((?:ko/)?)" hreflang', rf'href="{root}\1" hreflang', output)


def on_post_build(config: Any) -> None:
    """The language switch asks for a sitemap in the folder of each language."""
    site = Path(config["site_dir"])
    if (site / "ko").is_dir():
        copyfile(site / "sitemap.xml", site / "ko" / "sitemap.xml")
