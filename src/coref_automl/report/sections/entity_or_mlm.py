"""Is entity training better than the same number of extra MLM tokens? In: a Subject. Out: a verdict per length."""

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
    pair_verdict,
    training_text,
)
from coref_automl.report.page import Section, Table, Text, Verdict, question
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import counted, lead, rule, shown_on, versus_head, versus_rows


def draw(study: Subject) -> Section | None:
    """Compare training that hides mentions, with whatever loss beside it, with extra MLM training of equal tokens."""
    found, say = arms(study), study.say
    pairs = alike_pairs(found, lambda a, b: a.objective not in ("mlm", "combined") and b.objective == "mlm")
    judged = judged_pairs(study, pairs, primary=True)
    if not judged:
        return None
    label, kinds = METRICS[study.metric].label, ", ".join(dict.fromkeys(a.objective for (a, _), _ in judged))
    told = equally_trained_pairs(judged)
    first = lead(_own(told), say) if told else no_equal_training(study.say)
    answer = f"{first} {label}, {kinds} - mlm ({say('점', 'points')}): {by_length(told or judged, study)}."
    form = say(
        "Real은 entity가 학습하는 형식 그대로입니다. 외부 확인은 관계 추출과 상호참조 해결입니다.",
        "Real has the very form that entity trains; relation extraction and coreference are the outside checks.",
    )
    rows = versus_rows([((a.name, b.name, training_text(a, b, study)), one) for (a, b), one in judged], say)
    head = versus_head((kinds, "mlm", say("학습량", "training")), kinds, "mlm", say)
    title = say("entity 학습은 같은 양의 mlm보다 나은가?", "Is entity training better than the same amount of mlm?")
    every = [one for _, one in judged]
    table = Table(head, rows, frozenset({3, 4, 5, 6, 7}), f"{label}, {counted(every, say)}", shown_on(every))
    blocks = (table, rule(every, say, primary=True), Text(form, "quiet"))
    verdict = pair_verdict(told, study) if told else Verdict("open", no_equal_training(say))
    return question("entity-or-mlm", title, answer, blocks, say("entity와 mlm", "entity or mlm"), verdict)


def _own(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[Versus]:
    """The verdicts for the first base, the study's own."""
    return [one for (a, _), one in judged if a.base == judged[0][0][0].base]
