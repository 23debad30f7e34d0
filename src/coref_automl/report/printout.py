"""`compare` and `recommend` for people. In: paths of evaluated checkpoints. Out: records that print themselves."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from coref_automl.comparison.choice import POINTS, checked_margin
from coref_automl.comparison.claims import Answer
from coref_automl.comparison.differences import ComparisonRow, ComparisonTable, compare_group
from coref_automl.comparison.groups import choose_group
from coref_automl.comparison.reader import Results, open_results
from coref_automl.comparison.scores import Group, choose_metric
from coref_automl.comparison.study import Study, study_at
from coref_automl.config import as_paths, typed_options
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Tabular
from coref_automl.report import charts
from coref_automl.report.answer_wording import answer_lines, headline
from coref_automl.report.page import bound, is_same, note, p_text
from coref_automl.report.terminal import in_blocks
from coref_automl.report.wording import comparison_verdict, forest_row, outcome, unjudged, which_documents
from coref_automl.say import Lang, Say, speaking

_COLOURS = {"better": 32, "worse": 31, "not shown": 90, "same": 90}
"""Of a terminal: green, red, grey."""


@dataclass(frozen=True, slots=True)
class PrintedComparison(Tabular, ComparisonTable):
    """A ComparisonTable that prints as a table."""

    lang: Lang = "en"

    @property
    def say(self) -> Say:
        return Say(self.lang)

    def to_json(self) -> dict[str, Any]:
        """As a ComparisonTable: the language is not part of the result."""
        return {name: value for name, value in ComparisonTable.to_json(self).items() if name != "lang"}

    def __repr__(self) -> str:
        found = [row.comparison.verdict for row in self.rows if row.comparison is not None]
        return f"{self.heading()}; {found.count('better')} of {len(found)} better than {', '.join(self.references)}"

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per checkpoint: value and difference in percent and points, with their intervals."""
        return [_row(row) for row in self.rows]

    def plot(self) -> charts.Drawing:
        """Every difference with its interval, green or red if it is shown."""
        rows = [forest_row(row.name, row.name, row.comparison) for row in self.rows if row.comparison is not None]
        return charts.Drawing(charts.forest(rows, self.say))

    def heading(self) -> str:
        label, items, documents = METRICS[self.metric].label, f"{self.items:,}", f"{self.documents:,}"
        where = which_documents(None if self.half == "all" else "confirm", self.say)
        return self.say(
            f"{label}, {self.evalset}, {where}: 문서 {documents}개의 문항 {items}개",
            f"{label} on {self.evalset}, {where}: {items} items of {documents} documents",
        )

    def titles(self) -> tuple[str, ...]:
        """Several references are numbered, because their names would not fit in a column."""
        say = self.say
        first = (say("체크포인트", "checkpoint"), say("값 %", "value %"), say("95% 신뢰구간", "95% interval"))
        last = (say("차이", "difference"), "p (max-T)", say("판정", "verdict"))
        return (*first, say("기준", "against"), *last) if len(self.references) > 1 else (*first, *last)

    def cells(self) -> list[tuple[str, ...]]:
        numbers = {name: str(number) for number, name in enumerate(self.references, 1)}
        alone = not any(row.comparison for row in self.rows)  # nothing has this base in windows of its length
        return [_cells(row, numbers, self.say, alone=alone) for row in self.rows]

    def __str__(self) -> str:
        return self.printed()

    def printed(self, width: int | None = None, *, colour: bool = False) -> str:
        """The table in blocks of columns that fit so many; verdicts in colour where that is wanted."""
        cells = self.cells()
        lines = in_blocks([self.titles(), *cells], width)
        if colour:
            shades = {
                told[-1]: _COLOURS[row.comparison.verdict] for row, told in zip(self.rows, cells, strict=True) if row.comparison
            }
            lines = [_shaded(line, shades) for line in lines]
        return "\n".join([self.heading(), *lines, *self.notes])

    def _repr_html_(self) -> str:
        table = html_table([dict(zip(self.titles(), cells, strict=True)) for cells in self.cells()], most=len(self.rows))
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self.notes)
        return f"<p>{html.escape(self.heading())}</p>{table}{notes}"


@dataclass(frozen=True, slots=True)
class PrintedAnswer(Tabular, Answer):
    """An Answer that prints itself, notes below; to be listed, its claims."""

    lang: Lang = "en"
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As an Answer: neither the language nor what it says is part of the result."""
        return {name: value for name, value in Answer.to_json(self).items() if name not in ("lang", "notes")}

    def __str__(self) -> str:
        return "\n".join([*answer_lines(self, Say(self.lang)), *self.notes])

    def __repr__(self) -> str:
        return headline(self, Say(self.lang))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per claim: values in percent, differences in points."""
        say = Say(self.lang)
        return [
            {"question": one.question, "leads": number == 0, "a": one.a, "b": one.b, "outcome": outcome(one, say),
             "part": one.part, "difference": 100 * one.difference.value, "low": 100 * one.difference.low,
             "high": 100 * one.difference.high,
             "p": one.p, "verdict": one.verdict}
            for question in self.questions for number, one in enumerate(question.claims)
        ]  # fmt: skip

    def _repr_html_(self) -> str:
        first, *rest = str(self).split("\n")
        return f"<p><strong>{html.escape(first)}</strong></p>" + "".join(f"<p>{html.escape(line)}</p>" for line in rest)


