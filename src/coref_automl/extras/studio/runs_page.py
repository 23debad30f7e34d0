"""The Runs page: training runs as they move, and every other run under the folders. In: folders. Out: a page that refreshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import EVENTS, is_done
from coref_automl.base.progress import duration
from coref_automl.base.say import Say, speaking
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.studio.folders import ARCHIVED, FolderContents, Run, in_words
from coref_automl.extras.studio.pages import Address, Download
from coref_automl.extras.studio.watch import RunStatus, RunWatch
from coref_automl.extras.studio.workspace import Workspace
from coref_automl.report.page import Cell, Section, Table, estimate_cells, percent, row

_SLOW = 120.0
"""Seconds without an event after which a page says when the last one was."""
_CARDS = 24
_WIDTH, _HEIGHT = 600, 90


class _Result(TypedDict, total=False):
    sentence: str
    trials: dict[str, int]
    steps: dict[str, int]
    finished: dict[str, int]


@dataclass(frozen=True, slots=True)
class RunCard:
    """A training run on the page. `loss` holds the points of an SVG line, `ends` its first and last value."""

    id: str
    key: str
    state: str
    status: RunStatus
    done: float = 0.0
    loss: str = ""
    ends: tuple[float, ...] = ()
    scores: tuple[tuple[str, Cell], ...] = ()
    metric: str = ""
    note: str = ""


def page(ws: Workspace, address: Address) -> str | Download:
    say, contents = address.say, ws.folders.contents()
    return ws.pages.page(
        "runs.html.j2", address, title=say("실행", "Runs"), sections=_tables(ws, contents, say),
        cards=[_card(ws, run, say) for run in _shown(contents)],
        runs=[run.key for run in contents.runs.values() if run.kind in ("training", ARCHIVED)], contents=contents,
        roots=[str(root) for root in ws.folders.roots.values()], duration=duration,
    )  # fmt: skip


def _shown(contents: FolderContents) -> list[Run]:
    """Return the training runs that have a card: the unfinished ones, then the newest of the others."""
    runs = [run for run in contents.runs.values() if run.kind == "training"]
    order = sorted(runs, key=lambda run: (is_done(run.folder), -_touched(run.folder)))
    chosen = {run.key for run in order[:_CARDS]}
    return [run for run in runs if run.key in chosen]


def _touched(folder: Path) -> float:
    try:
        return (folder / EVENTS).stat().st_mtime
    except OSError:
        return 0.0


def _card(ws: Workspace, run: Run, say: Say) -> RunCard:
    """Make the card of a run. One watch per run, so that only new events are read."""
    card_id = f"run-{fingerprint(run.key)[:12]}"
    try:
        with ws.lock:  # two pages that follow one run would read its events twice
            watch = ws.watches.setdefault(run.folder, RunWatch(run.folder))
            status, curve, scores = watch.status(), list(watch.curve), dict(watch.scores)
    except (CorefError, OSError) as error:
        return RunCard(card_id, run.key, say("읽을 수 없음", "unreadable"), RunStatus(run.key, "silent"), note=in_words(error))
    state = {
        "training": say("학습 중", "training"),
        "finished": say("끝남", "finished"),
        "stopped": say("멈춤", "stopped"),
        "silent": say("신호 없음", "no sign of life"),
    }[status.state]
    if status.state == "training" and status.quiet > _SLOW:
        ago = duration(status.quiet, say.lang)
        state = say(f"작업 중, 마지막 소식 {ago} 전", f"working; last step {ago} ago")
    left = status.left if status.state == "training" and status.left is not None else 0.0
    return RunCard(
        card_id, run.key, state, status, done=status.seconds / (status.seconds + left) if left else 0.0, loss=_line(curve),
        ends=(curve[0][1], curve[-1][1]) if curve else (),
        scores=tuple(zip(scores, estimate_cells(list(scores.values())), strict=True)),
        metric=METRICS[watch.metric].label if watch.metric in METRICS else watch.metric, note="" if scores else status.last_note,
    )  # fmt: skip


def _line(curve: Sequence[tuple[int, float]]) -> str:
    if len(curve) < 2:
        return ""
    (first, last), values = (curve[0][0], curve[-1][0]), [loss for _, loss in curve]
    low, span = min(values), (max(values) - min(values)) or 1.0
    steps = (last - first) or 1
    return " ".join(
        f"{_WIDTH * (step - first) / steps:.1f},{_HEIGHT - 4 - (_HEIGHT - 8) * (loss - low) / span:.1f}" for step, loss in curve
    )


def _tables(ws: Workspace, contents: FolderContents, say: Say) -> list[Section]:
    """Runs of outside checks and studies, with their main number or sentence."""
    titles = {
        **{name: say(check.title[0], check.title[1].capitalize()) for name, check in CHECKS.items()},
        "experiment": say("비교 실험", "Studies"),
        "tuning": say("탐색", "Tuning studies"),
        "grid": say("관계 추출 격자", "Relation grids"),
    }
    head = (say("실행", "run"), say("결과", "result"), say("무엇", "what"), say("상태", "state"))
    prepared = [row(key, *_preparing(folder, say)) for key, folder in contents.preparing.items()]
    data = Table((say("데이터셋", "dataset"), say("진행", "progress"), say("상세", "details")), tuple(prepared))
    by_kind = {kind: [run for run in contents.runs.values() if run.kind == kind] for kind in titles}
    return [Section("preparing", say("준비 중인 데이터셋", "Datasets in preparation"), (data,))] * bool(prepared) + [
        Section(kind, titles[kind], (Table(head, tuple(row(run.key, *_result(ws, run, say)) for run in runs)),))
        for kind, runs in by_kind.items()
        if runs
    ]


def _preparing(folder: Path, say: Say) -> tuple[str | Cell, ...]:
    from coref_automl.corpus.work import prepare_status, status_lines

    try:
        with speaking(say.lang):
            first, *rest = status_lines(prepare_status(folder))
        return first, " · ".join(rest)
    except (CorefError, OSError) as error:
        return Cell(say("읽을 수 없음", "unreadable"), "bad"), in_words(error)


def _result(ws: Workspace, run: Run, say: Say) -> tuple[str | Cell, ...]:
    """Return a run's main number or sentence, what it is about, and its state, or why its result cannot be read."""
    state = say("끝남", "finished") if is_done(run.folder) else say("진행 중", "going on")
    check = CHECKS.get(run.kind)
    path = run.folder / (check.files.results if check else "result.json")
    if not path.is_file():
        return Cell("–", "quiet"), "", state
    try:
        if check:
            result = ws.folders.read_once(path, lambda file: check.files.result(file.parent))
            estimate = check.estimate(result)
            score = f"{check.short_metric} {percent(estimate)}" if estimate else "–"
            return score, f"{result.model} · {result.split}", say("끝남", "finished")
        study = ws.folders.read_once(path, lambda file: read_stored(file, _Result))
        counts = [f"{count} {name}" for name, count in study.get("trials", {}).items() if count]
        counts += [f"{name} {study.get('finished', {}).get(name, 0)}/{count}" for name, count in study.get("steps", {}).items()]
        return study.get("sentence") or "–", ", ".join(counts), state
    except (CorefError, OSError) as error:
        return Cell("–", "quiet"), in_words(error), Cell(say("읽을 수 없음", "unreadable"), "bad")
