"""Tokenizers side by side. In: models and what to read with them. Out: an Inspection: tables for a terminal, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coref_automl.errors import ModelError
from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint
from coref_automl.models.tokenizer_facts import WINDOWS, EntityFacts, Example, TokenizerFacts, examples, facts_of
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.report.annotated_texts import LIMIT, Kind, read_data, read_set, read_source
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Page, Section, Table, Tile, row
from coref_automl.report.rendering import write_page
from coref_automl.store import at_home, short_names
from coref_automl.tabular import align

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BUNDLED = "bundled:relations-dev"
"""What tokenizers are looked at with where nothing is named."""
_CAUSES = 12


@dataclass(frozen=True, slots=True)
class InspectedTexts(Record):
    """All tokenizers on the texts of one file, source or set."""

    name: str
    kind: Kind
    texts: int
    entities: int
    bad: int
    tokenizers: tuple[TokenizerFacts, ...]
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Inspection(Record):
    """`same` maps a model that is not shown to the one before it with the same tokenizer."""

    data: tuple[InspectedTexts, ...]
    same: dict[str, str] = field(default_factory=dict)

    def lines(self, lang: Lang = "en") -> list[str]:
        """The tables for a terminal."""
        say, shown = Say(lang), self.notes(lang)
        for found in self.data:
            shown += [*([""] if shown else []), heading(found, say)]
            for table in tables(found, say):
                shown += ["", *([table.caption] if table.caption else []), *align([table.head, *_texts(table)])]
        return shown

    def notes(self, lang: Lang) -> list[str]:
        say = Say(lang)
        return [
            say(
                f"{model}의 토크나이저는 {other}의 것과 같아 한 번만 보입니다.",
                f"{model} has the same tokenizer as {other} and is shown once.",
            )
            for model, other in self.same.items()
        ]


def inspect_tokenizers(
    models: Sequence[str],
    *,
    data: Sequence[str] = (),
    sources: Sequence[str] = (),
    eval_sets: Sequence[Path] = (),
    limit: int | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Any number of tokenizers on any number of texts; without any, on the bundled relation rows.

    `limit` is the number of texts read of each; None: all of a file or set, LIMIT of a source.
    """
    if not models:
        raise ModelError("Which tokenizers? Name one or more models: a folder, a hub id, or bundled:ko-mini.")
    progress, names = progress or quiet(), _names(models)
    shown: dict[str, PreTrainedTokenizerFast] = {}
    firsts: dict[str, str] = {}
    same: dict[str, str] = {}
    for model in models:
        tokenizer = load_tokenizer(model)
        mark = tokenizer_fingerprint(tokenizer)
        if mark in firsts:
            same[names[model]] = firsts[mark]
        else:
            firsts[mark] = names[model]
            shown[names[model]] = tokenizer
    read = [
        *(read_data(name) for name in data or (() if sources or eval_sets else (BUNDLED,))),
        *(read_source(name, limit=limit or LIMIT) for name in sources),
        *(read_set(folder) for folder in eval_sets),
    ]
    found = []
    with progress.stage("tokenizers", len(read) * len(shown), "tokenizers") as stage:
        for texts in (replace(one, texts=one.texts[:limit]) for one in read):
            facts = []
            for name, tokenizer in shown.items():
                facts.append(facts_of(name, tokenizer, texts.texts))
                stage.advance()
            named = (texts.name, texts.kind, len(texts.texts), texts.entities, texts.bad)
            found.append(InspectedTexts(*named, tuple(facts), examples(shown, texts.texts)))
    return Inspection(tuple(found), same)


def _names(models: Sequence[str]) -> dict[str, str]:
    """What tables call each model: of a folder no more of its path than tells it from the others."""
    folders = {model: at_home(model).resolve() for model in models if at_home(model).is_dir()}
    short = short_names(folders.values())
    return {model: short[folders[model]] if model in folders else model for model in models}


def heading(found: InspectedTexts, say: Say) -> str:
    kinds: dict[Kind, str] = {
        "relation rows": say("관계 추출 행", "relation rows"),
        "annotated chains": say("상호참조 문서", "annotated documents"),
        "cloze items": say("빈칸 지문", "cloze passages"),
        "plain text": say("텍스트", "texts"),
    }
    kind = kinds[found.kind]
    told = f"{found.name}: " + say(f"{kind} {found.texts:,}개", f"{found.texts:,} {kind}")
    told += say(f", 개체 {found.entities:,}개", f", {found.entities:,} entities") if found.entities else ""
    return told + (say(f", 쓸 수 없는 행 {found.bad:,}개 제외", f", {found.bad:,} bad rows left out") if found.bad else "")


def tables(found: InspectedTexts, say: Say) -> list[Table]:
    """The text part, and where entities are annotated the entity part, by type, what is unknown, and examples."""
    shown = [_text_table(found, say)]
    if found.entities:
        shown += [_entity_table(found, say), _kind_table(found, say)]
    if any(one.unknown_tokens for one in found.tokenizers):
        shown.append(_unknown_table(found, say))
    if found.entities:
        shown.append(_example_table(found, say))
    return [table for table in shown if table.rows]


def _text_table(found: InspectedTexts, say: Say) -> Table:
    head = (
        say("토크나이저", "tokenizer"), say("종류", "kind"), say("어휘", "entries"), say("단어당 토큰", "tokens / word"),
        say("1,000자당 토큰", "tokens / 1,000 chars"),
        *(say(f"{size:,}토큰의 글자 수", f"chars in {size:,} tokens") for size in WINDOWS),
        say("미등록이 있는 글", "texts with unknown"),
    )  # fmt: skip
    lines = [
        row(
            one.model, one.kind, f"{one.entries:,}", f"{one.tokens_per_word:.2f}", f"{one.tokens_per_1000:.0f}",
            *(f"{one.held[str(size)]:,}" for size in WINDOWS), counted(one.unknown_texts, found.texts),
        )
        for one in found.tokenizers
    ]  # fmt: skip
    return Table(head, tuple(lines), frozenset(range(2, 8)))


