"""Pages of relation extraction. In: a GridResult, explored data. Out: HTML, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coref_automl.base.say import Lang, Say
from coref_automl.base.store import write_text
from coref_automl.extras.pages.rendering import render_html, render_markdown, write_page
from coref_automl.extras.relation.explore import QUANTILES, RelationExploration, SplitFacts
from coref_automl.extras.relation.grid import COLUMNS, GridCell, GridResult
from coref_automl.extras.relation.rows import LABELS
from coref_automl.report.page import Cell, Page, Section, Table, Text, note, row

_SHOWN_CONFLICTS = 30


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
