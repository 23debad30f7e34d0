"""The Runs page: everything under the folders, training runs as they move. In: folders. Out: a page, and its parts."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.comparison.copies import drop_copies
from coref_automl.comparison.groups import keyed
from coref_automl.decoder import read_stored
from coref_automl.errors import CorefError
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.progress import duration
from coref_automl.records import Estimate
from coref_automl.report.language import Say, percent
from coref_automl.report.page import Cell, Section, Table, estimate_cells, row
from coref_automl.store import fingerprint, is_done
from coref_automl.studio.folders import RESULTS, Folders, Found, Run, in_words
from coref_automl.studio.pages import Address, Pages
from coref_automl.studio.shelf import set_key
from coref_automl.training.watch import RunStatus, RunWatch

_COLUMNS = (PRIMARY, "real1", "lambada_top1", "real_far1_strict", "gold_word", "score")
_WIDTH, _HEIGHT = 600, 90
_FILES = {word: name for name, word in RESULTS.items()}


class _Relation(TypedDict, total=False):
    model: str
    split: str
    n: int
    estimates: dict[str, Estimate]


class _Coreference(TypedDict, total=False):
    model: str
    split: str
    documents: int
    estimates: dict[str, dict[str, Estimate]]


class _Study(TypedDict, total=False):
    sentence: str
    trials: dict[str, int]
    steps: dict[str, int]
    finished: dict[str, int]


@dataclass(frozen=True, slots=True)
class Card:
    """A training run as the page shows it. Curves are points of an SVG line."""

    id: str
    key: str
    name: str
    state: str
    told: str
    facts: tuple[tuple[str, str], ...] = ()
    done: float = 0.0
    loss: str = ""
    ends: tuple[str, str] = ("", "")
    scores: tuple[tuple[str, Cell], ...] = ()
    metric: str = ""
    note: str = ""


class RunsPage:
    """Keeps one reader per training run, so that a look reads only new events."""

    def __init__(self, folders: Folders, pages: Pages) -> None:
        self._folders, self._pages = folders, pages
        self._watches: dict[Path, RunWatch] = {}
        self._rest: dict[str, tuple[Any, str]] = {}
        self._lock = threading.Lock()

    def page(self, address: Address) -> str:
        say, found = address.say, self._folders.now()
        return self._pages.page("runs.html.j2", address, title=say("실행", "Runs"), parts=self.parts(address), found=found)

    def parts(self, address: Address) -> dict[str, str]:
        """The parts of the page that can change, as HTML by id: a list of training runs, each run, and all else."""
        found = self._folders.now()
        cards = [self.card(run, address.say) for run in found.runs.values() if run.kind == "training"]
        shown = {card.id: self._pages.part("training.html.j2", address, card=card) for card in cards}
        sections = _tables(self._folders, found, address.say)
        if self._rest.get(address.lang, ((), ""))[0] != (sections, found.broken):
            rest = self._pages.part(
                "found.html.j2",
                address,
                sections=sections,
                broken=found.broken,
                empty=not (found.runs or found.evaluations),
                roots=[str(root) for root in self._folders.roots.values()],
            )
            self._rest[address.lang] = ((sections, found.broken), rest)
        return {**shown, "found": self._rest[address.lang][1]}

    def card(self, run: Run, say: Say) -> Card:
        name, mark = run.key, f"run-{fingerprint(run.key)[:12]}"
        watch = self._watches.setdefault(run.folder, RunWatch(run.folder))
        try:
            with self._lock:  # two pages that follow one run would read its events twice
                status = watch.status()
        except (CorefError, OSError) as error:
            return Card(mark, run.key, name, "silent", say("읽을 수 없음", "unreadable"), note=in_words(error))
        told = {
            "training": say("학습 중", "training"),
            "finished": say("끝남", "finished"),
            "stopped": say("멈춤", "stopped"),
            "silent": say("2분 넘게 소식 없음", "silent for two minutes"),
        }[status.state]
        left = status.left if status.state == "training" else None
        done = 1.0 if status.state == "finished" else _share(status.seconds, status.left)
        scores = tuple(zip(watch.scores, estimate_cells(list(watch.scores.values())), strict=True))
        return Card(
            mark,
            run.key,
            name,
            status.state,
            told,
            facts=_facts(status, left, say),
            done=done,
            loss=_line(watch.curve),
            ends=(f"{watch.curve[0][1]:.2f}", f"{watch.curve[-1][1]:.2f}") if watch.curve else ("", ""),
            scores=scores,
            metric=METRICS[watch.metric].label if watch.metric in METRICS else watch.metric,
            note="" if watch.scores else status.last_note,
        )


def _share(seconds: float, left: float | None) -> float:
    return seconds / (seconds + left) if left is not None and seconds + left > 0 else 0.0


def _facts(status: RunStatus, left: float | None, say: Say) -> tuple[tuple[str, str], ...]:
    if status.loss is None:
        return ()
    facts = [
        (say("손실", "loss"), f"{status.loss:.4f}"),
        (say("학습률", "rate"), f"{status.rate:.3g}" if status.rate is not None else "–"),
        (say("토큰/초", "tokens/s"), f"{status.tokens_per_second:,.0f}"),
        (say("스텝", "step"), f"{status.step:,}"),
        (say("에폭", "epoch"), f"{status.epoch:.2f}"),
        (say("토큰", "tokens"), f"{status.tokens:,}"),
        (say("걸린 시간", "time"), duration(status.seconds, say.lang)),
    ]
    return (*facts, *([(say("남은 시간", "left"), duration(left, say.lang))] if left is not None else []))


def _line(curve: Sequence[tuple[int, float]]) -> str:
    """Losses as the points of an SVG line."""
    if len(curve) < 2:
        return ""
    (first, last), values = (curve[0][0], curve[-1][0]), [loss for _, loss in curve]
    low, span = min(values), (max(values) - min(values)) or 1.0
    steps = (last - first) or 1
    return " ".join(
        f"{_WIDTH * (step - first) / steps:.1f},{_HEIGHT - 4 - (_HEIGHT - 8) * (loss - low) / span:.1f}" for step, loss in curve
    )


def _tables(folders: Folders, found: Found, say: Say) -> list[tuple[Section, str]]:
    """Evaluations by set, then relation runs, coreference runs and studies; each with the address of its set, if it has one."""
    out: list[tuple[Section, str]] = []
    for (items, scorer), members in keyed(drop_copies(list(found.evaluations.values()))[0]).items():
        mark = set_key(items, scorer)
        out.append((_evaluations(members, say, mark), mark))
    for kind, title in (
        ("relation", say("관계 추출", "Relation extraction")),
        ("coreference", say("상호참조", "Coreference")),
        ("experiment", say("비교 실험", "Studies")),
        ("tuning", say("탐색", "Tuning studies")),
        ("grid", say("관계 추출 격자", "Relation grids")),
    ):
        runs = [run for run in found.runs.values() if run.kind == kind]
        if runs:
            head = (say("실행", "run"), say("결과", "result"), say("무엇", "what"), say("상태", "state"))
            lines = tuple(row(run.key, *_result(folders, run, say)) for run in runs)
            out.append((Section(kind, title, (Table(head, lines),)), ""))
    return out


def _evaluations(members: Sequence[StoredEvaluation], say: Say, mark: str) -> Section:
    evaluations = [one.evaluation for one in members]
    metrics = [name for name in _COLUMNS if name in METRICS and any(name in one.estimates for one in evaluations)]
    columns = [estimate_cells([one.estimates.get(name) for one in evaluations]) for name in metrics]
    head = (
        say("체크포인트", "checkpoint"),
        say("창", "window"),
        *(METRICS[name].label for name in metrics),
        say("평가", "evaluated"),
    )
    lines = tuple(
        row(one.checkpoint, f"{one.seq_len:,}", *cells, one.evaluated_at[:16].replace("T", " "))
        for one, *cells in zip(evaluations, *columns, strict=True)
    )
    title = say(f"평가: {evaluations[0].evalset}", f"Evaluations on {evaluations[0].evalset}")
    return Section(f"set-{fingerprint(mark)[:8]}", title, (Table(head, lines, frozenset(range(1, len(head) - 1))),))


def _result(folders: Folders, run: Run, say: Say) -> tuple[str | Cell, ...]:
    """A run's main number, what it is of, and its state; a run whose result cannot be read says so."""
    finished, going = say("끝남", "finished"), say("진행 중", "going on")
    path = run.folder / _FILES.get(run.kind, "result.json")
    if not path.is_file():
        return Cell("–", "quiet"), "", finished if is_done(run.folder) else going
    try:
        if run.kind == "relation":
            re: _Relation = folders.once(path, lambda at: read_stored(at, _Relation))
            value = re.get("estimates", {}).get("micro_f1")
            return f"micro-F1 {percent(value)}" if value else "–", f"{re.get('model', '')} · {re.get('split', '')}", finished
        if run.kind == "coreference":
            coref: _Coreference = folders.once(path, lambda at: read_stored(at, _Coreference))
            value = coref.get("estimates", {}).get("gold", {}).get("conll")
            return f"CoNLL {percent(value)}" if value else "–", f"{coref.get('model', '')} · {coref.get('split', '')}", finished
        study: _Study = folders.once(path, lambda at: read_stored(at, _Study))
        done, steps = study.get("finished", {}), study.get("steps", {})
        counted = [f"{count} {name}" for name, count in study.get("trials", {}).items() if count]
        counted += [f"{name} {done.get(name, 0)}/{count}" for name, count in steps.items()]
        return study.get("sentence") or "–", ", ".join(counted), finished if done == steps else going
    except (CorefError, OSError) as error:
        return Cell("–", "quiet"), in_words(error), Cell(say("읽을 수 없음", "unreadable"), "bad")


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, Any]:
    """What to send to a page that shows `before`: the parts that differ; the whole list where runs came or went."""
    if before.keys() != now.keys():
        runs = "".join(html for name, html in now.items() if name != "found")
        return {"training": runs, "found": now["found"]}
    return {name: html for name, html in now.items() if before[name] != html}
