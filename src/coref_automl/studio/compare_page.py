"""The Compare page. In: an address that names A and B, checkpoints or methods. Out: the verdict, then the picture; and the report
of what is on the screen, as `coref-automl report` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coref_automl.comparison.study import Study
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.pair import Compared, Pair, compare_pair
from coref_automl.say import Lang, speaking
from coref_automl.studio.board import Board, Members
from coref_automl.studio.pages import Address, Download
from coref_automl.studio.shelf import not_here
from coref_automl.studio.workspace import Shown, Workspace


def page(ws: Workspace, address: Address) -> str | Download:
    say = address.say
    members = _members(ws, address)
    board = ws.shelf.board(members)
    study, (a, b) = ws.pair([address.get("a"), address.get("b")], board, wait=True)
    shown = _comparison(ws, address, board, study, a, b)
    return ws.pages.page(
        "compare.html.j2",
        address,
        title=say("비교", "Compare"),
        sections=shown.sections,
        members=members,
        sets=ws.shelf.sets(),
        board=board,
        study=study,
        a=a,
        b=b,
        metric=shown.metric,
        metrics=[(name, METRICS[name].label) for name in shown.metrics],
        shown=shown,
        asked=METRICS.get(shown.metric),
    )


def _members(ws: Workspace, address: Address) -> Members:
    """The set that the address names, or that of A and B; two of different sets are refused with the reason."""
    sets = ws.shelf.sets()
    of = {key: mark for mark, members in sets.items() for key in members.stored}
    found = [of[key] for name in ("a", "b") if (key := address.get(name)) in of]
    if len(set(found)) > 1:
        a, b = (f"{one.name} ({one.items[:8]}, {one.scorer})" for one in (sets[mark] for mark in found))
        told = (
            f"A와 B는 서로 다른 문항이나 채점기로 평가되어 비교할 수 없습니다. A: {a}, B: {b}. 두 모델을 같은 세트로 평가하세요: "
            "coref-automl evaluate",
            f"A and B were evaluated on different items or by different scorers, so they cannot be compared. A: {a}; B: {b}. "
            "Evaluate both on one set: coref-automl evaluate",
        )
        raise ComparisonError(address.say(*told))
    return ws.shelf.members(address.get("set") or (found[0] if found else ""))


def _comparison(ws: Workspace, address: Address, board: Board, study: Study | None, a: Shown, b: Shown) -> Compared:
    """Computed once a pair, metric and language."""
    say, wanted = address.say, address.get("metric")
    claimed = ws.claims(board, study, a, b, [wanted] if a.arm or b.arm else []) if study is not None else []
    wanted = wanted or (study.metric if study is not None and claimed else "")
    key = ("compare", board.mark, board.state, a.key, b.key, wanted, bool(study), say.lang)
    pair = Pair(board.group, study, a, b, say)
    return ws.shelf.made(key, lambda: compare_pair(pair, wanted, claimed, colors=(a.color, b.color)))


def report(ws: Workspace, address: Address) -> Download:
    """The report of A and B where the address names them, else of the whole set; it may take a minute."""
    shelf = ws.shelf
    chosen = shelf.members(address.get("set"))
    keys = list(dict.fromkeys(key for name in ("a", "b") if (key := address.get(name)) in chosen.stored))
    if not keys and (address.get("a") or address.get("b")):
        raise not_here(address.get("a") or address.get("b"))
    if keys:
        stored = {key: chosen.stored[key] for key in keys}
        sets = [Members(chosen.mark, chosen.items, chosen.scorer, stored)]
        paths = [str(one.folder) for one in stored.values()]
    else:
        sets = [chosen, *(one for one in shelf.sets().values() if one.study is None and one.items != chosen.items)]
        paths = [str(ws.folders.place(chosen.study))] if chosen.study else [str(root) for root in ws.folders.roots.values()]
    metric = address.get("metric") or None
    states = (*(one.state for one in sets), *shelf.results().items())
    asked = ("export", chosen.mark, chosen.state, tuple(keys), states, metric, address.lang)
    return Download(
        "report.html", "text/html; charset=utf-8", shelf.apart(asked, partial(_write, paths, sets, metric, address.lang))
    )


def _write(paths: Sequence[str], sets: Sequence[Members], metric: str | None, lang: Lang) -> str:
    from coref_automl.comparison.bases import rename_bases
    from coref_automl.comparison.groups import group_of
    from coref_automl.comparison.reader import open_results
    from coref_automl.report.checkpoint_report import checkpoint_page
    from coref_automl.report.rendering import render_html
    from coref_automl.report.sections import read_subject

    with speaking(lang) as say:
        groups = [group_of(rename_bases(list(one.stored.values())), one.items, one.scorer) for one in sets]
        return render_html(checkpoint_page(read_subject(open_results(paths), say, metric=metric, groups=groups)))
