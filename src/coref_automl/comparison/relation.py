"""The question of relation extraction. In: a Study with relation runs. Out: does a better encoder make a better extractor?"""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import Versus
from coref_automl.comparison.groups import same_model
from coref_automl.comparison.page import Block, Cell, Table, Text, row
from coref_automl.comparison.question import Question, family, lead, phrase, versus_head, versus_rows
from coref_automl.comparison.relation_runs import RelationRun, paired
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Study
from coref_automl.records import Provenance

_PAIRS = (("entity", "mlm"), ("entity", ""), ("combined", "mlm"), ("combined", ""), ("mlm", ""), ("entity", "combined"))
"""Objectives of the starts to compare, the first question first; "" is the un-adapted base."""
_KINDS = ("entity", "combined", "mlm")


def relation(study: Study) -> Question | None:
    """Does it carry over to relation extraction?"""
    runs, say = study.relation, study.say
    if not runs:
        return None
    judged, asked = _judged(study, runs)
    blocks: list[Block] = [_results(study, runs)]
    if judged:
        unit = say("차이, 문장에 걸쳐", "over sentences")
        head = versus_head((say("시작", "from"), say("상대", "against")), say("앞", "first"), say("뒤", "second"), say, unit=unit)
        lines = versus_rows([((one.a, one.b), one) for one in judged], say)
        caption = say("micro-F1의 차이, 시드와 문장으로 짝지음", "differences in micro-F1, paired by seed and by sentence")
        blocks += [Table(head, lines, frozenset({2, 3, 4, 5, 6}), caption)]
        told = "; ".join(f"{one.a} - {one.b} {phrase(one, say)}" for one in judged[:3])
        first = lead(judged[:asked], say)
        if any(one.seeds > 1 for one in judged[:asked]):
            first += say(" 방법이 아니라 이 체크포인트들에 대한 답입니다.", " That is said of these checkpoints, not of methods.")
        answer = f"{first} micro-F1 ({say('점', 'points')}), {told}."
        blocks.append(
            Text(
                say(
                    "시드는 관계 추출 학습의 시드입니다. 한 줄의 시작은 체크포인트 하나이므로 판정은 그 체크포인트에 대한 "
                    "것이고, 사전학습의 운은 여기서 가려지지 않습니다.",
                    "Seeds are those of the relation training, over those that both have. Each start is one checkpoint: a "
                    "verdict is about that checkpoint, and luck in pretraining is not averaged out.",
                )
                + family(judged, say),
                "quiet",
            )
        )
    else:
        answer = say("짝지어 견줄 예측이 없어 판정하지 않습니다.", "Without predictions to pair there is no verdict.")
    blocks.append(
        Text(say("분할이 다른 숫자끼리는 견줄 수 없습니다.", "Numbers on different splits cannot be compared."), "quiet")
    )
    title = say("관계 추출로 이어지는가?", "Does it carry over to relation extraction?")
    return Question("relation", title, answer, tuple(blocks), say("관계 추출", "relation extraction"))


def _results(study: Study, runs: Sequence[RelationRun]) -> Table:
    say = study.say
    lines = []
    for run in runs:
        result = run.result
        seeds = result.get("seeds")
        count = len(seeds) if isinstance(seeds, list | tuple) else int(seeds or 1)
        told = str(count) if count > 1 else say("하나", "one seed")
        spread = (result.get("spread") or {}).get("micro_f1")
        numbers = [_with_interval(result, key) for key in ("micro_f1", "auprc", "accuracy")]
        lines.append(
            row(
                run.name,
                same_model(str(result.get("model", "–"))),
                told,
                *numbers,
                f"{spread:.2f}" if spread is not None else Cell("–", "quiet"),
                str(result.get("split", "–")),
            )
        )
    head = (
        say("학습", "run"), say("시작 모델", "from"), say("시드", "seeds"), "micro-F1", "AUPRC", say("정확도", "accuracy"),
        say("시드 표준편차", "spread over seeds"), say("분할", "split"),
    )  # fmt: skip
    return Table(head, tuple(lines), frozenset({2, 3, 4, 5, 6}))


def _with_interval(result: dict[str, object], key: str) -> str:
    """Points of 100, as KLUE counts; the estimates are fractions."""
    value = result.get(key)
    if not isinstance(value, int | float):
        return "–"
    held = result.get("estimates")
    found = held.get(key) if isinstance(held, dict) else None
    return f"{value:.2f}" + (f" [{100 * found['low']:.1f}, {100 * found['high']:.1f}]" if found else "")


def _judged(study: Study, runs: Sequence[RelationRun]) -> tuple[list[Versus], int]:
    """The pairs that can be judged, in the order in which one asks; and how many of them answer the first question.

    Starts are paired at the same length and, where there are several, by the seed of their pretraining.
    """
    starts = [(run, *_start(study, run)) for run in runs]
    asked = [
        ((first, second), a, b)
        for first, second in _PAIRS
        for a, kind, made in starts
        for b, other, beside in starts
        if (kind, other) == (first, second)
        and (not other or not made or not beside or (made.seq_len, made.seed) == (beside.seq_len, beside.seed))
    ]
    found = [(kinds, a, b, pair) for kinds, a, b in asked if (pair := paired(a, b, seed=study.seed)) is not None]
    judged = [Versus(a.name, b.name, pair.seeds, pair.values, pair.answer) for _, a, b, pair in found]
    return judged, sum(kinds == found[0][0] for kinds, *_ in found)


def _start(study: Study, run: RelationRun) -> tuple[str, Provenance | None]:
    """Objective and record of the checkpoint a run began from; "" for an un-adapted one; by name if not evaluated here."""
    model = same_model(str(run.result.get("model", "")))
    entry: Entry | None = next((e for e in study.entries if same_model(e.evaluation.checkpoint) == model), None)
    made = entry.evaluation.provenance if entry is not None and entry.trained else None
    if entry is not None:
        return (made.objective, made) if made and made.objective in _KINDS else ("", None)
    return next((kind for kind in _KINDS if kind in f"{run.name} {model}"), ""), None
