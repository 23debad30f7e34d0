"""The page of a published table. In: rows of a CSV. Out: a Page with intervals, recomputed composites, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coref_automl.comparison.csv_table import ALPHA, TableRow, Unpaired, between, curves, twins, within, wrong_composites
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report import charts
from coref_automl.report.language import Say, points
from coref_automl.report.page import (
    Cell,
    Charts,
    Page,
    Points,
    Section,
    Table,
    Text,
    Tile,
    estimate_cells,
    in_percent,
    row,
)
from coref_automl.statistics.intervals import detectable

_PARTS = ("real1", "real5", "lambada_top1")


def csv_page(rows: Sequence[TableRow], say: Say, *, source: str, target: Mapping[str, float]) -> Page:
    found = findings(rows, say)
    best = max(rows, key=lambda one: one.estimates["real1"].value)
    sentence = say(
        f"이 표에서 가장 높은 것은 {best.name}이지만, 문항별 자료가 없어 짝지어 판정할 수 없습니다. 아래는 n만으로 말할 수 "
        f"있는 것입니다.",
        f"The highest row is {best.name}; without item data no paired verdict is possible. Below is what n alone allows to say.",
    )
    wrong = wrong_composites(rows)
    tiles = (
        Tile(say("행", "rows"), str(len(rows))),
        Tile(
            say("틀린 합성 점수", "wrong composites"),
            str(len(wrong)),
            say("정의대로 다시 계산", "recomputed by the definition"),
            "bad" if wrong else "good",
        ),
        Tile("Real@1", f"{100 * best.estimates['real1'].value:.1f}%", best.name),
    )
    sections = (
        Section("findings", say("드러난 것", "Findings"), (Points(tuple(found)),)),
        _curves_section(rows, say, target),
        _tests_section([*within(rows), *between(rows)], say),
        _composites(rows, say),
        _rows_section(rows, say),
    )
    return Page(
        lang=say.lang,
        title=say("표 다시 읽기", "A table, read again"),
        subtitle=f"{source} · {say(f'{len(rows)}행', f'{len(rows)} rows')}",
        lead=say("먼저", "First"),
        headline=say("문항 없이 말할 수 있는 것", "What can be said without items"),
        sentence=sentence,
        tiles=tiles,
        cannot_tell=_cannot_tell(rows, say),
        sections=sections,
        colophon=(
            say(
                "구간: Wilson, n에서. 검정: 짝짓지 않은 두 비율의 z, Holm은 같은 질문 안에서.",
                "Intervals: Wilson, from n. Tests: unpaired z of two shares, Holm within each question.",
            ),
        ),
    )


def findings(rows: Sequence[TableRow], say: Say) -> list[str]:
    out = []
    if wrong := wrong_composites(rows):
        families = ", ".join(dict.fromkeys(f"{one.family} {one.seq_len:,}" for one in wrong))
        worst = max(wrong, key=lambda one: abs((one.stated_score or 0) - one.score))
        out.append(
            say(
                f"합성 점수가 {len(wrong)}개 행에서 틀렸습니다 ({families}). 가장 큰 차이: {worst.name}, 적힌 값 "
                f"{worst.stated_score:.4f}, 계산한 값 {worst.score:.4f}.",
                f"The composite is wrong in {len(wrong)} rows ({families}). Largest: {worst.name}, stated "
                f"{worst.stated_score:.4f}, computed {worst.score:.4f}.",
            )
        )
    counts = sorted({(one.seq_len, one.estimates["real1"].n) for one in rows})
    if len({n for _, n in counts}) > 1:
        listed = ", ".join(f"{n:,} {say('문항', 'items')} @{length:,}" for length, n in counts)
        out.append(
            say(
                f"길이끼리 비교할 수 없습니다: 문항이 다릅니다 ({listed}).",
                f"Lengths are not comparable: their items differ ({listed}).",
            )
        )
    tests = [*within(rows), *between(rows)]
    for what in dict.fromkeys(test.what for test in tests):
        out.append(_answered(what, [test for test in tests if test.what == what], say))
    for one, two in twins(rows):
        out.append(
            say(
                f"{one.name}과 {two.checkpoint}의 수치가 모두 같습니다.",
                f"{one.name} and {two.checkpoint} have identical numbers.",
            )
        )
    return out


def _answered(what: str, tests: Sequence[Unpaired], say: Say) -> str:
    """The answer to one question: significant differences, then the others."""
    shown = [_told(test) for test in tests if test.shown]
    open_ = [_told(test) for test in tests if not test.shown]
    parts = []
    if shown:
        parts.append(f"{say('확인', 'Shown')}: {'; '.join(shown)}")
    if open_:
        parts.append(f"{say('미확인', 'Not shown')}: {'; '.join(open_)}")
    question = _questions(say)[what]
    return f"{question[0].upper()}{question[1:]}. {'. '.join(parts)}."


def _told(test: Unpaired) -> str:
    one, two = test.a, test.b
    if one.curve == two.curve:
        pair = f"{one.family} {one.seq_len:,} epoch {one.epoch:g} - epoch {two.epoch:g}"
    elif one.family == two.family:
        pair = f"{one.family} {one.seq_len:,} - {two.seq_len:,}"
    else:
        pair = f"{one.family} - {two.family} {one.seq_len:,}"
    return f"{pair}: {points(test.difference)}, p {test.p:.3f}"


def _curves_section(rows: Sequence[TableRow], say: Say, target: Mapping[str, float]) -> Section:
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


def _tests_section(tests: Sequence[Unpaired], say: Say) -> Section:
    names = _questions(say)
    cells = estimate_cells([test.difference for test in tests], difference=True)
    lines = tuple(
        row(
            names[test.what],
            f"{test.a.name} - {test.b.name}",
            cell,
            f"{test.p:.3f}",
            f"{test.p_adjusted:.3f}",
            Cell(say("확인", "shown"), "good") if test.shown else Cell(say("미확인", "not shown"), "quiet"),
        )
        for test, cell in zip(tests, cells, strict=True)
    )
    head = (
        say("질문", "question"),
        say("무엇을", "rows"),
        say("Real@1 차이 (점)", "Real@1, points"),
        "p",
        "p (Holm)",
        say("판정", "verdict"),
    )
    return Section("tests", say("차이", "Differences"), (Table(head, lines, frozenset({2, 3, 4})),))


def _composites(rows: Sequence[TableRow], say: Say) -> Section:
    wrong = set(map(id, wrong_composites(rows)))
    lines = []
    for one in rows:
        stated, off, told = "–", "–", Cell("–", "quiet")
        if one.stated_score is not None:
            stated, off = f"{one.stated_score:.4f}", f"{one.stated_score - one.score:+.4f}"
            told = Cell(say("틀림", "wrong"), "bad") if id(one) in wrong else Cell(say("맞음", "right"), "quiet")
        lines.append(row(one.name, stated, f"{one.score:.4f}", off, told))
    parts = " + ".join(f"{weight:g} x {METRICS[name].label}" for name, weight in METRICS["score"].parts)
    head = (say("행", "row"), say("적힌 값", "stated"), say("계산한 값", "computed"), say("차이", "off by"), "")
    return Section(
        "composite", say("합성 점수", "Composite"), (Text(f"{parts}."), Table(head, tuple(lines), frozenset({1, 2, 3})))
    )


def _rows_section(rows: Sequence[TableRow], say: Say) -> Section:
    columns = [estimate_cells([one.estimates[name] for one in rows]) for name in _PARTS]
    lines = tuple(
        row(one.name, f"{one.epoch:g}", f"{one.estimates['real1'].n:,}", *(column[number] for column in columns))
        for number, one in enumerate(rows)
    )
    head = (say("행", "row"), say("에폭", "epoch"), "n", *(METRICS[name].label for name in _PARTS))
    return Section("rows", say("모든 행", "All rows"), (Table(head, lines, frozenset(range(1, 6))),))


def _cannot_tell(rows: Sequence[TableRow], say: Say) -> tuple[str, ...]:
    out = [
        say(
            "문항별 점수가 없어 짝지은 검정을 할 수 없습니다. 같은 문항을 쓴 행끼리는 짝지으면 더 작은 차이도 검출됩니다.",
            "No item scores, so no paired test: rows on the same items might differ by less and still be told apart if paired.",
        ),
        say(
            "한 문서의 문항들이 서로 독립인 듯 셈했습니다. 실제 구간은 이보다 넓을 수 있습니다.",
            "Items of one document are counted as if independent: the true intervals may be wider.",
        ),
    ]
    for length in sorted({one.seq_len for one in rows}):
        one = next(one for one in rows if one.seq_len == length).estimates["real1"]
        least = detectable((2 * one.value * (1 - one.value) / one.n) ** 0.5, ALPHA)
        if least:
            out.append(
                say(
                    f"{length:,} 토큰의 문항 {one.n:,}개는 짝짓지 않으면 {100 * least:.1f}점보다 작은 차이를 보이기 어렵습니다.",
                    f"{one.n:,} items at {length:,} tokens can hardly show less than {100 * least:.1f} points unpaired.",
                )
            )
    return tuple(out)


def _questions(say: Say) -> dict[str, str]:
    return {
        "first to last": say("첫 에폭에서 마지막까지", "first to last epoch"),
        "peak over last": say("과적합 (최고 - 마지막)", "over-fitting (peak - last)"),
        "peak over first": say("최고점 (최고 - 처음)", "peak (peak - first)"),
        "length against length": say("길이와 길이", "length against length"),
        "family against family": say("계열과 계열", "family against family"),
    }
