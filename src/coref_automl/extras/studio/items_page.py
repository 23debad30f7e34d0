"""The Items page. In: an address with two models or methods and filters. Out: the items that match, a page at a time; one item
with its whole document and the answers of every model; tags on either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import InputError
from coref_automl.base.records import ClozeItem
from coref_automl.base.say import Say
from coref_automl.comparison.study import Study
from coref_automl.extras.pages.rendering import words
from coref_automl.extras.studio.board import Board, Members
from coref_automl.extras.studio.pages import AS, KINDS, Address, Download, of_rows
from coref_automl.extras.studio.pair import by_who_is_right, in_order, right_items
from coref_automl.extras.studio.user_files import MAX_TAG
from coref_automl.extras.studio.workspace import Shown, Workspace, not_here

Mask = NDArray[np.bool_]
_PAGE = 20
_OTHERS = 60
"""Models besides A and B that an item's page lists."""
_MAX_SEARCH = 200
_CONTEXT = {"gap": 150, "antecedent": 70}
"""Characters shown on either side."""


@dataclass(frozen=True, slots=True)
class Line:
    """The answer of a model to one item, or those of a method's seeds. `hit` is 1 for right, 0 for wrong, -1
    for not counted."""

    name: str
    hit: int
    words: tuple[str, ...]
    rank: str
    color: str


@dataclass(frozen=True, slots=True)
class Card:
    """One item: facts, the passage as (kind, text) pieces, and the lines of some models."""

    id: str
    answer: str
    facts: tuple[str, ...]
    passage: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ItemQuery:
    """What an address requests: a board, two sides, filters, the rows that match, and their `counts` by who is right."""

    members: Members
    board: Board
    study: Study | None
    sides: tuple[Shown, Shown]
    which: str
    state: dict[str, str]
    label: str
    rows: NDArray[np.int32]
    counts: Mapping[str, int]


