"""Pages of relation extraction. In: an Assessment of runs, a GridResult, explored data. Out: HTML, Markdown and JSON.

Of runs: scores beside tokenizers, and the five reasons for markers; of a grid: the chosen cell first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coref_automl.relation.explore import QUANTILES, RelationExploration, SplitFacts
from coref_automl.relation.grid import COLUMNS, GridCell, GridResult
from coref_automl.relation.reasons import MANY_PIECES, Assessment, Finding, Reasons
from coref_automl.relation.rows import LABELS
from coref_automl.report.page import Cell, Page, Section, Table, Text, Tone, interval, note, p_text, percent, points, row
from coref_automl.report.rendering import render_html, render_markdown, write_page
from coref_automl.say import Lang, Say
from coref_automl.store import write_text

_TONES: dict[int, Tone] = {1: "good", -1: "bad", 0: "quiet"}
_SHOWN_CONFLICTS = 30
_TITLES = {
    1: ("긴 문장, 많은 명사 후보", "Long sentences, many candidate nouns"),
    2: ("같은 유형의 개체가 여럿", "Several entities of the same type"),
    3: ("유형과 레이블 마스크", "Types and the label mask"),
    4: ("no_relation 행의 거짓 관계", "False relations on no_relation rows"),
    5: ("쪼개진 개체와 붙은 조사", "Fragmented entities and glued particles"),
}
_METRICS = {
    "micro_f1": ("", ""),
    "false_relations": (" (거짓 관계)", " (false relations)"),
    "impossible": (" (불가능한 답)", " (impossible answers)"),
}
_ROWS = {
    "long": ("긴 문장", "long sentences"),
    "nouns": ("명사가 많은 문장", "many nouns"),
    "same types": ("같은 유형이 여럿", "several of a type"),
    "all": ("모든 행", "all rows"),
    "no_relation": ("no_relation", "no_relation"),
    "fragmented": (f"{MANY_PIECES}조각 이상", f"{MANY_PIECES} or more pieces"),
    "glued": ("붙은 조사", "glued particle"),
}
"""What a finding is about: the reason, what is measured, and on which rows."""


def write_assessment(found: Assessment, out: Path, *, lang: Lang = "ko") -> Path:
    """relation.html, relation.md and relation.json in a folder; returns the page's path."""
    return write_page(assessment_page(found, Say(lang)), found, out, "relation", "relation report")


def assessment_lines(found: Assessment, lang: Lang) -> list[str]:
    """The same sections for a terminal."""
    shown = [line for section in relation_sections(found, Say(lang)) for line in _lines(section)]
    return [*shown, *found.notes]


def assessment_page(found: Assessment, say: Say) -> Page:
    best, count = max(found.variants, key=lambda one: one.micro_f1.value), len(found.variants)
    sections, alone = relation_sections(found, say), f"{best.variant}: micro-F1 {percent(best.micro_f1)}"
    return Page(
        lang=say.lang,
        title=say("관계 추출 실행 보고서", "Relation extraction, the report"),
        subtitle=say(f"{found.split}, {found.rows:,}행", f"{found.split}, {found.rows:,} rows"),
        lead=say("한눈에", "At a glance"),
        headline=say(f"변형 {count}가지", f"{count} variants") if count > 1 else alone,
        sentence=next((one.answer for one in sections if one.answer), ""),
        cannot_tell=(note("relation: chosen", say, split=found.split, variant=best.variant),) if count > 1 else (),
        sections=tuple(sections),
        colophon=("coref-automl re report",),
        notes=found.notes,
    )


def _lines(section: Section) -> list[str]:
    shown = ["", section.title, "=" * 40]
    for block in section.blocks:
        if isinstance(block, Table):
            shown += ["", *block.lines()]
        elif isinstance(block, Text):
            shown += ["", block.text]
    return shown


def relation_sections(found: Assessment, say: Say) -> list[Section]:
    return [_variants(found, say), *(_reasons(one, number, say) for number, one in enumerate(found.reasons, 1))]


def _variants(found: Assessment, say: Say) -> Section:
    head = (say("시작 모델", "from"), say("변형", "variant"), say("시드", "seeds"), "micro-F1")
    lines = [row(one.model, one.variant, str(one.seeds), interval(one.micro_f1)) for one in found.variants]
    told = note("relation: scores", say)
    return Section("variants", say("점수", "Scores"), (Table(head, tuple(lines), frozenset({2, 3})), Text(told, "quiet")))


