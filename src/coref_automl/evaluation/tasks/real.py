"""Real items. In: a read document. Out: second occurrences of its nouns, hidden, with the first one in reach.

The noun occurs at least twice and its second occurrence is hidden, with no pronoun between the two. The first one is within 400
reference tokens, so that a 512-token model sees it. At most three nouns per document by default. The hidden noun starts its word:
a gap after a prefix (가처분) is filled by continuation pieces, which no noun entry of a vocabulary can equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from coref_automl.corpus.chains import NounMention, chains
from coref_automl.evaluation.tasks.task import (
    INSIDE_WORD,
    NO_CHOICE,
    ClozeTask,
    Found,
    Limit,
    ReadDocument,
    choose_candidates,
    draw_lot,
    is_apart,
    opens_word,
)
from coref_automl.records import ClozeItem

VERSION = 1
REACH = 400
PER_DOCUMENT = 3


def real_items(
    read: ReadDocument, *, seed: int, per_document: int = PER_DOCUMENT, answers: Collection[str] | None = None
) -> Found:
    """The items of one document. `answers`: hide only these words."""
    forms = {mention.form for mention in read.mentions}
    drops: Counter[str] = Counter()
    fit: list[tuple[NounMention, NounMention]] = []
    for first, hidden, *_ in chains(read.mentions, cap=None):
        reason = _unfit(read, first, hidden, forms)
        if reason is None and answers is not None and hidden.form not in answers:
            reason = "not one vocabulary entry"
        if reason:
            drops[reason] += 1
        else:
            fit.append((first, hidden))
    chosen = sorted(fit, key=lambda pair: draw_lot(seed, read.identity, pair[1].form))[:per_document]
    drops[f"over {per_document} nouns of its document"] += len(fit) - len(chosen)
    items = [_item(read, first, hidden, forms, seed) for first, hidden in chosen]
    return Found(sorted(items, key=lambda item: item.start), +drops)


def _unfit(read: ReadDocument, first: NounMention, hidden: NounMention, forms: set[str]) -> str | None:
    if not opens_word(read.text, hidden.start):
        return INSIDE_WORD
    if read.distance(first.span, hidden.span) > REACH:
        return f"first mention over {REACH} tokens away"
    if read.pronoun_between(first.span, hidden.span):
        return "a pronoun between the two mentions"
    return None if any(is_apart(form, hidden.form) for form in forms) else NO_CHOICE


def _item(read: ReadDocument, first: NounMention, hidden: NounMention, forms: set[str], seed: int) -> ClozeItem:
    return ClozeItem(
        id=read.item_id("real", VERSION, hidden.span),
        task="real",
        document=read.document.id,
        cluster=read.document.id,
        source=read.document.source,
        start=hidden.start,
        end=hidden.end,
        answer=hidden.form,
        tag=hidden.tag,
        candidates=choose_candidates(hidden.form, forms, draw=(seed, read.identity, hidden.form)),
        antecedent=first.span,
        distance=read.distance(first.span, hidden.span),
    )


TASK = ClozeTask(
    name="real",
    label="Real",
    version=VERSION,
    find=lambda read, _, choices: real_items(read, seed=choices.seed, per_document=choices.per_document, answers=choices.answers),
    limit=Limit("per_source", lambda item: item.source, "the limit of its source"),
)
