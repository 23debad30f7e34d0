"""The questions that people ask, answered. In: a Subject. Out: a section for each: its leading claim, then all claims."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.claims import Claim, Question
from coref_automl.comparison.coreference_runs import alike
from coref_automl.comparison.judging import ends, means
from coref_automl.comparison.relation_methods import began_from, label_of
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.evaluation.tasks.far import BUCKETS
from coref_automl.records import Estimate
from coref_automl.report import charts
from coref_automl.report.cells import claims_table, pivot_table, verdicts_table
from coref_automl.report.language import Say, interval
from coref_automl.report.page import Block, Cell, Charts, Section, Table, Text, Verdict, estimate_cells, in_percent, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.wording import TONES, about, answer_line, sentence, short_title, title

_FEWEST = 10
"""Distances with fewer items are left out."""


def draw(study: Subject) -> list[Section]:
    """Questions with claims, then runs that no claim could be made of."""
    asked = {one.id: _section(study, one) for one in study.answer.questions}
    say, none = study.say, study.say("짝지을 실행이 없어 판정하지 않습니다.", "No two runs can be paired, so no verdict.")
    if study.relation and "relation" not in asked:
        blocks = [_relation_runs(study), *_not_counted(study)]
        asked["relation"] = question("relation", title("relation", say), none, blocks, short_title("relation", say))
    if study.coreference and "coreference" not in asked:
        asked["coreference"] = question(
            "coreference", title("coreference", say), none, _coreference_runs(study), short_title("coreference", say)
        )
    claims = verdicts_table(study.answer, say)
    every = Section("claims", say("모든 판정", "Every claim"), (claims,), part="appendix")
    return [*asked.values(), *([every] if claims.rows else [])]


def _section(study: Subject, asked: Question) -> Section:
    say, lead = study.say, asked.lead
    blocks = [*_tables(asked.claims, say), Text(_rule(asked.claims, say), "quiet")]
    if asked.id == "length":
        blocks += _by_distance(study)
    if asked.id == "training":
        blocks[:0] = _curves(study)
    if asked.id == "relation":
        blocks += [_relation_runs(study), *_not_counted(study)]
    if asked.id == "coreference":
        blocks += _coreference_runs(study)
    told, tone = answer_line(asked, study.answer, say), TONES.get(lead.verdict, "quiet")
    verdict = Verdict(lead.verdict, told, lead.difference, about(lead, say), tone)
    return question(asked.id, title(asked.id, say), sentence(lead, say), blocks, short_title(asked.id, say), verdict)


def _tables(claims: Sequence[Claim], say: Say) -> list[Block]:
    """Claims on all items, ranks as a column beside hits; those on parts of the items one column per part."""
    ranked = [one for one in claims if one.outcome.endswith(":mrr")]
    parts = [one for one in claims if one.part and one.a != one.b and "equal tokens" not in one.against]
    left = [one for one in claims if one not in ranked and one not in parts]
    ordered = sorted(left, key=lambda one: one.part)
    blocks: list[Block] = [claims_table(ordered, say, beside=("MRR", ranked))] if left else []
    return [*blocks, *([pivot_table(parts, say)] if parts else [])]


def _rule(claims: Sequence[Claim], say: Say) -> str:
    """How these verdicts are reached."""
    tests = dict.fromkeys(one.test for one in claims)
    words = {
        "crossed": say(
            "실행과 문서를 교차한 검정이며, 한 실행은 시드 하나입니다.", "Runs crossed with documents; a run is one seed."
        ),
        "paired": say(
            "사전학습 시드로 짝지은 검정입니다. 시작마다 관계 추출 시드의 평균으로 셉니다.",
            "Runs paired by the seed of pretraining; each start counts with the mean over its relation seeds.",
        ),
        "sign flips": say(
            "문서 단위 부호 뒤집기 검정입니다. 체크포인트에 대한 것이며 방법에 대한 것이 아닙니다.",
            "Sign flips over documents. It is about checkpoints, not about methods.",
        ),
    }
    told = say(
        " 구간은 보정한 수준의 것이므로, 0을 포함하지 않으면 유의한 차이입니다.",
        " Intervals are those of the corrected level: one that excludes 0 is shown.",
    )
    return " ".join(words[test] for test in tests) + told


def _curves(study: Subject) -> list[Block]:
    """Means over seeds on the select half, one value per checkpoint; the peak is marked."""
    say, lines, width = study.say, [], 0
    for arm in (arm.with_curve() for arm in study.arms):
        steps = [list(step.values()) for step in arm.steps()] if arm.runs else []
        values = means(study, steps, study.metric, half="select") if len(steps) > 1 else []
        if not values:
            continue
        peak = max(range(len(values)), key=lambda n: (one.value if (one := values[n]) else 0.0, -n))
        cells = [
            Cell(f"{_epoch(steps[n][0])}: {interval(value)}", "strong" if n == peak else "") for n, value in enumerate(values)
        ]
        lines.append([Cell(arm.name), *cells])
        width = max(width, len(cells))
    rows = tuple((*line, *([Cell("–", "quiet")] * (width + 1 - len(line)))) for line in lines)
    head = (say("방법과 길이", "method, length"), *(say(f"{n + 1}번째", f"checkpoint {n + 1}") for n in range(width)))
    caption = say(
        f"{METRICS[study.metric].label} (%), 시드 평균, 에폭: 값; 굵은 글씨가 정점",
        f"{METRICS[study.metric].label} (%), means over seeds, epoch: value; the peak in bold",
    )
    return [Table(head, rows, frozenset(range(1, width + 1)), caption, "select")] if rows else []


def _epoch(entry: Entry) -> str:
    made = entry.evaluation.provenance
    return f"{round(made.epoch, 2):g}" if made else str(entry.step)


def _by_distance(study: Subject) -> list[Block]:
    """Accuracy of every method by distance to the other mention: means over seeds, all items."""
    say, items = study.say, study.group.items
    metric = "real_far_word" if study.group.tokenizers > 1 else "real_far1_strict"
    sides = [ends(arm) for arm in study.arms]
    columns: dict[str, list[Estimate | None]] = {}
    for low, high in BUCKETS:
        inside = (items.facts["distance"] >= low) & (items.facts["distance"] < high)
        if int((inside & (items.facts["task"] == METRICS[metric].task)).sum()) >= _FEWEST:
            columns[f"{low:,}–{high - 1:,}"] = means(study, sides, metric, among=inside)
    values = [
        {"name": arm.name, "bucket": bucket, "n": value.n, **in_percent(value)}
        for bucket, column in columns.items()
        for arm, value in zip(study.arms, column, strict=True)
        if value is not None
    ]
    if not values:
        return []
    caption = say(f"거리별 {METRICS[metric].label} (%)", f"{METRICS[metric].label} by distance (%)")
    cells = {bucket: estimate_cells(column) for bucket, column in columns.items()}
    lines = tuple(row(arm.name, *(cells[bucket][n] for bucket in columns)) for n, arm in enumerate(study.arms))
    head = (say("방법과 길이", "method, length"), *columns)
    drawn = charts.by_distance(values, list(columns), say)
    return [Charts(((caption, drawn),), wide=True), Table(head, lines, frozenset(range(1, len(head))), caption, "all")]


def _relation_runs(study: Subject) -> Table:
    say = study.say
    lines = []
    for run in study.relation:
        told = run.result
        seeds = told.get("seeds")
        count = len(seeds) if isinstance(seeds, list | tuple) else int(seeds or 1)
        numbers = [_with_interval(told, key) for key in ("micro_f1", "auprc", "accuracy")]
        lines.append(row(run.name, label_of(run) or "–", str(count), *numbers, str(told.get("split", "–"))))
    head = (
        say("실행", "run"), say("시작 모델", "from"), say("시드", "seeds"), "micro-F1", "AUPRC", say("정확도", "accuracy"),
        say("분할", "split"),
    )  # fmt: skip
    caption = say("실행마다 그 분할의 모든 문장", "all sentences of each run's split")
    return Table(head, tuple(lines), frozenset({2, 3, 4, 5}), caption)


def _with_interval(result: dict[str, object], key: str) -> str:
    """Percentage points, as in KLUE; the estimates are fractions."""
    value = result.get(key)
    if not isinstance(value, int | float):
        return "–"
    held = result.get("estimates")
    found = held.get(key) if isinstance(held, dict) else None
    return f"{value:.2f}" + (f" [{100 * found['low']:.1f}, {100 * found['high']:.1f}]" if found else "")


def _not_counted(study: Subject) -> list[Block]:
    """Relation runs whose start was not evaluated here: they count for no method."""
    starts = [run for run in study.relation if CHECKPOINT.search(label_of(run))]
    lost = [run.name for run in starts if not any(began_from(run, entry) for entry in study.entries)]
    told = study.say(
        f"시작 체크포인트가 여기서 평가되지 않아 방법의 판정에 들지 않은 학습: {', '.join(lost)}.",
        f"Not counted for any method, because the checkpoints they began from were not evaluated here: {', '.join(lost)}.",
    )
    return [Text(told)] if lost else []


def _coreference_runs(study: Subject) -> list[Block]:
    say, lines = study.say, []
    for run in study.coreference:
        held = run.result.get("estimates", {})
        numbers = [interval(_estimate(held.get(way, {}).get("conll"))) for way in ("gold", "found")]
        more = [interval(_estimate(held.get("gold", {}).get(metric))).split(" ")[0] for metric in ("muc", "b_cubed", "ceaf_e")]
        lines.append(
            row(run.name, model_label(run.model), str(len(run.seeds)), *numbers, *more, str(run.result.get("split", "–")))
        )
    head = (
        say("실행", "run"), say("인코더", "encoder"), say("시드", "seeds"), say("정답 언급 CoNLL %", "gold-mention CoNLL %"),
        say("예측 언급 CoNLL %", "found-mention CoNLL %"), "MUC", "B-cubed", "CEAF-e", say("분할", "split"),
    )  # fmt: skip
    blocks: list[Block] = [Table(head, tuple(lines), frozenset(range(2, 8)), shows="all")]
    left = ", ".join(run.name for group in alike(study.coreference)[1:] for run in group)
    told = say(
        f"문서, 분할 또는 설정이 달라 함께 비교하지 않은 실행: {left}.",
        f"Not compared, because documents, folds or settings differ: {left}.",
    )
    return [*blocks, *([Text(told, "quiet")] if left else [])]


def _estimate(held: dict[str, float] | None) -> Estimate | None:
    return Estimate(held["value"], held["low"], held["high"], int(held["n"])) if held else None
