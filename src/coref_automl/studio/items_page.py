"""The Items page. In: an address with two models and filters. Out: the items that match, of all there are, a page at a time.

An item of its own has a page too: the whole document, and what every model answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.records import ClozeItem
from coref_automl.report.explorer import crop
from coref_automl.report.language import Say
from coref_automl.report.rendering import words
from coref_automl.studio.compare_page import METHOD
from coref_automl.studio.pages import Address, Pages
from coref_automl.studio.pair import in_order
from coref_automl.studio.shelf import ARCHIVED, OUTSIDE, Board, Shelf, not_here

Mask = NDArray[np.bool_]
RULES = ("strict", "lenient", "word")
_PAGE = 20
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Line:
    """What one model answered to one item. `hit` is 1 right, 0 wrong, -1 not run."""

    name: str
    hit: int
    words: tuple[str, ...]
    rank: str
    color: str


@dataclass(frozen=True, slots=True)
class Card:
    """One item: facts, the passage as pieces of a kind, and the lines of some models."""

    id: str
    answer: str
    facts: tuple[str, ...]
    passage: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]


class ItemsPage:
    def __init__(self, shelf: Shelf, pages: Pages) -> None:
        self._shelf, self._pages = shelf, pages

    def page(self, address: Address) -> str:
        """All items that the address's filters let through."""
        say = address.say
        members = self._shelf.members(address.get("set"))
        board = self._shelf.board(members)
        asked = ("" if (key := address.get(name)).startswith(METHOD) else key for name in ("a", "b"))
        a, b = (self._shelf.key(key, board, number) for number, key in enumerate(asked))
        state = {name: address.get(name) for name in ("task", "source", "distance", "tag")}
        which, rule = address.get("which"), address.get("rule")
        rule = rule if rule in RULES else RULES[0]
        found = np.flatnonzero(_matching(board, a, b, which, rule, state, address.get("q")[:_LONGEST]))
        pages = max(1, -(-len(found) // _PAGE))
        number = min(pages, max(1, int(text) if (text := address.get("page")).isdecimal() and len(text) < 9 else 1))
        rows = found[_PAGE * (number - 1) : _PAGE * number]
        pair = list(dict.fromkeys([a, b]))
        return self._pages.page(
            "items.html.j2",
            address,
            title=say("문항", "Items"),
            members=members,
            sets=self._shelf.sets(),
            board=board,
            a=a,
            b=b,
            which=which,
            rule=rule,
            rules=RULES,
            state=state,
            choices=_choices(board, say),
            cards=[_card(board, int(row), pair, rule, say) for row in rows],
            count=len(found),
            total=len(board.ids),
            number=number,
            pages=pages,
            fault=_fault(board, say),
        )

    def item(self, address: Address) -> str:
        """One item with its whole document and every model; `part=others` gives the lines alone."""
        say = address.say
        members = self._shelf.members(address.get("set"))
        board = self._shelf.board(members)
        row = board.group.items.index.get(address.get("id"))
        if row is None:
            raise not_here(address.get("id"))
        rule = address.get("rule")
        rule = rule if rule in RULES else RULES[0]
        card = _card(board, row, list(board.entries), rule, say, whole=True)
        if address.get("part") == "lines":
            return self._pages.part("lines.html.j2", address, card=card)
        return self._pages.page(
            "item.html.j2",
            address,
            title=say("문항", "Item"),
            card=card,
            members=members,
            fault=_fault(board, say),
        )


def _matching(board: Board, a: str, b: str, which: str, rule: str, state: dict[str, str], text: str) -> Mask:
    facts = board.group.items.facts
    columns = {"task": facts["task"], "source": facts["source"], "tag": facts["tag"], "distance": board.buckets}
    out = np.ones(len(board.ids), np.bool_)
    for name, value in state.items():
        if value:
            out &= columns[name] == value
    one, other = (_hits(board.entries[key], facts["task"], rule) for key in (a, b))
    wanted = {"a-not-b": (1, 0), "b-not-a": (0, 1), "both-wrong": (0, 0), "both-right": (1, 1)}.get(which)
    if wanted is not None:
        out &= (one == wanted[0]) & (other == wanted[1])
    if text:
        out &= board.passages.holding(text) | np.array([text in answer for answer in board.answers])
    return out


def _hits(entry: Entry, tasks: NDArray[Any], rule: str) -> NDArray[np.int8]:
    """1 right, 0 wrong, -1 not run. Gold has only `word`."""
    ranks = np.where(tasks == "gold", entry.ranks["word"], entry.ranks[rule])
    return np.where(ranks == NOT_RUN, -1, ranks == 1).astype(np.int8)


def _choices(board: Board, say: Say) -> list[tuple[str, str, list[str]]]:
    """The filters with the values that occur."""
    titles = {
        "task": say("과제", "task"),
        "source": say("데이터 소스", "source"),
        "distance": say("거리", "distance"),
        "tag": say("품사", "tag"),
    }
    return [(name, title, _values(board)[name]) for name, title in titles.items()]


@lru_cache(maxsize=4)
def _values(board: Board) -> dict[str, list[str]]:
    facts = board.group.items.facts
    columns = {name: facts[name] for name in ("task", "source", "tag")} | {"distance": board.buckets}
    return {name: sorted(filter(None, np.unique(values).tolist()), key=in_order) for name, values in columns.items()}


def _card(board: Board, row: int, keys: list[str], rule: str, say: Say, *, whole: bool = False) -> Card:
    facts = {name: values[row] for name, values in board.group.items.facts.items()}
    item = board.passages.items.get(board.ids[row])
    number = int(board.passages.numbers[row])
    pieces: list[list[str]] = []
    if item is not None and number >= 0:
        text = board.passages.texts[number]
        pieces = _marked(text, item) if whole else crop(text, item)
    distance = f"{say('거리', 'distance')} {int(facts['distance']):,}" if facts["distance"] >= 0 else ""
    return Card(
        board.ids[row],
        board.answers[row],
        tuple(str(fact) for fact in (facts["task"], facts["source"], facts["tag"], distance) if fact),
        tuple((kind, text) for kind, text in pieces),
        tuple(_line(board, key, row, rule, str(facts["task"]), say) for key in keys),
    )


def _marked(text: str, item: ClozeItem) -> list[list[str]]:
    """The whole document with its gap and its antecedent."""
    marks = [(item.start, item.end, "gap"), *([(*item.antecedent, "antecedent")] if item.antecedent else [])]
    pieces, at = [], 0
    for start, end, kind in sorted(marks):
        pieces += [["text", text[at:start]], [kind, text[start:end]]]
        at = end
    return [*pieces, ["text", text[at:]]]


def _line(board: Board, key: str, row: int, rule: str, task: str, say: Say) -> Line:
    entry, told = board.entries[key], words(say)
    ranks = {name: int(values[row]) for name, values in entry.ranks.items()}
    asked = ranks["word" if task == "gold" else rule]
    given = tuple(board.vocabulary[number] for number in board.words[key].top[row].tolist() if number >= 0)
    rank = f"{told['rank']} {ranks['strict']:,}" if ranks["strict"] > 0 else told["no_rank"]
    rank = "" if ranks["strict"] == NOT_RUN else rank
    if ranks["word"] != NOT_RUN:
        rank += f" · {told['word_rank']} {ranks['word']}"
    return Line(entry.name, -1 if asked == NOT_RUN else int(asked == 1), given, rank.strip(" ·"), board.colors[entry.run])


def _fault(board: Board, say: Say) -> str:
    """Why there are no passages."""
    name, fault = board.group.evalset, board.passages.fault
    if fault == ARCHIVED:
        return say("보관본에는 글이 없어 순위만 보입니다.", "An archive holds no text: ranks are shown, and no passages.")
    if fault == OUTSIDE:
        return say(
            f"평가 세트 {name}이(가) 주어진 폴더 안에 없어 본문을 보여 줄 수 없습니다. 그 폴더도 함께 주고 다시 시작하세요.",
            f"The evaluation set {name} is not under the given folders, so passages are missing; start with its folder too.",
        )
    return fault
