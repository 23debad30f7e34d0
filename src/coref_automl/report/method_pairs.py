"""Methods in pairs. In: arms of a study. Out: pairs that differ in method alone, their verdicts, and how these read by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coref_automl.comparison.arms import Arm, Versus, equally_trained, versus
from coref_automl.report.language import Say, tokens
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import phrase

JudgedPair = tuple[tuple[Arm, Arm], Versus]
"""Two arms and the verdict between them."""


def judged_pairs(study: Subject, pairs: Sequence[tuple[Arm, Arm]]) -> list[tuple[tuple[Arm, Arm], Versus]]:
    found = versus(study, pairs, study.metric)
    return [(pair, one) for pair, one in zip(pairs, found, strict=True) if one is not None]


def alike_pairs(found: Sequence[Arm], wanted: Callable[[Arm, Arm], bool]) -> list[tuple[Arm, Arm]]:
    return [(a, b) for a in found for b in found if a is not b and a.alike(b) and wanted(a, b)]


def equally_trained_pairs(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[tuple[tuple[Arm, Arm], Versus]]:
    """The pairs at equal training: the others are in the table and have no say."""
    return [(pair, one) for pair, one in judged if equally_trained(*pair)]


def by_length(judged: Sequence[tuple[tuple[Arm, Arm], Versus]], study: Subject) -> str:
    """The verdicts that rest on several seeds; where there is none, what one seed says."""
    firm = [entry for entry in judged if entry[1].seeds > 1] or list(judged)
    told: list[str] = []
    for (a, b), one in firm:
        several = sum((x.length, x.objective) == (a.length, a.objective) for (x, y), _ in firm if y is b) > 1
        name = f" ({a.method})" if several else ""
        told.append(f"{at_length(a, firm[0][0][0].base, study.say)}{name} {phrase(one, study.say)}")
    return ", ".join(told)


def at_length(arm: Arm, own: str, say: Say) -> str:
    """Where a verdict holds: the arm's length, and its base where that is not the `own` one of the sentence."""
    if arm.base == own:
        return say(f"{arm.length:,} 토큰에서", f"at {arm.length:,} tokens")
    base = arm.base.split("/")[0]
    return say(f"{base}에서 시작해 {arm.length:,} 토큰에서", f"from {base} at {arm.length:,} tokens")


def training_text(a: Arm, b: Arm, study: Subject) -> str:
    if equally_trained(a, b):
        return study.say(f"같음, {tokens(a.tokens)}", f"equal, {tokens(a.tokens)}")
    return study.say(f"다름, {tokens(a.tokens)} / {tokens(b.tokens)}", f"unequal, {tokens(a.tokens)} / {tokens(b.tokens)}")


def no_equal_training(say: Say) -> str:
    return say("학습량이 같지 않아 판정하지 않습니다.", "Not trained equally, so no verdict.")
