"""The first page: methods and tasks. In: an address. Out: the answer in a sentence, and a table of verdicts.

A cell is a mean and what the answer claims of the method against its base, or against a chosen method. Means are shown at once;
verdicts follow when the study is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

from coref_automl.base.errors import CorefError
from coref_automl.base.records import grouped
from coref_automl.base.say import Say
from coref_automl.comparison.claims import BASE, Claim
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Side, Study
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.extras.studio.board import Board, Members
from coref_automl.extras.studio.folders import in_words
from coref_automl.extras.studio.pages import AS, Address, Download
from coref_automl.extras.studio.workspace import METHOD, Pending, Workspace
from coref_automl.report import answer_wording, wording
from coref_automl.report.page import Bar, Section, Table, bars_of, is_same, points, row, tokens

DEFAULT_METRICS = (PRIMARY, *TASKS.values())
"""Shown while the study is being computed."""
_MAX_ROWS = 200
_FACTS = ("name", "seeds", "length", "tokens", "date")


@dataclass(frozen=True, slots=True)
class BoardScore:
    """One cell: a mean in percent, a claim, and the bar of its difference on the column's scale."""

    value: float | None
    claim: Claim | None = None
    bar: Bar | None = None

    @property
    def change(self) -> str:
        return points(self.claim.difference) if self.claim is not None and not is_same(self.claim.difference) else ""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A method, the base, or (`of` a method) one run. `runs` are keys of runs; `key` and `compared` are A and B of Compare."""

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
    say, contents, title = address.say, ws.folders.contents(), address.say("순위표", "Leaderboard")
    if not ws.boards.sets() and not address.get("set"):
        return ws.pages.page("empty.html.j2", address, title=title, contents=contents, roots=ws.folders.roots)
    members = ws.boards.members(address.get("set"))
    metric, wanted = address.get("metric"), [name for name in address.get("cols").split(",") if name]
    board, study, waiting, fault = None, None, False, ""
    rows, columns = list[BoardRow](), dict[str, str]()
    try:
        board = ws.boards.board(members)
        study = ws.study(board, metric)
        if study is not None:
            settings = (metric, tuple(wanted), address.get("ref"))
            key = ("rows", board.mark, board.state, *settings, say.lang, *ws.boards.check_results(board.mark).items())
            compute = partial(partial(_judged_rows, ws), board, study, wanted, address.get("ref"), say)
            rows, columns = ws.boards.cached(key, compute)
    except Pending:  # of the study, or of that of a column's metric
        waiting = True
    except (CorefError, OSError) as error:  # files that have gone or lie: the summaries are shown, and why there is no more
        fault = in_words(error)
    if waiting and address.get(AS):
        raise Pending  # a file is complete
    rows, columns = (rows, columns) if rows else _summary_rows(ws, members, wanted or [metric, *DEFAULT_METRICS])
    rows = _tagged(ws, rows)
    matching = _sorted(_filtered(rows, address), address.get("sort"), columns)
    metrics = {name: METRICS[name].label for name in board.metrics} if board is not None else {}
    return ws.pages.page(
        "leaderboard.html.j2", address, title=title,
        sections=[Section("leaderboard", "", (_table(matching if address.get(AS) else (), columns, say),))], waiting=waiting,
        fault=fault, members=members, sets=ws.boards.sets(),
        answer=answer_wording.answer_lines(study.answer, say) if study is not None else [],
        warned=answer_wording.warnings(study.answer, say) if study is not None else [],
        chosen=study.answer.method if study is not None else None, broken=contents.broken, rows=matching[:_MAX_ROWS],
        more=len(matching) - _MAX_ROWS, every=[row for row in rows if not row.of],
        tags=sorted({tag for row in rows for tag in row.tags}), columns=columns, all_columns={**columns, **metrics},
        metrics=metrics, meanings={key: meaning(key, say) for key in columns if key in METRICS}, wanted=wanted, tokens=tokens,
        words=wording,
    )  # fmt: skip


def meaning(name: str, say: Say) -> str:
    """Explain a metric; shown as the tooltip of its name."""
    metric = METRICS[name]
    if metric.parts:
        return " + ".join(f"{weight:g} {METRICS[part].label}" for part, weight in metric.parts)
    share = f"share of {metric.task} items with the answer among the first {metric.at}"
    return say(f"{metric.task} 문항 중 상위 {metric.at}개 안에 정답이 있는 비율", share)


def _judged_rows(ws: Workspace, board: Board, study: Study, wanted: Sequence[str], reference: str, say: Say) -> Rows:
    """Make the rows of a study, with the claims of its answer and, for `wanted` metrics without any, of other studies."""
    sides = [Side(arm.name, tuple(arm.ends), arm) for arm in study.arms]
    sides += [Side(entry.name, (entry,)) for entry in study.entries if not entry.trained]
    against = next((side for side in sides if side.arm is not None and side.name == reference), None)
    bases = [study.own_base(side.entries[0]) if side.arm is not None else None for side in sides]
    claims = [_claims(ws, board, study, *pair, against, wanted) for pair in zip(sides, bases, strict=True)]
    answered = [claim for claim in study.answer.claims if not claim.part and claim.question != "sources"]
    outcomes = {_column(claim): wording.ClaimText(claim, say).outcome() for claim in (*answered, *chain(*claims))}
    usual = {key: label for key, label in outcomes.items() if ":" not in key} or {study.metric: METRICS[study.metric].label}
    labels = {**{name: METRICS[name].label for name in wanted if name in METRICS}, **outcomes}
    columns = {key: labels[key] for key in wanted if key in labels} or usual
    claimed: dict[tuple[str, str], float] = {}  # one value for a method, whatever it is compared with
    for claim in answered:
        for name, share in zip((claim.a, claim.b), claim.values or (), strict=False):
            claimed.setdefault((name, _column(claim)), 100 * share)
    rows: list[BoardRow] = []
    for side, base, side_claims in zip(sides, bases, claims, strict=True):
        arm, ends = side.arm, side.entries
        several = arm is not None and arm.seeds > 1  # one seed stands for its checkpoint alone
        scores = {}
        for key in columns:
            value = claimed.get((side.name, key)) if arm is not None else None
            value = value if value is not None else _mean([_value(entry, key, study) for entry in ends])
            scores[key] = BoardScore(value, next((claim for claim in side_claims if _column(claim) == key), None))
        compared = METHOD + against.name if against is not None else board.key(base) if base is not None else ""
        key = METHOD + side.name if several else board.key(ends[0])
        head = _row(ws, side.name, ends, scores, key=key, compared="" if side is against else compared)
        rows.append(replace(head, tokens=arm.tokens) if arm is not None else head)
        for entry in ends if several else ():
            values = {key: BoardScore(_value(entry, key, study)) for key in columns}
            rows.append(_row(ws, entry.name, [entry], values, key=board.key(entry), of=side.name))
    return _with_bars(rows, columns), columns


def _with_bars(rows: list[BoardRow], columns: Iterable[str]) -> list[BoardRow]:
    """Add bars of the differences, on one scale per column."""
    for key in columns:
        scores = [row.scores[key] for row in rows]
        bars = bars_of([score.claim.difference if score.claim is not None and score.change else None for score in scores])
        rows = [
            replace(row, scores={**row.scores, key: replace(row.scores[key], bar=bar)})
            for row, bar in zip(rows, bars, strict=True)
        ]
    return rows


def _claims(
    ws: Workspace, board: Board, study: Study, side: Side, base: Entry | None, against: Side | None, wanted: Sequence[str]
) -> list[Claim]:
    """Return the claims about a row: against its base, or against the chosen method."""
    if against is not None:
        return ws.claims(board, study, side, against, wanted) if side is not against else []
    if side.arm is None:
        return []
    if base is not None:
        claims = ws.claims(board, study, side, Side(BASE, (base,)), wanted)
    else:  # a base that was not evaluated here may have been fine-tuned
        claims = study.answer.between(side.name, None)
    of_checkpoint = study.answer.between(side.entries[0].name, None) if side.arm.seeds == 1 else []
    return [*of_checkpoint, *claims]


def _summary_rows(ws: Workspace, members: Members, wanted: Sequence[str]) -> Rows:
    """Rows before anything is computed: means from the evaluations' own summaries."""
    entries = members.entries
    estimated = {name for entry in entries for name in entry.evaluation.estimates}
    columns = {name: METRICS[name].label for name in wanted if name in estimated and name in METRICS}
    sides = [("", arm.name, arm.ends) for arm in members.arms]
    sides += [(name, entry.name, [entry]) for _, name, ends in sides if len(ends) > 1 for entry in ends]
    sides += [("", entry.name, [entry]) for entry in entries if not entry.trained]
    return [
        _row(ws, name, ends, {key: BoardScore(_mean([_value(entry, key) for entry in ends])) for key in columns}, of=of)
        for of, name, ends in sides
    ], columns


