"""Does adapting beat the base model? In: a Subject. Out: methods against their base, and how many checkpoints are better."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import Arm, Versus, arms, base_of, versus
from coref_automl.comparison.corrections import corrected
from coref_automl.comparison.differences import finding
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import shown
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import tokens
from coref_automl.report.limits import one_seed
from coref_automl.report.page import Badge, Block, Section, Table, Text, Verdict, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import counted, detectable, phrase, rule, short_cell, shown_on, sign, tone, verdict_cell

_MOST = 4
"""More names than this are counted only."""


def draw(study: Subject) -> Section | None:
    """Every method against the model it began from; checkpoints one by one where no method has several seeds."""
    say = study.say
    if study.base is None or not study.against_base():
        return None
    title = say("적응이 원래 모델보다 나은가?", "Does adapting beat the base model?")
    judged = _methods(study)
    firm = [(arm, one) for arm, one in judged if one.seeds > 1]
    blocks: list[Block] = []
    if judged:
        label, every = METRICS[study.metric].label, [one for _, one in judged]
        lines = tuple(
            row(arm.name, str(arm.seeds), tokens(arm.tokens), short_cell(one, say), verdict_cell(one, say)) for arm, one in judged
        )
        head = (
            say("방법과 길이", "method, length"), say("시드", "seeds"), say("토큰", "tokens"),
            say("원래 모델과의 차이 (점)", "difference from the base (points)"), say("판정", "verdict"),
        )  # fmt: skip
        blocks = [
            Table(head, lines, frozenset({1, 2, 3}), f"{label}, {counted(every, say)}", shown_on(every)),
            rule(every, say),
        ]
    counted_ones = _checkpoints(study)
    verdict: Verdict | None
    if firm:
        told = "; ".join(f"{arm.name} {phrase(one, say)}" for arm, one in firm)
        answer, verdict = f"{METRICS[study.metric].label} ({say('점', 'points')}): {told}.", _of_methods(study, firm)
        blocks.append(Text(counted_ones))
    else:
        answer, verdict = counted_ones, _of_runs(study)
    return question("base", title, answer, blocks, say("원래 모델", "the base"), verdict)


def _methods(study: Subject) -> list[tuple[Arm, Versus]]:
    if METRICS[study.metric].parts:
        return []
    asked = [(arm, base) for arm in arms(study) if (base := base_of(study, arm)) is not None]
    found = corrected(versus(study, asked, study.metric))
    return [(arm, one) for (arm, _), one in zip(asked, found, strict=True) if one is not None]


def _of_methods(study: Subject, firm: Sequence[tuple[Arm, Versus]]) -> Verdict:
    say, count = study.say, len(firm)
    better = [arm.name for arm, one in firm if sign(one) > 0]
    use, (best, main) = study.recommendation.use, max(firm, key=lambda one: one[1].answer.difference)
    held, way, about = main.answer.interval, sign(main), f"{best.name} - {say('원래 모델', 'base')}"
    if use.over_base is not None and use.seeds > 1:  # the number of the headline
        held, about = use.over_base, f"{use.method} - {say('원래 모델', 'base')}"
        way = int(use.status != "not better than the base")
    every = sum(arm.seeds > 1 for arm in arms(study))
    methods = say(f"방법 {count}개", f"{count} methods")
    lead = ("", "")
    if count < every:
        lead = (
            f"방법 {every}개 중 {count}개를 같은 길이의 원래 모델과 비교했습니다. ",
            f"{count} of {every} methods are compared with a base at their length. ",
        )
        methods = say("그", "these")
    if not better:
        limit = detectable((one.answer.detectable for _, one in firm), say)
        told = say(f"{lead[0]}{methods} 모두 미확인{limit}.", f"{lead[1]}None of {methods} is shown better{limit}.")
        return Verdict("not", told, held, about, tone(way))
    listed = f": {', '.join(better)}" if len(better) <= _MOST else ""
    told = say(
        f"{lead[0]}{methods} 중 {len(better)}개에서 향상 확인{listed}.", f"{lead[1]}{len(better)} of {methods} beat it{listed}."
    )
    return Verdict("shown" if len(better) == count else "part", told, held, about, tone(way))


def _of_runs(study: Subject) -> Verdict | None:
    """Checkpoints against their bases, the recommended one drawn."""
    say, it = study.say, study.recommendation
    if not it.over_bases:
        return None
    better = [one for one in it.over_bases if finding(one) == "better"]
    count = len(it.over_bases)
    main = it.over_base or max(it.over_bases, key=lambda one: one.difference.value)
    badge: Badge = "not" if not better else "shown" if len(better) == count else "part"
    limit = detectable((one.detectable for one in it.over_bases), say)
    told = (
        say(f"체크포인트 {count}개 중 {len(better)}개에서 확인.", f"{len(better)} of {count} checkpoints do.")
        if better
        else say(f"체크포인트 {count}개 모두 미확인{limit}.", f"None of {count} checkpoints is shown better{limit}.")
    )
    way = {"better": 1, "worse": -1}.get(finding(main), 0)
    return Verdict(badge, told, main.difference, f"{main.name} - {main.reference}", tone(way))


def _checkpoints(study: Subject) -> str:
    """How many checkpoints are better, and what that does not say."""
    say, judged = study.say, study.against_base()
    better = [entry for entry, answer in judged.items() if shown(answer) and answer.difference.value > 0]
    several = study.table is not None and len(study.table.references) > 1
    base = say("각자의 원래 모델", "the model that each began from") if several else _named(study)
    count = len(judged)
    told = say(
        f"체크포인트 {count}개 중 {len(better)}개가 {base}보다 나은 것으로 확인되었습니다 (max-T 보정, 비교 {count}개).",
        f"{len(better)} of {count} {'checkpoint is' if count == 1 else 'checkpoints are'} shown better than {base} "
        f"(max-T over {count}).",
    )
    return told + _chosen_beside(study, better)


def _named(study: Subject) -> str:
    name = study.base.name if study.base else ""
    return study.say(f"원래 모델({name})", f"the base model {name}")


def _chosen_beside(study: Subject, better: Sequence[Entry]) -> str:
    """Why the recommended checkpoint may not be among those shown better; and why this does not judge methods."""
    say, name, out = study.say, study.recommendation.name, ""
    if better and study.chosen not in better and study.chosen in study.against_base():
        judge = ("모든 문서", "that of all documents") if study.group.judging is None else ("확인용 절반", "the confirm half's")
        out += say(
            f" 추천된 {name}은 그중에 없습니다. 선택용 절반의 사후 평균으로 골랐고, 이 판정은 {judge[0]} 기준입니다.",
            f" The recommended {name} is not among them: it was chosen by its posterior mean on the select half, and this "
            f"verdict is {judge[1]}.",
        )
    if better and one_seed(study):
        out += say(
            " 체크포인트에 대한 말이며, 시드가 하나인 방법에 대한 판정은 아닙니다.",
            " These verdicts are about checkpoints; one seed is too few to judge a method.",
        )
    return out
