"""Does it carry over to relation extraction? In: a Subject with relation runs. Out: verdicts about methods and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coref_automl.comparison.arms import OBJECTIVES, Versus
from coref_automl.comparison.corrections import corrected
from coref_automl.comparison.relation_methods import PAIRS, MethodAnswer, began_from, compare_methods, label_of
from coref_automl.comparison.relation_runs import RelationRun, paired
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.records import Provenance
from coref_automl.report.page import Block, Cell, Check, Section, Table, Text, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import check, family, lead, paired_head, phrase, versus_rows


@dataclass(frozen=True, slots=True)
class RelationVerdicts:
    """Verdicts between methods, with what each compares, and between checkpoints, of which `asked` are of the first kind."""

    by_method: Sequence[MethodAnswer]
    methods: Sequence[Versus]
    checkpoints: Sequence[Versus]
    asked: int


def draw(study: Subject) -> Section | None:
    """Results of all relation runs, and verdicts between methods and between checkpoints."""
    runs, say = study.relation, study.say
    if not runs:
        return None
    told = judge_relation(study)
    by_method, methods, checkpoints, asked = told.by_method, told.methods, list(told.checkpoints), told.asked
    judged = [*methods, *checkpoints]
    first_kind = [found for one, found in zip(by_method, methods, strict=True) if one.asked == by_method[0].asked]
    first_kind = first_kind or checkpoints[:asked]
    blocks: list[Block] = [_results(study, runs)]
    if methods:
        caption = say(
            "방법 사이의 micro-F1 차이, 사전학습의 시드와 문장으로 짝지음, 모든 문장",
            "between methods: differences in micro-F1, paired by the seed of pretraining and by sentence, all sentences",
        )
        blocks.append(_differences(methods, caption, study))
    if checkpoints:
        caption = say(
            "체크포인트 사이의 micro-F1 차이, 관계 추출의 시드와 문장으로 짝지음, 모든 문장",
            "between checkpoints: differences in micro-F1, paired by relation seed and by sentence, all sentences",
        )
        blocks.append(_differences(checkpoints, caption, study))
    if judged:
        numbers = "; ".join(f"{one.a} - {one.b} {phrase(one, say)}" for one in (methods or checkpoints)[:3])
        first = lead(first_kind, say)
        if not methods and any(one.seeds > 1 for one in checkpoints[:asked]):
            first += say(" 방법이 아니라 이 체크포인트들에 대한 답입니다.", " That is said of these checkpoints, not of methods.")
        answer = f"{first} micro-F1 ({say('점', 'points')}), {numbers}."
        blocks.append(Text(_rule(study, methods=bool(methods), checkpoints=bool(checkpoints)) + family(judged, say), "quiet"))
        blocks += _not_counted(study, runs)
    else:
        answer = _no_verdict(study, runs)
    blocks.append(
        Text(say("분할이 다른 숫자끼리는 비교할 수 없습니다.", "Numbers on different splits cannot be compared."), "quiet")
    )
    title = say("관계 추출로 이어지는가?", "Does it carry over to relation extraction?")
    short = say("관계 추출", "relation extraction")
    outside = check(short, "relation", first_kind) if judged else Check(short, "relation", "open")
    return question("relation", title, answer, blocks, short, checks=[outside])


def judge_relation(study: Subject) -> RelationVerdicts:
    """Corrected together. Pairs of checkpoints that a verdict about methods rests on are not judged again."""
    by_method = compare_methods(study, study.relation)
    pairs, asked = _judged(study, study.relation, {names for one in by_method for names in one.rests})
    judged = [one for one in corrected([*(one.verdict for one in by_method), *pairs]) if one is not None]
    return RelationVerdicts(by_method, judged[: len(by_method)], judged[len(by_method) :], asked)


def _no_verdict(study: Subject, runs: Sequence[RelationRun]) -> str:
    """Why there is no verdict."""
    say = study.say
    if len(runs) == 1:
        value = _with_interval(runs[0].result, "micro_f1")
        return say(
            f"실행이 하나뿐이라 비교할 것이 없습니다. micro-F1 {value}.", f"One run only: nothing to compare. micro-F1 {value}."
        )
    if not any(run.rows is not None for run in runs):
        return say("짝지어 비교할 예측이 없어 판정하지 않습니다.", "Without predictions to pair there is no verdict.")
    return say(
        "시작의 길이와 시드, 자료와 설정이 맞는 짝이 없어 판정하지 않습니다.",
        "No two runs can be paired (starts of one length and seed, the same rows and settings), so no verdict.",
    )


def _differences(judged: Sequence[Versus], caption: str, study: Subject) -> Table:
    say = study.say
    head = paired_head((say("시작", "from"), say("상대", "against")), say("앞", "first"), say("뒤", "second"), say)
    return Table(head, versus_rows([((one.a, one.b), one) for one in judged], say), frozenset({2, 3, 4, 5, 6}), caption)


def _rule(study: Subject, *, methods: bool, checkpoints: bool) -> str:
    """How the verdicts were reached, and what they are about."""
    say, told = study.say, []
    if methods:
        told.append(
            say(
                "방법의 판정에서 시드는 사전학습의 시드입니다. 시작마다 양쪽에 다 있는 관계 추출 시드의 평균 하나로 세고, "
                "모든 시작이 같은 관계 추출 시드를 쓰면 그 시드의 우연도 신뢰구간에 넣습니다.",
                "In a verdict about methods seeds are those of pretraining: each start counts once, with the mean over the "
                "relation seeds that both sides have; where all starts share these, their luck is in the interval too.",
            )
        )
    if checkpoints:
        told.append(
            say(
                "체크포인트 사이에서 시드는 관계 추출 학습의 시드입니다. 한 줄의 시작은 체크포인트 하나이므로 판정은 그 "
                "체크포인트에 대한 것이고, 사전학습의 우연은 여기서 걸러지지 않습니다.",
                "Between checkpoints seeds are those of the relation training, over those that both have. Each start is one "
                "checkpoint: a verdict is about that checkpoint, and luck in pretraining is not averaged out.",
            )
        )
    return " ".join(told)


def _not_counted(study: Subject, runs: Sequence[RelationRun]) -> list[Block]:
    """Relation runs whose start was not evaluated here: they count for no method."""
    lost = [
        run.name
        for run in runs
        if CHECKPOINT.search(label_of(run)) and not any(began_from(run, entry) for entry in study.entries)
    ]
    told = study.say(
        f"시작 체크포인트가 여기서 평가되지 않아 방법의 판정에 들지 않은 학습: {', '.join(lost)}.",
        f"Not counted for any method, because the checkpoints they began from were not evaluated here: {', '.join(lost)}.",
    )
    return [Text(told)] if lost else []


def _results(study: Subject, runs: Sequence[RelationRun]) -> Table:
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
                label_of(run) or "–",
                told,
                *numbers,
                f"{spread:.2f}" if spread is not None else Cell("–", "quiet"),
                str(result.get("split", "–")),
            )
        )
    head = (
        say("실행", "run"), say("시작 모델", "from"), say("시드", "seeds"), "micro-F1", "AUPRC", say("정확도", "accuracy"),
        say("시드 표준편차", "spread over seeds"), say("분할", "split"),
    )  # fmt: skip
    caption = say("실행마다 그 분할의 모든 문장", "all sentences of each run's split")
    return Table(head, tuple(lines), frozenset({2, 3, 4, 5, 6}), caption)


def _with_interval(result: dict[str, object], key: str) -> str:
    """Percentage points, as in KLUE; the estimates are fractions."""
    value = result.get(key)
    if not isinstance(value, int | float):
        return "–"
    held = result.get("estimates")
    found = held.get(key) if isinstance(held, dict) else None
    return f"{value:.2f}" + (f" [{100 * found['low']:.1f}, {100 * found['high']:.1f}]" if found else "")


def _judged(study: Subject, runs: Sequence[RelationRun], told: set[tuple[str, str]]) -> tuple[list[Versus], int]:
    """The comparable pairs of checkpoints in the order of PAIRS, and how many belong to the first kind.

    Starts are paired at the same length and by pretraining seed. Pairs already covered by a verdict about methods are left out.
    """
    starts = [(run, *_start(study, run)) for run in runs]
    asked = [
        ((first, second), a, b)
        for first, second in PAIRS
        for a, kind, made in starts
        for b, other, beside in starts
        if (kind, other) == (first, second)
        and (a.name, b.name) not in told
        and (not other or not made or not beside or (made.seq_len, made.seed) == (beside.seq_len, beside.seed))
    ]
    found = [(kinds, a, b, pair) for kinds, a, b in asked if (pair := paired(a, b, seed=study.seed)) is not None]
    judged = [Versus(a.name, b.name, pair.seeds, pair.values, pair.answer) for _, a, b, pair in found]
    return judged, sum(kinds == found[0][0] for kinds, *_ in found)


def _start(study: Subject, run: RelationRun) -> tuple[str, Provenance | None]:
    """Objective and training record of a run's start; "" for an un-adapted one; guessed by name if not evaluated here."""
    entry: Entry | None = next((entry for entry in study.entries if began_from(run, entry)), None)
    made = entry.evaluation.provenance if entry is not None and entry.trained else None
    if entry is not None:
        return (made.objective, made) if made else ("", None)
    return next((kind for kind in reversed(OBJECTIVES) if kind in f"{run.name} {label_of(run)}"), ""), None
