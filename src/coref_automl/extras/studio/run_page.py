"""The page of one run. In: an address that names it. Out: recipe, curve against the base, cost, lineage, files, next commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.base.config import read_yaml
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError
from coref_automl.base.folders import EVENTS, MANIFEST, natural_order
from coref_automl.base.progress import duration, parse_events
from coref_automl.base.say import Say
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages import charts
from coref_automl.extras.studio.board import Board
from coref_automl.extras.studio.folders import ARCHIVED, Run, in_words
from coref_automl.extras.studio.pages import Address, Download
from coref_automl.extras.studio.workspace import Pending, Workspace, not_here
from coref_automl.report.page import Cell, Charts, Commands, Section, Table, Text, estimate_cells, plotted, points, row, tokens
from coref_automl.report.wording import TONES, comparison_verdict

_CARD, _FILES = 40_000, 200
"""How many characters of a data card, and files, are shown."""


class _Manifest(TypedDict, total=False):
    dataset: str
    versions: dict[str, str]


def page(ws: Workspace, address: Address) -> str | Download:
    say, run = address.say, find_run(ws, address)
    other = ws.folders.run(address.get("other"))
    recipe, other_recipe = _recipe(ws, run), _recipe(ws, other) if other is not None else None
    stored = bool(recipe) and other_recipe != {}
    if not stored:
        recipe, other_recipe = _record(ws, run), _record(ws, other) if other is not None else None
    evaluated, waiting = _evaluated(ws, run, address)
    sections = [
        *evaluated, _recipes(recipe, other_recipe, say, stored=stored), _cost(ws, run, say), _lineage(ws, run, say),
        _card(ws, run, recipe, say), _listing(run, say), _next(run, say),
    ]  # fmt: skip
    return ws.pages.page(
        "run.html.j2", address, title=run.folder.name, sections=[section for section in sections if section is not None], run=run,
        check=CHECKS.get(run.kind), other=other, note=ws.user_files.note(run), waiting=waiting,
        others=[key for key, listed in ws.folders.contents().runs.items() if key != run.key and listed.kind == run.kind],
        saved=ws.user_files.note_file(run) if address.get("saved") else None,
    )  # fmt: skip


def find_run(ws: Workspace, address: Address) -> Run:
    run = ws.folders.run(address.get("key"))
    if run is None:
        raise not_here(address.get("key"))
    return run


def _evaluated(ws: Workspace, run: Run, address: Address) -> tuple[list[Section], bool]:
    """Return the section of a run's checkpoints, on the set with most evaluations or the one that the address names."""
    owners = ws.folders.contents().owners
    sets = [
        members
        for mark, members in ws.boards.sets().items()
        if address.get("set") in ("", mark) and any(owners.get(stored.folder) == run.key for stored in members.stored.values())
    ]
    if not sets:
        return [], False
    try:
        board = ws.boards.board(sets[0])
    except Pending:
        return [], True
    study, waiting = ws.ready(board)
    return [_checkpoints(run, owners, board, study, address.say, ws.boards.color(run.folder.name))], waiting


def _recipe(ws: Workspace, run: Run) -> dict[str, Any]:
    path = run.folder / "recipe.yaml"
    if not path.is_file() or not ws.folders.contains(path):
        return {}
    try:
        return {str(name): value for name, value in ws.folders.read_once(path, read_yaml).items()}
    except (CorefError, OSError) as error:
        return {"recipe.yaml": in_words(error)}


def _record(ws: Workspace, run: Run) -> dict[str, Any]:
    """Return how the last evaluated checkpoint was trained: an archive keeps that, and no recipe."""
    contents = ws.folders.contents()
    evaluations = (stored.evaluation for stored in contents.evaluations.values() if contents.owners.get(stored.folder) == run.key)
    records = (evaluation.provenance for evaluation in evaluations if evaluation.provenance is not None)
    last = max(records, key=lambda provenance: provenance.step, default=None)
    names = ("base", "objective", "seq_len", "seed", "dataset", "epoch", "step", "tokens")
    return {name: value for name in names if (value := getattr(last, name, "")) != ""}


def _manifest(ws: Workspace, run: Run) -> _Manifest:
    path = run.folder / MANIFEST
    try:
        return ws.folders.read_once(path, lambda file: read_stored(file, _Manifest)) if path.is_file() else {}
    except (CorefError, OSError):
        return {}


