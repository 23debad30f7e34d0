"""Questions about objectives. In: a Study. Out: is entity training better than as much more mlm; is a mix better than either?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from coref_automl.comparison.arms import Arm, Versus, arms, base_of, equally_trained, last, means, versus
from coref_automl.comparison.scores import Entry, same_model
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import points, tokens
from coref_automl.report.page import Block, Cell, Section, Table, Text, estimate_cells, row
from coref_automl.report.question import Question, at_length, lead, phrase, rule, verdict_cell, versus_head, versus_rows
from coref_automl.report.subject import Subject

_SHOWN = ("real1_strict", "real1", "real_far1_strict", "lambada_top1_strict", "gold_word")


def arms_table(study: Subject) -> Table | None:
    """Every arm at its last checkpoint, means over seeds, and what it began from, on all items: the headline."""
    found, say = arms(study), study.say
    if not found:
        return None
    metrics = [name for name in dict.fromkeys((study.metric, *_SHOWN)) if _comparable(study, name)]
    began = [base_of(study, arm) or study.own_base(last(next(iter(arm.runs.values())))) for arm in found]
    bases = list({id(base): base for base in began if base is not None}.values())
    sides = [*([base] for base in bases), *([last(entries) for entries in arm.runs.values()] for arm in found)]
    columns = [estimate_cells(means(study, sides, metric)) for metric in metrics]
    lines = []
    for number, side in enumerate(sides):
        if number < len(bases):
            first = (Cell(f"{_short(side[0])} @{side[0].evaluation.seq_len:,}", "quiet"), "–", "–")
        else:
            arm = found[number - len(bases)]
            seeds = str(arm.seeds) if arm.seeds > 1 else say("하나", "one seed")
            first = (Cell(arm.name), seeds, tokens(arm.tokens))
        lines.append(row(*first, *(column[number] for column in columns)))
    head = (say("방법과 길이", "method, length"), say("시드", "seeds"), say("토큰", "tokens"))
    return Table((*head, *(METRICS[name].label for name in metrics)), tuple(lines), frozenset(range(1, 3 + len(metrics))))


def side_by_side(study: Subject) -> Section | None:
    table, say = arms_table(study), study.say
    if table is None:
        return None
    note = say(
        "각 학습의 마지막 체크포인트, 시드에 걸친 평균(%), 모든 문항. 괄호는 문서를 다시 뽑은 95% 구간이고, 차이의 판정은 아래 "
        "질문마다 짝지어 냅니다.",
        "Last checkpoint of each run, mean over seeds (%), all items. Brackets are 95% intervals over documents; differences are "
        "judged in pairs under each question below.",
    )
    title = say("방법과 길이를 나란히", "Methods and lengths side by side")
    return Section("arms", title, (table, Text(note, "quiet")), say("나란히", "side by side"))


def entity_or_mlm(study: Subject) -> Question | None:
    """Is entity training better than as much more mlm?"""
    found, say = arms(study), study.say
    pairs = _pairs(found, lambda a, b: a.objective == "entity" and b.objective == "mlm")
    judged = _judged(study, pairs)
    if not judged:
        return None
    label = METRICS[study.metric].label
    told = _fair(judged)
    first = lead(_own(told), say) if told else _unfair(study)
    answer = f"{first} {label}, entity - mlm ({say('점', 'points')}): {_by_length(told or judged, study)}."
    form = say(
        "Real은 entity가 학습하는 형식 그대로입니다. 바깥의 확인은 gold와 관계 추출입니다.",
        "Real has the very form that entity trains; gold and relation extraction are the outside checks.",
    )
    rows = versus_rows([((a.name, b.name, _equal(a, b, study)), one) for (a, b), one in judged], say)
    head = versus_head(("entity", "mlm", say("학습량", "training")), "entity", "mlm", say)
    title = say("entity 학습은 같은 양의 mlm보다 나은가?", "Is entity training better than as much more mlm?")
    blocks = (Table(head, rows, frozenset({3, 4, 5, 6, 7})), rule([one for _, one in judged], say), Text(form, "quiet"))
    return Question("entity-or-mlm", title, answer, blocks, say("entity와 mlm", "entity or mlm"))


def mix(study: Subject) -> Question | None:
    """Is a mix better than either?"""
    found, say = arms(study), study.say
    pairs = _pairs(found, lambda a, b: a.objective == "combined" and b.objective in ("mlm", "entity"))
    ratios = [(b, a) for a, b in _pairs(found, lambda a, b: a.objective == b.objective == "combined") if a.name < b.name]
    judged = _judged(study, [*pairs, *ratios])
    if not judged:
        return None
    label, parts = METRICS[study.metric].label, []
    told = _fair(judged)
    for other in ("mlm", "entity"):
        some = [((a, b), one) for (a, b), one in told or judged if b.objective == other]
        if some:
            parts.append(f"{say('섞기', 'mix')} - {other}: {_by_length(some, study)}")
    if not told:
        first = _unfair(study)
    elif all(one.seeds < 2 for _, one in told):
        first = lead([one for _, one in told], say)
    elif beats := _beats_both(told):
        first = say(f"둘 다보다 나은 섞기: {', '.join(beats)}.", f"Better than both: {', '.join(beats)}.")
    else:
        first = say("둘 다보다 낫다고 보이는 섞기는 없습니다.", "No mix is shown better than both.")
    answer = f"{first} {label} ({say('점', 'points')}), {'; '.join(parts)}."
    rows = versus_rows([((a.name, b.name, _equal(a, b, study)), one) for (a, b), one in judged], say)
    sides = say("섞기", "mix"), say("상대", "other")
    head = versus_head((*sides, say("학습량", "training")), *sides, say)
    title = say("섞으면 어느 한쪽보다 나은가?", "Is a mix better than either?")
    blocks = (Table(head, rows, frozenset({3, 4, 5, 6, 7})), rule([one for _, one in judged], say))
    return Question("mix", title, answer, blocks, say("섞기", "a mix"))


def variants(study: Subject) -> Section | None:
    """Methods of one objective that only their runs' names tell apart."""
    say = study.say
    same = [(a, b) for a, b in combinations(arms(study), 2) if a.objective == b.objective != "combined"]
    judged = _judged(study, [(b, a) for a, b in same if a.alike(b)])
    if not judged:
        return None
    blocks: list[Block] = [
        Table(
            (say("방법", "methods"), say("시드", "seeds"), say("차이", "difference"), say("판정", "verdict")),
            tuple(
                row(f"{one.a} - {one.b}", str(one.seeds), points(one.answer.interval), verdict_cell(one, say))
                for _, one in judged
            ),
            frozenset({1, 2}),
        ),
        rule([one for _, one in judged], say),
    ]
    return Section("methods", say("같은 목표의 방법들", "Methods of one objective"), tuple(blocks))


