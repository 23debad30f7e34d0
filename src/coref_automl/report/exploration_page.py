"""The exploration as a page. In: an Exploration. Out: explore.html and explore.md, with the report's own templates and charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coref_automl.locks import claimed
from coref_automl.relation.explore import QUANTILES, Exploration, SplitFacts
from coref_automl.relation.labels import LABELS
from coref_automl.report import charts
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Charts, Page, Points, Section, Table, Text, Tile, row
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.store import write_json, write_text

_SHOWN_CONFLICTS = 30


def write_exploration(found: Exploration, out: Path, *, lang: Lang = "ko") -> Path:
    """explore.html, explore.md and explore.json in a folder; returns the page's path."""
    with claimed(out, "relation exploration"):
        page = exploration_page(found, Say(lang))
        write_json(out / "explore.json", found.to_json())
        write_text(out / "explore.md", render_markdown(page))
        write_text(out / "explore.html", render_html(page))
    return out / "explore.html"


def exploration_page(found: Exploration, say: Say) -> Page:
    splits = found.splits
    names = ", ".join(facts.split for facts in splits)
    rows = sum(facts.rows for facts in splits)
    sections = [_labels(splits, say), _pairs(splits, say), _sizes(splits, say), _repeats(found, say)]
    if any(facts.problems for facts in splits):
        sections.append(_problems(splits, say))
    first = splits[0]
    nothing = 100 * first.labels[LABELS[0]] / max(1, first.rows)
    sentence = say(f"{first.split}의 {nothing:.1f}%가 no_relation입니다.", f"{nothing:.1f}% of {first.split} are no_relation.")
    if len(splits) > 1:
        share = 100 * splits[1].labels[LABELS[0]] / max(1, splits[1].rows)
        sentence += " " + say(
            f"{splits[1].split}에서는 {share:.1f}%이고, 레이블 분포는 {100 * found.label_shift:.1f}% 다릅니다.",
            f"In {splits[1].split} it is {share:.1f}%; the label distributions differ by {100 * found.label_shift:.1f}%.",
        )
    return Page(
        lang=say.lang,
        title=say("관계 추출 데이터 살펴보기", "Relation data, explored"),
        subtitle=names,
        lead=say("한눈에", "At a glance"),
        headline=say(f"{rows:,}행", f"{rows:,} rows"),
        sentence=sentence,
        tiles=tuple(
            Tile(facts.split, f"{facts.rows:,}", say(f"문장 {facts.sentences:,}개", f"{facts.sentences:,} sentences"))
            for facts in splits
        ),
        cannot_tell=(
            say(
                "레이블이 옳은지는 알 수 없습니다. 같은 질문에 다른 답이 달린 행만 찾습니다.",
                "Whether labels are right; only equal questions with different answers are found.",
            ),
        ),
        sections=tuple(sections),
        colophon=("coref-automl re explore",),
    )


def _labels(splits: tuple[SplitFacts, ...], say: Say) -> Section:
    order = sorted(LABELS, key=lambda label: -splits[0].labels[label])
    bars = [
        {"name": label, "split": facts.split, "share": round(100 * facts.labels[label] / max(1, facts.rows), 3)}
        for facts in splits
        for label in order
    ]
    head = (say("레이블", "label"), *(cell for facts in splits for cell in (facts.split, "%")))
    lines = tuple(
        row(
            label,
            *(
                cell
                for facts in splits
                for cell in (f"{facts.labels[label]:,}", f"{100 * facts.labels[label] / max(1, facts.rows):.1f}")
            ),
        )
        for label in order
    )
    title = say("행의 비율 (%)", "share of the rows (%)")
    return Section(
        "labels",
        say("레이블", "Labels"),
        (Charts(((title, charts.shares(bars, order, 640)),), wide=True), Table(head, lines, frozenset(range(1, len(head))))),
    )


