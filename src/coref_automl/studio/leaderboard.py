"""The first page: methods and tasks. In: an address. Out: the answer in a sentence, and a table of verdicts.

A cell is a mean and what the answer claims of the method against its base, or against a chosen method. Means are there at once;
verdicts follow when the study is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from coref_automl.comparison.arms import base_of
from coref_automl.comparison.claims import BASE, Claim
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Side, Study
from coref_automl.errors import CorefError
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.report import answer_wording, wording
from coref_automl.report.page import Bar, Section, Table, bars_of, is_same, points, row, tokens
from coref_automl.say import Say
from coref_automl.studio.board import Board, Members
from coref_automl.studio.folders import in_words
from coref_automl.studio.pages import AS, Address, Download
from coref_automl.studio.shelf import Pending
from coref_automl.studio.workspace import METHOD, Workspace

FIRST = (PRIMARY, "real_far1_strict", "lambada_top1_strict")
"""What is shown while the study is made."""
_ROWS = 200
_FACTS = ("name", "seeds", "length", "tokens", "date")


@dataclass(frozen=True, slots=True)
class BoardScore:
    """One cell: a mean in percent, the claim beside it, and its bar on the column's scale."""

    value: float | None
    claim: Claim | None = None
    bar: Bar | None = None

    @property
    def change(self) -> str:
        return points(self.claim.difference) if self.claim is not None and not is_same(self.claim.difference) else ""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A method, the base, or (`of` a method) one of its runs. `runs` are the keys of runs; `compared` is that of what it is set
    against."""

    name: str
    seeds: int
    length: int
    tokens: int | None
    date: str
    scores: Mapping[str, BoardScore]
    runs: tuple[str, ...]
    color: str
    key: str = ""
    of: str = ""
    compared: str = ""
    tags: tuple[str, ...] = ()


Rows = tuple[list[BoardRow], dict[str, str]]
"""Rows, and the labels of their columns."""


def page(ws: Workspace, address: Address) -> str | Download:
    say, found, title = address.say, ws.folders.now(), address.say("순위표", "Leaderboard")
    if not ws.shelf.sets() and not address.get("set"):
        return ws.pages.page("empty.html.j2", address, title=title, found=found, roots=ws.folders.roots)
    members = ws.shelf.members(address.get("set"))
    metric, wanted = address.get("metric"), [name for name in address.get("cols").split(",") if name]
    board, study, waiting, fault = None, None, False, ""
    rows, columns = list[BoardRow](), dict[str, str]()
    try:
        board = ws.shelf.board(members)
        study = ws.study(board, metric)
        if study is not None:
            asked = (metric, tuple(wanted), address.get("ref"))
            key = ("rows", board.mark, board.state, *asked, say.lang, *ws.shelf.results(board.mark).items())
            rows, columns = ws.shelf.made(key, partial(partial(_judged, ws), board, study, wanted, address.get("ref"), say))
    except Pending:  # of the study, or of that of a column's metric
        waiting = True
    except (CorefError, OSError) as error:  # files that have gone or lie: what the summaries say is shown, and why no more
        fault = in_words(error)
    if waiting and address.get(AS):
        raise Pending  # a file has all of it
    rows, columns = (rows, columns) if rows else _plain(ws, members, wanted or [metric, *FIRST])
    rows = _tagged(ws, rows)
    shown = _sorted(_filtered(rows, address), address.get("sort"), columns)
    metrics = {name: METRICS[name].label for name in board.metrics} if board is not None else {}
    return ws.pages.page(
        "leaderboard.html.j2",
        address,
        title=title,
        sections=[Section("leaderboard", "", (_table(shown if address.get(AS) else (), columns, say),))],
        waiting=waiting,
        fault=fault,
        members=members,
        sets=ws.shelf.sets(),
        answer=answer_wording.answer_lines(study.answer, say) if study is not None else [],
        warned=answer_wording.warnings(study.answer, say) if study is not None else [],
        chosen=study.answer.method if study is not None else None,
        broken=found.broken,
        rows=shown[:_ROWS],
        more=len(shown) - _ROWS,
        every=[one for one in rows if not one.of],
        tags=sorted({tag for one in rows for tag in one.tags}),
        columns=columns,
        all_columns={**columns, **metrics},
        metrics=metrics,
        meanings={key: meaning(key, say) for key in columns if key in METRICS},
        wanted=wanted,
        tokens=tokens,
        words=wording,
    )


def meaning(metric: str, say: Say) -> str:
    """What a metric measures, for those who point at its name."""
    of = METRICS[metric]
    if of.parts:
        return " + ".join(f"{weight:g} {METRICS[name].label}" for name, weight in of.parts)
    rule = {
        "strict": say("정답과 같음", "equal to the answer"),
        "lenient": say("같거나 한쪽이 다른 쪽을 포함", "equal, or one contains the other"),
        "word": say("후보 단어 가운데", "among candidate words"),
    }[of.rule]
    share = f"share of {of.task} items with a right answer in the first {of.at} ({rule})"
    return say(f"{of.task} 문항 중 상위 {of.at}개 안에 정답이 있는 비율 ({rule})", share)


def _judged(ws: Workspace, board: Board, study: Study, wanted: Sequence[str], reference: str, say: Say) -> Rows:
    """Rows of a made study: what its answer claims. `wanted` metrics that it does not speak of are asked of their own."""
    sides = [Side(arm.name, tuple(arm.ends), arm) for arm in study.arms]
    sides += [Side(entry.name, (entry,)) for entry in study.entries if not entry.trained]
    against = next((side for side in sides if side.arm is not None and side.name == reference), None)
    bases = [base_of(study.group.entries, side.arm) if side.arm is not None else None for side in sides]
    claims = [_claims(ws, board, study, *pair, against, wanted) for pair in zip(sides, bases, strict=True)]
    told = [one for one in study.answer.claims if not one.part and one.question != "sources"]
    every = {_column(one): wording.ClaimText(one, say).outcome() for one in (*told, *chain(*claims))}
    usual = {key: label for key, label in every.items() if ":" not in key} or {study.metric: METRICS[study.metric].label}
    labels = {**{name: METRICS[name].label for name in wanted if name in METRICS}, **every}
    columns = {key: labels[key] for key in wanted if key in labels} or usual
    known: dict[tuple[str, str], float] = {}  # one value for a method, whatever it is set against
    for one in told:
        for name, share in zip((one.a, one.b), one.values or (), strict=False):
            known.setdefault((name, _column(one)), 100 * share)
    rows: list[BoardRow] = []
    for side, base, found in zip(sides, bases, claims, strict=True):
        arm, lasts = side.arm, side.entries
        several = arm is not None and arm.seeds > 1  # one seed speaks for its checkpoint alone
        scores = {}
        for key in columns:
            value = known.get((side.name, key)) if arm is not None else None
            value = value if value is not None else _mean([_value(one, key, study) for one in lasts])
            scores[key] = BoardScore(value, next((one for one in found if _column(one) == key), None))
        compared = METHOD + against.name if against is not None else board.key(base) if base is not None else ""
        key = METHOD + side.name if several else board.key(lasts[0])
        head = _row(ws, side.name, lasts, scores, key=key, compared="" if side is against else compared)
        rows.append(replace(head, tokens=arm.tokens) if arm is not None else head)
        for entry in lasts if several else ():
            held = {key: BoardScore(_value(entry, key, study)) for key in columns}
            rows.append(_row(ws, entry.name, [entry], held, key=board.key(entry), of=side.name))
    return _with_bars(rows, columns), columns


def _with_bars(rows: list[BoardRow], columns: Iterable[str]) -> list[BoardRow]:
    """Differences drawn on one scale for each column."""
    for key in columns:
        drawn = [row.scores[key] for row in rows]
        bars = bars_of([score.claim.difference if score.claim is not None and score.change else None for score in drawn])
        rows = [
            replace(row, scores={**row.scores, key: replace(row.scores[key], bar=bar)})
            for row, bar in zip(rows, bars, strict=True)
        ]
    return rows


def _claims(
    ws: Workspace, board: Board, study: Study, side: Side, base: Entry | None, against: Side | None, wanted: Sequence[str]
) -> list[Claim]:
    """What is claimed of a row: against its base, or against the chosen method."""
    if against is not None:
        return ws.claims(board, study, side, against, wanted) if side is not against else []
    if side.arm is None:
        return []
    if base is not None:
        found = ws.claims(board, study, side, Side(BASE, (base,)), wanted)
    else:  # a base that was not evaluated here may have been fine-tuned
        found = study.answer.between(side.name, None)
    alone = study.answer.between(side.entries[0].name, None) if side.arm.seeds == 1 else []
    return [*alone, *found]


def _plain(ws: Workspace, members: Members, wanted: Sequence[str]) -> Rows:
    """Rows before anything is computed: the means that the evaluations' own summaries give."""
    entries = members.entries
    had = {name for one in entries for name in one.evaluation.estimates}
    columns = {name: METRICS[name].label for name in wanted if name in had and name in METRICS}
    sides = [("", arm.name, arm.ends) for arm in members.arms]
    sides += [(name, one.name, [one]) for _, name, held in sides if len(held) > 1 for one in held]
    sides += [("", one.name, [one]) for one in entries if not one.trained]
    return [
        _row(ws, name, held, {key: BoardScore(_mean([_value(one, key) for one in held])) for key in columns}, of=of)
        for of, name, held in sides
    ], columns


