"""Passage items. In: a read document. Out: passages of several sentences that end with the sentence of the gap.

The criterion of LAMBADA (Paperno et al., 2016): the answer is the last noun of the last sentence, it occurs earlier in the
passage but not in that sentence, and it cannot be guessed from that sentence alone. The last is decided by counts of
neighbouring words in other documents of the source (`nouns`), never by a model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks import task
from coref_automl.evaluation.tasks.eligible import Eligible, eligible_of
from coref_automl.evaluation.tasks.nouns import light_nouns
from coref_automl.korean import VERBAL
from coref_automl.records import ClozeItem, Document

VERSION = 3
LEAST_SENTENCES, MOST_SENTENCES = 4, 14
"""Sentences of a passage, the last one included."""
LEAST_DISTANCE, MOST_TOKENS = 20, 450
"""Reference tokens from the gap to the nearest earlier mention at least, and of a passage at most."""
PER_DOCUMENT = 3


def passage_items(read: task.ReadDocument, choices: task.Choices) -> task.Found:
    eligible, seed = eligible_of(read, choices), choices.seed
    drops: Counter[str] = Counter()
    fit: list[tuple[NounMention, NounMention, task.Span]] = []
    bounds = [0, *(int(end) for end in read.tags.sentence_ends)]
    sentences = list(pairwise(bounds))
    content = (mention for mention in read.mentions if not mention.around & VERBAL and mention.form not in light_nouns())
    last = {read.sentence_of(mention.start): mention for mention in content}
    for at, sentence in enumerate(sentences):
        hidden = last.get(sentence)
        if hidden is None:
            drops["no noun in the last sentence"] += 1
            continue
        found = _passage(eligible, hidden, sentences[max(0, at + 1 - MOST_SENTENCES) : at + 1])
        if isinstance(found, str):
            drops[found] += 1
        else:
            fit.append((hidden, *found))
    drawn = sorted(fit, key=lambda entry: task.draw_lot(seed, read.identity, entry[0].start))
    chosen = list({entry[0].form: entry for entry in reversed(drawn)}.values())[-PER_DOCUMENT:]
    drops[f"over {PER_DOCUMENT} passages of its document"] += len(fit) - len(chosen)
    made = [_item(eligible, *entry, seed) for entry in sorted(chosen, key=lambda entry: entry[0].start)]
    items = [item for item, _ in made if len(item.candidates) > 1]
    drops[task.NO_CHOICE] += len(made) - len(items)
    return task.Found(items, +drops, [document for item, document in made if len(item.candidates) > 1])


def _passage(eligible: Eligible, hidden: NounMention, sentences: list[task.Span]) -> tuple[NounMention, task.Span] | str:
    """The nearest earlier mention and the span of the passage; or why there is none."""
    read = eligible.read
    final, whole = sentences[-1], (hidden.start, hidden.end)
    if hidden.form not in eligible.names:
        return "not a name"
    if len(sentences) < LEAST_SENTENCES:
        return f"fewer than {LEAST_SENTENCES} sentences"
    if read.text[final[0] : final[1]].count(hidden.form) > 1:
        return "occurs in the last sentence"
    start = next(low for low, _ in sentences if read.distance((low, low + 1), whole) <= MOST_TOKENS or low == final[0])
    if sum(low >= start for low, _ in sentences) < LEAST_SENTENCES:
        return f"over {MOST_TOKENS} tokens"
    earlier = [word for word in eligible.words if word.form == hidden.form and start <= word.start < final[0]]
    if not earlier:
        return "no earlier mention in the passage"
    if read.distance((read.text.rfind(hidden.form, 0, hidden.start), earlier[-1].end), whole) < LEAST_DISTANCE:
        return f"earlier mention under {LEAST_DISTANCE} tokens away"
    first = eligible.antecedent(earlier[::-1])
    reason = eligible.unfit_antecedent(first) or eligible.unfit(hidden, read.distance(first.span, whole), far=True)
    return reason or (first, (start, final[1]))


def _item(
    eligible: Eligible, hidden: NounMention, earlier: NounMention, span: task.Span, seed: int
) -> tuple[ClozeItem, Document]:
    """The item of the whole document, moved to a passage of it, with the passage's nouns as candidates."""
    read = eligible.read
    held = read.text[span[0] : span[1]]
    low = span[0] + len(held) - len(held.lstrip())
    passage = Document(f"{read.document.id}:{low}-{span[1]}", read.document.source, held.strip(), read.document.title)
    forms = {mention.form for mention in read.mentions if low <= mention.start < span[1]}
    item = eligible.item("passage", VERSION, hidden, earlier.span, seed=seed, before=True)
    return replace(
        item,
        document=passage.id,
        start=hidden.start - low,
        end=hidden.end - low,
        candidates=task.choose_candidates(hidden.form, forms, draw=(seed, read.identity, hidden.form)),
        antecedent=(earlier.start - low, earlier.end - low),
    ), passage


TASK = task.ClozeTask(
    name="passage",
    label="Passage",
    version=VERSION,
    find=lambda read, _, choices: passage_items(read, choices),
    limit=task.Limit("per_source", lambda item: (item.source, item.tag), "the limit of its source"),
    on_request=True,
)
