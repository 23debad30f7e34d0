"""The page of explored relation data. In: an Exploration. Out: explore.html, explore.md and explore.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from coref_automl.relation.explore import QUANTILES, RelationExploration, SplitFacts
from coref_automl.relation.labels import LABELS
from coref_automl.report import charts
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Charts, Page, Section, Table, Text, Tile, row
from coref_automl.report.rendering import write_page

_SHOWN_CONFLICTS = 30


def write_exploration(found: RelationExploration, out: Path, *, lang: Lang = "ko") -> Path:
    """explore.html, explore.md and explore.json in a folder; returns the page's path."""
    return write_page(exploration_page(found, Say(lang)), found, out, "explore", "relation exploration")


def exploration_page(found: RelationExploration, say: Say) -> Page:
    splits, first = found.splits, found.splits[0]
    rows = sum(facts.rows for facts in splits)
    pairs = sorted({pair for facts in splits for pair in facts.pairs}, key=lambda pair: -first.pairs.get(pair, 0))
    sections = [
        _shares("labels", say("레이블", "Labels"), splits, sorted(LABELS, key=lambda one: -first.labels[one]), _labels, say),
        _shares("pairs", say("개체 유형 쌍", "Type pairs"), splits, pairs, _pairs, say),
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


def _labels(facts: SplitFacts, name: str) -> int:
    return facts.labels[name]


def _pairs(facts: SplitFacts, name: str) -> int:
    return facts.pairs.get(name, 0)


def _shares(
    name: str, title: str, splits: Sequence[SplitFacts], order: list[str], count: Callable[[SplitFacts, str], int], say: Say
) -> Section:
    """How often each label or type pair occurs, split beside split."""
    share = {(facts.split, one): 100 * count(facts, one) / max(1, facts.rows) for facts in splits for one in order}
    bars = [{"name": one, "split": split, "share": round(value, 3)} for (split, one), value in share.items()]
    head = (title, *(cell for facts in splits for cell in (facts.split, "%")))
    lines = tuple(
        row(one, *(cell for facts in splits for cell in (f"{count(facts, one):,}", f"{share[facts.split, one]:.1f}")))
        for one in order
    )
    drawn = Charts(((say("행의 비율 (%)", "share of the rows (%)"), charts.shares(bars, order, 21 * len(order))),), wide=True)
    return Section(name, title, (drawn, Table(head, lines, frozenset(range(1, len(head))))))


def _sizes(splits: Sequence[SplitFacts], say: Say) -> Section:
    head = ("", *(f"{100 * q:.0f}%" for q in QUANTILES))
    lines = [
        row(f"{facts.split}: {what}", *(f"{value:.0f}" for value in values))
        for facts in splits
        for what, values in (
            (say("문장 길이", "sentence"), facts.lengths),
            (say("개체 사이", "between entities"), facts.distances),
        )
    ]
    text = say(
        "글자 수의 분위수입니다. 거리가 음수이면 한 개체가 다른 개체 안에 있습니다.",
        "Quantiles in characters; a negative distance means that one entity lies inside the other.",
    )
    blocks = (Text(text), Table(head, tuple(lines), frozenset(range(1, 8))))
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
