"""Methods side by side. In: a Subject. Out: one table: every method at its end, where it peaked, its gain over the base."""

from __future__ import annotations

from coref_automl.comparison.arms import base_of, last
from coref_automl.comparison.judging import ends, means
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.cells import claim_cell
from coref_automl.report.language import tokens
from coref_automl.report.page import Cell, Section, Table, Text, estimate_cells, row
from coref_automl.report.subject import Subject, epoch_text

_SHOWN = ("real1_strict", "real1", "real_far1_strict", "lambada_top1_strict", "gold_word")


def draw(study: Subject) -> Section | None:
    """Every method at its last checkpoint and its base, means over seeds on all items; the best of each, gain per token."""
    found, say = study.arms, study.say
    if not found:
        return None
    metrics = [name for name in dict.fromkeys((study.metric, *_SHOWN)) if _comparable(study, name)]
    began = [base_of(study, arm) or study.own_base(last(next(iter(arm.runs.values())))) for arm in found]
    bases = list({id(base): base for base in began if base is not None}.values())
    sides = [*([base] for base in bases), *(ends(arm) for arm in found)]
    columns = [estimate_cells(means(study, sides, metric)) for metric in metrics]
    asked = study.answer.question("base")
    gains = {one.a: one for one in asked.claims} if asked else {}
    lines = []
    for number, held in enumerate(sides):
        if number < len(bases):
            first = (Cell(f"{_short(held[0])} @{held[0].evaluation.seq_len:,}", "quiet"), "–", "–")
            rest: tuple[str | Cell, ...] = ("–", "–", "–")
        else:
            arm = found[number - len(bases)]
            seeds = str(arm.seeds) if arm.seeds > 1 else say("하나", "one seed")
            first = (Cell(arm.name), seeds, tokens(arm.tokens))
            gain = gains.get(arm.name)
            rate = f"{1e8 * gain.difference.value / arm.tokens:+.2f}" if gain and arm.tokens else "–"
            rest = (epoch_text(_peak(study, [one for run in arm.runs.values() for one in run])), claim_cell(gain, say), rate)
        lines.append(row(*first, *(column[number] for column in columns), *rest))
    head = (say("방법과 길이", "method, length"), say("시드", "seeds"), say("토큰", "tokens"))
    after = (
        say("최고 (에폭)", "best (epoch)"), say("원래 모델 대비 (점)", "over the base (points)"),
        say("백만 토큰당 (점)", "points per million tokens"),
    )  # fmt: skip
    titles = (*head, *(METRICS[name].label for name in metrics), *after)
    note = say(
        "각 실행의 마지막 체크포인트, 시드 평균(%), 모든 문항. 최고는 선택용 절반에서 찾은 것이고, 원래 모델 대비 차이와 그 "
        "판정은 위 질문의 것입니다.",
        "Last checkpoint of each run, mean over seeds (%), all items. The best is found on the select half; the difference from "
        "the base and its verdict are those of the question above.",
    )
    table = Table(titles, tuple(lines), frozenset(range(1, len(titles))), shows="all")
    return Section(
        "arms", say("방법과 길이를 나란히", "Methods side by side"), (table, Text(note, "quiet")), say("나란히", "side by side")
    )


def _peak(study: Subject, entries: list[Entry]) -> Entry:
    return study.choice.peak([one for one in entries if one in study.choice.candidates])


def _short(base: Entry) -> str:
    return model_label(base.evaluation.checkpoint).split("/")[0]


def _comparable(study: Subject, metric: str) -> bool:
    if study.group.tokenizers > 1 and METRICS[metric].rule != "word":
        return False
    return any(metric in entry.evaluation.estimates for entry in study.entries)
