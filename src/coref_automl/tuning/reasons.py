"""Why a trial was cut, failed or was left out, for people. In: the reason as the storage keeps it. Out: the same in Korean."""

from __future__ import annotations

import re

from coref_automl.say import Say

_REASONS = (
    (
        r"worse than trial (\d+) at (\d+)/(\d+) of the budget: ([\d.]+) points, p ([\d.]+) \(paired test on select\)",
        r"예산의 \2/\3에서 시도 \1보다 \4점 낮음, p \5 (select의 짝지은 검정)",
    ),
    (
        r"not in the better half at (\d+)/(\d+) of the budget \(successive halving\)",
        r"예산의 \1/\2에서 나은 절반에 들지 못함 (연속 절반 줄이기)",
    ),
    (r"its process was killed \(signal (\d+)\)", r"프로세스가 강제로 끝남 (신호 \1)"),
    (r"its process ended twice without a word", "프로세스가 두 번 말없이 끝남"),
    (r"its process ended with status (\d+)", r"프로세스가 상태 \1로 끝남"),
    (r"^(프로세스가 .*) twice", r"\1 (두 번)"),
    (r"it ended without a score", "점수 없이 끝남"),
    (r"Trial (\d+) is left out of the end: ", r"마지막 비교에서 빠진 시도 \1: "),
    (r"Trial (\d+) with seed (\d+) is left out of the verdict: ", r"판정에서 빠진 시도 \1, 시드 \2: "),
    (r"\(log: ", "(기록: "),
)
"""The storage keeps reasons in English. These are the engine's own; the text of an error in training stays as it is."""


def reason_words(reason: str, say: Say) -> str:
    """The text of an error in training stays as it is."""
    if say.lang == "ko":
        for english, korean in _REASONS:
            reason = re.sub(english, korean, reason)
    return reason
