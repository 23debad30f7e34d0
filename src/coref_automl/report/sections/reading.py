"""How to read the numbers. In: a Subject. Out: intervals, differences, halves, in plain words."""

from __future__ import annotations

from coref_automl.report.page import Points, Section
from coref_automl.report.subject import Subject


def draw(study: Subject) -> Section:
    say = study.say
    return Section(
        "reading",
        say("읽는 법", "How to read this"),
        (
            Points(
                (
                    say(
                        "35.2 [32.9, 37.6]: 값은 35.2%이고, 같은 종류의 문서를 새로 모아 백 번 다시 측정하면 아흔다섯 번쯤은 "
                        "이런 구간이 참값을 포함합니다. "
                        "문서 단위 부트스트랩 95% 신뢰구간이며, 문항이 아니라 문서를 다시 뽑습니다.",
                        "35.2 [32.9, 37.6]: the value is 35.2%; were the documents collected anew a hundred times, about 95 "
                        "such intervals "
                        "would hold the true value. Documents are resampled, not items.",
                    ),
                    say(
                        "두 구간이 겹쳐도 차이가 있을 수 있습니다. 같은 문항을 짝지은 '차이'의 구간과 판정을 보세요.",
                        "Two intervals may overlap and the difference still be real: look at the paired difference and its "
                        "verdict.",
                    ),
                    say(
                        "'미확인'은 '같다'가 아닙니다. 실제 차이가 검출 가능 차이만 하면 80% 확률로 검출되고(검정력 80%), "
                        "그보다 작으면 더 자주 놓칩니다. 실력이 같은 체크포인트 열 개 중에도 1등은 있습니다.",
                        "“No difference shown” does not mean equal: a true difference as large as the detectable one is found "
                        "with 80% power, a smaller one is missed more often. Of ten equal checkpoints one still comes first.",
                    ),
                    _halves(study),
                )
            ),
        ),
    )


def _halves(study: Subject) -> str:
    if study.group.judging is None:
        return study.say(
            "실행마다 마지막 체크포인트만 있어 고른 것이 없으므로, 원래 모델과의 차이는 모든 문서로 판정합니다. 추천은 "
            "절반(select)으로 고르고, 추천된 것의 값은 다른 절반(confirm)에서 잽니다.",
            "Each run has its last checkpoint alone: nothing was chosen, so all documents judge the differences from the base. "
            "The recommended one is chosen on one half (select) and its value measured on the other (confirm).",
        )
    return study.say(
        "체크포인트는 절반(select)으로 고르고 다른 절반(confirm)으로 판정합니다. 그래서 고른 것의 값이 부풀지 않습니다. "
        "방법끼리는 마지막 체크포인트를 비교하므로, 이 세트로 고른 것이 없으면 모든 문서로 판정합니다. "
        "표마다 어느 문서인지 적혀 있습니다.",
        "Checkpoints are chosen on one half (select) and judged on the other (confirm), so the winner's number is not flattered. "
        "Methods are compared by their last checkpoints: on all documents where nothing was chosen on this set. Every table says "
        "which documents it shows.",
    )
