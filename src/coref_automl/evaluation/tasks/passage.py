"""Passage items. In: a parsed document. Out: passages of several sentences that end with the sentence of the gap.

The criterion is LAMBADA's (Paperno et al., 2016): the answer is the last noun of the last sentence, occurs earlier in the passage
but not again in that sentence, and cannot be guessed from that sentence alone. Collocations in other documents of the source
(`nouns`) decide the latter, never a model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks import task
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.nouns import LIGHT, listed
from coref_automl.korean import VERBAL
from coref_automl.records import ClozeItem, Document

VERSION = 3
LEAST_SENTENCES, MOST_SENTENCES = 4, 14
"""Sentences of a passage, including the last one."""
LEAST_DISTANCE, MOST_TOKENS = 20, 450
"""Reference tokens: at least from the gap to the nearest earlier mention, and at most of a passage."""
PER_DOCUMENT = 3


def passage_items(doc: task.ParsedDocument, choices: task.Choices) -> task.Found:
    eligible, seed = eligible_of(doc, choices), choices.seed
    drops: Counter[str] = Counter()
    fitting: list[tuple[NounMention, NounMention, task.Span]] = []
    sentences = list(pairwise([0, *(int(end) for end in doc.tags.sentence_ends)]))
    content = (mention for mention in doc.mentions if not mention.around & VERBAL and mention.form not in listed(LIGHT))
    last_noun = {doc.sentence_of(mention.start): mention for mention in content}
    for number, sentence in enumerate(sentences):
        hidden = last_noun.get(sentence)
        if hidden is None:
            drops["no noun in the last sentence"] += 1
            continue
        result = _passage(eligible, hidden, sentences[max(0, number + 1 - MOST_SENTENCES) : number + 1])
        if isinstance(result, str):
            drops[result] += 1
        else:
            fitting.append((hidden, *result))
    shuffled = sorted(fitting, key=lambda entry: task.draw_lot(seed, doc.identity, entry[0].start))
    chosen = list({entry[0].form: entry for entry in reversed(shuffled)}.values())[-PER_DOCUMENT:]  # one per noun
    drops[f"over {PER_DOCUMENT} passages of its document"] += len(fitting) - len(chosen)
    built = [_item(eligible, *entry, seed) for entry in sorted(chosen, key=lambda entry: entry[0].start)]
    kept = [(item, document) for item, document in built if len(item.candidates) > 1]
    drops[task.NO_CHOICE] += len(built) - len(kept)
    return task.Found([item for item, _ in kept], +drops, [document for _, document in kept])


def _passage(eligible: Eligible, hidden: NounMention, sentences: list[task.Span]) -> tuple[NounMention, task.Span] | str:
    """The antecedent and the span of the passage, or why there is none."""
    doc, final, gap = eligible.doc, sentences[-1], hidden.span
    if hidden.form not in eligible.names:
        return "not a name"
    if len(sentences) < LEAST_SENTENCES:
        return f"fewer than {LEAST_SENTENCES} sentences"
    if doc.text[final[0] : final[1]].count(hidden.form) > 1:
        return "occurs in the last sentence"
    start = next(low for low, _ in sentences if doc.distance((low, low + 1), gap) <= MOST_TOKENS or low == final[0])
    if sum(low >= start for low, _ in sentences) < LEAST_SENTENCES:
        return f"over {MOST_TOKENS} tokens"
    earlier = [word for word in eligible.words if word.form == hidden.form and start <= word.start < final[0]]
    if not earlier:
        return "no earlier mention in the passage"
    if doc.distance(earlier[-1].span, gap) < LEAST_DISTANCE:
        return f"earlier mention under {LEAST_DISTANCE} tokens away"
    antecedent = eligible.antecedent(earlier[::-1])
    distance = doc.distance(antecedent.span, gap)
    reason = eligible.reason_against_antecedent(antecedent) or eligible.reason_against(hidden, distance, far=True)
    return reason or (antecedent, (start, final[1]))


def _item(
    eligible: Eligible, hidden: NounMention, antecedent: NounMention, span: task.Span, seed: int
) -> tuple[ClozeItem, Document]:
    """An item of the document, moved into a passage of it, with the passage's nouns as candidates; and the passage."""
    doc = eligible.doc
    text = doc.text[span[0] : span[1]]
    low = span[0] + len(text) - len(text.lstrip())
    passage = Document(f"{doc.document.id}:{low}-{span[1]}", doc.document.source, text.strip(), doc.document.title)
    forms = {mention.form for mention in doc.mentions if low <= mention.start < span[1]}
    item = eligible.item("passage", VERSION, hidden, antecedent.span, seed=seed, before=True)
    return replace(
        item,
        document=passage.id,
        start=hidden.start - low,
        end=hidden.end - low,
        candidates=task.choose_candidates(hidden.form, forms, draw=(seed, doc.identity, hidden.form)),
        antecedent=(antecedent.start - low, antecedent.end - low),
    ), passage


TASK = task.ClozeTask(
    name="passage",
    label="Passage",
    version=VERSION,
    find=lambda doc, _, choices: passage_items(doc, choices),
    limit=task.Limit("per_source", lambda item: (item.source, item.tag), "the limit of its source"),
    on_request=True,
)
