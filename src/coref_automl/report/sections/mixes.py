"""Is a mix of both objectives better than either alone? In: a Subject. Out: verdicts against mlm, entity and other mixes."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import Arm, Versus, arms
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.method_pairs import (
    alike_pairs,
    by_length,
    equally_trained_pairs,
    judged_pairs,
    no_equal_training,
    training_text,
)
from coref_automl.report.page import Section, Table, question
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import counted, lead, rule, versus_head, versus_rows


def draw(study: Subject) -> Section | None:
    """Compare mixes with mlm, with entity and with each other."""
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
            parts.append(f"{say('섞기', 'mix')} - {other}: {by_length(some, study)}")
    if not told:
        first = no_equal_training(study.say)
    elif all(one.seeds < 2 for _, one in told):
        first = lead([one for _, one in told], say)
    elif beats := _beats_both(told):
        first = say(f"둘 다보다 나은 섞기: {', '.join(beats)}.", f"Better than both: {', '.join(beats)}.")
    else:
        first = say("둘 다보다 낫다고 보이는 섞기는 없습니다.", "No mix is shown better than both.")
    answer = f"{first} {label} ({say('점', 'points')}), {'; '.join(parts)}."
    rows = versus_rows([((a.name, b.name, training_text(a, b, study)), one) for (a, b), one in judged], say)
    sides = say("섞기", "mix"), say("상대", "other")
    head = versus_head((*sides, say("학습량", "training")), *sides, say)
    title = say("섞으면 어느 한쪽보다 나은가?", "Is a mix better than either?")
    every = [one for _, one in judged]
    blocks = (Table(head, rows, frozenset({3, 4, 5, 6, 7}), f"{label}, {counted(every, say)}"), rule(every, say))
    return question("mix", title, answer, blocks, say("섞기", "a mix"))


def _beats_both(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[str]:
    won: dict[str, set[str]] = {}
    for (a, b), one in judged:
        if one.shown and one.answer.difference > 0:
            won.setdefault(a.name, set()).add(b.objective)
    return [name for name, others in won.items() if {"mlm", "entity"} <= others]
