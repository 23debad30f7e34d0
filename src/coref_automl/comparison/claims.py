"""What a study claims, and what follows from it. Records of numbers and codes: every surface prints them, none decides.

One `Claim` is one difference with one estimand, one set of documents, one test and one correction. An `Answer` is what to do, and
for every question that a person asks, the leading claim and the others. docs/statistics.md has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from coref_automl.base.records import Correction, Estimate, Half, Record

BASE = "base"
"""The other side of a claim about a gain; methods have the names that their owner gave them."""
ALPHA = 0.05
QuestionId = str
"""base, method, length, training, real, new, far, lambada, sources, or the name of an outside check."""
Verdict = Literal["better", "worse", "equivalent", "no gain", "same", "not shown", "not judged"]
"""Equivalent: between two methods, the whole interval lies within half the shown gain. No gain: over the base, a gain as large as
the shown one is excluded. Same: the same on every item."""
Documents = Literal["all", "confirm", "rows", "texts"]
"""Documents of the set, all or those of the half on which nothing was chosen; sentences of relation extraction; texts of
coreference."""
Test = Literal["crossed", "paired", "sign flips"]
"""Runs crossed with documents; runs paired by seed; one model against another, one sign per document."""
Caveat = Literal[
    "one seed", "copies", "one document", "few documents", "unequal training", "equal tokens", "chosen",
    "before correction", "checkpoint", "base not evaluated", "weights gone", "floor", "few counted",
]  # fmt: skip
"""Caveats of a claim. "chosen": its side was selected among several on the data (winner's curse); "checkpoint": it is about
checkpoints and says nothing about methods; "equal tokens": compared where both had seen as many; "floor": no model scores high
enough; "few counted": the model counts few of the items, or of the names."""
Action = Literal["use method", "use checkpoint", "keep base", "no base", "undecided"]
Training = Literal["less", "as long", "longer"]
Do = Literal[
    "add seeds", "train longer", "train equally", "make again", "carry over", "tell apart", "publish", "plan", "evaluate base"
]


@dataclass(frozen=True, slots=True)
class Claim(Record):
    """`a` minus `b` on one outcome. Shares are fractions.

    `outcome` is a metric, or that of an outside check; `part` are the items it is about (a source, a distance), empty for all.
    `difference` has the interval of the corrected `level`: it excludes 0 exactly if the verdict is better or worse. `alone` is
    the uncorrected 95% interval if that differs. `p` is adjusted by `correction` for a `family` of so many claims. `tokens` are
    the training tokens of the two sides, `rows` relation extraction's training rows, `share` their share of all. `detectable` is
    the true difference detected with 80% power, `within` the margin of equivalence. `expected` is the gain to expect of a side
    that was selected on the data, which the difference overstates. `against` are caveats.
    """

    question: QuestionId
    a: str
    b: str
    outcome: str
    documents: Documents
    count: int
    seeds: tuple[int, int]
    difference: Estimate
    test: Test
    verdict: Verdict
    values: tuple[float, float] | None = None
    alone: Estimate | None = None
    level: float = 0.95
    p: float | None = None
    correction: Correction = "none"
    family: int = 1
    detectable: float | None = None
    within: float | None = None
    part: str = ""
    tokens: tuple[int | None, int | None] = (None, None)
    rows: int | None = None
    share: float | None = None
    expected: float | None = None
    against: tuple[Caveat, ...] = ()

    @property
    def shown(self) -> bool:
        return self.verdict in ("better", "worse")

    @property
    def judged(self) -> bool:
        return self.verdict != "not judged"

    @property
    def of_checkpoint(self) -> bool:
        return "checkpoint" in self.against

    def seen_from(self, side: str) -> Claim:
        """The same claim as `side` minus the other."""
        return self if self.a == side else self.reversed()

    def reversed(self) -> Claim:
        """The same claim as `b` minus `a`."""
        codes = {"better": "worse", "worse": "better", "no gain": "not shown"}
        return replace(
            self,
            a=self.b,
            b=self.a,
            seeds=self.seeds[::-1],
            tokens=self.tokens[::-1],
            values=self.values and self.values[::-1],
            difference=_negated(self.difference),
            alone=self.alone and _negated(self.alone),
            verdict=codes.get(self.verdict, self.verdict),  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Question(Record):
    """A question that a person asks: the claim that answers it first, and the others in order of the methods. Not `tested`: no
    claim is about the method to use."""

    id: QuestionId
    lead: Claim
    others: tuple[Claim, ...] = ()
    tested: bool = True

    @property
    def claims(self) -> tuple[Claim, ...]:
        return (self.lead, *self.others)


@dataclass(frozen=True, slots=True)
class Keep(Record):
    """The checkpoint to keep: its method's highest posterior mean on the documents that `chose`.

    Verdict and expected gain are its method's; a single run has its own expected gain, shrunken for being the highest. `value` is
    its posterior mean, `tied` are checkpoints with the same. `there`: are its weights on this disk? If not, `again` makes them.
    """

    path: str
    name: str
    tokens: int | None
    there: bool
    again: str
    value: float
    expected: float | None
    tied: tuple[str, ...] = ()
    chose: Half | None = None


@dataclass(frozen=True, slots=True)
class NextTime(Record):
    """How long to train next time. `less`: until the earliest point of the method's mean curve that lies within `loss` of its
    highest at 95% confidence on the `select` half; `longer` only if the last step of that curve is itself shown to gain.

    `loss` is the margin, or a quarter of the shown gain over the base if that is less. `tokens` is the training until that point,
    `share` its share of the whole curve. `checkpoint` is its folder in the run that is used, `name` its label.
    """

    how: Training
    loss: float
    points: int
    seeds: int
    tokens: int | None
    share: float | None
    checkpoint: str
    name: str


@dataclass(frozen=True, slots=True)
class Power(Record):
    """The gain over the base that the study could show for any of its methods: 80% power on `documents` with `seeds`.

    `largest` is the largest gain seen. `needed` documents with `needed_seeds` seeds would show one like it (both grow by the same
    factor, so that every part of the variance shrinks by it); None if nothing is left to show. After one seed, `needed_seeds`
    alone: the seeds that a method with the gain of the highest checkpoint needs on these documents, by archived studies' spreads.
    """

    detectable: float | None
    documents: int
    seeds: int
    largest: float | None = None
    needed: int | None = None
    needed_seeds: int | None = None


@dataclass(frozen=True, slots=True)
class NextStep(Record):
    """The one next step, and its command; the reader fills in words in capitals (DATASET)."""

    do: Do
    command: str

    @property
    def runs(self) -> bool:
        """Does the command run as printed?"""
        return not re.search(r"(?<= )(DATASET|STUDY\.yaml|OWNER/NAME)(?= |$)", self.command)


@dataclass(frozen=True, slots=True)
class Answer(Record):
    """What to do and why; `comparison/answer` has the table of actions.

    `method` and `highest` are the method and checkpoint to use (`highest_path` its folder), or the highest if none is to be used.
    Other methods are sorted by how they compare with `method`:

        ties        shown better than the base, and not told apart from it
        unproven    not told apart from it, and not shown better than the base
        beats       shown worse than it (ties and beats at equal tokens if training was unequal)
        unjudged    without a verdict beside it

    `keep` and `next_time` are None unless something is to be used; `power` is what the study could show. `untested` are tasks on
    which the recommended model was not evaluated, `against` caveats, `step` is what to do next. `looks` counts how often the
    study was judged as seeds were added; `unread` names what could not be read.
    """

    action: Action
    metric: str
    evalset: str
    margin: float
    base: str | None
    base_path: str
    method: str | None
    highest: str
    highest_path: str
    ties: tuple[str, ...]
    beats: tuple[str, ...]
    keep: Keep | None
    next_time: NextTime | None
    power: Power | None
    questions: tuple[Question, ...]
    candidates: int
    looks: int = 1
    against: tuple[Caveat, ...] = ()
    unread: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    untested: tuple[QuestionId, ...] = ()
    step: NextStep | None = None

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for question in self.questions for claim in question.claims)

    def question(self, name: QuestionId) -> Question | None:
        return next((question for question in self.questions if question.id == name), None)

    def beside(self, name: str) -> Claim | None:
        """The method to use minus another on the metric, which `ties`, `beats` and `unproven` rest on; None without a verdict."""
        claim = differences_from(self.method, self.claims, self.metric).get(name) if self.method is not None else None
        return claim if claim is not None and claim.judged else None

    @property
    def gain(self) -> Claim | None:
        """The headline gain over the base: of the recommended method or checkpoint, or the largest if the base is kept."""
        base = self.question("base")
        if base is None or self.action != "keep base":
            return base.lead if base else None
        return max(base.claims, key=lambda claim: (claim.judged, claim.difference.value))

    def not_compared(self) -> list[str]:
        """Methods judged against the base and not against the method to use: of another length and another objective."""
        base = self.question("base")
        compared = {self.method, *self.ties, *self.beats, *self.unproven, *self.unjudged}
        gains = base.claims if base is not None and self.method is not None else ()
        judged = dict.fromkeys(claim.a for claim in gains if claim.outcome == self.metric)
        return [name for name in judged if name not in compared]

    @property
    def unbeaten(self) -> tuple[str, ...]:
        """Methods that the method to use is not shown to beat."""
        return (*self.ties, *self.unproven)

    def apart(self) -> list[Claim]:
        """Claims on other tasks that tell the method to use from those it does not beat."""
        if self.method is None:
            return []
        claims = [claim for name in self.unbeaten for claim in self.between(self.method, name)]
        return [claim for claim in claims if claim.shown and claim.outcome.partition(":")[0] != self.metric]

    def between(self, a: str, b: str | None) -> list[Claim]:
        """The claims about two methods, or about one and the base (None), on all items of each outcome: `a` minus `b`."""
        pair = {a, b or BASE}
        whole = [claim for claim in self.claims if not claim.part and claim.question != "sources"]
        return [claim.seen_from(a) for claim in whole if {claim.a, claim.b} == pair]

    def of_pair(self, a: str, b: str | None, outcome: str) -> Claim | None:
        """The one of these on an outcome; None if nothing is claimed."""
        return next((claim for claim in self.between(a, b) if claim.outcome == outcome), None)


@dataclass(frozen=True, slots=True)
class VocabularyPair(Record):
    """Two models of different tokenizers on the `items` that both count, ranked among the `nouns` that both have as one entry
    (comparison/vocabularies). `undetermined` items are left out. Without claims, `why` says why nothing was measured."""

    a: str
    b: str
    items: int = 0
    undetermined: int = 0
    nouns: int = 0
    claims: tuple[Claim, ...] = ()
    why: Literal["", "few items", "no words", "no tokenizer"] = ""
    error: str = ""


def differences_from(method: str, claims: Iterable[Claim], metric: str) -> dict[str, Claim]:
    """A method minus each other one on the metric, by the name of the other; at equal tokens if training was unequal."""
    about_it = [claim for claim in claims if claim.question in ("method", "length") and method in (claim.a, claim.b)]
    by_other: dict[str, Claim] = {}
    for claim in (claim.seen_from(method) for claim in about_it if claim.part in ("", "equal tokens")):
        if claim.outcome == metric and (claim.judged or claim.b not in by_other):
            by_other[claim.b] = claim
    return by_other


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.value, -estimate.high, -estimate.low, estimate.n)
