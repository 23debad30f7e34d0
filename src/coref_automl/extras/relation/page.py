"""Pages of relation extraction. In: an Assessment of runs, a GridResult, explored data. Out: HTML, Markdown and JSON.

Of runs: scores beside tokenizers, and the five reasons for markers; of a grid: the chosen cell first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coref_automl.base.say import Lang, Say
from coref_automl.base.store import write_text
from coref_automl.extras.pages.rendering import render_html, render_markdown, write_page
from coref_automl.extras.relation.explore import QUANTILES, RelationExploration, SplitFacts
from coref_automl.extras.relation.grid import COLUMNS, GridCell, GridResult
from coref_automl.extras.relation.reasons import MANY_PIECES, Assessment, Finding, Reasons
from coref_automl.extras.relation.rows import LABELS
from coref_automl.report.page import Cell, Page, Section, Table, Text, Tone, interval, note, p_text, percent, points, row

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


def write_assessment(assessment: Assessment, out: Path, *, lang: Lang = "ko") -> Path:
    """Write relation.html, relation.md and relation.json to a folder; return the page's path."""
    return write_page(assessment_page(assessment, Say(lang)), assessment, out, "relation", "relation report")


def assessment_lines(assessment: Assessment, lang: Lang) -> list[str]:
    """The same sections for a terminal."""
    lines = [line for section in relation_sections(assessment, Say(lang)) for line in _lines(section)]
    return [*lines, *assessment.notes]


def assessment_page(assessment: Assessment, say: Say) -> Page:
    best, count = max(assessment.variants, key=lambda variant: variant.micro_f1.value), len(assessment.variants)
    sections, alone = relation_sections(assessment, say), f"{best.variant}: micro-F1 {percent(best.micro_f1)}"
    return Page(
        lang=say.lang,
        title=say("관계 추출 실행 보고서", "Relation extraction, the report"),
        subtitle=say(f"{assessment.split}, {assessment.rows:,}행", f"{assessment.split}, {assessment.rows:,} rows"),
        lead=say("한눈에", "At a glance"),
        headline=say(f"변형 {count}가지", f"{count} variants") if count > 1 else alone,
        sentence=next((section.answer for section in sections if section.answer), ""),
        cannot_tell=(note("relation: chosen", say, split=assessment.split, variant=best.variant),) if count > 1 else (),
        sections=tuple(sections),
        colophon=("coref-automl re report",),
        notes=assessment.notes,
    )


def _lines(section: Section) -> list[str]:
    lines = ["", section.title, "=" * 40]
    for block in section.blocks:
        if isinstance(block, Table):
            lines += ["", *block.lines()]
        elif isinstance(block, Text):
            lines += ["", block.text]
    return lines


def relation_sections(assessment: Assessment, say: Say) -> list[Section]:
    return [_variants(assessment, say), *(_reasons(of_model, n, say) for n, of_model in enumerate(assessment.reasons, 1))]


def _variants(assessment: Assessment, say: Say) -> Section:
    head = (say("시작 모델", "from"), say("변형", "variant"), say("시드", "seeds"), "micro-F1")
    lines = [row(scores.model, scores.variant, str(scores.seeds), interval(scores.micro_f1)) for scores in assessment.variants]
    blocks = (Table(head, tuple(lines), frozenset({2, 3})), Text(note("relation: scores", say), "quiet"))
    return Section("variants", say("점수", "Scores"), blocks)


def _reasons(reasons: Reasons, number: int, say: Say) -> Section:
    head = (
        say("이유", "reason"), say("행", "rows"), say("비교", "difference"), say("앞 %", "first %"), say("뒤 %", "second %"),
        say("차이 (점)", "difference (points)"), "p (BH)", say("판정", "verdict"),
    )  # fmt: skip
    lines = [_line(finding, say) for finding in reasons.findings]
    how = note("relation: reasons", say)
    if reasons.missing:
        untested = ", ".join(say(*_TITLES[reason]) for reason in reasons.missing)
        how += " " + say(f"확인할 실행이나 행이 없는 것: {untested}.", f"No runs or rows to test: {untested}.")
    seeds = ", ".join(f"{name} {count}" for name, count in reasons.seeds.items())
    caption = say(
        f"{reasons.split} {reasons.rows:,}행, {reasons.model}; 시드: {seeds}",
        f"{reasons.rows:,} rows of {reasons.split}, {reasons.model}; seeds: {seeds}",
    )
    title = say("개체 마커를 쓰는 다섯 가지 이유의 검증", "The five reasons for entity markers, tested")
    blocks = (Table(head, tuple(lines), frozenset({3, 4, 5, 6}), caption), Text(how, "quiet"))
    return Section("reasons" if number == 1 else f"reasons-{number}", title, blocks, say("다섯 가지 이유", "five reasons"))


def _line(finding: Finding, say: Say) -> tuple[Cell, ...]:
    return row(
        f"{finding.reason}. {say(*_TITLES[finding.reason])}", f"{say(*_ROWS[finding.about])} ({finding.rows:,})",
        f"{finding.a} - {finding.b}{say(*_METRICS[finding.metric])}", *(f"{100 * value:.1f}" for value in finding.values),
        points(finding.here.interval), p_text(finding.adjusted), Cell(_verdict(finding, say), _TONES[finding.sign]),
    )  # fmt: skip


