"""What to use, and how long to train next time? In: a Subject. Out: the advice, and the candidates on both halves."""

from __future__ import annotations

from coref_automl.comparison.coreference_methods import pretraining_in
from coref_automl.report.coreference_verdicts import judge, outside_check
from coref_automl.report.language import percent, points, tokens
from coref_automl.report.page import Block, Cell, Section, Table, Text, Tone, question, row
from coref_automl.report.sentences import recommendation_sentence
from coref_automl.report.subject import Subject
from coref_automl.statistics.intervals import composite

_MOST = 8


def draw(study: Subject) -> Section | None:
    """Show the choice on select (values, posterior means), and the values on confirm. Its short answer is the headline."""
    if study.alone:
        return None
    say, it = study.say, study.recommendation
    candidates = study.choice.candidates
    ranked = sorted(candidates, key=lambda entry: -candidates[entry].value.value)[:_MOST]
    shown = dict.fromkeys([study.chosen, study.best, *ranked])
    entries = [*(entry for entry in (study.base,) if entry), *shown]
    columns = study.group.columns(study.metric, half="confirm", entries=entries)
    judged = composite(columns.parts, seed=study.seed) if columns.items else [None] * len(entries)
    lines = []
    for entry, value in zip(entries, judged, strict=True):
        candidate = candidates.get(entry)
        tone: Tone = "strong" if entry is study.chosen else ""
        kept = percent(candidate.value) if candidate else "–"
        believed = f"{100 * candidate.believed:.1f}%" if candidate else "–"
        bound = f"{100 * candidate.bound:.1f}" if candidate else "–"
        trained = tokens(entry.recorded_tokens)
        lines.append(row(Cell(entry.name, tone), trained, kept, believed, bound, percent(value) if value else "–"))
    head = (
        say("체크포인트", "checkpoint"), say("토큰", "tokens"), say("선택용 절반", "select"),
        say("사후 평균, 선택용 절반", "posterior mean, select"),
        say("최고와의 차이, 많아야 (점), 선택용 절반", "behind the best, at most (points), select"),
        say("확인용 절반", "confirm"),
    )  # fmt: skip
    note = say(
        "고르는 일은 선택 쪽 문서가 하고, 판정은 확인 쪽 문서가 합니다. 사후 평균은 이웃한 체크포인트와 다른 시드가 함께 말하는 "
        "값입니다: 가장 높은 체크포인트는 가장 운 좋은 것이기도 합니다.",
        "The select half chooses, the confirm half judges. A posterior mean is what neighbouring checkpoints and the other seeds "
        "leave of a value: the highest of many is the luckiest as well.",
    )
    if it.best_over_chosen is not None:
        change = points(it.best_over_chosen.difference)
        note += say(f" 확인용 절반에서 최고 - 추천: {change}점.", f" On confirm, best - recommended: {change} points.")
    blocks: list[Block] = [Table(head, tuple(lines), frozenset({1, 2, 3, 4, 5}), shows="both"), Text(note, "quiet")]
    if study.coreference:
        blocks.append(Text(outside_check(judge(study.coreference, pretraining_in(study.entries), say), say), "quiet"))
    title = say("무엇을 쓰고, 얼마나 학습할 것인가?", "What to use, and how long to train?")
    answer = recommendation_sentence(it, say.lang)
    return question("recommended", title, answer, blocks, say("추천", "recommendation"))
