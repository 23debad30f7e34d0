"""Tokenizers side by side. In: models, and texts to read with them. Out: an Inspection: tables for a terminal, and as a page.

`--data` files are relation rows or annotated chains; plain text is read as a source, cloze items as an evaluation set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from coref_automl.base.errors import SourceError
from coref_automl.base.folders import expand_home, short_names
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.say import Lang, Say
from coref_automl.corpus.formats import kind_of
from coref_automl.corpus.sources import open_source
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.extras.coreference.data import ENDINGS, inspect_coref
from coref_automl.extras.pages.rendering import write_page
from coref_automl.extras.relation.data import inspect_relations
from coref_automl.extras.tokenizer.segments import WINDOWS, AnnotatedText, TokenizerFacts, facts_of
from coref_automl.models.load import load_tokenizer
from coref_automl.report.page import Page, Section, Table, row

BUNDLED = "bundled:relations-dev"
"""The texts if none are named."""
LIMIT = 2_000
"""Documents read of a source by default."""
_CAUSES = 5


@dataclass(frozen=True, slots=True)
class InspectedTexts(Record):
    """All tokenizers on the texts of one file, source or set; its `bad` rows were left out."""

    name: str
    texts: int
    entities: int
    bad: int
    tokenizers: tuple[TokenizerFacts, ...]

    def heading(self, say: Say) -> str:
        bad = say(f", 쓸 수 없는 행 {self.bad:,}개 제외", f", {self.bad:,} bad rows left out") if self.bad else ""
        entities = say(f", 개체 {self.entities:,}개", f", {self.entities:,} entities") if self.entities else ""
        return f"{self.name}: " + say(f"텍스트 {self.texts:,}개", f"{self.texts:,} texts") + entities + bad

    def tables(self, say: Say) -> list[Table]:
        """A table of the texts and, if entities are annotated, one of these."""
        return [_text_table(self, say), *([_entity_table(self, say)] if self.entities else ())]


@dataclass(frozen=True, slots=True)
class Inspection(Record):
    data: tuple[InspectedTexts, ...]

    def lines(self, lang: Lang = "en") -> list[str]:
        """The tables for a terminal."""
        lines: list[str] = []
        for texts in self.data:
            lines += [*([""] if lines else []), texts.heading(Say(lang))]
            for table in texts.tables(Say(lang)):
                lines += ["", *table.lines()]
        return lines


def inspect_tokenizers(
    models: Sequence[str],
    *,
    data: Sequence[str] = (),
    sources: Sequence[str] = (),
    eval_sets: Sequence[Path] = (),
    limit: int | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Any number of tokenizers on any number of texts; without any, on the bundled relation rows. `limit` is the number of texts
    read of each; None: all of a file or set, LIMIT of a source."""
    tokenizers = {name: load_tokenizer(model) for model, name in _names(models).items()}
    read = [
        *(_read_data(name) for name in data or (() if sources or eval_sets else (BUNDLED,))),
        *(_read_source(name, limit or LIMIT) for name in sources),
        *(_read_set(folder) for folder in eval_sets),
    ]
    inspected = []
    with (progress or quiet()).stage("tokenizers", len(read) * len(tokenizers), "tokenizers") as stage:
        for name, every, bad in read:
            if not any(text.text.strip() for text in every):
                raise SourceError(
                    f"{name} has no usable text ({bad:,} bad rows); --data takes relation rows and annotated chains, "
                    "--source local:PATH takes plain text."
                )
            texts, facts = every[:limit], []
            for model, tokenizer in tokenizers.items():
                facts.append(facts_of(model, tokenizer, texts))
                stage.advance()
            entities = sum(len(text.spans) for text in texts)
            inspected.append(InspectedTexts(name, len(texts), entities, bad, tuple(facts)))
    return Inspection(tuple(inspected))


Read = tuple[str, Sequence[AnnotatedText], int]
"""The name of a file, source or set, its texts, and the number of rows left out."""


def _read_data(name: str) -> Read:
    """Annotated chains, else relation rows, from a file, `hub:OWNER/NAME:SPLIT` or `bundled:relations`."""
    if not name.startswith(("hub:", "bundled:")) and kind_of(Path(name)).lower() in ENDINGS:
        chains = inspect_coref(name)
        if chains.documents:
            texts = [AnnotatedText(text.text, tuple((m.start, m.end) for m in text.mentions)) for text in chains.documents]
            return chains.name, texts, len(chains.problems)
    relations = inspect_relations(name, labelled=False)
    pairs = [(row.sentence, ((row.subject.start, row.subject.end), (row.object.start, row.object.end))) for row in relations.rows]
    return relations.split, [AnnotatedText(*pair) for pair in pairs], len(relations.problems)


