"""The report of relation runs. In: an Assessment. Out: relation.html, relation.md and relation.json, and lines for a terminal:
scores beside tokenizers, and the five reasons for markers."""

from __future__ import annotations

from pathlib import Path

from coref_automl.relation.assessment import Assessment
from coref_automl.relation.reasons import Finding, Reasons
from coref_automl.relation.row_groups import MANY_PIECES, TokenizerColumns
from coref_automl.report.language import Lang, Say, before_correction, interval, p_text, percent, points
from coref_automl.report.page import Cell, Page, Section, Table, Text, Tile, Tone, row
from coref_automl.report.rendering import write_page
from coref_automl.tabular import align

_TONES: dict[int, Tone] = {1: "good", -1: "bad", 0: "quiet"}


def write_assessment(found: Assessment, out: Path, *, lang: Lang = "ko") -> Path:
    """relation.html, relation.md and relation.json in a folder; returns the page's path."""
    return write_page(assessment_page(found, Say(lang)), found, out, "relation", "relation report")


def assessment_lines(found: Assessment, lang: Lang) -> list[str]:
    """The same sections for a terminal."""
    shown = [line for section in relation_sections(found, Say(lang)) for line in _lines(section)]
    return [*shown, *found.notes]


def assessment_page(found: Assessment, say: Say) -> Page:
    best, count = max(found.variants, key=lambda one: one.micro_f1.value), len(found.variants)
    sections = relation_sections(found, say)
    return Page(
        lang=say.lang,
        title=say("관계 추출 실행 보고서", "Relation extraction, the report"),
        subtitle=say(f"{found.split}, {found.rows:,}행", f"{found.split}, {found.rows:,} rows"),
        lead=say("한눈에", "At a glance"),
        headline=say(f"변형 {count}가지", f"{count} variants")
        if count > 1
        else f"{best.variant}: micro-F1 {percent(best.micro_f1)}",
        sentence=next((one.answer for one in sections if one.answer), ""),
        tiles=tuple(Tile(one.variant, f"{100 * one.micro_f1.value:.1f}", interval(one.micro_f1)) for one in found.variants[:8]),
        cannot_tell=(
            say(
                f"이 표로 변형을 고르면 {found.split}은 더 이상 시험이 아닙니다 (가장 높은 것: {best.variant}).",
                f"Choosing a variant from this table makes {found.split} development data (highest: {best.variant}).",
            ),
        )
        if count > 1
        else (),
        sections=tuple(sections),
        colophon=("coref-automl re report",),
        notes=found.notes,
    )


def _lines(section: Section) -> list[str]:
    shown = ["", section.title, "=" * 40]
    for block in section.blocks:
        if isinstance(block, Table):
            cells = [block.head, *(tuple(cell.text for cell in line) for line in block.rows)]
            shown += ["", *([block.caption] if block.caption else []), *align(cells)]
        elif isinstance(block, Text):
            shown += ["", block.text]
    return shown


def relation_sections(found: Assessment, say: Say) -> list[Section]:
    return [_variants(found, say), *(_reasons(one, number, say) for number, one in enumerate(found.reasons, 1))]


def _variants(found: Assessment, say: Say) -> Section:
    head = (
        say("시작 모델", "from"), say("변형", "variant"), say("시드", "seeds"), "micro-F1",
        say("개체당 조각", "pieces per entity"),
        say("미등록 토큰이 있는 행 %", "rows with unknown tokens %"), say("토큰 경계와 맞는 개체 %", "entities on token edges %"),
    )  # fmt: skip
    lines = [
        row(one.model, one.variant, str(one.seeds), interval(one.micro_f1), *_tokenizer(one.tokenizer)) for one in found.variants
    ]
    told = say(
        "구간은 실행과 문장을 교차시킨 95% 신뢰구간입니다. 조각, 미등록, 경계는 토크나이저의 것이므로 인코더의 점수와 나누어 "
        "보세요.",
        "Intervals are 95%, runs crossed with sentences. Pieces, unknown tokens and edges belong to the tokenizer: read them "
        "beside the encoder's score, not as part of it.",
    )
    title = say("점수와 토크나이저", "Scores and tokenizers")
    return Section("variants", title, (Table(head, tuple(lines), frozenset(range(2, 7))), Text(told, "quiet")))


