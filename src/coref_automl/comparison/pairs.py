"""Sections about pairs. In: a Study. Out: every checkpoint against the reference, and the best twenty against each other."""

from __future__ import annotations

from typing import Any

from coref_automl.comparison import charts
from coref_automl.comparison.compare import ALPHA, Finding, finding
from coref_automl.comparison.groups import same_model
from coref_automl.comparison.page import Cell, Charts, Section, Table, Text, Tone, estimate_cells, in_percent, row
from coref_automl.comparison.sentences import points, verdict
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison

_MOST_LINES = 40
_TONES: dict[Finding, Tone] = {"better": "good", "worse": "bad"}


def differences(study: Study) -> Section | None:
    """Every checkpoint against the reference on the confirm half."""
    table, say = study.table, study.say
    if table is None:
        return None
    judged = [(line, line.comparison) for line in table.rows if line.comparison is not None]
    plotted = _most_telling(judged)
    rows: list[dict[str, Any]] = [
        {
            "name": line.name,
            **in_percent(answer.difference),
            "p": answer.p_adjusted,
            "verdict": verdict(answer, say.lang),
            "finding": "not shown" if finding(answer) == "same" else finding(answer),
        }
        for line, answer in plotted
    ]
    cells = estimate_cells([answer.difference for _, answer in judged], difference=True)
    lines = tuple(
        row(
            line.name,
            f"{100 * line.value.value:.1f}",
            cell,
            p_text(answer.p_adjusted),
            p_text(answer.mcnemar_p),
            verdict_cell(answer, study),
        )
        for (line, answer), cell in zip(judged, cells, strict=True)
    )
    head = (
        say("체크포인트", "checkpoint"), "%", say(f"차이 (기준 {table.reference})", f"difference from {table.reference}"),
        "p (Holm)", "McNemar", say("판정", "verdict"),
    )  # fmt: skip
    intro = say(
        f"{METRICS[study.metric].label}, 확인 쪽 절반의 문항 {table.items:,}개(문서 {table.documents:,}개)에서. "
        "판정은 문서 단위 부호 뒤집기 검정과 Holm 보정으로만 내리고, McNemar는 문항이 독립이라면의 참고값입니다.",
        f"{METRICS[study.metric].label} on {table.items:,} items of {table.documents:,} documents of the confirm half. "
        "The verdict is the sign-flip test over documents with Holm's adjustment; McNemar is the reading for independent "
        "items and decides nothing.",
    )
    intro += _windows(study)
    title = say("원래 모델(기준)과의 차이", "Differences from the reference")
    chart = Charts(((title, charts.differences(rows, say)),), wide=True)
    return Section("differences", title, (Text(intro), chart, Table(head, lines, frozenset({1, 2, 3, 4}))))


def _windows(study: Study) -> str:
    """Unlike windows are named, and what they alone do to the base is said."""
    say, base = study.say, study.base
    lengths = sorted({entry.evaluation.seq_len for entry in study.entries if entry.trained})
    if base is None or lengths in ([], [base.evaluation.seq_len]):
        return ""
    own = same_model(base.evaluation.checkpoint)
    others = [e for e in study.entries if not e.trained and e is not base and same_model(e.evaluation.checkpoint) == own]
    told = [
        f"@{entry.evaluation.seq_len:,}: {points(answer.difference)}"
        for entry, answer in zip(others, study.judged(base, others), strict=True)
        if answer is not None
    ]
    listed = ", ".join(f"{length:,}" for length in lengths)
    return say(
        f" 체크포인트의 창 길이는 {listed} 토큰이고 기준은 {base.evaluation.seq_len:,} 토큰입니다."
        + (f" 학습 없이 창만 바꾼 기준 모델의 차이, {'; '.join(told)}점." if told else ""),
        f" Windows are of {listed} tokens, the reference's of {base.evaluation.seq_len:,}."
        + (f" The reference itself in other windows, untrained: {'; '.join(told)} points." if told else ""),
    )


def paired_matrix(study: Study) -> Section | None:
    found, say = study.matrix(), study.say
    if found is None:
        return None
    entries, gaps, ps = found
    names = [entry.name for entry in entries]
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    rows = [
        {"row": names[i], "column": names[j], "value": round(100 * float(gaps[i, j]), 3), "p": float(ps[i, j])} for i, j in pairs
    ]
    marked = [
        {**entry, "size": round(100 * abs(float(gaps[i, j])), 3), "shown": bool(ps[i, j] < ALPHA)}
        for entry, (i, j) in zip(rows, pairs, strict=True)
    ]
    known = sum(bool(entry["shown"]) for entry in marked) // 2
    told = say(
        f"선택 쪽에서 앞선 것과 원래 모델, 모두 {len(names)}개의 짝 {len(rows) // 2}개 중 차이가 보이는 짝은 {known}개입니다 "
        f"(점으로 표시, 모든 짝에 대한 Holm).",
        f"Of the {len(rows) // 2} pairs of {len(names)} (the highest on select, and the base), {known} are shown to differ (a "
        f"dot marks them; Holm over all pairs). Green: the row is above the column; red: below.",
    )
    title = say("짝 비교 행렬", "Pair by pair")
    return Section("matrix", title, (Text(told), Charts(((title, charts.matrix(marked, names, say)),), wide=True)))


def verdict_cell(answer: Comparison | None, study: Study) -> Cell:
    if answer is None:
        return Cell("–", "quiet")
    found = finding(answer)
    return Cell(verdict(answer, study.say.lang), _TONES.get(found, "quiet"))


def _most_telling(judged: list[tuple[Any, Comparison]]) -> list[tuple[Any, Comparison]]:
    """At most forty lines in a chart: the largest differences, in the table's order."""
    keep = sorted(range(len(judged)), key=lambda number: -abs(judged[number][1].difference.value))[:_MOST_LINES]
    return [judged[number] for number in sorted(keep)]


def p_text(p: float | None) -> str:
    return "–" if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"