def _read_source(name: str, limit: int) -> Read:
    flaws: list[Any] = []
    texts = [AnnotatedText(document.text) for document in islice(open_source(name, on_flaw=flaws.append), limit)]
    return name, texts, len(flaws)


def _read_set(folder: Path) -> Read:
    """The documents of an evaluation set, with the answers of its items."""
    evalset = EvalSet.open(folder)
    spans: dict[str, list[tuple[int, int]]] = {}
    for item in evalset.select():
        spans.setdefault(item.document, []).append((item.start, item.end))
    return evalset.name, [AnnotatedText(text, tuple(spans.get(name, ()))) for name, text in evalset.documents.items()], 0


def _names(models: Sequence[str]) -> dict[str, str]:
    """The name of each model in tables; that of a folder is as much of its path as tells it from the others."""
    folders = {model: expand_home(model).resolve() for model in models if expand_home(model).is_dir()}
    short = short_names(folders.values())
    return {model: short[folders[model]] if model in folders else model for model in models}


def _text_table(texts: InspectedTexts, say: Say) -> Table:
    head = (
        say("토크나이저", "tokenizer"), say("종류", "kind"), say("어휘", "entries"), say("단어당 토큰", "tokens / word"),
        say("1,000자당 토큰", "tokens / 1,000 chars"),
        *(say(f"{size:,}토큰의 글자 수", f"chars in {size:,} tokens") for size in WINDOWS),
        say("미등록이 있는 글", "texts with unknown"), say("미등록 글자", "unknown characters"),
    )  # fmt: skip
    lines = [
        row(
            facts.model, facts.kind, f"{facts.entries:,}", f"{facts.tokens_per_word:.2f}", f"{facts.tokens_per_1000:.0f}",
            *(f"{facts.held[str(size)]:,}" for size in WINDOWS), _count_and_share(facts.unknown_texts, texts.texts),
            " ".join(list(facts.causes)[:_CAUSES]),
        )
        for facts in texts.tokenizers
    ]  # fmt: skip
    return Table(head, tuple(lines), frozenset(range(2, 8)))


def _entity_table(texts: InspectedTexts, say: Say) -> Table:
    head = (
        say("토크나이저", "tokenizer"), say("조각", "pieces"), say("한 조각 %", "one piece %"),
        say("경계 일치 %", "on token edges %"), say("조사 붙음 %", "particle glued %"), say("쪼개진 글자 %", "broken char %"),
        say("한 어휘 항목 %", "one entry %"), say("미등록", "unknown"),
    )  # fmt: skip
    lines = []
    for model, facts in ((tokenizer.model, tokenizer.entities) for tokenizer in texts.tokenizers):
        if facts is None:
            continue
        shares = [f"{100 * share:.1f}" for share in (facts.one_piece, facts.on_edges, facts.glued, facts.broken, facts.one_entry)]
        lines.append(row(model, f"{facts.pieces:.2f}", *shares, _count_and_share(facts.unknown, texts.entities)))
    caption = say(
        "개체 (한 어휘 항목: 완전 일치 지표의 상한)",
        "entities (one entry: the word alone is one vocabulary entry, as counted items need)",
    )
    return Table(head, tuple(lines), frozenset(range(1, 8)), caption)


def _count_and_share(count: int, whole: int) -> str:
    """`388 (9.90%)`."""
    return f"{count:,} ({100 * count / max(1, whole):.2f}%)" if count else "0"


def write_inspection(inspection: Inspection, out: Path, *, lang: Lang = "ko") -> Path:
    """Write tokenizers.html, tokenizers.md and tokenizers.json to a folder; return the page's path."""
    say, first = Say(lang), inspection.data[0]
    measure = say("경계 일치", "on token edges") if first.entities else say("단어당 토큰", "tokens per word")
    values = ", ".join(
        f"{facts.model} " + (f"{100 * facts.entities.on_edges:.1f}%" if facts.entities else f"{facts.tokens_per_word:.2f}")
        for facts in first.tokenizers
    )
    page = Page(
        lang=lang,
        title=say("토크나이저가 보는 개체", "What tokenizers make of entities"),
        subtitle=", ".join(data.name for data in inspection.data),
        lead=say("한눈에", "At a glance"),
        headline=", ".join(facts.model for facts in first.tokenizers),
        sentence=f"{first.name}: {measure}: {values}.",
        cannot_tell=(say("조각이 많은 것이 점수를 낮추는지는 여기서 알 수 없습니다.", "Whether many pieces cost score."),),
        sections=tuple(
            Section(f"data-{number}", data.heading(say), tuple(data.tables(say)), data.name)
            for number, data in enumerate(inspection.data, 1)
        ),
        colophon=("coref-automl tokenizer inspect",),
    )
    return write_page(page, inspection, out, "tokenizers", "tokenizer inspection")
