"""The evidence on one screen. In: a Subject. Out: the main difference on every task, and gains over training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from coref_automl.comparison.arms import Arm, Versus, arms, base_of, equally_trained, last, speaking_of, versus
from coref_automl.comparison.coreference_methods import pretraining_in
from coref_automl.comparison.corrections import corrected_columns
from coref_automl.comparison.differences import compare_with_bases, finding
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report import charts
from coref_automl.report.coreference_verdicts import judge
from coref_automl.report.language import is_same
from coref_automl.report.method_pairs import alike_pairs
from coref_automl.report.page import Block, Charts, Section, Text, in_percent
from coref_automl.report.sections.curves import token_axis
from coref_automl.report.sections.relation import judge_relation
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import sign, which_documents

_TASKS = (
    ("real1_strict", "real_word"),
    ("real_far1_strict", "real_far_word"),
    ("lambada_top1_strict", "lambada_word"),
)
"""The metric of each task, and the one that holds across tokenizers."""
_MOST = 4
"""Lines of a chart; more would cover each other."""
_FINDINGS = {1: "better", -1: "worse", 0: "not shown"}


@dataclass(frozen=True, slots=True)
class _Chart:
    title: str
    note: str
    spec: dict[str, Any]


def draw(study: Subject) -> Section | None:
    """A forest plot and a learning curve, as far as the data allow."""
    found = [chart for chart in (_forest(study), _curve(study)) if chart is not None]
    if not found:
        return None
    blocks: list[Block] = [Charts(tuple((one.title, one.spec) for one in found))]
    blocks.append(Text(" ".join(one.note for one in found), "quiet"))
    return Section("evidence", study.say("근거", "The evidence"), tuple(blocks), part="evidence")


def _forest(study: Subject) -> _Chart | None:
    """Entity or combined against as much mlm over seeds; single runs at their ends against their base without such pairs."""
    pairs = _method_pairs(study)
    return _of_methods(study, pairs) if pairs else _of_runs(study)


def _metrics(study: Subject) -> list[str]:
    several = study.group.tokenizers > 1
    names = [word if several else strict for strict, word in _TASKS]
    return study.metrics(list(dict.fromkeys([study.metric, *names]))) if not METRICS[study.metric].parts else []


def _method_pairs(study: Subject) -> list[tuple[Arm, Arm]]:
    """Pairs over several seeds from the study's own base: entity against mlm, else combined against mlm."""
    found = alike_pairs(arms(study), lambda a, b: a.objective != "mlm" and b.objective == "mlm")
    firm = [(a, b) for a, b in found if min(a.seeds, b.seeds) > 1 and equally_trained(a, b)]
    entity = [pair for pair in firm if pair[0].objective == "entity"] or firm
    return [pair for pair in entity if pair[0].base == entity[0][0].base][:_MOST]


def _of_methods(study: Subject, pairs: Sequence[tuple[Arm, Arm]]) -> _Chart | None:
    say, speak = study.say, speaking_of(pairs)
    columns = corrected_columns({metric: versus(study, pairs, metric, speak=speak) for metric in _metrics(study)})
    rows = [
        {
            "task": METRICS[metric].label,
            "name": _label(a, pairs),
            **in_percent(one.answer.interval),
            "finding": _FINDINGS[sign(one)],
        }
        for metric, column in columns.items()
        for (a, b), one in zip(pairs, column, strict=True)
        if one is not None
    ]
    rows += _outside(study, pairs)
    a, b = pairs[0]
    note = say(
        f"차이: 마지막 체크포인트의 {a.method} - {b.method}, 토큰 길이별, 실행과 문서를 교차한 95% 신뢰구간, "
        f"{which_documents(speak.half, say)}. 초록과 빨강은 다중비교 보정 후 유의한 차이, 회색은 미확인입니다.",
        f"Differences: {a.method} - {b.method} at the last checkpoints, by length in tokens, 95% intervals of runs crossed with "
        f"documents, {which_documents(speak.half, say)}. Green and red are shown after correction, grey is undecided.",
    )
    title = f"{a.method} - {b.method}, {say('과제별 (점)', 'by task (points)')}"
    return _Chart(title, note, charts.forest(rows, say)) if rows else None


def _outside(study: Subject, pairs: Sequence[tuple[Arm, Arm]]) -> list[dict[str, Any]]:
    """The same methods in relation extraction and coreference, as far as these were run."""
    say, asked = study.say, (pairs[0][0].objective, "mlm")
    relation = judge_relation(study)
    found = [
        (say("관계 추출 F1", "relation F1"), one.a, one.answer.interval, sign(one))
        for answer, one in zip(relation.by_method, relation.methods, strict=True)
        if answer.asked == asked
    ]
    answers = judge(study.coreference, pretraining_in(study.entries), say).answers if study.coreference else ()
    found += [
        (say("상호참조 CoNLL", "coreference CoNLL"), one.a, one.gold.interval, one.sign)
        for one in answers
        if one.objectives == asked
    ]
    return [
        {"task": task, "name": told, **in_percent(held), "finding": _FINDINGS[way]}
        for task, name, held, way in found
        if (told := _within(name, pairs, arms(study)))
    ]


def _label(arm: Arm, pairs: Sequence[tuple[Arm, Arm]]) -> str:
    return f"{arm.length:,}" if arm.method == pairs[0][0].method else arm.name


