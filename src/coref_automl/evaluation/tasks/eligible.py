"""Which mentions may be hidden. In: a read document. Out: its whole-word mentions, and for each what speaks against it.

A gap should ask for a thing the document has named: a noun of its own meaning, written as a whole word, as an argument of a prose
sentence, where no other noun of the document fits as well. The rules are model-free and stand in four lists, one line each:
`_form` (the word), `_place` (its sentence), `_choice` (the other nouns of the document), `_support` (what tells the answer). The
first that holds is the reason, and reasons are counted in the set's manifest. Names pass most of them; common nouns are asked
only where they are rare, recur in the document and are told by other words of the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks import nouns, task
from coref_automl.korean import CLAUSE, COPULA
from coref_automl.records import ClozeItem, Task

Rules = Iterator[tuple[str, bool]]
"""Reasons against a mention, in order, each with whether it holds; what comes after the first that does is not worked out."""

FREQUENT, EVERYWHERE = 10, 30
"""Of 1,000 documents of a reference corpus: a common noun in so many is never hidden; a name in more than the second neither."""
TOPICAL = 3
"""Occurrences in the document that make a common noun a thing the document is about."""
VERBAL_SHARE = 25
"""A noun with a verbal suffix in this percentage of its occurrences is a verbal noun."""
NAME_SHARE = 0.005
"""The share of other documents of the source that may hold a name; none may hold a common noun."""
LEAST_WORDS = 4
"""Words of the shortest sentence that may hold a gap."""
SHARED = ((512, 3), (128, 1))
"""Beyond so many tokens, nouns that the sentence of the gap shares with another sentence that names the answer."""
QUOTES = frozenset("\"'“‘")


class Eligible(nouns.DocumentNouns):
    """Why a mention of a document should not be hidden, and the item of one that is."""

    def antecedent(self, nearest: Sequence[NounMention]) -> NounMention:
        """The first mention, of those ordered by distance, that names something to come back to; the nearest where none does."""
        return next((mention for mention in nearest if self.unfit_antecedent(mention) is None), nearest[0])

    def unfit_antecedent(self, mention: NounMention) -> str | None:
        """Why a mention names nothing to come back to."""
        return _first(self._antecedent(mention))

    def unfit_word(self, mention: NounMention, *, far: bool = False) -> str | None:
        """Why the word itself is not asked for, wherever it stands."""
        return _first(self._form(mention, far))

    def unfit(self, mention: NounMention, distance: int = 0, *, far: bool = False) -> str | None:
        """Why this mention is not hidden; None if it may be. `far`: its antecedent may be far, `distance` tokens away."""
        rules = self._form(mention, far), self._place(mention), self._choice(mention), self._support(mention, distance, far)
        return _first(chain(*rules))

    def _antecedent(self, mention: NounMention) -> Rules:
        name = self.is_name(mention)
        yield "antecedent in an enumeration or a bracket", self.in_list(mention.span)
        yield "antecedent beside another noun", self.is_joined(mention)
        yield "antecedent in a term of several words", not name and self.noun_before(mention)
        yield "antecedent in a longer name", name and self.name_behind(mention)

    def _form(self, mention: NounMention, far: bool) -> Rules:
        form, name = mention.form, self.is_name(mention)
        documents, verbal = nouns.frequent_nouns().get(form, (0, 0))
        yield task.INSIDE_WORD, not task.opens_word(self.read.text, mention.start)
        yield f"fewer than {self.least_syllables} syllables", len(form) < self.least_syllables
        yield "a light noun", form in nouns.light_nouns()
        yield "a verbal noun", form in self.verbal or (verbal >= VERBAL_SHARE and not name)
        yield "part of a longer word", not self.is_word(mention)
        yield "a noun of very many documents", (documents > EVERYWHERE and far) if name else documents >= FREQUENT
        yield "a common noun of two syllables", far and not name and len(form) < 3
        yield f"fewer than {TOPICAL} times in its document", not name and self.counts[form] < TOPICAL
        yield "a term, not a name", name and nouns.TERM.search(form) is not None
        yield "whoever holds a role", (nouns.OFFICE if name else nouns.PERSON).search(form) is not None
        yield "a noun of many documents of its source", self.share(form) > (NAME_SHARE if name else 0)

    def _place(self, mention: NounMention) -> Rules:
        text, frame, name = self.read.text, self.frame(mention), self.is_name(mention)
        low, high = self.read.sentence_of(mention.start)
        sentence = text[low : mention.start].rpartition("\n")[2] + text[mention.start : high].partition("\n")[0]
        yield "not in a prose sentence", not nouns.PROSE.search(sentence) or len(sentence.split()) < LEAST_WORDS
        linked = frame.ending in nouns.LINKS or bool({frame.before, frame.behind} & nouns.LINKS)
        yield "coordinated with another noun", self.is_joined(mention) or linked
        tail = text[mention.end : mention.end + 1]
        quoted = text[mention.start - 1 : mention.start] in QUOTES
        yield "stands in an enumeration, a bracket or a title", self.in_list(mention.span) or tail == "(" or quoted
        yield "no particle behind it", not tail or tail.isspace() or tail in ".?!"
        bound = nouns.BOUND.search(frame.before) is not None
        yield "part of a term of several words", self.noun_before(mention) or bound or self.follows(mention)
        yield "a predicate or a role", bool(mention.around & COPULA and not name) or nouns.ROLE.match(frame.ending) is not None
        described = bool(mention.around & CLAUSE) or frame.before.endswith("의")
        yield "described by a clause or an owner of its own", described and not name
        forms = (other.form for other in self.read.mentions if low <= other.start < high)
        yield "an owner among other names", frame.ending == "의" and len(self.names.intersection(forms) - {mention.form}) > 1
        yield "another one of its kind", frame.before.lstrip("\"'“‘(") in nouns.listed("others.txt")

    def _choice(self, mention: NounMention) -> Rules:
        frame, form, usual = self.frame(mention), mention.form, self.usual
        others = [other for other in self.forms if task.is_apart(other, form)]
        yield task.NO_CHOICE, not others
        yield "its counterpart is in the document", bool(nouns.rivals().get(form, frozenset()) & self.forms)
        if self.is_name(mention):
            yield "a variant of it is in the document", any(nouns.is_variant(form, other) for other in self.forms)
        else:
            longer = any(other != form and (other.endswith(form) or form.endswith(other)) for other in self.forms)
            yield "a longer or shorter term of its kind is in the document", longer
        same = (other for side in frame.sides for other in self.beside.get(side, ()))
        yield "another noun stands in the same place", any(task.is_apart(other, form) for other in same)
        called = usual and usual.call_for(form, frame.ending, frame.before, frame.behind, self.read.document.id)
        yield "guessable from its neighbours", bool(called)

    def _support(self, mention: NounMention, distance: int, far: bool) -> Rules:
        least = next((least for low, least in SHARED if far and distance >= low), 0)
        yield f"shares fewer than {least} nouns with a sentence that names it", least > 0 and self.shared(mention) < least

    def item(self, name: Task, version: int, hidden: NounMention, antecedent: task.Span, *, seed: int, before: bool) -> ClozeItem:
        candidates = task.choose_candidates(hidden.form, self.forms, draw=(seed, self.read.identity, hidden.form))
        facts = {"candidates": candidates, "before": before, "copyable": self.copyable(hidden)}
        return self.read.item(name, version, hidden.span, antecedent, **facts)


def _first(rules: Rules) -> str | None:
    return next((reason for reason, holds in rules if holds), None)


@lru_cache(maxsize=1)
def eligible_of(read: task.ReadDocument, choices: task.Choices) -> Eligible:
    """The eligible mentions of a document, found once for all tasks that ask."""
    return Eligible(read, choices)