def _entity_head(first: Sequence[str], say: Say) -> tuple[str, ...]:
    return (
        *first, say("조각", "pieces"), say("한 조각 %", "one piece %"), say("경계 일치 %", "on token edges %"),
        say("조사 붙음 %", "particle glued %"), say("쪼개진 글자 %", "broken char %"),
        say("한 어휘 항목 %", "one entry %"), say("미등록", "unknown"),
    )  # fmt: skip


def _entity_cells(one: EntityFacts) -> tuple[str, ...]:
    shares = (one.one_piece, one.on_edges, one.glued, one.broken, one.one_entry)
    return (f"{one.pieces:.2f}", *(f"{100 * share:.1f}" for share in shares), counted(one.unknown, one.entities))


def _entity_table(found: InspectedTexts, say: Say) -> Table:
    head = _entity_head((say("토크나이저", "tokenizer"),), say)
    lines = [row(one.model, *_entity_cells(one.entities)) for one in found.tokenizers if one.entities is not None]
    caption = say(
        "개체 (한 어휘 항목: 엄격 지표의 상한)",
        "entities (one entry: the word alone is one vocabulary entry, the ceiling of strict)",
    )
    return Table(head, tuple(lines), frozenset(range(1, 8)), caption)


def _kind_table(found: InspectedTexts, say: Say) -> Table:
    head = _entity_head((say("유형", "type"), say("개체", "entities"), say("토크나이저", "tokenizer")), say)
    several = found.tokenizers[0].by_kind
    lines = [
        row(kind.kind, f"{kind.entities:,}", one.model, *_entity_cells(one.by_kind[at]))
        for at, kind in enumerate(several)
        for one in found.tokenizers
    ]
    return Table(head, tuple(lines) if len(several) > 1 else (), frozenset({1, *range(3, 10)}), say("유형별", "by type"))


def _unknown_table(found: InspectedTexts, say: Say) -> Table:
    head = (
        say("토크나이저", "tokenizer"), say("미등록 토큰", "unknown tokens"),
        say("원인이 된 글자 (횟수)", "characters that cause them (times)"),
    )  # fmt: skip
    lines = [
        row(
            one.model,
            f"{one.unknown_tokens:,}",
            " ".join(_cause(*cause, say) for cause in list(one.causes.items())[:_CAUSES]),
        )
        for one in found.tokenizers
        if one.unknown_tokens
    ]
    return Table(head, tuple(lines), frozenset({1}), say("미등록 토큰의 원인", "what is unknown"))


def _cause(character: str, count: int, say: Say) -> str:
    """A character that shows nothing on paper is named by its code."""
    if len(character) > 1:
        return say(f"너무 긴 단어 ({count:,})", f"{character} ({count:,})")
    return f"{character if character.isprintable() and not character.isspace() else f'U+{ord(character):04X}'} ({count:,})"


def _example_table(found: InspectedTexts, say: Say) -> Table:
    head = (say("낱말", "word"), *(one.model for one in found.tokenizers))
    lines = [row(one.word, *one.cuts.values()) for one in found.examples]
    caption = say("가장 다르게 잘린 낱말 ([ ]: 미등록)", "words that are cut most differently ([ ]: unknown)")
    return Table(head, tuple(lines), frozenset(), caption)


def counted(count: int, whole: int) -> str:
    """`388 (9.9%)`: a count and its share."""
    return f"{count:,} ({100 * count / max(1, whole):.2f}%)" if count else "0"


def _texts(table: Table) -> list[tuple[str, ...]]:
    return [tuple(cell.text for cell in line) for line in table.rows]


def write_inspection(found: Inspection, out: Path, *, lang: Lang = "ko") -> Path:
    """tokenizers.html, tokenizers.md and tokenizers.json in a folder; returns the page's path."""
    return write_page(_page(found, Say(lang)), found, out, "tokenizers", "tokenizer inspection")


def _page(found: Inspection, say: Say) -> Page:
    first, count = found.data[0], len(found.data[0].tokenizers)
    edges = say("경계 일치", "on token edges") if first.entities else say("단어당 토큰", "tokens per word")
    values = [f"{100 * one.entities.on_edges:.1f}%" if one.entities else f"{one.tokens_per_word:.2f}" for one in first.tokenizers]
    return Page(
        lang=say.lang,
        title=say("토크나이저가 보는 개체", "What tokenizers make of entities"),
        subtitle=", ".join(data.name for data in found.data),
        lead=say("한눈에", "At a glance"),
        headline=say(f"토크나이저 {count}개", f"{count} tokenizers") if count > 1 else first.tokenizers[0].model,
        sentence=f"{first.name}: {edges}.",
        tiles=tuple(Tile(one.model, value, edges) for one, value in zip(first.tokenizers[:8], values, strict=False)),
        cannot_tell=(
            say(
                "조각이 많은 것이 점수를 낮추는지는 여기서 알 수 없습니다.",
                "Whether many pieces cost score.",
            ),
        ),
        sections=tuple(
            Section(f"data-{number}", heading(data, say), tuple(tables(data, say)), data.name)
            for number, data in enumerate(found.data, 1)
        ),
        colophon=("coref-automl tokenizer inspect",),
        notes=tuple(found.notes(say.lang)),
    )
