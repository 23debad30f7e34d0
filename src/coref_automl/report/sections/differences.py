"""Every checkpoint against its reference. In: a Subject. Out: a chart and a table per reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coref_automl.comparison.differences import ComparisonRow, ComparisonTable
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison
from coref_automl.report import charts
from coref_automl.report.cells import checkpoint_cell, comparison_verdict, shows
from coref_automl.report.language import p_text, points
from coref_automl.report.page import Block, Cell, Charts, Section, Table, Text, estimate_cells, in_percent, row
from coref_automl.report.subject import Subject

_MOST_LINES = 40


def draw(study: Subject) -> Section | None:
    """Every checkpoint against its reference (its base, or one for all); one table per reference."""
    table, say = study.table, study.say
    if table is None:
        return None
    title = say("원래 모델(기준)과의 차이", "Differences from the reference")
    several, unjudged = len(table.references) > 1, table.unjudged
    judged = [line for line in table.rows if line.comparison is not None]
    cells = estimate_cells([line.comparison.difference for line in judged if line.comparison], difference=True)
    shown = dict(zip((line.name for line in judged), cells, strict=True))
    blocks: list[Block] = [Text(_intro(study, table))]
    for name in table.references:
        of = [line for line in judged if line.comparison and line.comparison.reference == name]
        about = say(f"기준 {name}과의 차이", f"Differences from {name}") if several else title
        blocks.append(Charts(((about, charts.differences(_plotted(study, of), say)),), wide=True))
        blocks.append(_table(study, of, shown, say(f"차이 (기준 {name})", f"difference from {name}")))
    if lost := [line for line in table.rows if line.name in unjudged]:
        blocks.append(_table(study, lost, shown, say("차이", "difference")))
    return Section("differences", title, tuple(blocks))


def _plotted(study: Subject, lines: Sequence[ComparisonRow]) -> list[dict[str, Any]]:
    return [
        {
            "name": line.name,
            **in_percent(answer.difference),
            "p": answer.p_adjusted,
            "verdict": comparison_verdict(answer, study.say),
            "finding": "not shown" if answer.verdict == "same" else answer.verdict,
        }
        for line, answer in _most_telling([(line, line.comparison) for line in lines if line.comparison is not None])
    ]


def _table(study: Subject, lines: Sequence[ComparisonRow], cells: Mapping[str, Cell], change: str) -> Table:
    """One line per checkpoint; `cells` are the differences of those with a verdict."""
    say = study.say
    lost = Cell(say("원래 모델이 평가되지 않음", "its base was not evaluated"), "quiet")
    none = Cell(say("원래 모델이 없음: 새 모델", "no base: a new model"), "quiet")
    rows = tuple(
        row(
            line.name,
            f"{100 * line.value.value:.1f}",
            cells.get(line.name, "–"),
            p_text(answer.p_adjusted if answer else None),
            p_text(answer.mcnemar_p if answer else None),
            checkpoint_cell(answer, say) if answer else none if line.scratch else lost,
        )
        for line in lines
        for answer in (line.comparison,)
    )
    head = (say("체크포인트", "checkpoint"), "%", change, "p (max-T)", "McNemar", say("판정", "verdict"))
    return Table(head, rows, frozenset({1, 2, 3, 4}), shows=shows(study.group.judging))


def _intro(study: Subject, table: ComparisonTable) -> str:
    say, label = study.say, METRICS[study.metric].label
    ko, en = ("확인용 절반의", " of the confirm half") if table.half == "confirm" else ("전체", "")
    intro = say(
        f"{label}, {ko} 문항 {table.items:,}개(문서 {table.documents:,}개)에서. "
        "판정은 문서 단위 부호 뒤집기 검정과 max-T 보정으로만 내리고, McNemar는 문항이 독립이라면의 참고값입니다.",
        f"{label} on {table.items:,} items of {table.documents:,} documents{en}. "
        "The verdict is the sign-flip test over documents with the step-down max-T adjustment; McNemar is the reading for "
        "independent items and decides nothing.",
    )
    judged = [line.comparison.reference for line in table.rows if line.comparison]
    if len(table.references) > 1:
        told = ", ".join(f"{name} ({judged.count(name)})" for name in table.references)
        intro += say(
            f" 체크포인트마다 기준은 그것이 시작한 모델입니다: {told}. 보정은 {len(judged)}개 모두에 대한 것입니다.",
            f" The reference of a checkpoint is the model it began from: {told}. The adjustment is over all {len(judged)}.",
        )
    of = {line.name: entry for entry, line in zip(study.rows, table.rows, strict=True)}  # row names are unique
    lost = {of[name].run: of[name] for name in of if name in table.unjudged}
    intro += study.explain_missing_bases(lost, "판정하지 않았습니다.", "nothing is judged there.")
    return intro + "".join(_windows(study, of[name], several=len(table.references) > 1) for name in table.references)


def _windows(study: Subject, base: Entry, *, several: bool) -> str:
    """Names differing window lengths, and their effect on the untrained base."""
    say = study.say
    lengths = sorted({entry.evaluation.seq_len for entry in study.entries if entry.trained and study.own_base(entry) is base})
    if lengths in ([], [base.evaluation.seq_len]):
        return ""
    others = [entry for entry in study.entries if not entry.trained and entry is not base and entry.same_model_as(base)]
    told = [
        f"@{entry.evaluation.seq_len:,}: {points(answer.difference)}"
        for entry, answer in zip(others, study.judged(base, others), strict=True)
        if answer is not None
    ]
    listed = ", ".join(f"{length:,}" for length in lengths)
    size = f"{base.evaluation.seq_len:,}"
    alone = (
        say(
            f" 학습 없이 창만 바꾼 기준 모델의 차이, {'; '.join(told)}점.",
            f" The reference itself in other windows, untrained: {'; '.join(told)} points.",
        )
        if told
        else ""
    )
    lead = say(
        f" 체크포인트의 창 길이는 {listed} 토큰이고 기준은 {size} 토큰입니다.",
        f" Windows are of {listed} tokens, the reference's of {size}.",
    )
    if several:
        lead = say(
            f" {base.name}에서 시작한 체크포인트의 창 길이는 {listed} 토큰이고 이 기준은 {size} 토큰입니다.",
            f" Windows of those from {base.name} are of {listed} tokens, this reference's of {size}.",
        )
    return lead + alone


def _most_telling(judged: list[tuple[Any, Comparison]]) -> list[tuple[Any, Comparison]]:
    """At most forty lines in a chart: the largest differences, in the table's order."""
    keep = sorted(range(len(judged)), key=lambda number: -abs(judged[number][1].difference.value))[:_MOST_LINES]
    return [judged[number] for number in sorted(keep)]
