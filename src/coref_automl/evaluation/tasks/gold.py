"""Gold items. In: texts with annotated entities (`clusters` of {start, end, text, entity}). Out: hidden mentions, with the
entities of the text as candidates.

A hidden mention names one entity: it is not a pronoun, not nested in another mention, and short enough to be scored as a word. A
label such as `B+C` means a group, whose mentions are never hidden and are neither candidates nor antecedents. A surface form of
two entities is ambiguous: it is left out of both groups of candidates and never hidden.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass

from coref_automl.evaluation.tasks import task
from coref_automl.records import ClozeItem, Document

VERSION = 1
PER_DOCUMENT = 3
LONGEST = 8
"""Characters of the longest surface form: a word, or a name with a title (김 첨지). Longer ones are descriptions, not names."""

PRONOUNS = frozenset(
    word
    for line in (
        "나 내 난 날 저 제 전 절 너 네 넌 널 그 그녀 그이 그네 자기 자신 당신 우리 저희 너희 누구 이이 저이",
        "그대 자네 얘 걔 쟤 이 본인 그들 그녀들 우리들 저희들 너희들 자기네 우리네 이들 저들 그대들 당신들 이것 그것 저것",
    )
    for word in line.split()
)
"""Forms that are pronouns whatever the tagger says."""


@dataclass(frozen=True, slots=True)
class Named:
    """One annotated mention."""

    start: int
    end: int
    entity: str

    @property
    def span(self) -> task.Span:
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class Annotated:
    """A text with its mentions; items are clustered by novel."""

    document: Document
    cluster: str
    mentions: tuple[Named, ...]


def gold_items(doc: task.ParsedDocument, gold: Annotated, *, seed: int, per_document: int = PER_DOCUMENT) -> task.Found:
    drops: Counter[str] = Counter()
    single = [mention for mention in gold.mentions if "+" not in mention.entity]
    drops["names a group of entities"] = len(gold.mentions) - len(single)
    surfaces = _surfaces(doc, single)
    shared = {form for form, count in Counter(form for forms in surfaces.values() for form in forms).items() if count > 1}
    groups = {entity: tuple(form for form in forms if form not in shared) for entity, forms in surfaces.items()}
    groups = {entity: forms for entity, forms in groups.items() if forms}
    items: list[ClozeItem] = []
    for mention in single:
        others = [other.span for other in single if other.entity == mention.entity and not _overlap(other, mention)]
        reason = _reason_against(doc, mention, gold.mentions, shared)
        if reason is None and not others:
            reason = "the only mention of its entity"
        if reason is None and len(groups) < 2:
            reason = "fewer than two entities to choose from"
        if reason:
            drops[reason] += 1
        else:
            items.append(_item(doc, gold, mention, others, groups))
    chosen = task.spread(items, per_document, seed, of=lambda item: item.candidates[0])  # one per entity before a second
    drops[f"over {per_document} mentions of its text"] += len(items) - len(chosen)
    return task.Found(sorted(chosen, key=lambda item: item.start), +drops)


def is_pronoun(doc: task.ParsedDocument, span: task.Span) -> bool:
    """Whether a span has only words of the list (나, 그 자신), or the tagger finds only pronouns in it."""
    if all(word in PRONOUNS for word in doc.text[span[0] : span[1]].split()):
        return True
    tagged = (doc.tags.spans[:, 0] < span[1]) & (doc.tags.spans[:, 1] > span[0])
    pronouns = [int(start) for start, _ in doc.pronouns if span[0] <= start < span[1]]
    return bool(pronouns) and int(tagged.sum()) == len(pronouns)


def _surfaces(doc: task.ParsedDocument, single: list[Named]) -> dict[str, tuple[str, ...]]:
    """The short surface forms of each entity that are not pronouns; entities in the order of their first mention."""
    surfaces: dict[str, dict[str, None]] = {}
    for mention in sorted(single, key=lambda mention: mention.span):
        form = doc.text[mention.start : mention.end]
        if not _too_long(form) and not is_pronoun(doc, mention.span):
            surfaces.setdefault(mention.entity, {})[form] = None
    return {entity: tuple(forms) for entity, forms in surfaces.items()}


def _reason_against(doc: task.ParsedDocument, mention: Named, mentions: tuple[Named, ...], shared: set[str]) -> str | None:
    form = doc.text[mention.start : mention.end]
    if not task.opens_word(doc.text, mention.start):
        return task.INSIDE_WORD
    if is_pronoun(doc, mention.span):
        return "a pronoun"
    if _too_long(form):
        return f"over {LONGEST} characters or two words"
    if any(other is not mention and _overlap(other, mention) for other in mentions):
        return "nested in another mention or around one"
    return "its surface names another entity too" if form in shared else None


def _too_long(form: str) -> bool:
    return len(form) > LONGEST or len(form.split()) > 2


def _overlap(mention: Named, other: Named) -> bool:
    return mention.start < other.end and other.start < mention.end


def _item(
    doc: task.ParsedDocument, gold: Annotated, mention: Named, others: list[task.Span], groups: dict[str, tuple[str, ...]]
) -> ClozeItem:
    nearest = min(others, key=lambda span: (doc.distance(span, mention.span), span))
    wrong = [forms for entity, forms in groups.items() if entity != mention.entity]
    return doc.item("gold", VERSION, mention.span, nearest, cluster=gold.cluster, candidates=(groups[mention.entity], *wrong))


def read_annotated(row: task.Row, number: int, name: str) -> Annotated | str:
    """A row with its mentions, or why it is dropped: one wrong offset invalidates all of them."""
    text, clusters = row.get("text"), row.get("clusters")
    if not isinstance(text, str) or not isinstance(clusters, list):
        return "text or clusters are missing"
    if not unicodedata.is_normalized("NFC", text):
        return "not composed (NFC), so that its offsets would move"
    mentions: dict[Named, None] = {}
    for index, cluster in enumerate(clusters):
        if not isinstance(cluster, list):
            return "a cluster that is not a list of mentions"
        for entry in cluster:
            try:
                start, end, surface = int(entry["start"]), int(entry["end"]), str(entry["text"])
            except (TypeError, KeyError, ValueError, OverflowError):
                return "a mention without start, end and text"
            if start < 0 or not surface or text[start:end] != surface:
                return "a mention is not where its offsets say"
            entity = entry.get("entity")
            mentions[Named(start, end, str(index if entity in (None, "") else entity))] = None
    title = str(row.get("novel") or row.get("title") or "")
    identity = next((row[key] for key in ("doc_id", "id") if row.get(key) not in (None, "")), number)
    return Annotated(Document(f"{name}-{identity}", name, text, title), title or f"{name}-{identity}", tuple(mentions))


TASK = task.ClozeTask(
    name="gold",
    label="Gold",
    version=VERSION,
    find=lambda doc, entry, choices: gold_items(doc, entry, seed=choices.seed),
    rows=task.Rows(lambda name: task.local_rows(name, needs=("text", "clusters")), read_annotated),
)
