"""What the recommendation says first. In: a Subject and the verdict about the base. Out: headline, sentence, what to keep.

This is the one place that reads a Recommendation for the first screen. Its status drives the headline: where nothing beats the
base, the headline says so and the sentence what it would take.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from coref_automl.comparison.arms import Arm, arms
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import percent, points, rounded
from coref_automl.report.page import Badge, Keep, Verdict
from coref_automl.report.sentences import verdict
from coref_automl.report.subject import Subject


@dataclass(frozen=True, slots=True)
class Advice:
    headline: str
    sentence: str
    keep: Keep


def advice(study: Subject, against_base: Verdict | None) -> Advice:
    """`against_base` answers whether adapting beats the base; None if no base was evaluated."""
    say, it = study.say, study.recommendation
    badge: Badge = {"confirmed": "shown", "open": "open", "not confirmed": "part"}[it.confirmation]  # type: ignore[assignment]
    if against_base is not None and against_base.badge == "not":
        headline = say("원래 모델보다 나은 것이 확인되지 않았습니다", "Nothing here is shown to beat the base")
        return Advice(headline, _what_it_takes(study), Keep(it.chosen, "not", _status(study), _tune(study)))
    method = _method(study)
    if method is not None:
        headline = say(f"{method.method} · {method.length:,} 토큰", f"Use {method.method} at {method.length:,} tokens")
    elif against_base is not None:
        headline = say("적응한 모델이 원래 모델보다 낫습니다", "The adapted model beats the base")
    else:
        headline = it.name
    return Advice(headline, _why(study, against_base), Keep(it.chosen, badge, _status(study), _relation(study)))


def _method(study: Subject) -> Arm | None:
    """The method and length of the recommended checkpoint, if several seeds stand behind it."""
    for arm in arms(study):
        if arm.seeds > 1 and any(study.chosen in entries for entries in arm.runs.values()):
            return arm
    return None


def _why(study: Subject, against_base: Verdict | None) -> str:
    say, it = study.say, study.recommendation
    if against_base is None:
        return f"{METRICS[it.metric].label} {percent(it.value)}."
    if against_base.estimate is None:
        return against_base.sentence
    change, label = f"{against_base.about} {points(against_base.estimate)}", METRICS[it.metric].label
    return say(f"{label}: {change}점.", f"{label}: {change} points.")


def _what_it_takes(study: Subject) -> str:
    """How many documents would detect the largest difference seen; if none is above 0, that more documents will not help."""
    say, it = study.say, study.recommendation
    best = max(it.over_bases, key=lambda one: one.difference.value, default=None)
    if best is None:
        return ""
    change = points(best.difference)
    if best.difference.value <= 0 or best.detectable is None:
        return say(
            f"가장 높은 차이가 {change}점입니다. 데이터, 목표, 학습률을 바꿔 다시 학습하세요.",
            f"The largest difference is {change} points: train on other data, with another objective or learning rate.",
        )
    documents = rounded(int(it.documents * (best.detectable / best.difference.value) ** 2) + 1)
    return say(
        f"가장 높은 차이는 {change}점이고, 검출 가능 차이는 {100 * best.detectable:.1f}점입니다(검정력 80%). 이만한 차이를 "
        f"확인하려면 문서가 약 {documents:,}개(지금 {it.documents:,}개) 필요합니다. 아니면 더 크게 오르도록 학습을 바꾸세요.",
        f"The largest difference is {change} points; this set detects {100 * best.detectable:.1f} with 80% power. Detecting "
        f"that one takes about {documents:,} documents (now {it.documents:,}), or training that gains more.",
    )


def _status(study: Subject) -> str:
    """The recommended checkpoint in numbers: its value, against the base, against the best."""
    say, it = study.say, study.recommendation
    told = [f"{METRICS[it.metric].label} {percent(it.value)}"]
    if it.over_base is not None:
        told.append(
            say("원래 모델과의 차이 ", "over the base ") + f"{points(it.over_base.difference)}, {verdict(it.over_base, say.lang)}"
        )
    if it.best_over_chosen is not None:
        words = {
            "confirmed": say("확인됨", "confirmed"),
            "not confirmed": say("확인되지 않음", "not confirmed"),
            "open": say("문서가 적어 미확정", "too few documents to settle"),
        }
        told.append(
            say(f"최고와 {100 * it.margin:g}점 이내: ", f"within {100 * it.margin:g} points of the best: ")
            + words[it.confirmation]
        )
    return " · ".join(told)


def _relation(study: Subject) -> str:
    return (
        f"coref-automl re train --model {shlex.quote(study.recommendation.chosen)} "
        "--train klue-re-v1.1_train.json --out runs/re --seeds 3"
    )


def _tune(study: Subject) -> str:
    made = study.chosen.evaluation.provenance
    data = f" --dataset {shlex.quote(made.dataset)}" if made and made.dataset else ""
    model = f" --model {shlex.quote(made.base)}" if made else ""
    return f"coref-automl tune --recipe recipes/tune-smoke.yaml{model}{data} --out studies/next"
