"""The report on evaluated checkpoints. In: their paths, or a CSV without items. Out: report.html, report.md and results.csv."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.comparison.choice import POINTS, checked_margin
from coref_automl.comparison.claims import Answer
from coref_automl.comparison.csv_table import read_table
from coref_automl.config import as_path, as_paths, typed_options
from coref_automl.errors import RecipeError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.report import explorer, limits
from coref_automl.report.csv_page import csv_page
from coref_automl.report.language import Say
from coref_automl.report.page import Keep, Page, Part, Section
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.report.sections import draw_sections
from coref_automl.report.sections.next_steps import next_command
from coref_automl.report.subject import Subject, parse_target, read_subject
from coref_automl.report.wording import answer_lines, headline, keep_lines, reasons
from coref_automl.say import speaking
from coref_automl.statistics.intervals import DRAWS
from coref_automl.store import write_text

KIND = "report"


@dataclass(frozen=True, slots=True)
class Report(Record):
    """The report's files, its answer (None for a table from elsewhere) and that in words. Usable as the path of its page."""

    page: str
    markdown: str
    results: str
    sentence: str
    answer: Answer | None = None

    def __fspath__(self) -> str:
        return self.page

    def __str__(self) -> str:
        return self.page

    def __repr__(self) -> str:
        return f"{self.page}: {self.sentence}"

    def _repr_html_(self) -> str:
        link = html.escape(Path(self.page).resolve().as_uri(), quote=True)
        return f'<p><strong>{html.escape(self.sentence)}</strong></p><p><a href="{link}">{html.escape(self.page)}</a></p>'


@typed_options
def report(
    *paths: Any,
    out: str | Path | None = None,
    table: str | Path | None = None,
    target: str | Mapping[str, float] | None = None,
    lang: str | None = None,
    metric: str | None = None,
    margin: float = POINTS,
    eval_set: str | None = None,
    seed: int = 0,
    title: str = "",
) -> Report:
    """Write report.html, report.md and results.csv about evaluated checkpoints, as `coref-automl report` does.

    Args:
        paths: evaluated checkpoints and runs; relation and coreference runs too. Without `out`, the last one is the folder.
        out: folder of the report.
        table: a CSV of external results, instead of paths.
        target: values to reach, such as `real1=0.68,real5=0.83`.
        lang: ko or en; default: COREF_AUTOML_LANG, or the locale.
        metric: of the verdicts. Default: strict Real@1, or `word` if tokenizers differ.
        margin: the loss, in points, that is acceptable to save training.
        eval_set: the set to report on, if the checkpoints were scored on several.
        seed: of the resampling.
        title: of the page.

    Example:
        >>> import coref_automl as ca
        >>> made = ca.report(runs, out=out)
        >>> made.page.endswith("report.html")
        True
    """
    if out is None:
        if not paths:
            raise RecipeError("Name the folder to write the report to.")
        *rest, out = paths
        paths = tuple(rest)
    allowed = checked_margin(margin)
    goal = parse_target(target) if isinstance(target, str) else dict(target or {})
    folder = as_path(out, "out")
    with speaking(lang) as say, claimed(folder, KIND):
        if table is not None:
            rows = read_table(Path(table))
            page, results, answer = csv_page(rows, say, source=Path(table).name, target=goal), "", None
            sentence = page.sentence
        else:
            chosen: dict[str, Any] = {"metric": metric, "margin": allowed, "evalset": eval_set, "seed": seed, "target": goal}
            study = read_subject(as_paths(paths, "paths"), say, **chosen)
            page, results, answer = checkpoint_page(study), results_csv(study), study.answer
            sentence = "\n".join(answer_lines(study.answer, say))
        page = replace(page, title=title or page.title)
        write_text(folder / "report.md", render_markdown(page))
        if results:
            write_text(folder / "results.csv", results)
        elif table is not None:
            write_text(folder / "results.csv", Path(table).read_text("utf-8"))
        write_text(folder / "report.html", render_html(page))
    return Report(str(folder / "report.html"), str(folder / "report.md"), str(folder / "results.csv"), sentence, answer)


def checkpoint_page(study: Subject) -> Page:
    """Screen one: the answer, question by question, and what to keep. Then the evidence, next actions; the rest folded."""
    say, it = study.say, study.answer
    sections = draw_sections(study)
    latest = max(entry.evaluation.evaluated_at for entry in study.entries)[:10]
    return Page(
        lang=say.lang,
        title=say("체크포인트 비교 보고서", "Checkpoint comparison report"),
        subtitle=" · ".join((study.group.evalset, *_counts(study), METRICS[study.metric].label, latest)),
        lead=say("결론", "Answer"),
        headline=headline(it, say),
        sentence=" ".join(reasons(it, say)),
        tiles=(),
        cannot_tell=limits.cannot_tell(study),
        sections=tuple(sections),
        colophon=_colophon(study),
        explorer=explorer.explorer(study),
        notes=study.notes,
        keep=_keep(study),
        parts=_parts(sections, say),
    )


def _keep(study: Subject) -> Keep:
    it, say = study.answer, study.say
    if it.keep is not None:
        return Keep(it.keep.path, False, it.keep.there, tuple(keep_lines(it, say, named=False)), next_command(study))
    path = it.base_path if it.action == "keep base" else ""
    highest = say(f"학습한 것 중 가장 높은 것: {it.highest}.", f"Highest of what was trained: {it.highest}.")
    return Keep(path, True, False, (highest,), next_command(study))


def _counts(study: Subject) -> list[str]:
    """What the page counts: methods over several seeds, checkpoints, and evaluations of models that were not trained here."""
    say, methods = study.say, sum(arm.seeds > 1 for arm in study.arms)
    trained = sum(entry.trained for entry in study.entries)
    rest = len(study.entries) - trained
    told = {
        say(f"방법 {methods}개(시드 2개 이상)", f"{methods} method{'s' * (methods > 1)} with several seeds"): methods,
        say(f"체크포인트 {trained}개", f"{trained} checkpoint{'s' * (trained > 1)}"): trained,
        say(f"학습 전 모델의 평가 {rest}개", f"{rest} evaluation{'s' * (rest > 1)} of untrained models"): rest,
    }
    return [text for text, count in told.items() if count]


def _parts(sections: Sequence[Section], say: Say) -> tuple[tuple[Part, str], ...]:
    titles: dict[Part, str] = {
        "evidence": say("근거", "Evidence"),
        "next": say("다음", "Next"),
        "questions": say("질문별", "Questions"),
        "appendix": say("부록", "Appendix"),
    }
    return tuple((part, title) for part, title in titles.items() if any(one.part == part for one in sections))


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
            last = [answer.reference, *moved, answer.verdict]
        writer.writerow([*first, entry.evaluation.seq_len, entry.evaluation.evalset, *values, *last])
    return text.getvalue()