def _cost(ws: Workspace, run: Run, say: Say) -> Section | None:
    """Tokens, time and memory by the last step of its events, and the versions that it ran with."""
    events = run.folder / EVENTS
    last: dict[str, Any] = ws.folders.read_once(events, _last_step) if events.is_file() else {}
    facts = {
        say("토큰", "tokens"): f"{last['tokens']:,}" if isinstance(last.get("tokens"), int) else "",
        say("시간", "time"): duration(last["seconds"], say.lang) if isinstance(last.get("seconds"), int | float) else "",
        say("토큰/초", "tokens/s"): f"{last['tokens_per_second']:,}" if "tokens_per_second" in last else "",
        say("GPU 메모리 최대", "peak GPU memory"): f"{last['peak_gigabytes']} GB" if "peak_gigabytes" in last else "",
        say("장치", "device"): "GPU" if "peak_gigabytes" in last else "CPU" if last else "",
        **_manifest(ws, run).get("versions", {}),
    }
    return _pairs("cost", say("비용", "Cost"), [(name, str(value)) for name, value in facts.items() if value], say)


def _lineage(ws: Workspace, run: Run, say: Say) -> Section | None:
    """What it started from, and the runs that started from one of its checkpoints, by weights or else by folder."""
    contents = ws.folders.contents()
    start = run.model or str(_record(ws, run).get("base", ""))
    evaluations = [stored.evaluation for stored in contents.evaluations.values() if contents.owners.get(stored.folder) == run.key]
    weights = {evaluation.fingerprints.get("weights", "") for evaluation in evaluations} - {""}
    folder = f"/{run.folder.parent.name}/{run.folder.name}/"
    others = [other for other in contents.runs.values() if other.key != run.key]
    after = [other.key for other in others if (other.weights in weights if other.weights else folder in f"/{other.model}/")]
    rows = [(say("시작한 모델", "started from"), start)] if start else []
    rows += [(say("여기서 시작한 실행", "started from it"), key) for key in after]
    return _pairs("lineage", say("계보", "Lineage"), rows, say)


def _card(ws: Workspace, run: Run, recipe: Mapping[str, Any], say: Say) -> Section | None:
    """The data card of its dataset if that lies under the folders, else the dataset's name."""
    name = str(recipe.get("dataset") or _manifest(ws, run).get("dataset", "") or recipe.get("train") or "")
    if not name:
        return None
    folders = [Path(name)] if Path(name).is_absolute() else [parent / name for parent in run.folder.parents]
    cards = (folder / "card.md" for folder in folders if ws.folders.contains(folder))
    card = next((card for card in cards if card.is_file()), None)
    if card is None or not ws.folders.contains(card):
        return Section("data", say("데이터", "Data"), (Text(name),))
    text = ws.folders.read_once(card, lambda file: file.read_text("utf-8", errors="replace")[:_CARD])
    return Section("data", say("데이터 카드", "Data card"), (Commands(name, tuple(text.splitlines())),))


def _listing(run: Run, say: Say) -> Section:
    rows = []
    for path in sorted(run.folder.iterdir(), key=natural_order)[:_FILES]:
        if path.name.startswith(".") or path.is_symlink():
            continue
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        rows.append(row(path.name + "/" * path.is_dir(), f"{sum(file.stat().st_size for file in files):,}"))
    head = (say("파일", "file"), say("바이트", "bytes"))
    return Section("files", say("파일", "Files"), (Text(str(run.folder), "quiet"), Table(head, tuple(rows), frozenset({1}))))


def _pairs(name: str, title: str, rows: Sequence[tuple[str, str]], say: Say) -> Section | None:
    table = Table((say("항목", "what"), say("값", "value")), tuple(row(*pair) for pair in rows))
    return Section(name, title, (table,)) if rows else None


def _last_step(path: Path) -> dict[str, Any]:
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - (1 << 16)))
        lines = handle.read().splitlines(keepends=True)
    steps = [event for event in parse_events(b"".join(lines[1:] or lines)) if event.get("event") == "step"]
    return dict(steps[-1]) if steps else {}


