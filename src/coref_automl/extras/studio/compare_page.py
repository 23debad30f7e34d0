"""The Compare page. In: an address that names A and B, checkpoints or methods. Out: the verdict, its charts, and their report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coref_automl.base.errors import ComparisonError
from coref_automl.base.say import Lang, speaking
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.studio.board import Board, Members
from coref_automl.extras.studio.pages import Address, Download
from coref_automl.extras.studio.pair import Compared, Pair, compare_pair
from coref_automl.extras.studio.workspace import Shown, Workspace, not_here


def page(ws: Workspace, address: Address) -> str | Download:
    say = address.say
    members = _members(ws, address)
    board = ws.boards.board(members)
    study, (a, b) = ws.pair([address.get("a"), address.get("b")], board, wait=True)
    shown = _comparison(ws, address, board, study, a, b)
    return ws.pages.page(
        "compare.html.j2", address, title=say("비교", "Compare"), sections=shown.sections, members=members, sets=ws.boards.sets(),
        board=board, study=study, a=a, b=b, metric=shown.metric, metrics=[(name, METRICS[name].label) for name in shown.metrics],
        shown=shown, judged=METRICS.get(shown.metric),
    )  # fmt: skip


def _members(ws: Workspace, address: Address) -> Members:
    """Return the set that the address names, or that of A and B, which must be the same."""
    sets = ws.boards.sets()
    marks_by_key = {key: mark for mark, members in sets.items() for key in members.stored}
    marks = [marks_by_key[key] for name in ("a", "b") if (key := address.get(name)) in marks_by_key]
    if len(set(marks)) > 1:
        a, b = (f"{members.name} ({members.items[:8]}, {members.scorer})" for members in (sets[mark] for mark in marks))
        ko = (
            f"A와 B는 문항, 채점기 또는 토크나이저가 서로 달라 여기에서 비교할 수 없습니다. A: {a}, B: {b}. "
            "같은 세트로 평가한 뒤 coref-automl compare로 비교하세요."
        )
        en = (
            f"A and B differ in items, scorer or tokenizer, so they cannot be compared here. A: {a}; B: {b}. "
            "Evaluate both on one set, and compare two tokenizers by coref-automl compare."
        )
        raise ComparisonError(address.say(ko, en))
    return ws.boards.members(address.get("set") or (marks[0] if marks else ""))


def _comparison(ws: Workspace, address: Address, board: Board, study: Study | None, a: Shown, b: Shown) -> Compared:
    """Compare A with B, once per pair, metric and language."""
    say, metric = address.say, address.get("metric")
    claims = ws.claims(board, study, a, b, [metric] if a.arm or b.arm else []) if study is not None else []
    metric = metric or (study.metric if study is not None and claims else "")
    checks = tuple(ws.boards.check_results(board.mark).items())
    key = ("compare", board.mark, board.state, a.key, b.key, metric, bool(study), checks, say.lang)
    pair = Pair(board.group, study, a, b, say)
    return ws.boards.cached(key, lambda: compare_pair(pair, metric, claims, colors=(a.color, b.color)))


def report(ws: Workspace, address: Address) -> Download:
    """Write the report of A and B if the address names them, else of the whole set; it may take a minute."""
    members = ws.boards.members(address.get("set"))
    keys = list(dict.fromkeys(key for name in ("a", "b") if (key := address.get(name)) in members.stored))
    if not keys and (address.get("a") or address.get("b")):
        raise not_here(address.get("a") or address.get("b"))
    if keys:
        stored = {key: members.stored[key] for key in keys}
        sets = [Members(members.mark, members.items, members.scorer, stored)]
        paths = [str(evaluation.folder) for evaluation in stored.values()]
    else:
        others = (other for other in ws.boards.sets().values() if other.study is None and other.items != members.items)
        sets = [members, *others]
        paths = [str(ws.folders.path_of(members.study))] if members.study else [str(root) for root in ws.folders.roots.values()]
    metric = address.get("metric") or None
    states = (*(included.state for included in sets), *ws.boards.check_results().items())
    request = ("export", members.mark, members.state, tuple(keys), states, metric, address.lang)
    page = ws.boards.in_process(request, partial(_render, paths, sets, metric, address.lang))
    return Download("report.html", "text/html; charset=utf-8", page)


def _render(paths: Sequence[str], sets: Sequence[Members], metric: str | None, lang: Lang) -> str:
    from coref_automl.comparison.bases import rename_bases
    from coref_automl.comparison.groups import group_of
    from coref_automl.comparison.reader import open_results
    from coref_automl.extras.pages.checkpoint_report import checkpoint_page
    from coref_automl.extras.pages.rendering import render_html
    from coref_automl.extras.pages.sections import read_subject

    with speaking(lang) as say:
        groups = [group_of(rename_bases(list(members.stored.values())), members.items, members.scorer) for members in sets]
        return render_html(checkpoint_page(read_subject(open_results(paths), say, metric=metric, groups=groups)))
