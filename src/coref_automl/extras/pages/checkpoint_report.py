"""The report on evaluated checkpoints. In: their paths. Out: report.html, report.md and results.csv."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from coref_automl.base.config import as_path, as_paths, typed_options
from coref_automl.base.errors import RecipeError
from coref_automl.base.locks import claimed
from coref_automl.base.records import Estimate, Record
from coref_automl.base.say import Say, speaking
from coref_automl.base.store import write_text
from coref_automl.comparison.claims import Answer, NextStep
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.study_data import POINTS, checked_margin
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages.rendering import render_html, render_markdown
from coref_automl.extras.pages.sections import Subject, appendix, evidence, parse_target, questions, read_subject
from coref_automl.report.answer_wording import answer_lines, headline, keep_lines, lacking, power, reasons, step_reason, warnings
from coref_automl.report.page import KeepPanel, Page, Part, Section, note
from coref_automl.statistics.intervals import DRAWS

KIND = "report"
SECTIONS: tuple[Callable[[Subject], Section | list[Section] | None], ...] = (
    evidence.draw, evidence.targets,  # the second screen
    questions.draw,  # folded; their answers are on the first screen
    appendix.methods, evidence.learning_curves, appendix.aspects, appendix.checkpoints, appendix.datasets, appendix.reading,
)  # fmt: skip
"""The sections of a report, in order; those that its data cannot fill are left out."""


@dataclass(frozen=True, slots=True)
class WrittenReport(Record):
    """The report's files, its answer and that in words. Usable as the path of its page."""

    page: str
    markdown: str
    results: str
    sentence: str
    answer: Answer

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
        target: values to reach, such as `real1=0.68,real5=0.83`.
        lang: ko or en; default: COREF_AUTOML_LANG, or the locale.
        metric: of the verdicts. Default: Noun@1, or the first metric that all have.
        margin: the loss, in points, that is acceptable to save training.
        eval_set: the set to report on, if the checkpoints were scored on several.
        seed: of the resampling.
        title: of the page.

    Example:
        >>> import coref_automl as ca
        >>> written = ca.report(runs, out=out)
        >>> written.page.endswith("report.html")
        True
    """
    if out is None:
        if not paths:
            raise RecipeError("Name the folder to write the report to.")
        *rest, out = paths
        paths = tuple(rest)
    names = as_paths(paths, "paths")
    if not names:
        raise RecipeError("Name evaluated checkpoints or runs to report on, before the folder to write the report to.")
    allowed_loss = checked_margin(margin)
    if not isinstance(target, str):
        target = ",".join(f"{name}={value}" for name, value in (target or {}).items())
    targets = parse_target(target)
    folder = as_path(out, "out")
    with speaking(lang) as say, claimed(folder, KIND):
        options: dict[str, Any] = {"metric": metric, "margin": allowed_loss, "evalset": eval_set, "seed": seed}
        subject = read_subject(open_results(names), say, **options, target=targets)
        page, answer = checkpoint_page(subject), subject.answer
        sentence = "\n".join([*answer_lines(answer, say), *subject.notes])
        page = replace(page, title=title or page.title)
        write_text(folder / "report.md", render_markdown(page))
        write_text(folder / "results.csv", results_csv(subject))
        write_text(folder / "report.html", render_html(page))
    return WrittenReport(str(folder / "report.html"), str(folder / "report.md"), str(folder / "results.csv"), sentence, answer)


def checkpoint_page(subject: Subject) -> Page:
    """The page: first the answer, question by question, and what to keep; then the evidence; the rest is folded."""
    say, answer = subject.say, subject.answer
    sections = draw_sections(subject)
    latest = max(entry.evaluation.evaluated_at for entry in subject.entries)[:10]
    dtypes = ", ".join(sorted({entry.evaluation.dtype for entry in subject.entries}))
    versions = {"fingerprint": subject.group.fingerprint, "scorer": subject.group.scorer, "dtypes": dtypes}
    return Page(
        lang=say.lang,
        title=say("체크포인트 비교 보고서", "Checkpoint comparison report"),
        subtitle=" · ".join((subject.group.evalset, *_counts(subject), METRICS[subject.metric].label, latest)),
        lead=say("결론", "Answer"),
        headline=headline(answer, say),
        sentence=" ".join(reasons(answer, say)),
        cannot_tell=_cannot_tell(subject),
        sections=tuple(sections),
        colophon=(note("made with", say, **versions, seed=subject.seed, draws=DRAWS, margin=100 * subject.margin),),
        notes=subject.notes,
        keep=_keep(subject),
        below=lacking(answer, say),
        parts=_parts(sections, say),
    )


def draw_sections(subject: Subject) -> list[Section]:
    drawn = [draw(subject) for draw in SECTIONS]
    return [section for result in drawn if result for section in (result if isinstance(result, list) else [result])]


def _keep(subject: Subject) -> KeepPanel:
    """What to keep if it is on this disk, the command that makes it again if not, and the one next step."""
    answer, say, step = subject.answer, subject.say, subject.answer.step
    next_step = step if step is not None and step.do != "make again" else None
    why = step_reason(answer, say)
    if answer.keep is None:
        path, name = answer.base_path if answer.action == "keep base" else "", answer.highest
        highest = say(f"학습한 것 중 점수가 가장 높은 체크포인트: {name}.", f"Highest of what was trained: {name}.")
        return KeepPanel(path, True, (highest,), None, next_step, why)
    again = NextStep("make again", answer.keep.again) if answer.keep.again else None
    path = answer.keep.path if answer.keep.there else ""
    return KeepPanel(path, False, tuple(keep_lines(answer, say, named=False)), again, next_step, why)


def _counts(subject: Subject) -> list[str]:
    """The numbers of methods with several seeds, of checkpoints, and of evaluations of untrained models; those above 0."""
    say, methods = subject.say, len(subject.replicated)
    trained = sum(entry.trained for entry in subject.entries)
    rest = len(subject.entries) - trained
    counts = [
        (methods, say(f"방법 {methods}개(시드 2개 이상)", f"{methods} method{'s' * (methods > 1)} with several seeds")),
        (trained, say(f"체크포인트 {trained}개", f"{trained} checkpoint{'s' * (trained > 1)}")),
        (rest, say(f"학습 전 모델의 평가 {rest}개", f"{rest} evaluation{'s' * (rest > 1)} of untrained models")),
    ]
    return [text for count, text in counts if count]


def _parts(sections: Sequence[Section], say: Say) -> tuple[tuple[Part, str], ...]:
    titles: dict[Part, str] = {
        "evidence": say("근거", "Evidence"),
        "target": say("목표", "Targets"),
        "questions": say("질문별", "Questions"),
        "appendix": say("부록", "Appendix"),
    }
    return tuple((part, title) for part, title in titles.items() if any(section.part == part for section in sections))


def _cannot_tell(subject: Subject) -> tuple[str, ...]:
    """Limits of the data: the form of Real items, the power of the study, caveats, items out of reach."""
    say, answer = subject.say, subject.answer
    limits = [note("form of Real", say)]
    if answer.power is not None and answer.power.detectable is not None and answer.action != "keep base":
        limits += power(answer, say)
    limits += warnings(answer, say)
    if far := max((entry.evaluation.out_of_reach for entry in subject.entries), default=0):
        limits.append(note("out of reach", say, far=far))
    return tuple(limits)


def results_csv(subject: Subject) -> str:
    """One row per checkpoint: every metric with its interval, and the difference from its reference."""
    metrics = subject.metrics(list(METRICS))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{name}{part}" for name in metrics for part in ("", "_low", "_high", "_n")]
    judged = ["reference", "difference", "difference_low", "difference_high", "p", "p_adjusted", "correction", "finding"]
    writer.writerow(["name", "path", "run", "step", "epoch", "tokens", "seq_len", "evalset", *numbers, *judged])
    for entry in subject.entries:
        evaluation, provenance = entry.evaluation, entry.evaluation.provenance
        trained = [provenance.epoch, provenance.tokens] if provenance else ["", ""]
        first = [entry.name, evaluation.path, entry.run, entry.step, *trained, evaluation.seq_len, evaluation.evalset]
        values = chain.from_iterable(_cells(evaluation.estimates.get(name)) for name in metrics)
        last: list[Any] = [""] * len(judged)
        if (comparison := subject.judged.get(entry)) is not None:
            *difference, _ = _cells(comparison.difference)
            ps = [f"{p:.6f}" for p in (comparison.p, comparison.p_adjusted)]
            last = [comparison.reference, *difference, *ps, comparison.correction, comparison.verdict]
        writer.writerow([*first, *values, *last])
    return text.getvalue()


def _cells(estimate: Estimate | None) -> list[Any]:
    """Value, low, high and n; empty without an estimate."""
    if estimate is None:
        return [""] * 4
    return [*(f"{number:.6f}" for number in (estimate.value, estimate.low, estimate.high)), estimate.n]
