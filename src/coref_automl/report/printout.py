"""`compare` and `recommend` for people. In: paths of evaluated checkpoints. Out: records that print themselves."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from coref_automl.base.config import as_paths, typed_options
from coref_automl.base.errors import ComparisonError
from coref_automl.base.handed import offered
from coref_automl.base.records import Tabular
from coref_automl.base.say import Lang, Say, speaking
from coref_automl.comparison.claims import Answer
from coref_automl.comparison.differences import ComparisonRow, ComparisonTable, compare_group
from coref_automl.comparison.groups import choose_group
from coref_automl.comparison.reader import Results, open_results
from coref_automl.comparison.scores import Group, choose_metric
from coref_automl.comparison.study import Study, study_at
from coref_automl.comparison.study_data import POINTS, checked_margin
from coref_automl.comparison.vocabularies import vocabulary_pairs
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.answer_wording import answer_lines, headline
from coref_automl.report.page import bound, is_same, note, p_text
from coref_automl.report.terminal import in_blocks
from coref_automl.report.wording import ClaimText, comparison_verdict, forest_row, pair_lines, which_documents, why_not_compared

_COLOURS = {"better": 32, "worse": 31, "not shown": 90, "same": 90}
"""Terminal colors: green, red, gray."""


@dataclass(frozen=True, slots=True)
class PrintedComparison(Tabular, ComparisonTable):
    """A ComparisonTable that prints as a table."""

    lang: Lang = "en"

    @property
    def say(self) -> Say:
        return Say(self.lang)

    def to_json(self) -> dict[str, Any]:
        """The ComparisonTable alone: the language is not part of the result."""
        return {name: value for name, value in ComparisonTable.to_json(self).items() if name != "lang"}

    def __repr__(self) -> str:
        verdicts = [row.comparison.verdict for row in self.rows if row.comparison is not None]
        return f"{self.heading()}; {verdicts.count('better')} of {len(verdicts)} better than {', '.join(self.references)}"

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per checkpoint: value and difference in percent and points, with their intervals."""
        return [_row(row) for row in self.rows]

    def plot(self) -> Any:
        """Plot every difference with its interval, green or red if it is shown."""
        rows = [forest_row(row.name, row.name, row.comparison) for row in self.rows if row.comparison is not None]
        return offered("forest")(rows, self.say)

    def heading(self) -> str:
        label, items, documents = METRICS[self.metric].label, f"{self.items:,}", f"{self.documents:,}"
        where = which_documents(None if self.half == "all" else "confirm", self.say)
        return self.say(
            f"{label}, {self.evalset}, {where}: 문서 {documents}개의 문항 {items}개",
            f"{label} on {self.evalset}, {where}: {items} items of {documents} documents",
        )

    def titles(self) -> tuple[str, ...]:
        """The head of the table; several references are numbered, because their names would not fit in a column."""
        say = self.say
        first = (say("체크포인트", "checkpoint"), say("값 %", "value %"), say("95% 신뢰구간", "95% interval"))
        last = (say("차이", "difference"), "p (max-T)", say("판정", "verdict"))
        return (*first, say("기준", "against"), *last) if len(self.references) > 1 else (*first, *last)

    def cells(self) -> list[tuple[str, ...]]:
        numbers = {name: str(number) for number, name in enumerate(self.references, 1)}
        alone = not any(row.comparison for row in self.rows)  # no checkpoint was scored in windows of this base's length
        return [_cells(row, numbers, self.say, alone=alone) for row in self.rows]

    def __str__(self) -> str:
        return self.printed()

    def printed(self, width: int | None = None, *, colour: bool = False) -> str:
        """The table in blocks of columns that fit the width, with its heading and notes."""
        cells = self.cells()
        lines = in_blocks([self.titles(), *cells], width)
        if colour:
            shown = [(row.comparison, line) for row, line in zip(self.rows, cells, strict=True) if row.comparison]
            shades = {line[-1]: _COLOURS[comparison.verdict] for comparison, line in shown}
            lines = [_shaded(line, shades) for line in lines]
        others = [PrintedComparison(**_values(other), lang=self.lang).printed(width, colour=colour) for other in self.others]
        between = [line for pair in self.pairs for line in pair_lines(pair, self.say)]
        return "\n".join([self.heading(), *lines, *self.notes, *(f"\n{other}" for other in others), *between])

    def _repr_html_(self) -> str:
        table = html_table([dict(zip(self.titles(), cells, strict=True)) for cells in self.cells()], most=len(self.rows))
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self.notes)
        return f"<p>{html.escape(self.heading())}</p>{table}{notes}"


