"""Is `combined`, rows of both objectives, better than either alone? In: a Subject. Out: verdicts, also between its ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coref_automl.comparison.arms import Arm, Versus, arms
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.method_pairs import (
    JudgedPair,
    alike_pairs,
    by_length,
    equally_trained_pairs,
    judged_pairs,
    no_equal_training,
    pair_verdict,
    training_text,
)
from coref_automl.report.page import Badge, Section, Table, Verdict, question
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import counted, lead, rule, shown_on, versus_head, versus_rows


def draw(study: Subject) -> Section | None:
    """Compare combined training with mlm, with entity and its ratios with each other."""
    found, say = arms(study), study.say
    pairs = alike_pairs(found, lambda a, b: a.objective == "combined" and b.objective in ("mlm", "entity"))
    ratios = [(b, a) for a, b in alike_pairs(found, lambda a, b: a.objective == b.objective == "combined") if a.name < b.name]
    judged = judged_pairs(study, [*pairs, *ratios])
    if not judged:
        return None
    label, parts = METRICS[study.metric].label, []
    told = equally_trained_pairs(judged)
    for other in ("mlm", "entity"):
        some = [((a, b), one) for (a, b), one in told or judged if b.objective == other]
        if some:
            parts.append(f"combined - {other}: {by_length(some, study)}")
    if not told:
        first = no_equal_training(study.say)
    elif all(one.seeds < 2 for _, one in told):
        first = lead([one for _, one in told], say)
    elif beats := _beats_both(told):
        first = say(f"둘 모두보다 나음 확인: {', '.join(beats)}.", f"Better than both: {', '.join(beats)}.")
    else:
        first = say("combined가 둘 모두보다 나은 길이는 확인되지 않았습니다.", "At no length is combined shown better than both.")
    answer = f"{first} {label} ({say('점', 'points')}), {'; '.join(parts)}."
    rows = versus_rows([((a.name, b.name, training_text(a, b, study)), one) for (a, b), one in judged], say)
    sides = "combined", say("상대", "other")
    head = versus_head((*sides, say("학습량", "training")), *sides, say)
    title = say("combined가 mlm, entity보다 나은가?", "Is combined better than mlm and entity?")
    every = [one for _, one in judged]
    blocks = (Table(head, rows, frozenset({3, 4, 5, 6, 7}), f"{label}, {counted(every, say)}", shown_on(every)), rule(every, say))
    verdict = _verdict(told, study) if told else Verdict("open", no_equal_training(say))
    return question("mix", title, answer, blocks, "combined", verdict)


def _verdict(judged: Sequence[JudgedPair], study: Subject) -> Verdict:
    """Against mlm and against entity; the bar is the difference from entity, or from mlm if there is no other."""
    say, found = study.say, {}
    for other in ("mlm", "entity"):
        if some := [entry for entry in judged if entry[0][1].objective == other]:
            found[other] = pair_verdict(some, study)
    if not found:
        return Verdict(
            "open", say("mlm이나 entity와 짝지을 combined가 없습니다.", "No combined run to compare with mlm or entity.")
        )
    main = list(found.values())[-1]
    if all(one.seeds < 2 for _, one in judged):
        return main
    words = {
        (1, "shown"): say("보다 높음", "better than"),
        (-1, "shown"): say("보다 낮음", "worse than"),
        (1, "part"): say("보다 일부 길이에서 높음", "better at some lengths than"),
        (-1, "part"): say("보다 일부 길이에서 낮음", "worse at some lengths than"),
    }
    told = []
    for other, one in found.items():
        way = 1 if one.estimate is not None and one.estimate.value > 0 else -1
        word = words.get((way, one.badge))
        undecided = say(f"{other}와는 유의한 차이 미확인", f"no difference from {other} shown")
        told.append(say(f"{other}{word}", f"{word} {other}") if word else undecided)
    text = ", ".join(told)
    badges = {one.badge for one in found.values()}
    firm: Badge = "shown" if _beats_both(judged) else "open" if badges == {"open"} else "part"
    return replace(main, badge=firm, sentence=f"{say(text, text[0].upper() + text[1:])}.")


def _beats_both(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[str]:
    won: dict[str, set[str]] = {}
    for (a, b), one in judged:
        if one.shown and one.answer.difference > 0:
            won.setdefault(a.name, set()).add(b.objective)
    return [name for name, others in won.items() if {"mlm", "entity"} <= others]
