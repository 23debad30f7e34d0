"""The Items page. In: an address with two models or methods and filters. Out: the items that match, of all there are, a page at a
time; one item with its whole document and what every model answered; tags on either."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Study
from coref_automl.errors import CorefError, InputError
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.readings import FOLDER, Mark, marks_of, summarise
from coref_automl.records import ClozeItem
from coref_automl.report.pair import by_who_is_right, in_order, right_items
from coref_automl.report.rendering import words
from coref_automl.say import Say
from coref_automl.studio.board import Board, Members
from coref_automl.studio.kept import TAG
from coref_automl.studio.pages import AS, KINDS, Address, Download, of_rows
from coref_automl.studio.shelf import not_here
from coref_automl.studio.workspace import Shown, Workspace

Mask = NDArray[np.bool_]
RULES = ("strict", "lenient", "word")
_PAGE = 20
_OTHERS = 60
"""Models beside A and B that an item's page lists."""
_LONGEST = 200
_AROUND = {"gap": 150, "antecedent": 70}
"""Characters shown on either side."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a model answered to one item, or the seeds of a method. `hit` is 1 right, 0 wrong, -1 not run."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What an address asks of the items: a board, two sides, the filters, and the rows that they let through. `counts` are those
    of each filter by who is right."""

    members: Members
    board: Board
    study: Study | None
    sides: tuple[Shown, Shown]
    which: str
    rule: str
    state: dict[str, str]
    label: str
    rows: NDArray[np.int32]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Readings:
    """What readers said of the items (`evalset read`): marks by item, the share of fair ones, and the command that goes on."""

    marks: Mapping[str, tuple[str, ...]]
    shares: tuple[str, ...]
    command: str


