"""What follows from the sections. In: a Subject and its sections. Out: their answers, and what the data cannot tell."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import arms
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import shown
from coref_automl.report.page import Answers, Block, Points, Section
from coref_automl.report.subject import Subject


def conclusions(study: Subject, sections: Sequence[Section]) -> Section | None:
    """Every question with its answer, then conclusions about single checkpoints."""
    say = study.say
    out = []
    better = [entry for entry, answer in study.against_base().items() if shown(answer) and answer.difference.value > 0]
    if study.base is not None and study.table is not None:
        count = len(study.against_base())
        several = len(study.table.references) > 1
        base = say(f"원래 모델({study.base.name})", f"the base model {study.base.name}")
        if several:
            base = say("각자의 원래 모델", "the model that each began from")
        told = say(
            f"체크포인트 {count}개 중 {len(better)}개가 {base}보다 낫다고 보입니다 (max-T 보정, 비교 {count}개).",
            f"{len(better)} of {count} {'checkpoint is' if count == 1 else 'checkpoints are'} shown better than {base} "
            f"(max-T over {count}).",
        )
        out.append(told + _chosen_beside(study, better))
    if found := study.matrix():
        entries, _, ps = found
        pairs = len(entries) * (len(entries) - 1) // 2
        known = int((ps < 0.05).sum()) // 2
        out.append(
            say(
                f"선택 쪽에서 앞선 것과 원래 모델, 모두 {len(entries)}개의 짝 {pairs}개 중 {pairs - known}개는 이 세트로 "
                f"구별되지 않습니다 (모든 짝에 대한 Holm).",
                f"Of the {pairs} pairs among {len(entries)} (the highest on select, and the base), {pairs - known} cannot be "
                f"told apart on this set (Holm over all pairs).",
            )
        )
    blocks: list[Block] = []
    if answers := tuple((one.id, one.title, one.answer) for one in sections if one.answer):
        blocks.append(Answers(answers))
    if out:
        blocks.append(Points(tuple(out)))
    return Section("conclusions", say("결론", "Conclusions"), tuple(blocks)) if blocks else None


def _chosen_beside(study: Subject, better: Sequence[Entry]) -> str:
    """Why the recommended checkpoint may not be among those shown better; and that this is no verdict about methods."""
    say, name, out = study.say, study.recommendation.name, ""
    if better and study.chosen not in better and study.chosen in study.against_base():
        judge = ("모든 문서", "that of all documents") if study.group.judging is None else ("확인 쪽 절반", "the confirm half's")
        out += say(
            f" 추천된 {name}은 그중에 없습니다. 선택 쪽 절반의 사후 평균으로 골랐고, 이 판정은 {judge[0]}의 것입니다.",
            f" The recommended {name} is not among them: it was chosen by its posterior mean on the select half, and this "
            f"verdict is {judge[1]}.",
        )
    if better and one_seed(study):
        out += say(
            " 체크포인트에 대한 말이며, 시드가 하나인 방법에 대한 판정은 아닙니다.",
            " That is said of checkpoints; of a method with one seed it is no verdict.",
        )
    return out


def one_seed(study: Subject) -> list[str]:
    """Methods and lengths with a single seed."""
    return [arm.name for arm in arms(study) if arm.seeds < 2]


def cannot_tell(study: Subject) -> tuple[str, ...]:
    """Limits of the data: the form of Real items, then whatever is missing here."""
    say = study.say
    out = [
        say(
            "Real 문항은 entity 목표가 학습하는 형식 그대로입니다. 그 점수만으로 일반적인 언어 능력이 늘었다고 말할 수 "
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
    judged = study.against_base()
    could = [answer.detectable for answer in judged.values() if answer.detectable]
    if could:
        comparisons = "1 comparison" if len(judged) == 1 else f"{len(judged)} comparisons"
        least = 100 * sorted(could)[len(could) // 2]
        other = say("원래 모델", "the base") if study.base else say("기준", "the reference")
        out.append(
            say(
                f"체크포인트 하나와 {other}의 참된 차이가 {least:.1f}점쯤이면 이 세트가 다섯 번에 네 번 보입니다 (비교 "
                f"{len(judged)}개에 대한 max-T 보정의 가장 엄한 단계). 그보다 작은 차이는 더 자주 놓칩니다.",
                f"A true difference of about {least:.1f} points between a checkpoint and {other} is shown four times in five "
                f"(hardest step of max-T over {comparisons}); smaller ones are missed more often.",
            )
        )
    if alone := one_seed(study):
        out.append(
            say(
                f"시드가 하나뿐인 방법({', '.join(alone)})은 방법의 차이와 시드의 운을 가릴 수 없습니다.",
                f"With one seed ({', '.join(alone)}) a better method cannot be told from a lucky seed.",
            )
        )
    elif not arms(study):
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