def _checkpoints(run: Run, owners: Mapping[Path, str], board: Board, study: Study | None, say: Say, color: str) -> Section:
    """Every checkpoint with its value, and its paired difference to the base as the study judges it."""
    entries = [entry for entry in board.entries.values() if owners.get(entry.folder) == run.key]
    entries.sort(key=lambda entry: (entry.evaluation.seq_len, entry.tokens))
    metric = study.metric if study is not None else next(iter(board.metrics), "")
    judged = study.judged if study is not None else {}
    rows = []
    for entry, value in zip(entries, estimate_cells([entry.evaluation.estimates.get(metric) for entry in entries]), strict=True):
        comparison = judged.get(entry)
        change = verdict = Cell("–", "quiet")
        if comparison is not None:
            verdict = Cell(comparison_verdict(comparison, say), TONES.get(comparison.verdict, "quiet"))
            change = Cell(points(comparison.difference), estimate=comparison.difference)
        rows.append(row(entry.name, tokens(entry.recorded_tokens), value, change, verdict))
    head = (
        say("체크포인트", "checkpoint"), say("토큰", "tokens"), f"{METRICS[metric].label} %" if metric else "–",
        say("베이스 모델과의 짝지은 차이 (점)", "paired difference to the base (points)"), say("판정", "verdict"),
    )  # fmt: skip
    notes = []
    if (family := max((comparison.family for comparison in judged.values()), default=0)) > 1:
        ko = f"구간과 판정은 체크포인트 {family}개를 함께 보정했습니다 (max-T). 방법에 대한 판정은 순위표에 있습니다."
        notes.append(say(ko, f"Corrected for {family} checkpoints (max-T). Verdicts about methods: the leaderboard."))
    if study is not None and study.group.verdict_half is not None and judged:
        halves = "Differences are on the documents held back from choosing, values on all."
        notes.append(say("차이는 고르는 데 쓰지 않은 문서, 값은 모든 문서 기준입니다.", halves))
    drawn = [{"run": run.folder.name, "x": e.tokens, **plotted(judged[e].difference)} for e in entries if e in judged]
    chart = []
    if len({point["x"] for point in drawn}) > 1:
        title = say("베이스 모델과의 짝지은 차이", "Paired difference to the base")
        axis = say("학습 토큰", "training tokens")
        chart.append(Charts(((title, charts.gains(drawn, say, axis=axis, color=color)),), wide=True))
    table, title = Table(head, tuple(rows), frozenset({1, 2, 3})), say("체크포인트", "Checkpoints")
    return Section("checkpoints", f"{title} · {board.group.evalset}", (*chart, table, *(Text(note, "quiet") for note in notes)))


def _recipes(ours: Mapping[str, Any], theirs: Mapping[str, Any] | None, say: Say, *, stored: bool) -> Section:
    """The recipe, or what the evaluations record of the training; compared with another run, the settings that differ."""
    record = "No recipe is stored: this is what the evaluations record."
    notes = [say("저장된 레시피가 없어 평가에 기록된 학습 조건을 보입니다.", record)] if not stored else []
    if theirs is None:
        rows = tuple(row(name, _text(value)) for name, value in ours.items())
        table, title = Table((say("설정", "setting"), say("값", "value")), rows), say("레시피", "Recipe")
    else:
        names = list(dict.fromkeys((*ours, *theirs)))
        different = [name for name in names if ours.get(name) != theirs.get(name)]
        head = (say("설정", "setting"), say("이 실행", "this run"), say("다른 실행", "the other run"))
        table = Table(head, tuple(row(name, _text(ours.get(name)), _text(theirs.get(name))) for name in different))
        title, same = say("레시피의 차이", "Difference of recipes"), len(names) - len(different)
        notes.append(say(f"나머지 설정 {same}개는 같습니다.", f"The other {same} settings are the same."))
    return Section("recipe", title, (table, *(Text(note, "quiet") for note in notes)))


def _text(value: Any) -> str:
    return "–" if value is None else str(value)[:300]


def _next(run: Run, say: Say) -> Section | None:
    if run.kind == ARCHIVED:
        return None
    here = shlex.quote(str(run.folder))
    lines = {
        "training": (f"coref-automl evaluate {here}", f"coref-automl compare {here}", f"coref-automl report {here} --out report"),
        **{name: (check.next_command.replace("{}", here),) for name, check in CHECKS.items()},
    }.get(run.kind, (f"coref-automl compare {here}",))
    return Section("next", say("다음 명령", "Next commands"), (Commands("", lines),))
