"""The report. In: evaluated checkpoints, or a table from elsewhere. Out: report.html, report.md and results.csv."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.comparison import plan
from coref_automl.comparison.groups import left_out, not_evaluated, read_groups
from coref_automl.comparison.page import Page, Say, Section, Table, row
from coref_automl.comparison.recommend import MARGIN, checked_margin, recommend_group
from coref_automl.comparison.relation_runs import look_for_relation
from coref_automl.comparison.render import render_html, render_markdown
from coref_automl.comparison.scores import Group
from coref_automl.comparison.sentences import recommendation_sentence
from coref_automl.comparison.study import Study, study_of
from coref_automl.comparison.study_page import results_csv, study_page
from coref_automl.comparison.table_page import table_page
from coref_automl.comparison.tables import read_table
from coref_automl.config import as_path, as_paths, nearest, typed_options
from coref_automl.errors import ComparisonError, RecipeError
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.store import is_done, write_text

KIND = "report"
LANGUAGES = ("ko", "en")


@dataclass(frozen=True, slots=True)
class Report(Record):
    """Where the report is and what it says first. Usable as the path of its page."""

    page: str
    markdown: str
    results: str
    sentence: str

    def __fspath__(self) -> str:
        return self.page

    def __str__(self) -> str:
        return self.page

    def _repr_html_(self) -> str:
        link = html.escape(Path(self.page).resolve().as_uri(), quote=True)
        return f'<p><strong>{html.escape(self.sentence)}</strong></p><p><a href="{link}">{html.escape(self.page)}</a></p>'


@typed_options
def report(
    *paths: Any,
    out: str | Path | None = None,
    table: str | Path | None = None,
    target: str | Mapping[str, float] | None = None,
    lang: str = "ko",
    metric: str | None = None,
    margin: float = MARGIN,
    evalset: str | None = None,
    seed: int = 0,
    title: str = "",
) -> Report:
    """Write the report of evaluated checkpoints (or of a CSV `table` without items) to the folder `out`.

    `report(runs, "report")` reads as well: without `out`, the last argument is the folder.
    """
    if out is None:
        if not paths:
            raise RecipeError("Name the folder to write the report to.")
        *rest, out = paths
        paths = tuple(rest)
    if lang not in LANGUAGES:
        raise RecipeError(f"The report speaks ko and en, not {lang!r}.")
    checked_margin(margin)
    say = Say("ko" if lang == "ko" else "en")
    goal = plan.parse_target(target) if isinstance(target, str) else dict(target or {})
    folder = as_path(out, "out")
    with claimed(folder, KIND):
        if table is not None:
            rows = read_table(Path(table))
            page, results = table_page(rows, say, source=Path(table).name, target=goal), ""
        else:
            chosen: dict[str, Any] = {"metric": metric, "margin": margin, "evalset": evalset, "seed": seed, "target": goal}
            page, results = _study_page(as_paths(paths, "paths"), say, **chosen)
        page = replace(page, title=title or page.title)
        write_text(folder / "report.md", render_markdown(page))
        if results:
            write_text(folder / "results.csv", results)
        elif table is not None:
            write_text(folder / "results.csv", Path(table).read_text("utf-8"))
        write_text(folder / "report.html", render_html(page))
    return Report(str(folder / "report.html"), str(folder / "report.md"), str(folder / "results.csv"), page.sentence)


def _study_page(
    paths: Sequence[str],
    say: Say,
    *,
    metric: str | None,
    margin: float,
    evalset: str | None,
    seed: int,
    target: Mapping[str, float],
) -> tuple[Page, str]:
    study, rest = read_study(paths, say, metric=metric, margin=margin, evalset=evalset, seed=seed, target=target)
    return study_page(study, _other_sets(rest, say, margin=margin, seed=seed)), results_csv(study)


def read_study(
    paths: Sequence[str],
    say: Say,
    *,
    metric: str | None = None,
    margin: float = MARGIN,
    evalset: str | None = None,
    seed: int = 0,
    target: Mapping[str, float] | None = None,
) -> tuple[Study, list[Group]]:
    """What a report of the paths is about, and the groups of other sets that it only lists."""
    groups = read_groups(paths)
    chosen = groups[0]
    if evalset is not None:
        found = [group for group in groups if evalset in (group.evalset, group.fingerprint)]
        if not found:
            raise ComparisonError(f"No evaluation on the set {evalset!r} here. {nearest(evalset, {g.evalset for g in groups})}")
        chosen = found[0]
    relation, unread = look_for_relation(paths)
    study = study_of(
        chosen,
        say=say,
        metric=metric,
        margin=margin,
        seed=seed,
        target=target or {},
        relation=relation,
        notes=[*_not_evaluated(paths, say), *_damaged([*left_out(paths), *unread], say), *_still_training(chosen, say)],
    )
    return study, [group for group in groups if group is not chosen]


def _damaged(found: Sequence[str], say: Say) -> list[str]:
    """Evaluations and relation runs among the others that cannot be read."""
    return [say(f"읽을 수 없어 뺀 평가: {wrong}", f"Left out: {wrong}") for wrong in found]


def _not_evaluated(paths: Sequence[str], say: Say) -> list[str]:
    """Paths that were given and have nothing to report."""
    missing = not_evaluated(paths)
    if not missing:
        return []
    names, command = ", ".join(missing), f"coref-automl evaluate {' '.join(missing)}"
    return [
        say(
            f"{names}에는 끝난 평가가 없어 이 보고서에 없습니다. 실행하세요: {command}",
            f"No finished evaluation under {names}, so this report is without it; run: {command}",
        )
    ]


def _still_training(group: Group, say: Say) -> list[str]:
    """Runs that have begun and not ended: reported as they stand."""
    folders = {Path(entry.evaluation.path).parent for entry in group.entries if entry.trained}
    going = sorted(folder.name for folder in folders if (folder / "events.ndjson").is_file() and not is_done(folder))
    if not going:
        return []
    names = ", ".join(going)
    return [say(f"아직 학습 중: {names}. 지금까지의 체크포인트로 썼습니다.", f"Still training: {names}. Reported as it stands.")]


def _other_sets(groups: Sequence[Group], say: Say, *, margin: float, seed: int) -> Section | None:
    if not groups:
        return None
    lines = []
    for group in groups:
        try:
            study = study_of(group, say=say, margin=margin, seed=seed, target={})
            told = recommendation_sentence(recommend_group(group, study.metric, margin=margin, seed=seed), say.lang)
        except ComparisonError as error:
            told = str(error)
        lines.append(row(group.evalset, group.fingerprint[:12], group.scorer, str(len(group.entries)), told))
    head = (
        say("세트", "set"),
        say("문항 지문", "items"),
        say("채점기", "scorer"),
        say("평가", "evaluations"),
        say("추천", "recommendation"),
    )
    return Section("other-sets", say("다른 평가 세트", "Other evaluation sets"), (Table(head, tuple(lines), frozenset({3})),))