@typed_options
def compare(
    *paths: Any,
    metric: str | None = None,
    reference: str | None = None,
    common: bool = False,
    eval_set: str | None = None,
    seed: int = 0,
    lang: str | None = None,
) -> PrintedComparison:
    """Compare evaluated checkpoints on the items they share.

    Args:
        paths: checkpoints, runs, folders of runs, model names; or lists of these.
        metric: default strict Real@1, or `word` if tokenizers differ.
        reference: name or path of the checkpoint to compare all others with. Default: the model each one started from; the base
            model or the first checkpoint if none of those was evaluated.
        common: if the sets differ, compare on the items that all have in common.
        eval_set: the set to compare on, if the checkpoints were scored on several.
        seed: of the resampling.
        lang: ko or en; default: COREF_AUTOML_LANG, or the locale.

    Example:
        >>> import coref_automl as ca
        >>> found = ca.compare(runs)
        >>> found.reference
        'base'
    """
    names = as_paths(paths, "paths")
    with speaking(lang) as say:
        chosen: dict[str, Any] = {"metric": metric, "reference": reference, "common": common, "eval_set": eval_set}
        return compared(open_results(names), **chosen, seed=seed, lang=say.lang)[0]


@typed_options
def recommend(
    *paths: Any,
    metric: str | None = None,
    margin: float = POINTS,
    eval_set: str | None = None,
    seed: int = 0,
    lang: str | None = None,
) -> PrintedAnswer:
    """The answer that the evaluated checkpoints give: what to use, why, and how long to train next time.

    Args:
        paths: checkpoints, runs, folders of runs, model names; or lists of these; relation and coreference runs too.
        metric: default strict Real@1, or `word` if tokenizers differ.
        margin: points that count as no difference, and that may be given up for less training.
        eval_set: the set to judge by, if the checkpoints were scored on several.
        seed: of the resampling.
        lang: ko or en; default: COREF_AUTOML_LANG, or the locale.

    Example:
        >>> import coref_automl as ca
        >>> ca.recommend(runs, margin=1).action
        'use checkpoint'
    """
    allowed = checked_margin(margin)
    names = as_paths(paths, "paths")
    with speaking(lang) as say:
        results = open_results(names)
        group, notes = choose_group(results, evalset=eval_set)
        study = study_at(results, group, metric=metric, margin=allowed, seed=seed)
        return printed_answer(study, notes=(*notes, *study.notes), lang=say.lang)


def printed_answer(study: Study, *, notes: Sequence[str] = (), lang: Lang) -> PrintedAnswer:
    return PrintedAnswer(**_values(study.answer), lang=lang, notes=tuple(notes))


def compared(
    results: Results, *, metric: str | None, reference: str | None, common: bool, eval_set: str | None, seed: int, lang: Lang
) -> tuple[PrintedComparison, Group]:
    """The table that opened results give, and the group that it compares; with what stands in for a base that was not scored."""
    group, notes = choose_group(results, common=common, evalset=eval_set)
    if len(group.entries) < 2:
        raise ComparisonError(
            f"Only {group.entries[0].name} has been evaluated here; give a second checkpoint to compare it with."
        )
    metric, more = choose_metric(group, metric)
    table = compare_group(group, metric, reference=reference, common=common, seed=seed, notes=(*notes, *more))
    taken = next((entry for entry in group.entries if entry.name == table.reference), None)
    stands_in = reference is None and taken is not None and taken.trained and len(table.references) == 1
    told = [note("taken as reference", Say(lang), name=table.reference)] if stands_in else []
    return PrintedComparison(**{**_values(table), "notes": (*table.notes, *told)}, lang=lang), group


def _row(row: ComparisonRow) -> dict[str, Any]:
    answer, value = row.comparison, row.value
    told = dict.fromkeys(("reference", "difference", "difference_low", "difference_high", "p", "finding"))
    if answer is not None:
        change = [100 * number for number in (answer.difference.value, answer.difference.low, answer.difference.high)]
        told = dict(zip(told, (answer.reference, *change, answer.p_adjusted, answer.verdict), strict=True))
    return {"checkpoint": row.name, "value": 100 * value.value, "low": 100 * value.low, "high": 100 * value.high, **told}


def _shaded(line: str, shades: Mapping[str, int]) -> str:
    """The line with the verdict at its end in colour."""
    told = next((text for text in shades if line.endswith(text)), "")
    return f"{line.removesuffix(told)}\x1b[{shades[told]}m{told}\x1b[0m" if told else line


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _cells(row: ComparisonRow, numbers: Mapping[str, str], say: Say, *, alone: bool) -> tuple[str, ...]:
    value, answer, several = row.value, row.comparison, len(numbers) > 1
    low, high = f"{100 * value.low:.1f}", f"{100 * value.high:.1f}"
    first: tuple[str, ...] = (row.name, f"{100 * value.value:.2f}", say(f"{low}~{high}", f"{low} to {high}"))
    if several:
        first = (*first, numbers[answer.reference] if answer else "")
    if answer is None:
        own = say("기준", "reference") + f" {numbers.get(row.name)}" if several else say("기준", "the reference")
        own = say(f"비교하지 않음: 창 {row.seq_len}", f"not compared: window of {row.seq_len}") if alone else own
        return (*first, "", "", own if row.name in numbers else unjudged(row, say))
    change = answer.difference
    moved = "–" if is_same(change) else f"{100 * change.value:+.2f} [{bound(change.low)}, {bound(change.high)}]"
    return (*first, moved, p_text(answer.p_adjusted), comparison_verdict(answer, say))


def html_table(rows: list[dict[str, Any]], *, most: int = 30) -> str:
    """The first rows; how many more there are is said below."""
    if not rows:
        return "<p>–</p>"
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_text(value))}</td>" for value in row.values()) + "</tr>" for row in rows[:most]
    )
    more = f"<p>… {len(rows) - most:,}</p>" if len(rows) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "" if value is None else str(value)