def page(ws: Workspace, address: Address) -> str | Download:
    """All items that match the address, twenty at a time; or all of them as a file."""
    say, query = address.say, _query(ws, address)
    if (kind := address.get(AS)) in KINDS:
        return of_rows(list(_rows(ws, query)), f"items-{query.members.tag_key}", kind)
    pages = max(1, -(-len(query.rows) // _PAGE))
    wanted = address.get("page")
    number = min(pages, max(1, int(wanted) if wanted.isdecimal() and len(wanted) < 9 else 1))
    rows = query.rows[_PAGE * (number - 1) : _PAGE * number]
    cards = [_card(query, int(row), query.sides, say) for row in rows]
    choices, more = _choices(query.board, say), {"sets": ws.boards.sets(), "number": number, "pages": pages}
    return _render(ws, "items.html.j2", address, query, title=say("문항", "Items"), cards=cards, choices=choices, **more)


def item(ws: Workspace, address: Address) -> str | Download:
    """One item with its whole document, A and B side by side, and every other model."""
    say, query = address.say, _query(ws, address)
    board, boards = query.board, ws.boards
    row = board.group.items.index.get(address.get("id"))
    if row is None:
        raise not_here(address.get("id"))
    at = int(np.searchsorted(query.rows, row))
    matches = at < len(query.rows) and query.rows[at] == row
    after = at + 1 if matches else at
    keys = [side.key for side in query.sides]
    others = [Shown(e.name, (e,), color=boards.color(e.run)) for key, e in board.entries.items() if key not in keys]
    return _render(
        ws, "item.html.j2", address, query, title=say("문항", "Item"), card=_card(query, row, query.sides, say, whole=True),
        others=_card(query, row, others if address.get("every") else others[:_OTHERS], say),
        more=0 if address.get("every") else max(0, len(others) - _OTHERS), before=board.ids[query.rows[at - 1]] if at else "",
        after=board.ids[query.rows[after]] if after < len(query.rows) else "", place=at + 1 if matches else 0,
    )  # fmt: skip


def tag_items(ws: Workspace, address: Address, items: Sequence[str] | None, tag: str, *, on: bool) -> None:
    """Add or remove a tag of the given items, or of all that match."""
    query, tag = _query(ws, address), " ".join(tag.replace(",", " ").split())[:MAX_TAG]
    index = query.board.group.items.index
    items = [query.board.ids[row] for row in query.rows] if items is None else items
    if not tag or not items or any(item not in index for item in items):
        raise InputError(address.say("고른 문항이나 태그가 없습니다.", "There is no such item or tag, or none is chosen."))
    ws.user_files.tag_items(query.members.tag_key, items, tag, on=on)


def _render(ws: Workspace, name: str, address: Address, query: ItemQuery, *, title: str, **values: Any) -> str | Download:
    """Render either page, with the values that both show."""
    tags = ws.user_files.item_tags(query.members.tag_key)
    values |= {"tags": tags, "labels": sorted({tag for names in tags.values() for tag in names})}
    values |= {"saved": ws.user_files.tags_file(query.members.tag_key) if address.get("saved") else None}
    values["fault"] = address.say(*query.board.passages.fault)
    return ws.pages.page(name, address, title=title, query=query, board=query.board, study=query.study, **values)


def _query(ws: Workspace, address: Address) -> ItemQuery:
    members = ws.boards.members(address.get("set"))
    board = ws.boards.board(members)
    study, sides = ws.pair([address.get("a"), address.get("b")], board, wait=False)
    state = {name: address.get(name) for name in ("task", "source", "distance", "tag")}
    which, text, label = (address.get(name) for name in ("which", "q", "label"))
    text = text[:_MAX_SEARCH]
    tags = ws.user_files.item_tags(members.tag_key) if label else {}
    labelled = tuple(sorted(item for item, names in tags.items() if label in names)) if label else None
    keys = [side.key for side in sides]
    key = ("items", board.mark, board.state, *keys, bool(study), which, *state.values(), text, label, labelled)
    rows, counts = ws.boards.cached(key, partial(_matching, board, sides, which, state, text, labelled))
    return ItemQuery(members, board, study, sides, which, state, label, rows, counts)


def _card(query: ItemQuery, row: int, sides: Sequence[Shown], say: Say, *, whole: bool = False) -> Card:
    board = query.board
    facts = {name: values[row] for name, values in board.group.items.facts.items()}
    item = board.passages.items.get(board.ids[row])
    number = int(board.passages.numbers[row])
    pieces: list[list[str]] = []
    if item is not None and number >= 0:
        marked = _marked(board.passages.texts[number], item)
        pieces = marked if whole else _cropped(marked)
    distance = f"{say('거리', 'distance')} {int(facts['distance']):,}" if facts["distance"] >= 0 else ""
    return Card(
        board.ids[row], board.answers[row],
        tuple(str(fact) for fact in (facts["task"], facts["source"], facts["tag"], distance) if fact),
        tuple((kind, text) for kind, text in pieces), tuple(_line(board, side, row, say) for side in sides),
    )  # fmt: skip


def _rows(ws: Workspace, query: ItemQuery) -> Iterator[dict[str, Any]]:
    """Yield the matching items as rows of a file: facts, answers, ranks and tags; a method's seeds one after the other."""
    board, tags = query.board, ws.user_files.item_tags(query.members.tag_key)
    facts = board.group.items.facts
    for number in query.rows.tolist():
        row: dict[str, Any] = {"item": board.ids[number], "answer": board.answers[number]}
        row |= {name: facts[name][number].item() for name in ("task", "source", "tag", "distance")}
        for letter, side in zip("ab", query.sides, strict=True):
            row[f"{letter} model"] = side.name
            ranks = [int(entry.ranks[number]) for entry in side.entries]
            row[f"{letter} right"] = {1: "right", 0: "wrong"}.get(int(right_items(side.entries, number)), "")
            row[f"{letter} rank"] = ranks[0] if len(ranks) == 1 else " ".join(map(str, ranks))
            row[f"{letter} answers"] = " ".join(_answers(board, side, number))
        yield {**row, "tags": ", ".join(tags.get(board.ids[number], ()))}


def _matching(
    board: Board, sides: Sequence[Shown], which: str, state: Mapping[str, str], text: str, ids: Sequence[str] | None
) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Return the rows that match, and how many do by who is right."""
    columns, matches = _columns(board), np.ones(len(board.ids), np.bool_)
    for name, value in state.items():
        if value:
            matches &= columns[name] == value
    if ids is not None:
        index = board.group.items.index
        labelled = np.zeros(len(board.ids), np.bool_)
        labelled[[index[item] for item in ids if item in index]] = True
        matches &= labelled
    if text:
        matches &= board.passages.containing(text) | np.array([text in answer for answer in board.answers])
    a, b = (right_items(side.entries) for side in sides)
    filters = {name: matches & mask for name, mask in by_who_is_right(a, b).items()} | {"": matches}
    counts = {name: int(mask.sum()) for name, mask in filters.items()}
    return np.flatnonzero(filters.get(which, matches)).astype(np.int32), counts


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
    """Return the first words of a model; of a method, the first word of each seed."""
    top = [board.top[board.key(entry)][row].tolist() for entry in side.entries]
    numbers = top[0] if len(top) == 1 else [words[0] for words in top]
    return [board.vocabulary[number] for number in numbers if number >= 0]


def _line(board: Board, side: Shown, row: int, say: Say) -> Line:
    ui, entries = words(say), side.entries
    ranks = [int(entry.ranks[row]) for entry in entries]
    listed = " / ".join(f"{rank:,}" if rank else "–" for rank in ranks)
    rank = f"{ui['rank']} {listed}" if any(ranks) else ui["not_counted"]
    if len(entries) > 1:
        right = ranks.count(1)
        rank += say(f" · 시드 {len(entries)}개 중 {right}개 맞음", f" · {right} of {len(entries)} seeds right")
    return Line(side.name, int(right_items(entries, row)), tuple(_answers(board, side, row)), rank, side.color)


def _cropped(pieces: list[list[str]]) -> list[list[str]]:
    """Cut the text to the surroundings of gap and antecedent."""
    cropped: list[list[str]] = []
    context = [0, *(_CONTEXT.get(kind, 0) for kind, _ in pieces), 0]
    for before, (kind, text), after in zip(context, pieces, context[2:], strict=False):
        if kind != "text" or len(text) <= before + after:
            cropped.append([kind, text])
        else:
            cropped += [["text", text[:before]], ["cut", " … "], ["text", text[len(text) - after :]]]
    return [piece for piece in cropped if piece[1]]
