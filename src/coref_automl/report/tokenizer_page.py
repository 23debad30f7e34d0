"""The page of an inspection. In: an Inspection. Out: tokenizers.html, tokenizers.md and tokenizers.json.

Example sentences are drawn as coloured pieces, tokenizers under each other; entities are outlined, unknown tokens red.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from coref_automl.locks import claimed
from coref_automl.models.tokenizer_facts import Example, Reading
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Atom, Page, Readings, Section, Text, Tile
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.report.tokenizer_inspection import InspectedTexts, Inspection, heading, tables
from coref_automl.store import write_json, write_text

_COLOURS = "abc"


def write_inspection(found: Inspection, out: Path, *, lang: Lang = "ko") -> Path:
    """tokenizers.html, tokenizers.md and tokenizers.json in a folder; returns the page's path."""
    with claimed(out, "tokenizer inspection"):
        page = inspection_page(found, Say(lang))
        write_json(out / "tokenizers.json", found.to_json())
        write_text(out / "tokenizers.md", render_markdown(page))
        write_text(out / "tokenizers.html", render_html(page))
    return out / "tokenizers.html"


def inspection_page(found: Inspection, say: Say) -> Page:
    first = found.data[0]
    names = [one.model for one in first.tokenizers]
    sections = []
    for number, data in enumerate(found.data, 1):
        sections.append(Section(f"data-{number}", heading(data, say), tuple(tables(data, say)), data.name))
        if data.examples:
            sections.append(_examples(number, data, say))
    return Page(
        lang=say.lang,
        title=say("토크나이저가 보는 개체", "What tokenizers make of entities"),
        subtitle=", ".join(data.name for data in found.data),
        lead=say("한눈에", "At a glance"),
        headline=say(f"토크나이저 {len(names)}개", f"{len(names)} tokenizers") if len(names) > 1 else names[0],
        sentence=_sentence(first, say),
        tiles=_tiles(first, say),
        cannot_tell=(
            say(
                "조각이 많은 것이 점수를 낮추는지는 여기서 알 수 없습니다. re report가 관계 추출 실행에서 판정합니다.",
                "Whether many pieces cost score; re report judges that from relation runs.",
            ),
        ),
        sections=tuple(sections),
        colophon=("coref-automl tokenizer inspect",),
        notes=tuple(found.notes(say.lang)),
    )


def _sentence(data: InspectedTexts, say: Say) -> str:
    if not data.entities:
        fewest = min(data.tokenizers, key=lambda one: one.tokens)
        return say(
            f"{data.name}에는 개체 표시가 없어 글만 봅니다. 토큰이 가장 적은 것은 {fewest.model}입니다 "
            f"(단어당 {fewest.tokens_per_word:.2f}).",
            f"{data.name} has no entities, so this is the text part alone. {fewest.model} needs the fewest tokens "
            f"({fewest.tokens_per_word:.2f} per word).",
        )
    told = [(one.model, one.entities) for one in data.tokenizers if one.entities is not None]
    name, best = max(told, key=lambda entry: entry[1].on_edges)
    whole, most = max(told, key=lambda entry: entry[1].one_piece)
    return say(
        f"{data.name}: 개체의 시작과 끝이 토큰 경계와 가장 많이 맞는 것은 {name} ({100 * best.on_edges:.1f}%), "
        f"한 조각인 개체가 가장 많은 것은 {whole} ({100 * most.one_piece:.1f}%)입니다.",
        f"{data.name}: entities begin and end on token edges most often with {name} ({100 * best.on_edges:.1f}%) and are "
        f"one piece most often with {whole} ({100 * most.one_piece:.1f}%).",
    )


def _tiles(data: InspectedTexts, say: Say) -> tuple[Tile, ...]:
    return tuple(
        Tile(
            one.model,
            f"{100 * one.entities.on_edges:.1f}%" if one.entities else f"{one.tokens_per_word:.2f}",
            say(f"경계 일치, {one.entities.pieces:.2f}조각", f"on token edges, {one.entities.pieces:.2f} pieces")
            if one.entities
            else say("단어당 토큰", "tokens per word"),
        )
        for one in data.tokenizers[:8]
    )


def _examples(number: int, data: InspectedTexts, say: Say) -> Section:
    told = say(
        "토크나이저들이 가장 갈린 글입니다. 색이 바뀌는 곳이 토큰 경계, 테두리가 개체, 빨강이 미등록 토큰이고, 작은 숫자는 "
        "글자 하나를 나눈 토큰의 수입니다.",
        "The texts on which the tokenizers differ most. Colours change at token edges; entities are outlined, unknown tokens "
        "red; a small number counts the tokens that share a character.",
    )
    blocks = [
        Readings(
            tuple((reading.model, tuple(_atoms(example, reading)), _plain(example, reading)) for reading in example.readings),
            ", ".join(f"{example.text[start:end].strip()} ({kind})" for start, end, kind in example.entities),
        )
        for example in data.examples
    ]
    title = say(f"{data.name}: 글로 보기", f"{data.name}: examples")
    return Section(f"examples-{number}", title, (Text(told, "quiet"), *blocks), say("글로 보기", "examples"))


def _atoms(example: Example, reading: Reading) -> Iterator[Atom]:
    """The text cut at every edge of a piece and of an entity, so that each part is drawn in one way."""
    edges = {0, len(example.text), *(edge for one in reading.segments for edge in (one.start, one.end))}
    edges |= {edge for start, end, _ in example.entities for edge in (start, end)}
    pieces = list(enumerate(reading.segments))
    for low, high in pairwise(sorted(edges)):
        while pieces and pieces[0][1].end <= low:
            pieces.pop(0)
        number, piece = pieces[0] if pieces and pieces[0][1].start <= low else (0, None)
        style = []
        if piece is not None:
            style = ["piece", "lost" if piece.unknown else _COLOURS[number % len(_COLOURS)]]
            style += ["first"] * (piece.start == low) + ["last"] * (piece.end == high)
        around = [(start, end) for start, end, _ in example.entities if start <= low and high <= end]
        if around:
            style.append("entity")
            style += ["opens"] * any(start == low for start, _ in around) + ["closes"] * any(end == high for _, end in around)
        yield Atom(example.text[low:high], " ".join(style), piece.tokens if piece is not None and piece.end == high else 1)


def _plain(example: Example, reading: Reading) -> str:
    """Pieces between bars; an unknown one in double brackets."""
    shown, done = [], 0
    for one in reading.segments:
        gap = example.text[done : one.start]
        form = example.text[one.start : one.end]
        shown += [" " if gap.strip() == "" and gap else "|" if done else "", f"[[{form}]]" if one.unknown else form]
        done = one.end
    return "".join(shown)
