"""The report on evaluated checkpoints. In: their paths, or a CSV without items. Out: report.html, report.md and results.csv."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.comparison.csv_table import read_table
from coref_automl.comparison.differences import Finding, finding
from coref_automl.comparison.recommendation import MARGIN, Confirmation, checked_margin
from coref_automl.config import as_path, as_paths, typed_options
from coref_automl.errors import RecipeError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.report import conclusions, explorer
from coref_automl.report.csv_page import csv_page
from coref_automl.report.language import LANGUAGES, Say, percent, points, tokens
from coref_automl.report.page import Page, Tile, Tone
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.report.sections import draw_sections
from coref_automl.report.sentences import recommendation_sentence
from coref_automl.report.subject import Subject, parse_target, read_subject
from coref_automl.statistics.intervals import DRAWS
from coref_automl.store import write_text

KIND = "report"
_TONES: dict[Finding | Confirmation, Tone] = {"better": "good", "worse": "bad", "confirmed": "good", "not confirmed": "bad"}


@dataclass(frozen=True, slots=True)
class Report(Record):
    """The report's files and its headline sentence. Usable as the path of its page."""

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

    Without `out`, the last argument is the folder: `report(runs, "report")`.
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
    goal = parse_target(target) if isinstance(target, str) else dict(target or {})
    folder = as_path(out, "out")
    with claimed(folder, KIND):
        if table is not None:
            rows = read_table(Path(table))
            page, results = csv_page(rows, say, source=Path(table).name, target=goal), ""
        else:
            chosen: dict[str, Any] = {"metric": metric, "margin": margin, "evalset": evalset, "seed": seed, "target": goal}
            study = read_subject(as_paths(paths, "paths"), say, **chosen)
            page, results = checkpoint_page(study), results_csv(study)
        page = replace(page, title=title or page.title)
        write_text(folder / "report.md", render_markdown(page))
        if results:
            write_text(folder / "results.csv", results)
        elif table is not None:
            write_text(folder / "results.csv", Path(table).read_text("utf-8"))
        write_text(folder / "report.html", render_html(page))
    return Report(str(folder / "report.html"), str(folder / "report.md"), str(folder / "results.csv"), page.sentence)


def checkpoint_page(study: Subject) -> Page:
    say, it = study.say, study.recommendation
    sections = draw_sections(study)
    concluded = conclusions.conclusions(study, sections)
    latest = max(entry.evaluation.evaluated_at for entry in study.entries)[:10]
    count = len(study.entries)
    return Page(
        lang=say.lang,
        title=say("체크포인트 비교 보고서", "Checkpoint comparison report"),
        subtitle=say(
            f"{study.group.evalset} · 평가 {count}개 · {METRICS[study.metric].label} · {latest}",
            f"{study.group.evalset} · {count} evaluations · {METRICS[study.metric].label} · {latest}",
        ),
        lead=_lead(study),
        headline=_headline(study),
        sentence=recommendation_sentence(it, say.lang),
        tiles=_tiles(study),
        cannot_tell=conclusions.cannot_tell(study),
        sections=((concluded,) if concluded else ()) + tuple(sections),
        colophon=_colophon(study),
        explorer=explorer.explorer(study),
        notes=study.notes,
    )


def _lead(study: Subject) -> str:
    say, it = study.say, study.recommendation
    if it.judged_on == "all" and it.over_bases:
        return say("판정", "Verdict")
    return say("추천", "Recommendation") if len(it.candidates) > 1 else say("평가", "Evaluated")


def _headline(study: Subject) -> str:
    """The method or checkpoint to use; if nothing was chosen among checkpoints, whether adaptation helped."""
    say, it = study.say, study.recommendation
    if it.judged_on == "confirm" or not it.over_bases:
        return it.use.method if it.use.seeds > 1 else it.name
    if any(finding(one) == "better" for one in it.over_bases):
        return say("적응한 모델이 원래 모델보다 낫습니다", "The adapted model beats the base")
    return say("원래 모델보다 낫다고 확인되지 않았습니다", "Not shown to beat the base")