def _verdict(finding: Finding, say: Say) -> str:
    """Better or worse; else why no difference is shown, and the detectable one."""
    if finding.sign:
        return say("더 좋음", "better") if finding.sign > 0 else say("더 나쁨", "worse")
    if finding.here.reason == "one seed":
        return say("시드 하나, 판정 없음", "one seed, no verdict")
    if finding.here.shown:
        return say("보정 전에만", "before correction only")
    least = finding.here.detectable
    detectable = say(f" (검출 가능한 차이 {100 * least:.1f}점)", f" (detectable {100 * least:.1f})") if least else ""
    return say("유의한 차이 미확인", "no difference shown") + detectable


def write_grid_page(result: GridResult, *, lang: Lang = "ko") -> None:
    """Write results.md and results.html to the grid's folder."""
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
        sentence=_best_cell(best, say),
        cannot_tell=(note("relation: seeds", say),),
        sections=(Section("cells", say("모든 설정", "All cells"), (table,)),),
        colophon=("coref-automl re grid",),
    )


def _best_cell(best: GridCell | None, say: Say) -> str:
    """The best cell in a sentence that names it, because Markdown shows the sentence without the headline."""
    if best is None:
        return say("끝난 설정이 없습니다.", "No cell is finished.")
    return say(
        f"{best.name}: 떼어 둔 문장의 micro-F1 {best.validation:.2f}. 채점한 분할은 선택에 쓰지 않았습니다.",
        f"{best.name}: micro-F1 {best.validation:.2f} on the held-out sentences. The scored split chose nothing.",
    )


def write_exploration(exploration: RelationExploration, out: Path, *, lang: Lang = "ko") -> Path:
    """Write explore.html, explore.md and explore.json to a folder; return the page's path."""
    return write_page(exploration_page(exploration, Say(lang)), exploration, out, "explore", "relation exploration")


def exploration_page(exploration: RelationExploration, say: Say) -> Page:
    splits, first = exploration.splits, exploration.splits[0]
    rows = sum(facts.rows for facts in splits)
    pairs = sorted({pair for facts in splits for pair in facts.pairs}, key=lambda pair: -first.pairs.get(pair, 0))
    labels = sorted(LABELS, key=lambda label: -first.labels[label])
    unrelated = {facts.split: facts.labels[LABELS[0]] / max(1, facts.rows) for facts in splits}
    sections = [
        _shares("labels", say("레이블", "Labels"), splits, labels, [facts.labels for facts in splits]),
        _shares("pairs", say("개체 유형 쌍", "Type pairs"), splits, pairs, [facts.pairs for facts in splits]),
        _sizes(splits, say),
        _repeats(exploration, say),
    ]
    if any(facts.problems for facts in splits):
        head = (say("분할", "split"), say("행", "row"), "id", say("이유", "reason"))
        bad = tuple(row(facts.split, str(bad.row), bad.guid, bad.reason) for facts in splits for bad in facts.problems)
        sections.append(Section("problems", say("쓸 수 없는 행", "Bad rows"), (Table(head, bad),)))
    return Page(
        lang=say.lang,
        title=say("관계 추출 데이터 살펴보기", "Relation data, explored"),
        subtitle=", ".join(facts.split for facts in splits),
        lead=say("한눈에", "At a glance"),
        headline=say(f"{rows:,}행", f"{rows:,} rows"),
        sentence="; ".join(f"no_relation {100 * share:.1f}% ({split})" for split, share in unrelated.items()),
        cannot_tell=(note("relation: labels", say),),
        sections=tuple(sections),
        colophon=("coref-automl re explore",),
    )


def _shares(name: str, title: str, splits: Sequence[SplitFacts], order: list[str], counts: list[Mapping[str, int]]) -> Section:
    """The count and share of each label or type pair, split beside split."""
    head = (title, *(cell for facts in splits for cell in (facts.split, "%")))
    sizes = [max(1, facts.rows) for facts in splits]

    def cells(name: str) -> Iterator[str]:
        for count, size in zip(counts, sizes, strict=True):
            yield from (f"{count.get(name, 0):,}", f"{100 * count.get(name, 0) / size:.1f}")

    lines = tuple(row(name, *cells(name)) for name in order)
    return Section(name, title, (Table(head, lines, frozenset(range(1, len(head)))),))


def _sizes(splits: Sequence[SplitFacts], say: Say) -> Section:
    head = ("", *(f"{100 * q:.0f}%" for q in QUANTILES))
    lines = []
    for facts in splits:
        measures = {say("문장 길이", "sentence"): facts.lengths, say("개체 사이", "between entities"): facts.distances}
        lines += [row(f"{facts.split}: {name}", *(f"{value:.0f}" for value in values)) for name, values in measures.items()]
    blocks = (Text(note("relation: quantiles", say)), Table(head, tuple(lines), frozenset(range(1, 8))))
    return Section("sizes", say("길이와 거리", "Lengths and distances"), blocks)


def _repeats(exploration: RelationExploration, say: Say) -> Section:
    """The facts that a terminal shows too, and the conflicting rows."""
    conflicts = [(facts.split, conflict) for facts in exploration.splits for conflict in facts.conflicts]
    lines = tuple(
        row(split, ", ".join(conflict.guids), conflict.subject, conflict.object, " / ".join(conflict.labels), conflict.sentence)
        for split, conflict in conflicts[:_SHOWN_CONFLICTS]
    )
    head = (
        say("분할", "split"), "id", say("주체", "subject"), say("대상", "object"),
        say("레이블", "labels"), say("문장", "sentence"),
    )  # fmt: skip
    caption = say(f"엇갈린 레이블 (처음 {_SHOWN_CONFLICTS}개)", f"Different labels (the first {_SHOWN_CONFLICTS})")
    facts = tuple(Text(line) for line in exploration.lines())
    return Section("repeats", say("겹침과 엇갈림", "Repeats and conflicts"), (*facts, Table(head, lines, caption=caption)))