def _reasons(found: Reasons, number: int, say: Say) -> Section:
    head = (
        say("이유", "reason"), say("행", "rows"), say("비교", "difference"), say("앞 %", "first %"), say("뒤 %", "second %"),
        say("차이 (점)", "difference (points)"), "p (BH)", say("판정", "verdict"),
    )  # fmt: skip
    lines = [_line(one, say) for one in found.findings]
    how = note("relation: reasons", say)
    if found.missing:
        untested = ", ".join(say(*_TITLES[reason]) for reason in found.missing)
        how += " " + say(f"확인할 실행이나 행이 없는 것: {untested}.", f"No runs or rows to test: {untested}.")
    seeds = ", ".join(f"{name} {count}" for name, count in found.seeds.items())
    caption = say(
        f"{found.split} {found.rows:,}행, {found.model}; 시드: {seeds}",
        f"{found.rows:,} rows of {found.split}, {found.model}; seeds: {seeds}",
    )
    title = say("개체 마커를 쓰는 다섯 가지 이유의 검증", "The five reasons for entity markers, tested")
    blocks = (Table(head, tuple(lines), frozenset({3, 4, 5, 6}), caption), Text(how, "quiet"))
    return Section("reasons" if number == 1 else f"reasons-{number}", title, blocks, say("다섯 가지 이유", "five reasons"))


def _line(one: Finding, say: Say) -> tuple[Cell, ...]:
    return row(
        f"{one.reason}. {say(*_TITLES[one.reason])}", f"{say(*_ROWS[one.about])} ({one.rows:,})",
        f"{one.a} - {one.b}{say(*_METRICS[one.metric])}", *(f"{100 * value:.1f}" for value in one.values),
        points(one.here.interval), p_text(one.adjusted), Cell(_verdict(one, say), _TONES[one.sign]),
    )  # fmt: skip


def _verdict(one: Finding, say: Say) -> str:
    """Better or worse, or why nothing is shown and what could have been."""
    if one.sign:
        return say("더 좋음", "better") if one.sign > 0 else say("더 나쁨", "worse")
    if one.here.reason == "one seed":
        return say("시드 하나, 판정 없음", "one seed, no verdict")
    if one.here.shown:
        return say("보정 전에만", "before correction only")
    could = one.here.detectable
    limit = say(f" (검출 가능한 차이 {100 * could:.1f}점)", f" (detectable {100 * could:.1f})") if could else ""
    return say("유의한 차이 미확인", "no difference shown") + limit


def write_grid_page(result: GridResult, *, lang: Lang = "ko") -> None:
    """results.md and results.html in the grid's folder."""
    page = _grid_page(result, Say(lang))
    write_text(Path(result.out) / "results.md", render_markdown(page))
    write_text(Path(result.out) / "results.html", render_html(page))


def _grid_page(result: GridResult, say: Say) -> Page:
    ranked, best = result.ranked, result.best
    columns = (*COLUMNS, "scheme", "spread", "val_micro_f1")
    lines = []
    for cell in ranked:
        values = cell.values()
        cells = [Cell(f"{value:g}" if isinstance(value := values.get(name, ""), float) else str(value)) for name in columns]
        if best is not None and cell.name == best.name:
            cells[0] = Cell(cells[0].text, "strong")
        lines.append(row(*cells, Cell(cell.error, "bad") if cell.error else Cell("")))
    split = best.result.split if best and best.result else "-"
    table = Table((*columns, say("오류", "error")), tuple(lines), frozenset({*range(1, 9), 10, 11}))
    return Page(
        lang=say.lang,
        title=say("관계 추출 격자 실험", "Relation extraction, the grid"),
        subtitle=say(f"설정 {len(ranked)}개, 분할 {split}", f"{len(ranked)} cells, split {split}"),
        lead=say("학습 데이터에서 떼어 둔 문장으로 선택한 설정", "The cell that held-out training sentences choose"),
        headline=best.name if best else "-",
        sentence=_chosen(best, say),
        cannot_tell=(note("relation: seeds", say),),
        sections=(Section("cells", say("모든 설정", "All cells"), (table,)),),
        colophon=("coref-automl re grid",),
    )


def _chosen(best: GridCell | None, say: Say) -> str:
    """Names the cell, because Markdown shows the sentence without the headline."""
    if best is None:
        return say("끝난 설정이 없습니다.", "No cell is finished.")
    return say(
        f"{best.name}: 떼어 둔 문장의 micro-F1 {best.validation:.2f}. 채점한 분할은 선택에 쓰지 않았습니다.",
        f"{best.name}: micro-F1 {best.validation:.2f} on the held-out sentences. The scored split chose nothing.",
    )