def _pairs(splits: tuple[SplitFacts, ...], say: Say) -> Section:
    order = sorted({pair for facts in splits for pair in facts.pairs}, key=lambda pair: -splits[0].pairs.get(pair, 0))
    bars = [
        {"name": pair, "split": facts.split, "share": round(100 * facts.pairs.get(pair, 0) / max(1, facts.rows), 3)}
        for facts in splits
        for pair in order
    ]
    head = (say("주체-대상", "subject-object"), *(facts.split for facts in splits))
    lines = tuple(row(pair, *(f"{facts.pairs.get(pair, 0):,}" for facts in splits)) for pair in order)
    return Section(
        "pairs",
        say("개체 유형 쌍", "Type pairs"),
        (
            Charts(((say("행의 비율 (%)", "share of the rows (%)"), charts.shares(bars, order, 300)),)),
            Table(head, lines, frozenset(range(1, len(head)))),
        ),
    )


def _sizes(splits: tuple[SplitFacts, ...], say: Say) -> Section:
    head = ("", *(f"{100 * q:.0f}%" for q in QUANTILES))
    lines = [
        row(f"{facts.split}: {what}", *(f"{value:.0f}" for value in values))
        for facts in splits
        for what, values in (
            (say("문장 길이", "sentence"), facts.lengths),
            (say("개체 사이", "between entities"), facts.distances),
        )
    ]
    drawn = tuple(
        (title, charts.shares(_binned(splits, name), list(getattr(splits[0], name)), 320))
        for title, name in (
            (say("문장 길이 (글자)", "sentence length (characters)"), "length_bins"),
            (say("개체 사이 거리 (글자)", "distance between the entities (characters)"), "distance_bins"),
        )
    )
    text = say(
        "글자 수의 분위수입니다. 거리가 음수이면 한 개체가 다른 개체 안에 있습니다.",
        "Quantiles in characters; a negative distance means that one entity lies inside the other.",
    )
    return Section(
        "sizes",
        say("길이와 거리", "Lengths and distances"),
        (Text(text), Table(head, tuple(lines), frozenset(range(1, 8))), Charts(drawn)),
    )


def _binned(splits: tuple[SplitFacts, ...], name: str) -> list[dict[str, Any]]:
    return [
        {"name": place, "split": facts.split, "share": round(100 * count / max(1, facts.rows), 3)}
        for facts in splits
        for place, count in getattr(facts, name).items()
    ]


def _repeats(found: Exploration, say: Say) -> Section:
    points = []
    for facts in found.splits:
        points.append(
            say(
                f"{facts.split}: 되풀이된 질문 {facts.duplicates:,}행, 레이블이 엇갈린 질문 {len(facts.conflicts):,}개; "
                f"개체 가장자리의 빈칸 {len(facts.blank_edges):,}행, NFC가 아닌 문장 {len(facts.not_composed):,}행",
                f"{facts.split}: {facts.duplicates:,} rows repeat a question, {len(facts.conflicts):,} have other labels; "
                f"{len(facts.blank_edges):,} rows with blanks at an entity's edge, {len(facts.not_composed):,} not in NFC",
            )
        )
    if len(found.splits) > 1:
        points.append(
            say(
                f"{found.splits[1].split}의 {found.shared_rows:,}행은 문장이 {found.splits[0].split}에도 있습니다.",
                f"{found.shared_rows:,} rows of {found.splits[1].split} have a sentence that is also in {found.splits[0].split}.",
            )
        )
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
    return Section(
        "repeats", say("겹침과 엇갈림", "Repeats and conflicts"), (Points(tuple(points)), Table(head, lines, caption=caption))
    )


def _problems(splits: tuple[SplitFacts, ...], say: Say) -> Section:
    lines = tuple(
        row(facts.split, str(problem.row), problem.guid, problem.reason) for facts in splits for problem in facts.problems
    )
    head = (say("분할", "split"), say("행", "row"), "id", say("이유", "reason"))
    return Section("problems", say("쓸 수 없는 행", "Bad rows"), (Table(head, lines),))