def _judged(study: Subject, pairs: Sequence[tuple[Arm, Arm]]) -> list[tuple[tuple[Arm, Arm], Versus]]:
    found = versus(study, pairs, study.metric)
    return [(pair, one) for pair, one in zip(pairs, found, strict=True) if one is not None]


def _pairs(found: Sequence[Arm], wanted: Callable[[Arm, Arm], bool]) -> list[tuple[Arm, Arm]]:
    return [(a, b) for a in found for b in found if a is not b and a.alike(b) and wanted(a, b)]


def _by_length(judged: Sequence[tuple[tuple[Arm, Arm], Versus]], study: Subject) -> str:
    """The verdicts that rest on several seeds; where there is none, what one seed says."""
    firm = [entry for entry in judged if entry[1].seeds > 1] or list(judged)
    told: list[str] = []
    for (a, b), one in firm:
        several = sum((x.length, x.objective) == (a.length, a.objective) for (x, y), _ in firm if y is b) > 1
        name = f" ({a.method})" if several else ""
        told.append(f"{at_length(a, firm[0][0][0].base, study.say)}{name} {phrase(one, study.say)}")
    return ", ".join(told)


def _own(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[Versus]:
    """Those of the study's own base: the first."""
    return [one for (a, _), one in judged if a.base == judged[0][0][0].base]


def _fair(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[tuple[tuple[Arm, Arm], Versus]]:
    """The pairs at equal training: the others are in the table and have no say."""
    return [(pair, one) for pair, one in judged if equally_trained(*pair)]


def _unfair(study: Subject) -> str:
    return study.say("학습량이 같지 않아 판정하지 않습니다.", "Not trained equally, so no verdict.")


def _beats_both(judged: Sequence[tuple[tuple[Arm, Arm], Versus]]) -> list[str]:
    won: dict[str, set[str]] = {}
    for (a, b), one in judged:
        if one.answer.shown and one.answer.difference > 0:
            won.setdefault(a.name, set()).add(b.objective)
    return [name for name, others in won.items() if {"mlm", "entity"} <= others]


def _equal(a: Arm, b: Arm, study: Subject) -> str:
    if equally_trained(a, b):
        return study.say(f"같음, {tokens(a.tokens)}", f"equal, {tokens(a.tokens)}")
    return study.say(f"다름, {tokens(a.tokens)} / {tokens(b.tokens)}", f"unequal, {tokens(a.tokens)} / {tokens(b.tokens)}")


def _short(base: Entry) -> str:
    return same_model(base.evaluation.checkpoint).split("/")[0]


def _comparable(study: Subject, metric: str) -> bool:
    if study.group.tokenizers > 1 and METRICS[metric].rule != "word":
        return False
    return any(metric in entry.evaluation.estimates for entry in study.entries)