def _tokenizer(columns: TokenizerColumns | None) -> tuple[str, ...]:
    if columns is None:
        return ("–",) * 3
    return f"{columns.pieces:.2f}", f"{100 * columns.unknown:.1f}", f"{100 * columns.edges:.1f}"


def _reasons(found: Reasons, number: int, say: Say) -> Section:
    titles = {
        1: say("긴 문장, 많은 명사 후보", "Long sentences, many candidate nouns"),
        2: say("같은 유형의 개체가 여럿", "Several entities of the same type"),
        3: say("유형과 레이블 마스크", "Types and the label mask"),
        4: say("no_relation 행의 거짓 관계", "False relations on no_relation rows"),
        5: say("쪼개진 개체와 붙은 조사", "Fragmented entities and glued particles"),
    }
    head = (
        say("이유", "reason"), say("행", "rows"), say("비교", "difference"), say("앞 %", "first %"), say("뒤 %", "second %"),
        say("차이 (점)", "difference (points)"), "p (BH)", say("판정", "verdict"),
    )  # fmt: skip
    lines = [_line(one, titles[one.reason], say) for one in found.findings]
    how = say(
        "차이는 micro-F1 (불가능한 답과 거짓 관계는 비율, 낮을수록 좋음). 구간은 실행과 문장을 교차시킨 95% 신뢰구간이고, p는 이 "
        "표의 모든 판정에 대해 Benjamini-Hochberg로 보정했습니다. 긴 문장과 많은 명사는 위쪽 3분의 1입니다.",
        "Differences are in micro-F1 (impossible answers and false relations are rates, less is better). Intervals are 95%, runs "
        "crossed with sentences; p is adjusted for all verdicts of this table (Benjamini-Hochberg). Long sentences and many "
        "nouns are the upper third.",
    )
    if found.missing:
        untested = ", ".join(titles[reason] for reason in found.missing)
        how += " " + say(f"확인할 실행이나 행이 없는 것: {untested}.", f"No runs or rows to test: {untested}.")
    seeds = ", ".join(f"{name} {count}" for name, count in found.seeds.items())
    caption = say(
        f"{found.split} {found.rows:,}행, {found.model}; 시드: {seeds}",
        f"{found.rows:,} rows of {found.split}, {found.model}; seeds: {seeds}",
    )
    title = say("표지를 두는 다섯 가지 이유, 확인", "The five reasons for entity markers, tested")
    blocks = (Table(head, tuple(lines), frozenset({3, 4, 5, 6}), caption), Text(how, "quiet"))
    return Section("reasons" if number == 1 else f"reasons-{number}", title, blocks, say("다섯 가지 이유", "five reasons"))


def _line(one: Finding, title: str, say: Say) -> tuple[Cell, ...]:
    metric = {
        "micro_f1": "",
        "false_relations": say(" (거짓 관계)", " (false relations)"),
        "impossible": say(" (불가능한 답)", " (impossible answers)"),
    }[one.metric]
    return row(
        f"{one.reason}. {title}", f"{_about(one.about, say)} ({one.rows:,})", f"{one.a} - {one.b}{metric}",
        *(f"{100 * value:.1f}" for value in one.values), points(one.here.interval), p_text(one.adjusted),
        Cell(_verdict(one, say), _TONES[one.sign]),
    )  # fmt: skip


def _about(name: str, say: Say) -> str:
    return {
        "long": say("긴 문장", "long sentences"),
        "nouns": say("명사가 많은 문장", "many nouns"),
        "same types": say("같은 유형이 여럿", "several of a type"),
        "all": say("모든 행", "all rows"),
        "no_relation": "no_relation",
        "fragmented": say(f"{MANY_PIECES}조각 이상", f"{MANY_PIECES} or more pieces"),
        "glued": say("붙은 조사", "glued particle"),
    }[name]


def _verdict(one: Finding, say: Say) -> str:
    """Better or worse, or why nothing is shown and what could have been."""
    if one.sign:
        return say("더 좋음", "better") if one.sign > 0 else say("더 나쁨", "worse")
    if one.here.reason == "one seed":
        return say("시드 하나, 판정 없음", "one seed, no verdict")
    if one.here.shown:
        return before_correction(say)
    could = one.here.detectable
    limit = say(f" (검출 가능한 차이 {100 * could:.1f}점)", f" (detectable {100 * could:.1f})") if could else ""
    return say("유의한 차이 미확인", "no difference shown") + limit
