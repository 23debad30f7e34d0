"""Words and numbers as pages write them. In: an estimate, a count, a p value. Out: text; Korean and English side by side."""

from __future__ import annotations

import json
from pathlib import Path

from coref_automl.records import Estimate
from coref_automl.say import LANGUAGES as LANGUAGES
from coref_automl.say import Lang as Lang
from coref_automl.say import Say as Say
from coref_automl.say import language as language


def percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f}% [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def interval(estimate: Estimate | None) -> str:
    """A value in percent with its interval, without the sign: tables name the unit in their head."""
    if estimate is None:
        return "–"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def points(estimate: Estimate) -> str:
    """A difference. A bound that rounds to zero keeps its sign (-0.0), because the side of zero decides."""
    held = estimate.within(-1.0, 1.0)
    value, low, high = (f"{100 * number + 0.0:+.1f}" for number in (held.value, held.low, held.high))
    return f"{value} [{low}, {high}]"


def is_same(difference: Estimate) -> bool:
    """Is nothing different at all? An interval of no width would feign precision: words say it."""
    return difference.value == difference.low == difference.high == 0


def p_text(p: float | None) -> str:
    return "–" if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def tokens(count: int | None) -> str:
    if count is None:
        return "–"
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def rounded(count: int) -> int:
    """Rounded up to two leading digits, for counts that are extrapolated."""
    size = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // size) * size


def notes(name: str, say: Say, **values: str) -> tuple[str, ...]:
    """Sentences of notes.json, which has each in Korean and in English, with values in their places."""
    held = json.loads((Path(__file__).parent / "templates" / "notes.json").read_text("utf-8"))
    return tuple(say(ko, en).format(**values) for ko, en in held[name])
