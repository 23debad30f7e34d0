"""What follows from the numbers. In: a Study. Out: conclusions, what the data cannot tell, how to read."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import arms
from coref_automl.comparison.page import Answers, Block, Points, Section
from coref_automl.comparison.question import Question
from coref_automl.comparison.study import Study, shown


def conclusions(study: Study, questions: Sequence[Question]) -> Section | None:
    """Every question with its answer, then what follows for single checkpoints."""
    say = study.say
    out = []
    better = [name for name, answer in study.against_base().items() if shown(answer) and answer.difference.value > 0]
    if study.base is not None and study.table is not None:
        count = len(study.table.rows) - 1
        out.append(
            say(
                f"체크포인트 {count}개 중 {len(better)}개가 원래 모델({study.base.name})보다 낫다고 보입니다.",
                f"{len(better)} of {count} checkpoints are shown better than the base model {study.base.name}.",
            )
        )
    if found := study.matrix():
        entries, _, ps = found
        pairs = len(entries) * (len(entries) - 1) // 2
        known = int((ps < 0.05).sum()) // 2
        out.append(
            say(
                f"상위 {len(entries)}개의 짝 {pairs}개 중 {pairs - known}개는 이 세트로 구별되지 않습니다.",
                f"{pairs - known} of the {pairs} pairs among the top {len(entries)} cannot be told apart on this set.",
            )
        )
    blocks: list[Block] = []
    if questions:
        blocks.append(Answers(tuple((question.id, question.title, question.answer) for question in questions)))
    if out:
        blocks.append(Points(tuple(out)))
    return Section("conclusions", say("결론", "Conclusions"), tuple(blocks)) if blocks else None


def cannot_tell(study: Study) -> tuple[str, ...]:
    """What these data cannot tell: always the form of Real, then what is missing here."""
    say = study.say
    out = [
        say(
            "Real 문항은 entity 목표가 학습하는 형식 그대로입니다. 그 점수만으로 일반적인 언어 능력이 늘었다고 말할 수 "
            "없습니다. "
            "바깥의 확인은 사람이 표시한 gold와 관계 추출입니다.",
            "Real items have the very form that the entity objective trains. Their score alone does not show a better "
            "language model; "
            "gold coreference and relation extraction are the outside checks.",
        )
    ]
    if not any("gold_word" in entry.evaluation.estimates for entry in study.entries):
        out.append(say("gold는 평가되지 않았습니다.", "Gold was not run here."))
    if not study.relation:
        out.append(
            say(
                "관계 추출 결과가 주어지지 않았습니다: coref-automl re train 뒤에 그 폴더를 함께 주세요.",
                "No relation-extraction result was given: run coref-automl re train and pass its folder too.",
            )
        )
    could = [answer.detectable for answer in study.against_base().values() if answer.detectable]
    if could:
        least = 100 * sorted(could)[len(could) // 2]
        out.append(
            say(
                f"이 세트가 다섯 번에 네 번 보일 수 있는 가장 작은 차이는 약 {least:.1f}점입니다. 그보다 작은 차이는 "
                f"없다고도 있다고도 할 수 없습니다.",
                f"The smallest difference this set shows four times in five is about {least:.1f} points; of smaller ones it "
                f"says nothing.",
            )
        )
    if all(arm.seeds < 2 for arm in arms(study)):
        out.append(
            say(
                "학습 방법마다 시드가 하나라면, 방법의 차이와 시드의 운을 가릴 수 없습니다.",
                "With one seed a method, a better method cannot be told from a lucky seed.",
            )
        )
    if far := max((entry.evaluation.out_of_reach for entry in study.entries), default=0):
        out.append(
            say(
                f"문항 {far:,}개까지는 앞선 언급이 창 밖에 있습니다. 그래도 세었습니다.",
                f"For up to {far:,} items the other mention lies outside the window; they still count.",
            )
        )
    return tuple(out)


def how_to_read(study: Study) -> Section:
    say = study.say
    return Section(
        "reading",
        say("읽는 법", "How to read this"),
        (
            Points(
                (
                    say(
                        "35.2 [32.9, 37.6]: 값은 35.2%이고, 같은 종류의 문서를 새로 모아 백 번 다시 재면 아흔다섯 번쯤은 "
                        "이런 구간이 참값을 품습니다. "
                        "문항이 아니라 문서를 다시 뽑아 구합니다.",
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
                        "'차이가 보이지 않음'은 '같다'가 아닙니다. 곁에 적힌 점수보다 작은 차이는 이 세트로는 알 수 없다는 "
                        "뜻입니다.",
                        "“No difference shown” does not mean equal: differences below the stated points are beyond this set.",
                    ),
                    say(
                        "절반(select)으로 고르고 다른 절반(confirm)으로 판정합니다. 그래서 고른 것의 값이 부풀지 않습니다.",
                        "One half (select) chooses and the other (confirm) judges, so the winner's number is not flattered.",
                    ),
                )
            ),
        ),
    )
