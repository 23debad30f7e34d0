"""A study in Korean. In: states, reasons and verdicts as the engine words them. Out: the same in the page's language.

The storage, trials.csv and result.json keep the English words; only study.html speaks its reader's language.
"""

from __future__ import annotations

import re

from coref_automl.comparison.page import Say
from coref_automl.records import Estimate
from coref_automl.tuning.finish import Final
from coref_automl.tuning.problem import Problem

_STATES = {"complete": "끝까지", "pruned": "중단", "failed": "실패", "running": "진행 중"}

_REASONS = (
    (
        r"worse than trial (\d+) at (\d+)/(\d+) of the budget: ([\d.]+) points, p ([\d.]+) \(paired test on select\)",
        r"예산의 \2/\3에서 시도 \1보다 \4점 낮음, p \5 (select의 짝지은 검정)",
    ),
    (
        r"not in the better half at (\d+)/(\d+) of the budget \(successive halving\)",
        r"예산의 \1/\2에서 나은 절반에 들지 못함 (연속 절반 줄이기)",
    ),
    (r"its process was killed \((?:exit status|signal) -?(\d+)\)", r"프로세스가 강제로 끝남 (신호 \1)"),
    (r"its process was killed", "프로세스가 강제로 끝남"),
    (r"its process ended with status (\d+)", r"프로세스가 상태 \1로 끝남"),
    (r"^(프로세스가 .*) twice", r"\1 (두 번)"),
    (r"it ended without a score", "점수 없이 끝남"),
    (r"Trial (\d+) is left out of the end: ", r"마지막 비교에서 빠진 시도 \1: "),
    (r"\(log: ", "(기록: "),
)
"""What the engine itself says; the words of an error in training stay as they are."""


def state_word(state: str, say: Say) -> str:
    return say(_STATES[state], state)


def reason_words(reason: str, say: Say) -> str:
    """Why a trial was cut, failed or was left out."""
    if say.lang == "ko":
        for english, korean in _REASONS:
            reason = re.sub(english, korean, reason)
    return reason


def verdict_sentence(final: Final, problem: Problem, seeds: int, say: Say) -> str:
    """The one sentence, with its intervals, in the page's language; English is what the command prints."""
    return say(_korean_sentence(final, problem, seeds), final.sentence)


def _korean_sentence(final: Final, problem: Problem, seeds: int) -> str:
    winner, verdict = final.winner, final.verdict
    where = f"{problem.confirm_name}, 시드 {seeds}개"
    reached = f"{problem.label} {100 * winner.confirmed:.2f}%, {where}"
    if final.reference is None:
        return f"시도 {winner.number}: select에서 가장 좋습니다 ({reached}). 비교할 추천 설정은 끝까지 가지 못했습니다."
    if verdict is None:
        return f"추천 설정이 찾은 것 가운데 가장 좋습니다 ({reached}). 그대로 쓰세요."
    gain = f"{problem.label} {100 * verdict.difference:+.2f}점 ({where})"
    spans = f"문서 구간 {_span(verdict.over_documents)}"
    if verdict.over_seeds is None:
        why = "시드 하나로는 알 수 없으니 --seeds 3을 주세요" if seeds < 2 else "시드마다 차이가 똑같아 흩어짐을 알 수 없습니다"
        return f"시도 {winner.number}: 추천 설정과의 차이는 {gain}, {spans}. {why}."
    spans = f"시드 구간 {_span(verdict.over_seeds)}, {spans}"
    if verdict.shown and verdict.difference > 0:
        return f"시도 {winner.number}: 추천 설정보다 낫습니다. {gain}, {spans}."
    if verdict.shown:
        return f"시도 {winner.number}: select에서 이겼지만 추천 설정보다 못합니다. {gain}, {spans}. 추천 설정을 쓰세요."
    return f"시도 {winner.number}: 추천 설정과의 차이는 우연일 수 있습니다. {gain}, {spans}. 어느 쪽도 낫다고 할 수 없습니다."


def _span(estimate: Estimate) -> str:
    return f"[{100 * estimate.low:+.2f}, {100 * estimate.high:+.2f}]"
