"""Runs at equal training. In: a Subject. Out: every run at the largest token count that all of them reached."""

from __future__ import annotations

from coref_automl.comparison.scores import EQUAL, is_equal_training
from coref_automl.report.language import tokens
from coref_automl.report.page import Cell, Section, Table, Text, estimate_cells, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import checkpoint_cell


def draw(study: Subject) -> Section | None:
    """Compare the runs at the largest token count that all of them reached."""
    runs, say = study.runs(), study.say
    if len(runs) < 2:
        return None
    common = min(entries[-1].tokens for entries in runs.values())
    nearest = {run: min(entries, key=lambda entry: abs(entry.tokens - common)) for run, entries in runs.items()}
    level = {run: entry for run, entry in nearest.items() if is_equal_training(entry.tokens, common)}
    if len(level) < 2:
        return None
    left = ", ".join(run for run in nearest if run not in level)
    (first, reference), *rest = level.items()
    answers = study.judged(reference, [entry for _, entry in rest])
    cells = estimate_cells([None, *(answer.difference if answer else None for answer in answers)], difference=True)
    lines = tuple(
        row(
            run,
            entry.name,
            tokens(entry.recorded_tokens),
            cell,
            checkpoint_cell(answer, say) if answer else Cell(say("기준", "reference"), "quiet"),
        )
        for (run, entry), cell, answer in zip(level.items(), cells, [None, *answers], strict=True)
    )
    head = (
        say("실행", "run"), say("체크포인트", "checkpoint"), say("토큰", "tokens"),
        say(f"차이 (기준 {first})", f"difference from {first}"), say("판정", "verdict"),
    )  # fmt: skip
    told = say(
        f"모든 실행이 도달한 {tokens(common)} 토큰 근처에서 확인용 절반의 문서로 비교합니다. max-T 보정, 비교 {len(rest)}개. "
        "실행 하나하나의 판정이며 방법의 판정이 아닙니다. 방법의 판정은 질문별 결과에 있습니다.",
        f"Compared near {tokens(common)} tokens, which every run reached, on the confirm half; max-T over {len(rest)} "
        "comparisons. Verdicts are about single runs, not about methods: those are in the questions above.",
    )
    told += say(
        f" 토큰 수의 차이가 {100 * EQUAL:g}% 이내이면 같은 학습량으로 봅니다.",
        f" Training is equal when tokens differ by at most {100 * EQUAL:g}%.",
    )
    if left:
        told += say(f" 그만큼 가까운 체크포인트가 없는 학습: {left}.", f" No checkpoint comes that near in {left}.")
    table = Table(head, lines, frozenset({2, 3}), shows="confirm")
    return Section("efficiency", say("같은 학습량에서", "At equal training"), (Text(told), table))