def _within(name: str, pairs: Sequence[tuple[Arm, Arm]], every: Sequence[Arm]) -> str:
    """The label of a method by its name; if judged under several settings, with the setting that the name has in brackets."""
    for arm, _ in pairs:
        if name == arm.name:
            return _label(arm, pairs)
        if name.startswith(f"{arm.name} (") and all(name != other.name for other in every):
            setting = name.removeprefix(f"{arm.name} (").removesuffix(")")
            for entries in arm.runs.values():
                setting = setting.replace(entries[-1].run.rsplit("/", 1)[-1], "")
            return f"{_label(arm, pairs)}, {setting.strip('-_ ')}"
    return ""


def _of_runs(study: Subject) -> _Chart | None:
    """The last checkpoint of each run against its base; the recommended one's run first."""
    say = study.say
    ends = [last(entries) for entries in study.runs().values()]
    ends = sorted(ends, key=lambda entry: entry.run != study.chosen.run)[:_MOST]
    bases = [study.own_base(entry) for entry in ends]
    rows = []
    for metric in _metrics(study):
        for entry, answer in zip(ends, compare_with_bases(study.group, metric, ends, bases, seed=study.seed), strict=True):
            if answer is not None:
                found = finding(answer)
                told = {"name": entry.run, "finding": found if found in ("better", "worse") else "not shown"}
                rows.append({"task": METRICS[metric].label, **in_percent(answer.difference), **told})
    which = which_documents(study.group.judging, say)
    note = say(
        f"차이: 각 실행의 마지막 체크포인트 - 원래 모델, 문서 단위 95% 신뢰구간, {which}. 초록과 빨강은 max-T 보정 후 유의한 "
        "차이, 회색은 미확인입니다.",
        f"Differences: last checkpoint of each run - base, 95% intervals over documents, {which}. Green and red are shown "
        "after max-T correction, grey is undecided.",
    )
    title = say("원래 모델과의 차이, 과제별 (점)", "Difference from the base by task (points)")
    return _Chart(title, note, charts.forest(rows, say)) if rows else None


def _curve(study: Subject) -> _Chart | None:
    """Gains over the base checkpoint by checkpoint: the recommended method first, then others at its length."""
    say = study.say
    if METRICS[study.metric].parts:
        return None
    shown = _curved(study)
    steps = [(arm, base, step) for arm, base in shown for step in arm.steps()]
    if not steps:
        return None
    speak = speaking_of([(arm, base) for arm, base in shown])
    asked = [(_at(arm, step), base) for arm, base, step in steps]
    found, lengths = versus(study, asked, study.metric, speak=speak), {arm.length for arm, _ in shown}
    rows = [
        _point(arm.method if len(lengths) == 1 else arm.name, step, one)
        for (arm, _, step), one in zip(steps, found, strict=True)
        if one is not None
    ]
    if all(one is None or is_same(one.answer.interval) for one in found):  # nothing has moved: the answer says so
        return None
    label, which = METRICS[study.metric].label, which_documents(speak.half, say)
    fewest = min(arm.seeds for arm, _ in shown)
    seeds = say(
        f" 곡선은 중간 체크포인트를 평가한 시드 {fewest}개의 것입니다.",
        f" Curves of {fewest} seed{'s' * (fewest > 1)}, as intermediate checkpoints were evaluated.",
    )
    note = say(
        f"상승: 원래 모델(0)보다 오른 정도, 같은 문항에서 짝지은 95% 신뢰구간, {which}.{seeds}",
        f"Gains: over the base (0), 95% intervals paired on the same items, {which}.{seeds}",
    )
    at = f", {shown[0][0].length:,}{say(' 토큰', ' tokens')}" if len(lengths) == 1 else ""
    title = say(f"학습에 따른 {label} 상승 (점{at})", f"{label} gained over training (points{at})")
    return _Chart(title, note, charts.gains(rows, say, axis=token_axis(study)))


def _curved(study: Subject) -> list[tuple[Arm, Entry]]:
    """The lines of the chart with their bases: the recommended method and others beside it, mlm before the rest.

    If the recommended method has no curve, those with the most seeds.
    """
    mine = study.arm
    found = [(arm.with_curve(), base) for arm in arms(study) if (base := base_of(study, arm)) is not None]
    found = [(arm, base) for arm, base in found if len(arm.steps()) > 1]
    if mine is not None and any(arm.is_method(mine) for arm, _ in found):
        beside = [(arm, base) for arm, base in found if arm.alike(mine)]
        return sorted(beside, key=lambda one: (not one[0].is_method(mine), one[0].objective != "mlm"))[:_MOST]
    firm = [(arm, base) for arm, base in found if arm.seeds > 1] or found
    return [(arm, base) for arm, base in firm if (arm.base, arm.length) == (firm[0][0].base, firm[0][0].length)][:_MOST]


def _at(arm: Arm, step: dict[int, Entry]) -> Arm:
    """The arm as if it had ended at this step."""
    return replace(arm, runs={seed: [entry] for seed, entry in step.items()})


def _point(name: str, step: dict[int, Entry], one: Versus) -> dict[str, Any]:
    return {"run": name, "x": next(iter(step.values())).tokens, **in_percent(one.answer.interval)}