def _tiles(study: Subject) -> tuple[Tile, ...]:
    say, it = study.say, study.recommendation
    out = [Tile(METRICS[it.metric].label, *_split(percent(it.value)))]
    if it.over_base is not None:
        found = finding(it.over_base)
        told = {"better": say("보임", "shown"), "worse": say("더 나쁨", "worse")}.get(found, say("보이지 않음", "not shown"))
        value, interval = _split(points(it.over_base.difference))
        where = say(" · 모든 문서", " · all documents") if it.judged_on == "all" else ""
        detail = f"{interval} · {told}{where}"
        out.append(
            Tile(
                say("원래 모델보다 (점)", "over the base (points)"),
                value,
                detail,
                _TONES.get(found, ""),
            )
        )
    if (ahead := it.next_time) is not None and ahead.tokens is not None:
        out.append(
            Tile(
                say("다음 학습량", "next time, train until"),
                tokens(ahead.tokens),
                say(f"이번 학습의 {100 * (ahead.share or 0):.0f}%", f"{100 * (ahead.share or 0):.0f}% of this training"),
            )
        )
    if len(it.candidates) > 1:
        bound = study.choice.candidates[study.chosen].bound
        told = say("선택 쪽에서, 95% 신뢰", "on select, 95% confidence")
        tone: Tone = "good" if bound <= it.margin else ""
        out.append(
            Tile(
                say("최고와의 차이, 많아야", "behind the best, at most"),
                say(f"{100 * bound:.1f}점", f"{100 * bound:.1f} points"),
                told,
                tone,
            )
        )
    if it.best_over_chosen is not None:
        word = {
            "confirmed": say("확인됨", "confirmed"),
            "not confirmed": say("확인 안 됨", "not confirmed"),
            "open": say("미확정", "open"),
        }
        told = say(
            f"최고 - 선택 {points(it.best_over_chosen.difference)}", f"best - chosen {points(it.best_over_chosen.difference)}"
        )
        out.append(Tile(say("다른 절반에서", "on the other half"), word[it.confirmation], told, _TONES.get(it.confirmation, "")))
    return tuple(out)


def _split(text: str) -> tuple[str, str]:
    value, _, interval = text.partition(" ")
    return value, interval


def _colophon(study: Subject) -> tuple[str, ...]:
    say, group = study.say, study.group
    made = ", ".join(sorted({entry.evaluation.dtype for entry in study.entries}))
    return (
        say(
            f"문항 지문 {group.fingerprint}, 채점기 {group.scorer}, 정밀도 {made}, 시드 {study.seed}, 부트스트랩 "
            f"{DRAWS:,}회(문서 단위), 여유 {100 * study.margin:g}점.",
            f"Items {group.fingerprint}, scorer {group.scorer}, {made}, seed {study.seed}, {DRAWS:,} bootstrap draws of "
            f"documents, margin {100 * study.margin:g} points.",
        ),
        say("같은 입력과 시드에서 같은 보고서가 나옵니다.", "The same inputs and seed give the same report."),
    )


def results_csv(study: Subject) -> str:
    """One row per checkpoint: every metric with its interval, and the difference from its reference."""
    metrics = [name for name in METRICS if any(name in entry.evaluation.estimates for entry in study.entries)]
    answers = study.against_base()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{name}{part}" for name in metrics for part in ("", "_low", "_high", "_n")]
    judged = ["reference", "difference", "difference_low", "difference_high", "p", "p_adjusted", "correction", "finding"]
    writer.writerow(["name", "path", "run", "step", "epoch", "tokens", "seq_len", "evalset", *numbers, *judged])
    for entry in study.entries:
        made = entry.evaluation.provenance
        first = [
            entry.name,
            entry.evaluation.path,
            entry.run,
            entry.step,
            made.epoch if made else "",
            made.tokens if made else "",
        ]
        found = [entry.evaluation.estimates.get(name) for name in metrics]
        values = [v for e in found for v in ((f"{e.value:.6f}", f"{e.low:.6f}", f"{e.high:.6f}", e.n) if e else ("", "", "", ""))]
        answer = answers.get(entry)
        last: list[Any] = [""] * len(judged)
        if answer is not None:
            change = answer.difference
            moved = [
                f"{change.value:.6f}",
                f"{change.low:.6f}",
                f"{change.high:.6f}",
                f"{answer.p:.6f}",
                f"{answer.p_adjusted:.6f}",
                answer.correction,
            ]
            last = [answer.reference, *moved, finding(answer)]
        writer.writerow([*first, entry.evaluation.seq_len, entry.evaluation.evalset, *values, *last])
    return text.getvalue()
