"""What the data cannot tell. In: a Subject. Out: its limits, one sentence each."""

from __future__ import annotations

from coref_automl.report.subject import Subject
from coref_automl.report.wording import caveats, looks, power


def one_seed(study: Subject) -> list[str]:
    """Methods and lengths with a single seed."""
    return [arm.name for arm in study.arms if arm.seeds < 2]


def cannot_tell(study: Subject) -> tuple[str, ...]:
    """Limits of the data: the form of Real items, then whatever is missing here."""
    say = study.say
    out = [
        say(
            "Real 문항은 entity 목표가 학습하는 형식과 같습니다. 이 점수만으로 일반적인 언어 능력이 향상되었다고 볼 수 "
            "없습니다. "
            "외부 확인은 관계 추출과 상호참조 해결입니다.",
            "Real items have the very form that the entity objective trains. Their score alone does not show a better "
            "language model; "
            "relation extraction and coreference resolution are the outside checks.",
        )
    ]
    if not study.relation:
        out.append(
            say(
                "관계 추출 결과가 주어지지 않았습니다: coref-automl re train 뒤에 그 폴더를 함께 주세요.",
                "No relation-extraction result was given: run coref-automl re train and pass its folder too.",
            )
        )
    if not study.coreference:
        out.append(
            say(
                "상호참조 해결 결과가 주어지지 않았습니다: coref-automl coref train --folds 5 뒤에 그 폴더를 함께 주세요.",
                "No coreference result was given: run coref-automl coref train --folds 5 and pass its folder too.",
            )
        )
    held = study.answer.power
    if held is not None and held.detectable is not None and study.answer.action != "keep base":
        out += power(study.answer, say)
    if study.answer.looks > 1:
        out.append(looks(study.answer, say))
    out += caveats(study.answer, say)
    if alone := one_seed(study):
        out.append(
            say(
                f"시드가 하나뿐인 방법({', '.join(alone)})은 방법의 차이와 시드에 따른 우연을 구별할 수 없습니다.",
                f"With one seed ({', '.join(alone)}) a better method cannot be told from a lucky seed.",
            )
        )
    elif not study.arms:
        out.append(
            say(
                "학습 방법마다 시드가 하나라면, 방법의 차이와 시드에 따른 우연을 구별할 수 없습니다.",
                "With one seed per method, a better method cannot be told from a lucky seed.",
            )
        )
    if far := max((entry.evaluation.out_of_reach for entry in study.entries), default=0):
        out.append(
            say(
                f"문항 {far:,}개까지는 앞선 언급이 창 밖에 있습니다. 집계에 포함했습니다.",
                f"For up to {far:,} items the other mention lies outside the window; they still count.",
            )
        )
    return tuple(out)
