"""Methods in pairs. In: arms of a study. Out: pairs that differ in method alone, their verdicts, and these as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coref_automl.comparison.arms import Arm, Versus, equally_trained, versus
from coref_automl.comparison.corrections import corrected
from coref_automl.report.language import Say, is_same, tokens
from coref_automl.report.page import Verdict
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import badge, detectable, phrase, sign, tone

JudgedPair = tuple[tuple[Arm, Arm], Versus]
"""Two arms and the verdict between them."""


def judged_pairs(
    study: Subject, pairs: Sequence[tuple[Arm, Arm]], *, primary: bool = False
) -> list[tuple[tuple[Arm, Arm], Versus]]:
    """The verdicts of a question, corrected for their number; as primary ones if it is the study's own question."""
    found = corrected(versus(study, pairs, study.metric), primary=primary)
    return [(pair, one) for pair, one in zip(pairs, found, strict=True) if one is not None]


def alike_pairs(found: Sequence[Arm], wanted: Callable[[Arm, Arm], bool]) -> list[tuple[Arm, Arm]]:
    return [(a, b) for a in found for b in found if a is not b and a.alike(b) and wanted(a, b)]


def equally_trained_pairs(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[tuple[tuple[Arm, Arm], Versus]]:
    """The pairs at equal training; the others are listed in the table and decide nothing."""
    return [(pair, one) for pair, one in judged if equally_trained(*pair)]


def by_length(judged: Sequence[tuple[tuple[Arm, Arm], Versus]], study: Subject) -> str:
    """The verdicts over several seeds by length; single seeds if there are no others."""
    firm = [entry for entry in judged if entry[1].seeds > 1] or list(judged)
    told: list[str] = []
    for (a, b), one in firm:
        several = sum((x.length, x.objective) == (a.length, a.objective) for (x, y), _ in firm if y is b) > 1
        name = f" ({a.method})" if several else ""
        told.append(f"{at_length(a, firm[0][0][0].base, study.say)}{name} {phrase(one, study.say)}")
    return ", ".join(told)


def pair_verdict(judged: Sequence[JudgedPair], study: Subject) -> Verdict:
    """The answer about pairs of one kind in one sentence; the bar is the pair's at the recommended length, else the longest."""
    say, own = study.say, [entry for entry in judged if entry[0][0].base == judged[0][0][0].base]
    firm = [entry for entry in own if entry[1].seeds > 1]
    here = study.chosen.evaluation.seq_len
    (a, b), main = max(firm or own, key=lambda entry: (entry[0][0].length == here, entry[0][0].length))
    held, about = main.answer.interval, f"{a.name} - {b.method}"
    if not firm:
        return Verdict("open", say("시드가 하나뿐이라 판정할 수 없습니다.", "One seed per method: no verdict."), held, about)
    if all(is_same(one.answer.interval) for _, one in firm):
        return Verdict("open", say("맞고 틀린 문항이 모두 같습니다.", "Right and wrong on the very same items."), held, about)
    at: dict[int, list[str]] = {}
    for (one, _), found in firm:
        at.setdefault(sign(found), []).append(f"{one.length:,}")
    told = []
    if 1 in at:
        told.append(
            say(f"{_listed(at[1])} 토큰에서 {a.method} 쪽이 높습니다.", f"{a.method} is better at {_listed(at[1])} tokens.")
        )
    if -1 in at:
        told.append(
            say(f"{_listed(at[-1])} 토큰에서 {a.method} 쪽이 낮습니다.", f"{a.method} is worse at {_listed(at[-1])} tokens.")
        )
    if 0 in at:
        limit = detectable((one.answer.detectable for _, one in firm if sign(one) == 0), say)
        where = say(f"{_listed(at[0])} 토큰에서는 ", f" at {_listed(at[0])} tokens") if len(at) > 1 else ""
        told.append(say(f"{where}유의한 차이 미확인{limit}.", f"No difference shown{where}{limit}."))
    return Verdict(badge(set(at)), " ".join(told), held, about, tone(sign(main)))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def at_length(arm: Arm, own: str, say: Say) -> str:
    """The length at which a verdict holds, and the base if it differs from `own`."""
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