def _row(ws: Workspace, name: str, ends: Sequence[Entry], scores: Mapping[str, BoardScore], **more: Any) -> BoardRow:
    owners = ws.folders.contents().owners
    keys = tuple(dict.fromkeys(owners.get(entry.folder, "") for entry in ends if entry.trained))
    date, trained_on = max(entry.evaluation.evaluated_at for entry in ends)[:10], ends[0].recorded_tokens
    length, color = ends[0].evaluation.seq_len, ws.boards.color(ends[0].run)
    return BoardRow(name, len(ends), length, trained_on, date, scores, keys, color, **more)


def _tagged(ws: Workspace, rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Add the tags that all runs of a row share."""
    runs = [[ws.folders.run(key) for key in row.runs] for row in rows]
    tags = [[set(ws.user_files.note(run).tags) if run is not None else set[str]() for run in of_row] for of_row in runs]
    return [
        replace(row, tags=tuple(sorted(set.intersection(*of_runs)))) if of_runs else row
        for row, of_runs in zip(rows, tags, strict=True)
    ]


def _column(claim: Claim) -> str:
    """Return the key of a claim's column; relation extraction has one per number of training rows."""
    return claim.outcome if claim.rows is None else f"{claim.outcome}.{claim.rows}"


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _value(entry: Entry, column: str, study: Study | None = None) -> float | None:
    """The score of one model in percent: of its own evaluation, or of what was fine-tuned from it."""
    if column in entry.evaluation.estimates:
        return 100 * entry.evaluation.estimates[column].value
    if study is None:
        return None
    outcome, _, rows = column.partition(".")
    name, check = next(((name, check) for name, check in CHECKS.items() if check.outcome == outcome), ("", None))
    runs = [run for run in study.checks.get(name, ()) if entry.is_of(run.model, run.weights)] if check else []
    estimates = [check.estimate(run.result) for run in runs if rows in ("", str(check.rows(run)))] if check else []
    return _mean([100 * estimate.value if estimate else None for estimate in estimates])


def _filtered(rows: Sequence[BoardRow], address: Address) -> list[BoardRow]:
    """Return the methods that match themselves or by a run; the runs of an unfolded method, and runs that match, follow it."""
    text, length, tag, since, opened = (address.get(name) for name in ("q", "length", "tag", "since", "open"))

    def matches(row: BoardRow) -> bool:
        return (
            text.lower() in f"{row.name} {' '.join(row.runs if row.of or row.seeds == 1 else ())}".lower()
            and (not length or str(row.length) == length)
            and (not tag or tag in row.tags)
            and (not since or row.date >= since)
        )

    methods = {row.name for row in rows if not row.of and matches(row)}
    by_run = {row.of for row in rows if row.of and matches(row)} - methods
    return [
        row
        for row in rows
        if (not row.of and row.name in methods | by_run)
        or (row.of in methods | by_run and opened in (row.of, "all"))
        or (row.of in by_run and matches(row))
    ]


def _sorted(rows: Sequence[BoardRow], by: str, columns: Mapping[str, str]) -> list[BoardRow]:
    """Sort methods by a column (with a minus, ascending), by default the first task. Runs stay under their method."""
    name = by.removeprefix("-")
    name = name if name in columns or name in _FACTS else next(iter(columns), "name")
    heads = sorted((row for row in rows if not row.of), key=lambda row: row.name)
    values: dict[str, Any] = {row.name: row.scores[name].value if name in columns else getattr(row, name) for row in heads}
    known = [row for row in heads if values[row.name] is not None]
    known.sort(key=lambda row: values[row.name], reverse=(name != "name") != by.startswith("-"))
    runs = grouped(rows, attrgetter("of"))
    ordered = [*known, *(row for row in heads if values[row.name] is None)]
    return [line for head in ordered for line in (head, *runs.get(head.name, ()))]


def _table(rows: Sequence[BoardRow], columns: Mapping[str, str], say: Say) -> Table:
    """The leaderboard as data: means, differences with their intervals, verdicts."""
    head = [say("방법", "method"), say("실행", "run"), say("시드", "seeds"), say("길이", "length"), say("토큰", "tokens")]
    for label in columns.values():
        head += [f"{label} %", f"{label} {say('차이 (점)', 'difference (points)')}", f"{label} {say('판정', 'verdict')}"]
    lines = []
    for method in rows:
        run = method.name if method.of else ""
        cells = [method.of or method.name, run, str(method.seeds), str(method.length), str(method.tokens or "–")]
        for score in method.scores.values():
            cells += [f"{score.value:.2f}" if score.value is not None else "–", score.change or "–"]
            cells.append(wording.ClaimText(score.claim, say).verdict() if score.claim is not None else "–")
        lines.append(row(*cells))
    return Table(tuple(head), tuple(lines))
