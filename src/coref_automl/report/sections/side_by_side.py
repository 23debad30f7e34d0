"""Methods and lengths side by side. In: a Subject. Out: every method at its last checkpoint, and what it started from."""

from __future__ import annotations

from coref_automl.comparison.arms import arms, base_of, last, means
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import tokens
from coref_automl.report.page import Cell, Section, Table, Text, estimate_cells, row
from coref_automl.report.subject import Subject

_SHOWN = ("real1_strict", "real1", "real_far1_strict", "lambada_top1_strict", "gold_word")


def draw(study: Subject) -> Section | None:
    table, say = _table(study), study.say
    if table is None:
        return None
    note = say(
        "각 실행의 마지막 체크포인트, 시드 평균(%), 모든 문항. 구간은 문서 단위 부트스트랩 95% 신뢰구간이고, 차이의 판정은 아래 "
        "질문마다 짝지어 냅니다.",
        "Last checkpoint of each run, mean over seeds (%), all items. Brackets are 95% intervals over documents; differences are "
        "judged in pairs under each question below.",
    )
    title = say("방법과 길이를 나란히", "Methods and lengths side by side")
    return Section("arms", title, (table, Text(note, "quiet")), say("나란히", "side by side"))


def _table(study: Subject) -> Table | None:
    """Every arm at its last checkpoint, means over seeds, and its base, on all items."""
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
    return Table(
        (*head, *(METRICS[name].label for name in metrics)), tuple(lines), frozenset(range(1, 3 + len(metrics))), shows="all"
    )


def _short(base: Entry) -> str:
    return model_label(base.evaluation.checkpoint).split("/")[0]


def _comparable(study: Subject, metric: str) -> bool:
    if study.group.tokenizers > 1 and METRICS[metric].rule != "word":
        return False
    return any(metric in entry.evaluation.estimates for entry in study.entries)
