"""Do ranks say what hits say? In: a Subject. Out: MRR, the secondary outcome, beside hit@1 on every task.

Most items are hit by every run or by none and say nothing about a difference in hits, while their ranks do.
"""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import Arm, Versus, arms, equally_trained, speaking_of, versus
from coref_automl.comparison.corrections import corrected_columns
from coref_automl.evaluation.metrics import DESCRIPTIVE, METRICS, Rule
from coref_automl.evaluation.tasks import TASKS
from coref_automl.report.method_pairs import alike_pairs
from coref_automl.report.page import Block, Cell, Section, Table, Text, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import difference_cell, rule, short_cell, shows, sign

DECLARED = "2026-11-16"
"""Since this day MRR is the secondary outcome; on evaluations of before it is a look at data already seen."""


def _first(task: str, rule: Rule) -> str | None:
    """A task's metric at 1 under a rule; None if it has none."""
    return next((one.name for one in METRICS.values() if (one.task, one.rule, one.at) == (task, rule, 1)), None)


def draw(study: Subject) -> Section | None:
    """Entity and combined against mlm in hit@1 and in MRR, each with a verdict of its own."""
    say, found = study.say, arms(study)
    pairs = alike_pairs(found, lambda a, b: a.objective != "mlm" and b.objective == "mlm")
    pairs = [(a, b) for a, b in pairs if min(a.seeds, b.seeds) > 1 and equally_trained(a, b)]
    if not pairs or METRICS[study.metric].parts:
        return None
    several = study.group.tokenizers > 1
    rules: tuple[Rule, ...] = ("word",) if several else ("strict", "word")
    asked = [task for task in TASKS if task not in DESCRIPTIVE]
    metrics = [name for task in asked if (name := next(filter(None, (_first(task, rule) for rule in rules)), None))]
    speak = speaking_of(pairs)
    hits = corrected_columns({metric: versus(study, pairs, metric, speak=speak) for metric in metrics})
    ranks = corrected_columns({metric: versus(study, pairs, metric, speak=speak, outcome="ranks") for metric in metrics})
    lower = {metric: versus(study, pairs, metric, speak=speak, outcome="lower ranks") for metric in metrics}
    lines, apart = [], []
    for metric in metrics:
        for pair, hit, rank, less in zip(pairs, hits[metric], ranks[metric], lower[metric], strict=True):
            if hit is None or rank is None or less is None:
                continue
            name = f"{pair[0].name} - {pair[1].method}"
            if sign(hit) != sign(rank):
                apart.append(f"{METRICS[metric].label}, {name}")
            told = Cell(_beside(hit, rank, study), "" if sign(hit) == sign(rank) else "strong")
            change = difference_cell(less.answer.interval)
            lines.append(row(METRICS[metric].label, name, short_cell(hit, say), short_cell(rank, say), change, told))
    if not lines:
        return None
    head = (
        say("무엇에서", "on"), say("방법", "methods"), "hit@1", "MRR",
        say("2위 이하 순위의 기여", "of it, ranks below the first"), say("둘의 비교", "the two"),
    )  # fmt: skip
    caption = say("같은 양의 mlm과의 차이 (점)", "difference from the same amount of mlm (points)")
    blocks: list[Block] = [
        Table(head, tuple(lines), frozenset({2, 3, 4}), caption, shows(speak.half)),
        rule([one for column in ranks.values() for one in column], say),
        Text(_why(study), "quiet"),
    ]
    if _exploratory(study):
        blocks.append(Text(_explored(study), "quiet"))
    answer = _answer(study, pairs, ranks[metrics[0]], METRICS[metrics[0]].label, apart)
    title = say("순위(MRR)로 보아도 같은가?", "Do ranks (MRR) say the same?")
    return question("ranks", title, answer, tuple(blocks), say("순위", "ranks"))


def _beside(hit: Versus, rank: Versus, study: Subject) -> str:
    say, signs = study.say, (sign(hit), sign(rank))
    if signs[0] == signs[1]:
        return say("같음", "agree")
    if signs[0] == 0:
        return say("순위에서만 확인", "shown in ranks only")
    return say("적중에서만 확인", "shown in hits only") if signs[1] == 0 else say("서로 반대", "opposite")


def _answer(
    study: Subject, pairs: Sequence[tuple[Arm, Arm]], found: Sequence[Versus | None], label: str, apart: list[str]
) -> str:
    say = study.say
    told = ", ".join(
        f"{a.name} - {b.method} {short_cell(one, say).text}" for (a, b), one in zip(pairs, found, strict=True) if one is not None
    )
    first = (
        say(f"{len(apart)}곳에서 다릅니다: {'; '.join(apart)}.", f"They part in {len(apart)}: {'; '.join(apart)}.")
        if apart
        else say("그렇습니다.", "Yes.")
    )
    secondary = (
        say("부차 결과(탐색적)", "Secondary outcome (exploratory)")
        if _exploratory(study)
        else say("부차 결과", "Secondary outcome")
    )
    return f"{first} {secondary}, {label} MRR ({say('점', 'points')}): {told}."


def _why(study: Subject) -> str:
    return study.say(
        "MRR은 정답 순위의 역수의 평균입니다. MRR의 차이는 hit@1의 차이와 첫째 아래 순위가 더하는 것의 합이라 둘의 부호가 다를 "
        "수 있습니다: 정답을 40위에서 3위로 올리는 모델은 첫째를 몇 개 잃어도 MRR이 오릅니다.",
        "MRR is the mean of one over the rank of the answer. A difference in MRR is that in hit@1 plus what ranks below the "
        "first add, so that the two may differ: a model that lifts answers from rank 40 to rank 3 gains MRR even where it "
        "loses a few firsts.",
    )


def _exploratory(study: Subject) -> bool:
    return any(entry.evaluation.evaluated_at < DECLARED for entry in study.entries)


def _explored(study: Subject) -> str:
    return study.say(
        f"이 평가들은 MRR을 부차 결과로 정한 {DECLARED}보다 먼저 만들어졌으므로, 여기서 MRR의 판정은 탐색적입니다.",
        f"These evaluations were made before MRR was declared the secondary outcome ({DECLARED}): here its verdicts are "
        "exploratory.",
    )
