"""The report. In: evaluated checkpoints, or a table from elsewhere. Out: report.html, report.md and results.csv."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.comparison.csv_table import read_table
from coref_automl.comparison.groups import settle_metric
from coref_automl.comparison.recommendation import MARGIN, checked_margin, choose_entry
from coref_automl.comparison.scores import Group
from coref_automl.config import as_path, as_paths, typed_options
from coref_automl.errors import ComparisonError, RecipeError
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.report.checkpoint_page import results_csv, study_page
from coref_automl.report.csv_page import table_page
from coref_automl.report.language import LANGUAGES, Say
from coref_automl.report.page import Page, Section, Table, row
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.report.sections import plan
from coref_automl.report.sentences import recommendation_sentence
from coref_automl.report.subject import read_subject
from coref_automl.store import write_text

KIND = "report"


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
    say = Say(LANGUAGES[lang])
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
    study = read_subject(paths, say, metric=metric, margin=margin, evalset=evalset, seed=seed, target=target)
    return study_page(study, _other_sets(study.others, say, margin=margin, seed=seed)), results_csv(study)


def _other_sets(groups: Sequence[Group], say: Say, *, margin: float, seed: int) -> Section | None:
    if not groups:
        return None
    lines = []
    for group in groups:
        try:
            metric, _ = settle_metric(group, None)
            told = recommendation_sentence(choose_entry(group, metric, margin=margin, seed=seed).recommendation, say.lang)
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
