"""What the recommendation says first. In: a Subject and the verdict about the base. Out: headline, sentence, what to keep.

This is the one place that reads a Recommendation for the first screen. Its status drives the headline: where nothing beats the
base, the headline says so and the sentence what it would take.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from coref_automl.comparison.advice import Status
from coref_automl.comparison.differences import finding
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import percent, points, rounded, tokens
from coref_automl.report.page import Badge, Keep, Verdict
from coref_automl.report.sentences import verdict
from coref_automl.report.subject import Subject

BADGES: dict[Status, Badge] = {"shown": "shown", "in part": "part", "open": "open", "not better than the base": "not"}


@dataclass(frozen=True, slots=True)
class Advice:
    headline: str
    sentence: str
    keep: Keep


def advice(study: Subject, against_base: Verdict | None, reason: str = "") -> Advice:
    """`against_base` answers whether adapting beats the base; None if no base was evaluated. `reason` says why this method."""
    say, use = study.say, study.recommendation.use
    badge = BADGES[use.status]
    if against_base is not None and against_base.badge == "not":
        headline = say("원래 모델보다 나은 것이 확인되지 않았습니다", "Nothing here is shown to beat the base")
        return Advice(headline, _what_it_takes(study), Keep(use.checkpoint, "not", _status(study), _tune(study)))
    if use.seeds > 1:
        headline = say(f"{use.objective} · {use.length:,} 토큰을 쓰세요", f"Use {use.objective} at {use.length:,} tokens")
    elif against_base is not None:
        headline = say("적응한 모델이 원래 모델보다 낫습니다", "The adapted model beats the base")
    else:
        headline = use.name
    sentence = " ".join(filter(None, (_why(study), reason, next_time(study))))
    return Advice(headline, sentence, Keep(use.checkpoint, badge, _status(study), _relation(study)))


def next_time(study: Subject) -> str:
    """How long to train next time, in one short sentence; empty if no run has a curve."""
    say, ahead = study.say, study.recommendation.next_time
    if ahead is None:
        return ""
    now = tokens(study.recommendation.use.tokens)
    if ahead.tokens is None:
        return say(f"다음에도 이만큼({now} 토큰) 학습하세요.", f"Next time, train as long ({now} tokens).")
    if ahead.share == 1:
        return say(
            f"마지막 체크포인트가 정점이므로 다음에는 이번({now} 토큰)보다 길게 학습해 보세요.",
            f"It was highest at its end: next time, try more than {now} tokens.",
        )
    share, until = f"{100 * (ahead.share or 0):.0f}%", tokens(ahead.tokens)
    return say(
        f"다음에는 {until} 토큰까지(이번의 {share}) 학습하면 됩니다.",
        f"Next time, {until} tokens will do ({share} of this training).",
    )


def _why(study: Subject) -> str:
    say, it = study.say, study.recommendation
    label, use = METRICS[it.metric].label, it.use
    seeds = say(f" (시드 {use.seeds}개 평균)", f" (mean of {use.seeds} seeds)") if use.seeds > 1 else ""
    if use.over_base is None:
        return f"{label} {percent(use.value)}{seeds}."
    change = points(use.over_base)
    return say(f"{label}: 원래 모델 대비 {change}점{seeds}.", f"{label}: {change} points over the base{seeds}.")


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
    """The recommended checkpoint in numbers; why its method may be shown to beat the base and it alone not; the other methods."""
    say, it = study.say, study.recommendation
    use, alone, told = it.use, it.over_base, [f"{METRICS[it.metric].label} {percent(it.value)}."]
    if alone is not None:
        change, family = points(alone.difference), alone.family
        if use.seeds > 1 and use.status != "not better than the base" and finding(alone) != "better":
            told.append(
                say(
                    f"확인된 것은 시드 {use.seeds}개로 본 방법의 향상입니다. 체크포인트 하나({change}점)는 시드 하나이고 비교 "
                    f"{family}개 중 하나라서 미확인입니다(max-T 보정).",
                    f"What is shown is the method's gain over {use.seeds} seeds; this checkpoint alone ({change} points) is one "
                    f"seed among {family} comparisons (max-T) and not shown.",
                )
            )
        else:
            told.append(say("원래 모델과의 차이", "Over the base:") + f" {change}, {verdict(alone, say.lang)}.")
    if use.seeds > 1 and (won := len(use.better_than)):
        others = won + len(use.open_against)
        told.append(
            say(
                f"시드 2개 이상인 다른 방법 {others}개 중 {won}개보다 나음 확인.",
                f"The method is shown better than {won} of the {others} others with several seeds.",
            )
        )
    return " ".join(told)


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
