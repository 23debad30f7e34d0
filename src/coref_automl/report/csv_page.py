"""The page of a published table. In: rows of a CSV. Out: a Page with intervals, recomputed composites, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coref_automl.comparison.csv_table import TableRow, Unpaired, between, curves, twins, within, wrong_composites
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report import charts
from coref_automl.report.language import Say
from coref_automl.report.page import Cell, Charts, Page, Points, Section, Table, Text, Tile, estimate_cells, in_percent, row

_PARTS = ("real1", "real5", "lambada_top1")


def csv_page(rows: Sequence[TableRow], say: Say, *, source: str, target: Mapping[str, float]) -> Page:
    best, wrong = max(rows, key=lambda one: one.estimates["real1"].value), wrong_composites(rows)
    return Page(
        lang=say.lang,
        title=say("표 다시 읽기", "A table, read again"),
        subtitle=f"{source} · {say(f'{len(rows)}행', f'{len(rows)} rows')}",
        lead=say("먼저", "First"),
        headline=say("문항 없이 말할 수 있는 것", "What can be said without items"),
        sentence=say(
            f"이 표에서 가장 높은 것은 {best.name}이지만, 문항별 자료가 없어 짝지어 판정할 수 없습니다. 아래는 n만으로 말할 수 "
            f"있는 것입니다.",
            f"The highest row is {best.name}; without item data no paired verdict is possible. Below is what n alone "
            "allows to say.",
        ),
        tiles=(
            Tile(say("틀린 합성 점수", "wrong composites"), str(len(wrong)), tone="bad" if wrong else "good"),
            Tile("Real@1", f"{100 * best.estimates['real1'].value:.1f}%", best.name),
        ),
        cannot_tell=(
            say(
                "문항별 점수가 없어 짝지은 검정을 할 수 없습니다. 같은 문항을 쓴 행끼리는 짝지으면 더 작은 차이도 검출됩니다.",
                "No item scores, so no paired test: rows on the same items might differ by less and still be told apart if "
                "paired.",
            ),
            say(
                "한 문서의 문항들이 서로 독립인 듯 셈했습니다. 실제 구간은 이보다 넓을 수 있습니다.",
                "Items of one document are counted as if independent: the true intervals may be wider.",
            ),
        ),
        sections=(
            Section("findings", say("드러난 것", "Findings"), (Points(tuple(findings(rows, say))),)),
            _curves(rows, say, target),
            _tests([*within(rows), *between(rows)], say),
            _rows(rows, say),
        ),
        colophon=(
            say(
                "구간: Wilson, n에서. 검정: 짝짓지 않은 두 비율의 z, Holm은 같은 질문 안에서.",
                "Intervals: Wilson, from n. Tests: unpaired z of two shares, Holm within each question.",
            ),
        ),
    )


def findings(rows: Sequence[TableRow], say: Say) -> list[str]:
    """Wrong composites, unlike items, identical rows."""
    out = []
    if wrong := wrong_composites(rows):
        families = ", ".join(dict.fromkeys(f"{one.family} {one.seq_len:,}" for one in wrong))
        worst = max(wrong, key=lambda one: abs((one.stated_score or 0) - one.score))
        stated, computed = f"{worst.stated_score:.4f}", f"{worst.score:.4f}"
        out.append(
            say(
                f"합성 점수가 {len(wrong)}개 행에서 틀렸습니다 ({families}). 가장 큰 차이: {worst.name}, 적힌 값 {stated}, "
                f"계산한 값 {computed}.",
                f"The composite is wrong in {len(wrong)} rows ({families}). Largest: {worst.name}, stated {stated}, computed "
                f"{computed}.",
            )
        )
    counts = sorted({(one.seq_len, one.estimates["real1"].n) for one in rows})
    if len({n for _, n in counts}) > 1:
        listed = ", ".join(f"{n:,} {say('문항', 'items')} @{length:,}" for length, n in counts)
        told = (
            f"길이끼리 비교할 수 없습니다: 문항이 다릅니다 ({listed}).",
            f"Lengths are not comparable: their items differ ({listed}).",
        )
        out.append(say(*told))
    for one, two in twins(rows):
        same = (
            f"{one.name}과 {two.checkpoint}의 수치가 모두 같습니다.",
            f"{one.name} and {two.checkpoint} have identical numbers.",
        )
        out.append(say(*same))
    return out


def _curves(rows: Sequence[TableRow], say: Say, target: Mapping[str, float]) -> Section:
    out = []
    for metric in _PARTS:
        lines = [
            {"run": f"{family} {length:,}", "x": one.epoch, "name": one.checkpoint, **in_percent(one.estimates[metric])}
            for (family, length), curve in curves(rows).items()
            for one in curve
        ]
        goal = 100 * target[metric] if metric in target else None
        spec = charts.learning_curve(lines, say, axis=say("에폭", "epoch"), target=goal, color="#8a94a6")
        out.append((METRICS[metric].label, spec))
    note = say("띠는 n에서 얻은 95% 구간입니다.", "Bands are 95% intervals from n.")
    return Section("curves", say("학습 곡선", "Learning curves"), (Charts(tuple(out)), Text(note, "quiet")))


def _tests(tests: Sequence[Unpaired], say: Say) -> Section:
    names = {
        "first to last": say("첫 에폭에서 마지막까지", "first to last epoch"),
        "peak over last": say("과적합 (최고 - 마지막)", "over-fitting (peak - last)"),
        "peak over first": say("최고점 (최고 - 처음)", "peak (peak - first)"),
        "length against length": say("길이와 길이", "length against length"),
        "family against family": say("계열과 계열", "family against family"),
    }
    head = (
        say("질문", "question"), say("무엇을", "rows"), say("Real@1 차이 (점)", "Real@1, points"), "p", "p (Holm)",
        say("판정", "verdict"),
    )  # fmt: skip
    shown = {True: Cell(say("확인", "shown"), "good"), False: Cell(say("미확인", "not shown"), "quiet")}
    cells = estimate_cells([test.difference for test in tests], difference=True)
    lines = tuple(
        row(
            names[test.what], f"{test.a.name} - {test.b.name}", cell, f"{test.p:.3f}", f"{test.p_adjusted:.3f}", shown[test.shown]
        )
        for test, cell in zip(tests, cells, strict=True)
    )
    return Section("tests", say("차이", "Differences"), (Table(head, lines, frozenset({2, 3, 4})),))


def _rows(rows: Sequence[TableRow], say: Say) -> Section:
    """Every row with its intervals, and the composite as it is stated and as its definition makes it."""
    wrong = set(map(id, wrong_composites(rows)))
    columns = [estimate_cells([one.estimates[name] for one in rows]) for name in _PARTS]
    lines = []
    for number, one in enumerate(rows):
        stated = (
            Cell("–", "quiet") if one.stated_score is None else Cell(f"{one.stated_score:.4f}", "bad" if id(one) in wrong else "")
        )
        shown = [column[number] for column in columns]
        sizes, computed = (f"{one.epoch:g}", f"{one.estimates['real1'].n:,}"), f"{one.score:.4f}"
        lines.append(row(one.name, *sizes, *shown, stated, computed, say("틀림", "wrong") if id(one) in wrong else ""))
    head = (
        say("행", "row"), say("에폭", "epoch"), "n", *(METRICS[name].label for name in _PARTS),
        say("적힌 합성 점수", "stated composite"),
        say("계산한 값", "computed"), "",
    )  # fmt: skip
    parts = " + ".join(f"{weight:g} x {METRICS[name].label}" for name, weight in METRICS["score"].parts)
    title = say("모든 행과 합성 점수", "All rows and the composite")
    return Section("rows", title, (Text(f"{parts}."), Table(head, tuple(lines), frozenset(range(1, 8)))))