@dataclass(frozen=True, slots=True)
class PrintedAnswer(Tabular, Answer):
    """An Answer that prints itself, notes below; its rows are its claims."""

    lang: Lang = "en"
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The Answer alone: language and notes are not part of the result."""
        return {name: value for name, value in Answer.to_json(self).items() if name not in ("lang", "notes")}

    def __str__(self) -> str:
        return "\n".join([*answer_lines(self, Say(self.lang)), *self.notes])

    def __repr__(self) -> str:
        return headline(self, Say(self.lang))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per claim: values in percent, differences in points."""
        say = Say(self.lang)
        return [
            {"question": claim.question, "leads": claim is question.lead, "a": claim.a, "b": claim.b,
             "outcome": ClaimText(claim, say).outcome(), "part": claim.part, "difference": 100 * claim.difference.value,
             "low": 100 * claim.difference.low, "high": 100 * claim.difference.high, "p": claim.p, "verdict": claim.verdict}
            for question in self.questions for claim in question.claims
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
        metric: default Noun@1, or the first metric that all have.
        reference: name or path of the checkpoint to compare all others with. Default: the model each one started from; the base
            model or the first checkpoint if none of those was evaluated.
        common: if the sets differ, compare on the items that all have in common.
        eval_set: the set to compare on, if the checkpoints were scored on several.
        seed: of the resampling.
        lang: ko or en; default: COREF_AUTOML_LANG, or the locale.

    Example:
        >>> import coref_automl as ca
        >>> table = ca.compare(runs)
        >>> table.reference
        'base'
    """
    names = as_paths(paths, "paths")
    with speaking(lang) as say:
        options: dict[str, Any] = {"metric": metric, "reference": reference, "common": common, "eval_set": eval_set}
        return compared(open_results(names), **options, seed=seed, lang=say.lang)[0]


@typed_options
def recommend(
    *paths: Any,
    metric: str | None = None,
    margin: float = POINTS,
    eval_set: str | None = None,
    seed: int = 0,
    lang: str | None = None,
) -> PrintedAnswer:
    """Recommend what to use, with the reasons and how long to train next time, from evaluated checkpoints.

    Args:
        paths: checkpoints, runs, folders of runs, model names; or lists of these; relation and coreference runs too.
        metric: default Noun@1, or the first metric that all have.
        margin: points that count as no difference, and that may be given up for less training.
        eval_set: the set to judge by, if the checkpoints were scored on several.
        seed: of the resampling.
        lang: ko or en; default: COREF_AUTOML_LANG, or the locale.

    Example:
        >>> import coref_automl as ca
        >>> ca.recommend(runs, margin=1).action
        'use checkpoint'
    """
    allowed_loss, names = checked_margin(margin), as_paths(paths, "paths")
    with speaking(lang) as say:
        results = open_results(names)
        group, notes = choose_group(results, evalset=eval_set)
        study = study_at(results, group, metric=metric, margin=allowed_loss, seed=seed)
        between = [line for pair in vocabulary_pairs(group, seed=seed) for line in pair_lines(pair, say)]
        return printed_answer(study, notes=(*notes, *study.notes, *between), lang=say.lang)


def printed_answer(study: Study, *, notes: Sequence[str] = (), lang: Lang) -> PrintedAnswer:
    return PrintedAnswer(**_values(study.answer), lang=lang, notes=tuple(notes))


def compared(
    results: Results, *, metric: str | None, reference: str | None, common: bool, eval_set: str | None, seed: int, lang: Lang
) -> tuple[PrintedComparison, Group]:
    """Compare opened results; return the table, and the group that it compares."""
    group, notes = choose_group(results, common=common, evalset=eval_set)
    if len(group.entries) < 2 and not group.others:
        raise ComparisonError(f"Only {group.entries[0].name} has been evaluated here; give a second one to compare it with.")
    metric = choose_metric(group, metric)
    table = compare_group(group, metric, reference=reference, common=common, seed=seed, notes=notes)
    entry = next((entry for entry in group.entries if entry.name == table.reference), None)
    stands_in = reference is None and entry is not None and entry.trained and len(table.references) == 1  # no base was scored
    stand_in = [note("taken as reference", Say(lang), name=table.reference)] if stands_in else []
    others = tuple(compare_group(other, choose_metric(other, None), common=common, seed=seed) for other in group.others)
    beside = {"notes": (*table.notes, *stand_in), "others": others, "pairs": vocabulary_pairs(group, seed=seed)}
    return PrintedComparison(**{**_values(table), **beside}, lang=lang), group


def _row(row: ComparisonRow) -> dict[str, Any]:
    comparison, value = row.comparison, row.value
    judged = dict.fromkeys(("reference", "difference", "difference_low", "difference_high", "p", "finding"))
    if comparison is not None:
        difference = comparison.difference
        change = [100 * share for share in (difference.value, difference.low, difference.high)]
        judged = dict(zip(judged, (comparison.reference, *change, comparison.p_adjusted, comparison.verdict), strict=True))
    return {"checkpoint": row.name, "value": 100 * value.value, "low": 100 * value.low, "high": 100 * value.high, **judged}


def _shaded(line: str, shades: Mapping[str, int]) -> str:
    """The line with the verdict at its end in color."""
    verdict = next((text for text in shades if line.endswith(text)), "")
    return f"{line.removesuffix(verdict)}\x1b[{shades[verdict]}m{verdict}\x1b[0m" if verdict else line


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _cells(row: ComparisonRow, numbers: Mapping[str, str], say: Say, *, alone: bool) -> tuple[str, ...]:
    value, comparison, several = row.value, row.comparison, len(numbers) > 1
    low, high = f"{100 * value.low:.1f}", f"{100 * value.high:.1f}"
    first: tuple[str, ...] = (row.name, f"{100 * value.value:.2f}", say(f"{low}~{high}", f"{low} to {high}"))
    if several:
        first = (*first, numbers[comparison.reference] if comparison else "")
    if comparison is None:
        label = say("기준", "reference") + f" {numbers.get(row.name)}" if several else say("기준", "the reference")
        label = say(f"비교하지 않음: 창 {row.seq_len}", f"not compared: window of {row.seq_len}") if alone else label
        return (*first, "", "", label if row.name in numbers else why_not_compared(row, say))
    difference = comparison.difference
    change = f"{100 * difference.value:+.2f} [{bound(difference.low)}, {bound(difference.high)}]"
    change = "–" if is_same(difference) else change
    return (*first, change, p_text(comparison.p_adjusted), comparison_verdict(comparison, say))


def html_table(rows: list[dict[str, Any]], *, most: int = 30) -> str:
    """The first rows as a table, and the number of the others below it."""
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