def _row(ws: Workspace, name: str, lasts: Sequence[Entry], scores: Mapping[str, BoardScore], **more: Any) -> BoardRow:
    owners = ws.folders.now().owners
    keys = tuple(dict.fromkeys(owners.get(one.folder, "") for one in lasts if one.trained))
    date, seen = max(one.evaluation.evaluated_at for one in lasts)[:10], lasts[0].recorded_tokens
    length, color = lasts[0].evaluation.seq_len, ws.shelf.color(lasts[0].run)
    return BoardRow(name, len(lasts), length, seen, date, scores, keys, color, **more)


def _tagged(ws: Workspace, rows: Sequence[BoardRow]) -> list[BoardRow]:
    """With the tags that all runs of a row have."""
    notes = ws.kept.notes([run for one in rows for key in one.runs if (run := ws.folders.run(key)) is not None])
    if not notes:
        return list(rows)
    each = [[set(notes[key].tags) if key in notes else set[str]() for key in one.runs] for one in rows]
    return [
        replace(one, tags=tuple(sorted(set.intersection(*held)))) if held else one for one, held in zip(rows, each, strict=True)
    ]


def _column(claim: Claim) -> str:
    """Rows of relation extraction tell its columns apart."""
    return claim.outcome if claim.rows is None else f"{claim.outcome}.{claim.rows}"


