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
from coref_automl.comparison.claims import Answer, NextStep
from coref_automl.comparison.reader import open_results
from coref_automl.config import as_path, as_paths, typed_options
from coref_automl.errors import RecipeError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.report.answer_wording import answer_lines, headline, keep_lines, lacking, power, reasons, step_reason, warnings
from coref_automl.report.csv_page import csv_page, read_table
from coref_automl.report.page import KeepPanel, Page, Part, Section, note
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.report.sections import draw_sections
from coref_automl.report.subject import Subject, parse_target, read_subject
from coref_automl.say import Say, speaking
from coref_automl.statistics.intervals import DRAWS
from coref_automl.store import write_text

KIND = "report"


@dataclass(frozen=True, slots=True)
class WrittenReport(Record):
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
) -> WrittenReport:
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
            page = csv_page(read_table(Path(table)), say, source=Path(table).name, target=goal)
            results, answer, sentence = Path(table).read_text("utf-8"), None, page.sentence
        else:
            chosen: dict[str, Any] = {"metric": metric, "margin": allowed, "evalset": eval_set, "seed": seed, "target": goal}
            study = read_subject(open_results(as_paths(paths, "paths")), say, **chosen)
            page, results, answer = checkpoint_page(study), results_csv(study), study.answer
            sentence = "\n".join([*answer_lines(study.answer, say), *study.notes])
        page = replace(page, title=title or page.title)
        write_text(folder / "report.md", render_markdown(page))
        write_text(folder / "results.csv", results)
        write_text(folder / "report.html", render_html(page))
    return WrittenReport(str(folder / "report.html"), str(folder / "report.md"), str(folder / "results.csv"), sentence, answer)


def checkpoint_page(study: Subject) -> Page:
    """Screen one: the answer, question by question, and what to keep. Then the evidence, next actions; the rest folded."""
    say, it = study.say, study.answer
    sections = draw_sections(study)
    latest = max(entry.evaluation.evaluated_at for entry in study.entries)[:10]
    dtypes = ", ".join(sorted({entry.evaluation.dtype for entry in study.entries}))
    made = {"fingerprint": study.group.fingerprint, "scorer": study.group.scorer, "dtypes": dtypes}
    return Page(
        lang=say.lang,
        title=say("체크포인트 비교 보고서", "Checkpoint comparison report"),
        subtitle=" · ".join((study.group.evalset, *_counts(study), METRICS[study.metric].label, latest)),
        lead=say("결론", "Answer"),
        headline=headline(it, say),
        sentence=" ".join(reasons(it, say)),
        cannot_tell=_cannot_tell(study),
        sections=tuple(sections),
        colophon=(note("made with", say, **made, seed=study.seed, draws=DRAWS, margin=100 * study.margin),),
        notes=study.notes,
        keep=_keep(study),
        below=lacking(it, say),
        parts=_parts(sections, say),
    )


def _keep(study: Subject) -> KeepPanel:
    """What to keep if it is on this disk, what makes it again if it is not, and the one next step."""
    it, say, step = study.answer, study.say, study.answer.step
    made = NextStep("make again", it.keep.again) if it.keep is not None and it.keep.again else None
    further = step if step is not None and step.do != "make again" else None
    if it.keep is not None:
        path, lines = it.keep.path if it.keep.there else "", tuple(keep_lines(it, say, named=False))
    else:
        path = it.base_path if it.action == "keep base" else ""
        lines = (say(f"학습한 것 중 점수가 가장 높은 체크포인트: {it.highest}.", f"Highest of what was trained: {it.highest}."),)
    return KeepPanel(path, it.keep is None, lines, made, further, step_reason(it, say))


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
        "target": say("목표", "Targets"),
        "questions": say("질문별", "Questions"),
        "appendix": say("부록", "Appendix"),
    }
    return tuple((part, title) for part, title in titles.items() if any(one.part == part for one in sections))


def _cannot_tell(study: Subject) -> tuple[str, ...]:
    """Limits of the data: the form of Real items, then whatever is missing here."""
    say = study.say
    out = [note("form of Real", say)]
    held = study.answer.power
    if held is not None and held.detectable is not None and study.answer.action != "keep base":
        out += power(study.answer, say)
    out += warnings(study.answer, say)
    if far := max((entry.evaluation.out_of_reach for entry in study.entries), default=0):
        out.append(note("out of reach", say, far=far))
    return tuple(out)


def results_csv(study: Subject) -> str:
    """One row per checkpoint: every metric with its interval, and the difference from its reference."""
    metrics = study.metrics(list(METRICS))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{name}{part}" for name in metrics for part in ("", "_low", "_high", "_n")]
    judged = ["reference", "difference", "difference_low", "difference_high", "p", "p_adjusted", "correction", "finding"]
    writer.writerow(["name", "path", "run", "step", "epoch", "tokens", "seq_len", "evalset", *numbers, *judged])
    for entry in study.entries:
        made, held = entry.evaluation.provenance, entry.evaluation
        trained = [made.epoch, made.tokens] if made else ["", ""]
        found = [held.estimates.get(name) for name in metrics]
        values = [v for e in found for v in ((*_exact(e.value, e.low, e.high), e.n) if e else ("",) * 4)]
        last: list[Any] = [""] * len(judged)
        if (answer := study.judged.get(entry)) is not None:
            change = answer.difference
            moved = _exact(change.value, change.low, change.high, answer.p, answer.p_adjusted)
            last = [answer.reference, *moved, answer.correction, answer.verdict]
        first = [entry.name, held.path, entry.run, entry.step, *trained, held.seq_len, held.evalset]
        writer.writerow([*first, *values, *last])
    return text.getvalue()


def _exact(*values: float) -> list[str]:
    return [f"{value:.6f}" for value in values]
