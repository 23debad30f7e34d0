"""The first screen of a report. In: HTML or Markdown. Out: headline, sentence, rows of questions, what to keep, its status."""

from __future__ import annotations

import html
import re

TITLES = {
    "base": ("Does adapting beat the base model?", "적응이 베이스 모델보다 나은가?"),
    "method": ("Which method?", "어느 방법인가?"),
    "length": ("Which length?", "어느 길이인가?"),
    "training": ("How long to train?", "얼마나 오래 학습하는가?"),
    "real": ("Does it hold on nouns of the document?", "문서에 있는 명사에서 그러한가?"),
    "new": ("Does it hold on new nouns?", "문서에 없는 명사에서 그러한가?"),
    "far": ("Does it carry over to far mentions?", "먼 언급으로 전이되는가?"),
    "lambada": ("Does it carry over to LAMBADA?", "LAMBADA로 전이되는가?"),
    "sources": ("Does it hold on every source?", "모든 데이터 소스에서 그러한가?"),
    "relation": ("Does it carry over to relation extraction?", "관계 추출로 전이되는가?"),
    "coreference": ("Does it carry over to coreference?", "상호참조 해결로 전이되는가?"),
}
Row = tuple[str, str, str, str]
"""Question, badge, answer, difference."""
Screen = tuple[str, str, list[Row], tuple[str, bool], str]
"""Headline, sentence, rows, the path to keep and whether it is the base's, lines about it."""


def plain(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", text)).strip()


def plain_lines(text: str) -> str:
    """The text of a page, one paragraph a line."""
    return "\n".join(_unmarked(plain(one)) for one in re.split(r"</?p\b[^>]*>|\n", text))


def hero_of(text: str) -> str:
    found = re.search(r'<section class="hero" id="answer".*?</section>', text, re.S)
    return found[0] if found else ""


def of_html(text: str) -> Screen:
    hero = hero_of(text)
    headline = re.search(r'<h1 class="headline">(.*?)</h1>', hero)
    sentence = re.search(r'<p class="sentence">(.*?)</p>', hero)
    rows = []
    for row in re.findall(r'<tr><th scope="row">.*?</tr>', hero, re.S):
        cells = re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.S)
        badge = re.search(r'<span class="badge [^"]*">(.*?)</span>(.*?)</td>', cells[1], re.S)
        hint = re.search(r'title="(.*?)"', cells[2])
        about = re.search(r"<small>(.*?)</small>", cells[2])
        change = html.unescape(hint[1]) if hint else f"{plain(about[1])}: same" if about else "–"
        shown = re.findall(r'class="(?:change|range)">(.*?)<', cells[2])
        if hint and shown and not change.endswith(" ".join(shown)):
            change = f"{plain(about[1]) if about else ''}: {' '.join(shown)}"
        rows.append((plain(cells[0]), plain(badge[1]) if badge else "", plain(badge[2]) if badge else "", change))
    keep = re.search(r'<div class="keep">.*', hero, re.S)
    path = re.search(r'</span>([^<]*)<code id="keep-path">(.*?)</code>', keep[0]) if keep else None
    status = "\n".join(plain(one) for one in re.findall(r'<p class="quiet">(.*?)</p>', keep[0])) if keep else ""
    commands = re.findall(r'<span class="keep-word">([^<]*?)</span>([^<]*)<code id="keep-(?:again|command)">(.*?)</code>', hero)
    status += "".join(f"\n{plain(f'{word} {why}{told}')}" for word, why, told in commands)
    kept = (html.unescape(path[2]), bool(path[1].strip())) if path else ("", False)
    return plain(headline[1]) if headline else "", plain(sentence[1]) if sentence else "", rows, kept, status


def of_markdown(text: str) -> Screen:
    first = text[: text.index("\n## ")]
    quote = re.search(r"^> \*\*(?:Answer|결론)\*\* (.*)$", first, re.M)
    told = _unmarked(quote[1]) if quote else ""
    headline, _, sentence = told.partition(". ")
    rows = []
    for line in first.split("\n"):
        cells = [_unmarked(one.strip()) for one in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0] in {one for titles in TITLES.values() for one in titles}:
            rows.append((cells[0], cells[1], cells[2], cells[3]))
    keep = re.search(r"^\*\*(?:Keep|선택):\*\* (the base model |베이스 모델 )?`(.*?)`\. ?(.*)$", first, re.M)
    gone = re.search(r"^\*\*(Make again:|다시 만들기:)\*\* `(.*?)`\. ?(.*)$", first, re.M)
    step = re.search(r"^\*\*(Next:|다음:)\*\* (.*?: )`(.*?)`$", first, re.M)
    kept = (keep[2], bool(keep[1])) if keep else ("", False)
    status = [_unmarked(keep[3])] if keep else [_unmarked(gone[3]), f"{gone[1]} {gone[2]}"] if gone else []
    status += [f"{step[1]} {_unmarked(step[2])}{step[3]}"] if step else []
    return headline.removesuffix("."), sentence, rows, kept, "\n".join(status)


def _unmarked(text: str) -> str:
    return html.unescape(re.sub(r"\\([\\*`_\]#>|-])", r"\1", text))