def _mean(values: Sequence[float | None]) -> float | None:
    """None where one of them is missing."""
    held = [value for value in values if value is not None]
    return sum(held) / len(held) if held and len(held) == len(values) else None


def _value(entry: Entry, column: str, study: Study | None = None) -> float | None:
    """What one model scores, in percent: its own evaluation, or what was fine-tuned from it."""
    if column in entry.evaluation.estimates:
        return 100 * entry.evaluation.estimates[column].value
    if study is None:
        return None
    outcome, _, rows = column.partition(".")
    name, check = next(((name, check) for name, check in CHECKS.items() if check.outcome == outcome), ("", None))
    runs = [run for run in study.checks.get(name, ()) if entry.is_of(run.model, run.weights)] if check else []
    found = [check.estimate(run.result) for run in runs if rows in ("", str(check.rows(run)))] if check else []
    return _mean([100 * one.value if one else None for one in found])


def _filtered(rows: Sequence[BoardRow], address: Address) -> list[BoardRow]:
    """Methods that match by themselves or by a run, which then stands under its method, as all do where it is unfolded."""
    text, length, tag, since, opened = (address.get(name) for name in ("q", "length", "tag", "since", "open"))

    def matches(one: BoardRow) -> bool:
        return (
            text.lower() in f"{one.name} {' '.join(one.runs if one.of or one.seeds == 1 else ())}".lower()
            and (not length or str(one.length) == length)
            and (not tag or tag in one.tags)
            and (not since or one.date >= since)
        )

    own = {one.name for one in rows if not one.of and matches(one)}
    by_run = {one.of for one in rows if one.of and matches(one)} - own
    return [
        one
        for one in rows
        if (not one.of and one.name in own | by_run)
        or (one.of in own | by_run and opened in (one.of, "all"))
        or (one.of in by_run and matches(one))
    ]


def _sorted(rows: Sequence[BoardRow], by: str, columns: Mapping[str, str]) -> list[BoardRow]:
    """By a column, highest first, or lowest with a minus; runs stay under their method. Without one, by the first task."""
    name = by.removeprefix("-")
    name = name if name in columns or name in _FACTS else next(iter(columns), "name")
    heads = sorted((one for one in rows if not one.of), key=lambda one: one.name)
    values: dict[str, Any] = {one.name: one.scores[name].value if name in columns else getattr(one, name) for one in heads}
    known = [one for one in heads if values[one.name] is not None]
    known.sort(key=lambda one: values[one.name], reverse=(name != "name") != by.startswith("-"))
    runs: dict[str, list[BoardRow]] = {}
    for one in rows:
        runs.setdefault(one.of, []).append(one)
    ordered = [*known, *(one for one in heads if values[one.name] is None)]
    return [line for head in ordered for line in (head, *runs.get(head.name, ()))]


def _table(rows: Sequence[BoardRow], columns: Mapping[str, str], say: Say) -> Table:
    """The same as data: means, differences with their intervals, verdicts."""
    head = [say("방법", "method"), say("실행", "run"), say("시드", "seeds"), say("길이", "length"), say("토큰", "tokens")]
    for label in columns.values():
        head += [f"{label} %", f"{label} {say('차이 (점)', 'difference (points)')}", f"{label} {say('판정', 'verdict')}"]
    lines = []
    for one in rows:
        cells = [one.of or one.name, one.name if one.of else "", str(one.seeds), str(one.length), str(one.tokens or "–")]
        for score in one.scores.values():
            cells += [f"{score.value:.2f}" if score.value is not None else "–", score.change or "–"]
            cells.append(wording.ClaimText(score.claim, say).verdict() if score.claim is not None else "–")
        lines.append(row(*cells))
    return Table(tuple(head), tuple(lines))