def page(ws: Workspace, address: Address) -> str | Download:
    """All items that the address's filters let through, twenty at a time; or all of them as a file."""
    say, asked = address.say, _asked(ws, address)
    if (kind := address.get(AS)) in KINDS:
        return of_rows(list(_rows(ws, asked)), f"items-{asked.members.mark}", kind)
    pages = max(1, -(-len(asked.rows) // _PAGE))
    asked_page = address.get("page")
    number = min(pages, max(1, int(asked_page) if asked_page.isdecimal() and len(asked_page) < 9 else 1))
    rows = asked.rows[_PAGE * (number - 1) : _PAGE * number]
    cards = [_card(asked, int(row), asked.sides, say) for row in rows]
    choices, more = _choices(asked.board, say), {"sets": ws.shelf.sets(), "rules": RULES, "number": number, "pages": pages}
    return _render(ws, "items.html.j2", address, asked, title=say("문항", "Items"), cards=cards, choices=choices, **more)


def item(ws: Workspace, address: Address) -> str | Download:
    """One item with its whole document, A and B side by side, and every other model."""
    say, asked = address.say, _asked(ws, address)
    board, shelf = asked.board, ws.shelf
    row = board.group.items.index.get(address.get("id"))
    if row is None:
        raise not_here(address.get("id"))
    at = int(np.searchsorted(asked.rows, row))
    inside = at < len(asked.rows) and asked.rows[at] == row
    after = at + 1 if inside else at
    shown = [side.key for side in asked.sides]
    others = [Shown(one.name, (one,), color=shelf.color(one.run)) for key, one in board.entries.items() if key not in shown]
    return _render(
        ws,
        "item.html.j2",
        address,
        asked,
        title=say("문항", "Item"),
        card=_card(asked, row, asked.sides, say, whole=True),
        others=_card(asked, row, others if address.get("every") else others[:_OTHERS], say),
        more=0 if address.get("every") else max(0, len(others) - _OTHERS),
        before=board.ids[asked.rows[at - 1]] if at else "",
        after=board.ids[asked.rows[after]] if after < len(asked.rows) else "",
        place=at + 1 if inside else 0,
    )


def tag_items(ws: Workspace, address: Address, items: Sequence[str] | None, tag: str, *, on: bool) -> None:
    """Set or take a tag of the given items, or of all that the filters let through."""
    asked, tag = _asked(ws, address), " ".join(tag.replace(",", " ").split())[:TAG]
    index = asked.board.group.items.index
    items = [asked.board.ids[row] for row in asked.rows] if items is None else items
    if not tag or not items or any(item not in index for item in items):
        raise InputError(address.say("고른 문항이나 태그가 없습니다.", "There is no such item or tag, or none is chosen."))
    ws.kept.tag_items(asked.members.own, items, tag, on=on)


def _render(ws: Workspace, name: str, address: Address, asked: Asked, *, title: str, **values: Any) -> str | Download:
    """Either page with what both show."""
    tags = ws.kept.item_tags(asked.members.own)
    values |= {"tags": tags, "labels": sorted({tag for held in tags.values() for tag in held})}
    values |= {"saved": ws.kept.tags_file(asked.members.own) if address.get("saved") else None}
    values |= {"readings": _readings(ws, asked.board), "fault": address.say(*asked.board.passages.fault)}
    return ws.pages.page(name, address, title=title, asked=asked, board=asked.board, study=asked.study, **values)


def _asked(ws: Workspace, address: Address) -> Asked:
    members = ws.shelf.members(address.get("set"))
    board = ws.shelf.board(members)
    study, sides = ws.pair([address.get("a"), address.get("b")], board, wait=False)
    state = {name: address.get(name) for name in ("task", "source", "distance", "tag")}
    which, rule, text, label = (address.get(name) for name in ("which", "rule", "q", "label"))
    rule, text = rule if rule in RULES else RULES[0], text[:_LONGEST]
    tags = ws.kept.item_tags(members.own) if label else {}
    labelled = tuple(sorted(item for item, held in tags.items() if label in held)) if label else None
    keys = [side.key for side in sides]
    key = ("items", board.mark, board.state, *keys, bool(study), which, rule, *state.values(), text, label, labelled)
    rows, counts = ws.shelf.made(key, partial(_matching, board, sides, which, rule, state, text, labelled))
    return Asked(members, board, study, sides, which, rule, state, label, rows, counts)


def _readings(ws: Workspace, board: Board) -> Readings | None:
    folder = board.passages.folder
    if folder is None or not ws.folders.holds(folder):
        return None
    files = {path.name: path.stat().st_mtime_ns for path in sorted((folder / FOLDER).glob("*.jsonl"))}
    key = ("readings", board.mark, board.state, tuple(files.items()))

    def read() -> Readings:
        found, marks = dict[str, dict[str, Mark]](), dict[str, tuple[str, ...]]()
        with suppress(CorefError, OSError):  # a file that cannot be read: the command says so
            found = marks_of(folder)
        for reader, given in found.items():
            for item, mark in given.items():
                marks[item] = (*marks.get(item, ()), f"{reader}: {mark}")
        shares = summarise(list(board.passages.items.values()), found)
        return Readings(marks, tuple(map(str, shares)), f"coref-automl evalset read {shlex.quote(str(folder))} --reader NAME")

    return ws.shelf.made(key, read)


def _card(asked: Asked, row: int, sides: Sequence[Shown], say: Say, *, whole: bool = False) -> Card:
    board = asked.board
    facts = {name: values[row] for name, values in board.group.items.facts.items()}
    item = board.passages.items.get(board.ids[row])
    number = int(board.passages.numbers[row])
    pieces: list[list[str]] = []
    if item is not None and number >= 0:
        marked = _marked(board.passages.texts[number], item)
        pieces = marked if whole else _cropped(marked)
    distance = f"{say('거리', 'distance')} {int(facts['distance']):,}" if facts["distance"] >= 0 else ""
    rule = "word" if facts["task"] == "gold" else asked.rule
    return Card(
        board.ids[row],
        board.answers[row],
        tuple(str(fact) for fact in (facts["task"], facts["source"], facts["tag"], distance) if fact),
        tuple((kind, text) for kind, text in pieces),
        tuple(_line(board, side, row, rule, say) for side in sides),
    )


def _rows(ws: Workspace, asked: Asked) -> Iterator[dict[str, Any]]:
    """The filtered items as rows of a file: facts, answers, ranks and tags; the seeds of a method one after the other."""
    board, tags = asked.board, ws.kept.item_tags(asked.members.own)
    facts = board.group.items.facts
    for at in asked.rows.tolist():
        out: dict[str, Any] = {"item": board.ids[at], "answer": board.answers[at]}
        out |= {name: facts[name][at].item() for name in ("task", "source", "tag", "distance")}
        for letter, side in zip("ab", asked.sides, strict=True):
            out[f"{letter} model"] = side.name
            for rule in RULES:
                ranks = [int(one.ranks[rule][at]) for one in side.entries if one.ranks[rule][at] != NOT_RUN]
                if rule == asked.rule:
                    out[f"{letter} right"] = {1: "right", 0: "wrong"}.get(_hit(side, rule, at), "")
                out |= {f"{letter} {rule} rank": ranks[0] if len(ranks) == 1 else " ".join(map(str, ranks))} if ranks else {}
            out[f"{letter} answers"] = " ".join(_answers(board, side, at))
        yield {**out, "tags": ", ".join(tags.get(board.ids[at], ()))}


def _matching(
    board: Board, sides: Sequence[Shown], which: str, rule: str, state: Mapping[str, str], text: str, ids: Sequence[str] | None
) -> tuple[NDArray[np.int32], dict[str, int]]:
    """The rows that match, and how many do by who is right."""
    facts = board.group.items.facts
    columns, out = _columns(board), np.ones(len(board.ids), np.bool_)
    for name, value in state.items():
        if value:
            out &= columns[name] == value
    if ids is not None:
        index = board.group.items.index
        chosen = np.zeros(len(board.ids), np.bool_)
        chosen[[index[item] for item in ids if item in index]] = True
        out &= chosen
    if text:
        out &= board.passages.holding(text) | np.array([text in answer for answer in board.answers])
    gold = facts["task"] == "gold"  # which has no rank but among candidates
    one, other = (np.where(gold, right_items(side.entries, "word"), right_items(side.entries, rule)) for side in sides)
    found = {name: out & mask for name, mask in by_who_is_right(one, other).items()} | {"": out}
    counts = {name: int(mask.sum()) for name, mask in found.items()}
    return np.flatnonzero(found.get(which, out)).astype(np.int32), counts


def _choices(board: Board, say: Say) -> list[tuple[str, str, list[str]]]:
    titles = {
        "task": say("과제", "task"),
        "source": say("데이터 소스", "source"),
        "distance": say("거리", "distance"),
        "tag": say("품사", "part of speech"),
    }
    return [(name, title, _values(board)[name]) for name, title in titles.items()]


@lru_cache(maxsize=4)
def _values(board: Board) -> dict[str, list[str]]:
    return {name: sorted(filter(None, np.unique(values).tolist()), key=in_order) for name, values in _columns(board).items()}


def _columns(board: Board) -> dict[str, NDArray[Any]]:
    return {**{name: board.group.items.facts[name] for name in ("task", "source", "tag")}, "distance": board.buckets}


def _marked(text: str, item: ClozeItem) -> list[list[str]]:
    marks = [(item.start, item.end, "gap"), *([(*item.antecedent, "antecedent")] if item.antecedent else [])]
    pieces, at = [], 0
    for start, end, kind in sorted(marks):
        pieces += [["text", text[at:start]], [kind, text[start:end]]]
        at = end
    return [*pieces, ["text", text[at:]]]


def _answers(board: Board, side: Shown, row: int) -> list[str]:
    """The first words of a model; of a method, the first word of each seed."""
    given = [board.top[board.key(entry)][row].tolist() for entry in side.entries]
    numbers = given[0] if len(given) == 1 else [one[0] for one in given]
    return [board.vocabulary[number] for number in numbers if number >= 0]


def _line(board: Board, side: Shown, row: int, rule: str, say: Say) -> Line:
    told, entries = words(say), side.entries
    right = [int(entry.ranks[rule][row]) == 1 for entry in entries if entry.ranks[rule][row] != NOT_RUN]
    ranks = (_ranks(entries, name, row, told[word]) for name, word in (("strict", "rank"), ("word", "word_rank")))
    rank = " · ".join(filter(None, ranks))
    rank = rank or (told["no_rank"] if right else "")
    if len(entries) > 1:
        rank += say(f" · 시드 {len(entries)}개 중 {sum(right)}개 맞음", f" · {sum(right)} of {len(entries)} seeds right")
    return Line(side.name, _hit(side, rule, row), tuple(_answers(board, side, row)), rank, side.color)


def _hit(side: Shown, rule: str, row: int) -> int:
    """1 if most seeds are right, 0 if not, -1 if one of them was not run."""
    ranks = [int(entry.ranks[rule][row]) for entry in side.entries]
    return -1 if NOT_RUN in ranks else int(2 * ranks.count(1) > len(ranks))


def _cropped(pieces: list[list[str]]) -> list[list[str]]:
    """The text around gap and antecedent; what lies further away is cut."""
    out: list[list[str]] = []
    around = [0, *(_AROUND.get(kind, 0) for kind, _ in pieces), 0]
    for before, (kind, text), after in zip(around, pieces, around[2:], strict=False):
        if kind != "text" or len(text) <= before + after:
            out.append([kind, text])
        else:
            out += [["text", text[:before]], ["cut", " … "], ["text", text[len(text) - after :]]]
    return [piece for piece in out if piece[1]]


def _ranks(entries: Sequence[Entry], rule: str, row: int, word: str) -> str:
    """Ranks of one rule: one, or one per seed; a dash where the answer has none."""
    found = [int(entry.ranks[rule][row]) for entry in entries]
    shown = " / ".join(f"{rank:,}" if rank > 0 else "–" for rank in found)
    return f"{word} {shown}" if any(rank > 0 for rank in found) else ""
