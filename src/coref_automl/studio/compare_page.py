"""The Compare page. In: an address that names A and B, checkpoints or methods. Out: the verdict, then the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from coref_automl.comparison.arms import Arm, base_of, last
from coref_automl.comparison.choice import MARGIN
from coref_automl.comparison.coreference_runs import look_for_coreference
from coref_automl.comparison.relation_runs import look_for_relation
from coref_automl.comparison.scores import Group
from coref_automl.comparison.study import Study, study_of
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.wording import answer_lines
from coref_automl.studio.pages import COLORS, Address, Pages
from coref_automl.studio.pair import Shown, Side, compare
from coref_automl.studio.shelf import Board, Members, Pending, Shelf

METHOD = "method:"


class ComparePage:
    def __init__(self, shelf: Shelf, pages: Pages) -> None:
        self._shelf, self._pages = shelf, pages

    def page(self, address: Address) -> str:
        say = address.say
        members = self._members(address)
        board = self._shelf.board(members)
        study, waiting = self._study(board, address.get("metric"))
        methods = {METHOD + arm.name: arm for arm in study.arms} if study else {}
        asked = [address.get(name) for name in ("a", "b")]
        if waiting and (not any(asked) or any(one.startswith(METHOD) for one in asked)):
            raise Pending
        first = [] if any(asked) or study is None else answer_lines(study.answer, say)
        if first and study is not None:
            asked = self._first(board, study, methods) or asked
        a, b = (self._side(one, board, methods, number) for number, one in enumerate(asked))
        if a.color == b.color:
            b = replace(b, color=COLORS[(COLORS.index(a.color) + 1) % len(COLORS)])
        wanted = study.metric if first and study is not None else address.get("metric")
        shown = self._comparison(address, board, study, a, b, wanted)
        return self._pages.page(
            "compare.html.j2",
            address,
            title=say("비교", "Compare"),
            sections=shown.sections,
            members=members,
            sets=self._shelf.sets(),
            board=board,
            methods=methods,
            waiting=waiting,
            a=a,
            b=b,
            metric=shown.metric,
            metrics=[(name, METRICS[name].label) for name in shown.metrics],
            shown=shown,
            answer=first,
            asked=METRICS.get(shown.metric),
        )

    def _first(self, board: Board, study: Study, methods: Mapping[str, Arm]) -> list[str] | None:
        """What the answer is about: the method, or the checkpoint that came out highest, and its base."""
        keys = {id(entry): key for key, entry in board.entries.items()}
        arm = methods.get(METHOD + (study.answer.method or ""))
        base = base_of(study, arm) if arm else study.own_base(study.chosen)
        if base is None or id(base) not in keys:
            return None
        return [METHOD + arm.name if arm else keys[id(study.chosen)], keys[id(base)]]

    def _members(self, address: Address) -> Members:
        """The set that the address names, or that of A and B; two of different sets are refused with the reason."""
        sets = self._shelf.sets()
        of = {key: mark for mark, members in sets.items() for key in members.stored}
        found = [of[key] for name in ("a", "b") if (key := address.get(name)) in of]
        if len(set(found)) > 1:
            one, other = (sets[mark] for mark in found)
            raise ComparisonError(address.say(*_different_sets(one, other)))
        return self._shelf.members(address.get("set") or (found[0] if found else ""))

    def _study(self, board: Board, metric: str) -> tuple[Study | None, bool]:
        """Methods need a study, which takes seconds with many checkpoints; None and whether it is still being made."""
        chosen = metric if metric in board.metrics else None
        try:
            results = self._shelf.results()
            make = partial(_study_with, board.group, chosen, [str(folder) for folder in results])
            key = ("study", board.mark, board.state, chosen, tuple(results.items()))
            return self._shelf.made(key, make, worker=self._shelf.slow), False
        except Pending:
            return None, True
        except ComparisonError:  # nothing that all of them ran
            return None, False

    def _side(self, asked: str, board: Board, methods: Mapping[str, Arm], number: int) -> Side:
        if (arm := methods.get(asked)) is not None:
            ends = tuple(last(entries) for entries in arm.runs.values())
            return Side(asked, arm.name, ends, board.colors[ends[0].run], arm)
        entry = board.entries[key := self._shelf.key(asked, board, number)]
        return Side(key, entry.name, (entry,), board.colors[entry.run])

    def _comparison(self, address: Address, board: Board, study: Study | None, a: Side, b: Side, wanted: str) -> Shown:
        """Computed once a pair, metric and language."""
        say = address.say
        key = ("compare", board.mark, board.state, a.key, b.key, wanted, say.lang)
        return self._shelf.made(key, lambda: compare(board, study, a, b, wanted, say))


def _study_with(group: Group, metric: str | None, results: Sequence[str]) -> Study:
    """The study of a board with the relation and coreference runs beside it."""
    relation, coreference = look_for_relation(results)[0], look_for_coreference(results)[0]
    return study_of(group, metric=metric, margin=MARGIN, seed=0, relation=relation, coreference=coreference)


def _different_sets(one: Members, other: Members) -> tuple[str, str]:
    names = [next(iter(members.stored.values())).evaluation.evalset for members in (one, other)]
    marks = [f"{members.items[:8]}, {members.scorer}" for members in (one, other)]
    return (
        f"A와 B는 서로 다른 문항으로 평가되어 비교할 수 없습니다. A: {names[0]} (문항, 채점기 {marks[0]}), "
        f"B: {names[1]} (문항, 채점기 {marks[1]}). 두 모델을 같은 세트로 평가하세요: coref-automl evaluate",
        f"A and B were evaluated on different items, so they cannot be compared. A: {names[0]} (items, scorer {marks[0]}); "
        f"B: {names[1]} (items, scorer {marks[1]}). Evaluate both on one set: coref-automl evaluate",
    )