def write_exploration(found: RelationExploration, out: Path, *, lang: Lang = "ko") -> Path:
    """explore.html, explore.md and explore.json in a folder; returns the page's path."""
    return write_page(exploration_page(found, Say(lang)), found, out, "explore", "relation exploration")


def exploration_page(found: RelationExploration, say: Say) -> Page:
    splits, first = found.splits, found.splits[0]
    rows = sum(facts.rows for facts in splits)
    pairs = sorted({pair for facts in splits for pair in facts.pairs}, key=lambda pair: -first.pairs.get(pair, 0))
    labels = sorted(LABELS, key=lambda one: -first.labels[one])
    sections = [
        _shares("labels", say("레이블", "Labels"), splits, labels, [facts.labels for facts in splits]),
        _shares("pairs", say("개체 유형 쌍", "Type pairs"), splits, pairs, [facts.pairs for facts in splits]),
        _sizes(splits, say),
        _repeats(found, say),
    ]
    if any(facts.problems for facts in splits):
        head = (say("분할", "split"), say("행", "row"), "id", say("이유", "reason"))
        bad = tuple(row(facts.split, str(one.row), one.guid, one.reason) for facts in splits for one in facts.problems)
        sections.append(Section("problems", say("쓸 수 없는 행", "Bad rows"), (Table(head, bad),)))
    return Page(
        lang=say.lang,
        title=say("관계 추출 데이터 살펴보기", "Relation data, explored"),
        subtitle=", ".join(facts.split for facts in splits),
        lead=say("한눈에", "At a glance"),
        headline=say(f"{rows:,}행", f"{rows:,} rows"),
        sentence="; ".join(f"no_relation {100 * one.labels[LABELS[0]] / max(1, one.rows):.1f}% ({one.split})" for one in splits),
        cannot_tell=(note("relation: labels", say),),
        sections=tuple(sections),
        colophon=("coref-automl re explore",),
    )


def _shares(name: str, title: str, splits: Sequence[SplitFacts], order: list[str], counts: list[Mapping[str, int]]) -> Section:
    """How often each label or type pair occurs, split beside split."""
    head = (title, *(cell for facts in splits for cell in (facts.split, "%")))
    sizes = [max(1, facts.rows) for facts in splits]

    def cells(name: str) -> Iterator[str]:
        for found, size in zip(counts, sizes, strict=True):
            yield from (f"{found.get(name, 0):,}", f"{100 * found.get(name, 0) / size:.1f}")

    lines = tuple(row(name, *cells(name)) for name in order)
    return Section(name, title, (Table(head, lines, frozenset(range(1, len(head)))),))


def _sizes(splits: Sequence[SplitFacts], say: Say) -> Section:
    head = ("", *(f"{100 * q:.0f}%" for q in QUANTILES))
    lines = []
    for facts in splits:
        measured = {say("문장 길이", "sentence"): facts.lengths, say("개체 사이", "between entities"): facts.distances}
        lines += [row(f"{facts.split}: {what}", *(f"{value:.0f}" for value in values)) for what, values in measured.items()]
    blocks = (Text(note("relation: quantiles", say)), Table(head, tuple(lines), frozenset(range(1, 8))))
    return Section("sizes", say("길이와 거리", "Lengths and distances"), blocks)


def _repeats(found: RelationExploration, say: Say) -> Section:
    """The same facts that a terminal shows, and the conflicting rows."""
    conflicts = [(facts.split, conflict) for facts in found.splits for conflict in facts.conflicts]
    lines = tuple(
        row(split, ", ".join(conflict.guids), conflict.subject, conflict.object, " / ".join(conflict.labels), conflict.sentence)
        for split, conflict in conflicts[:_SHOWN_CONFLICTS]
    )
    head = (
        say("분할", "split"), "id", say("주체", "subject"), say("대상", "object"),
        say("레이블", "labels"), say("문장", "sentence"),
    )  # fmt: skip
    caption = say(f"엇갈린 레이블 (처음 {_SHOWN_CONFLICTS}개)", f"Different labels (the first {_SHOWN_CONFLICTS})")
    told = tuple(Text(line) for line in found.lines())
    return Section("repeats", say("겹침과 엇갈림", "Repeats and conflicts"), (*told, Table(head, lines, caption=caption)))
