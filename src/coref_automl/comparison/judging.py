"""Verdicts about methods. In: pairs of arms and an estimand. Out: Claims, corrected for their number.

Arms are compared at the last checkpoint of each run, or at others that the data did not select, runs crossed with documents. All
documents are used if neither a checkpoint nor a setting was selected on the set, otherwise the `confirm` half. A claim's interval
has its corrected level, so that it excludes 0 exactly if a difference is shown.

    judge_pair, judge_change    an Estimand and two sides -> PairedValues -> CrossedVerdict -> UncorrectedClaim
    corrected_claims            the UncorrectedClaims of a family -> Claims
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Comparison, Correction, Estimate, Half
from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import ALPHA, BASE, Caveat, Claim, QuestionId, Verdict
from coref_automl.comparison.differences import lost_to_family
from coref_automl.comparison.scores import Columns, Entry, Group, ItemMask
from coref_automl.statistics.closed_forms import LEVEL, holm
from coref_automl.statistics.crossed import CrossedVerdict, composite_crossed
from coref_automl.statistics.intervals import benjamini_hochberg, composite
from coref_automl.statistics.resampling import Floats, Part
from coref_automl.statistics.shrinkage import change_of_runs

_FEW = 20
"""Fewer documents show nothing."""
Runs = Sequence[Entry]
"""Evaluations of one method, one per seed."""
Pair = tuple[Arm, Arm | Entry]
"""Two methods, or a method and its base."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimand:
    """What a claim estimates, whichever two sides it compares: an outcome on some items of a group. `half` are the documents
    (None: all), `part` names the items of the `mask`, `ranks` is MRR in place of hits."""

    group: Group
    question: QuestionId
    metric: str
    half: Half | None = None
    part: str = ""
    mask: ItemMask = None
    ranks: bool = False

    @property
    def outcome(self) -> str:
        return f"{self.metric}:mrr" if self.ranks else self.metric

    def values(self, ours: Runs, theirs: Runs) -> PairedValues | None:
        """The values of both sides on the items that all runs have; None if one did not run the metric, or they share no item."""
        runs = [*ours, *theirs]
        if not all(self.group.was_run(self.metric, entry) for entry in runs):
            return None
        columns = self.group.columns(self.metric, half=self.half, entries=runs, mask=self.mask, ranks=self.ranks)
        return PairedValues.of(columns, len(ours)) if columns.items else None


class PairedValues(NamedTuple):
    """Two sides on the same items, by part of a metric: matrices with one row per run, and the documents of the items."""

    ours: list[Floats]
    theirs: list[Floats]
    clusters: list[NDArray[Any]]

    @classmethod
    def of(cls, columns: Columns, count: int) -> PairedValues:
        """The first `count` columns against the others."""
        rows = [np.asarray(part.values, np.float64).T for part in columns.parts]
        clusters = [np.asarray(part.clusters) for part in columns.parts]
        return cls([part[:count] for part in rows], [part[count:] for part in rows], clusters)

    def means(self) -> tuple[float, float]:
        first, other = (float(sum(rows.mean() for rows in side)) for side in (self.ours, self.theirs))
        return first, other

    def crossed(self, *, against_model: bool) -> CrossedVerdict:
        """`against_model`: the other side is a single model, without seeds."""
        return composite_crossed(self.ours, self.theirs, self.clusters, against_model=against_model)


@dataclass(frozen=True, slots=True, eq=False)
class UncorrectedClaim:
    """A claim before correction, with its p and its interval at any level. What cannot be judged has no p."""

    claim: Claim
    p: float | None
    interval_at: Callable[[float], Estimate]


def judge_pairs(estimand: Estimand, pairs: Iterable[Pair]) -> list[UncorrectedClaim]:
    """Compare the last checkpoints of each pair; pairs of which a side did not run the metric are left out."""
    return [claim for a, b in pairs if (claim := judge_pair(estimand, a, b)) is not None]


def judge_pair(estimand: Estimand, a: Arm, b: Arm | Entry) -> UncorrectedClaim | None:
    """Compare the last checkpoints of two methods, or of a method with its base; None if either did not run the metric."""
    if isinstance(b, Entry):
        return _judge(estimand, (a.name, BASE), a.ends, [b], lambda values: values.crossed(against_model=True))
    return _judge(estimand, (a.name, b.name), a.ends, b.ends, lambda values: values.crossed(against_model=False))


def judge_change(estimand: Estimand, arm: Arm, later: Runs, earlier: Runs) -> UncorrectedClaim | None:
    """Compare one checkpoint of each run with another of the same run; None if one did not run the metric."""
    return _judge(estimand, (arm.name, arm.name), later, earlier, lambda values: change_of_runs(*values))


def _judge(
    estimand: Estimand, names: tuple[str, str], ours: Runs, theirs: Runs, test: Callable[[PairedValues], CrossedVerdict]
) -> UncorrectedClaim | None:
    values = estimand.values(ours, theirs)
    if values is None:
        return None
    verdict = test(values)
    claim = Claim(
        question=estimand.question,
        a=names[0],
        b=names[1],
        outcome=estimand.outcome,
        documents="all" if estimand.half is None else "confirm",
        count=verdict.documents,
        seeds=(len(ours), len(theirs)),
        difference=verdict.interval,
        test="crossed",
        verdict="same" if verdict.reason == "same" else "not judged",  # until `corrected_claims`
        values=values.means(),
        detectable=verdict.detectable,
        part=estimand.part,
        tokens=(_most_tokens(ours), _most_tokens(theirs)),
        against=(*why_unjudged(verdict), *few_documents(verdict.documents)),
    )
    return UncorrectedClaim(claim, None if verdict.reason else verdict.p, verdict.interval_at)


def _most_tokens(runs: Runs) -> int | None:
    """The training tokens of the longest run; None if one of them did not record its tokens."""
    recorded = [entry.recorded_tokens for entry in runs]
    return None if None in recorded else max(tokens for tokens in recorded if tokens is not None)


def why_unjudged(verdict: CrossedVerdict) -> tuple[Caveat, ...]:
    return (verdict.reason,) if verdict.reason not in ("", "same") else ()  # type: ignore[return-value]


def few_documents(documents: int) -> tuple[Caveat, ...]:
    return ("few documents",) if documents < _FEW else ()


def corrected_claims(family: Iterable[UncorrectedClaim], correction: Correction) -> list[Claim]:
    """Correct the claims of one family: adjusted p, the interval at the level that this amounts to, and the verdict."""
    family = list(family)
    tested = [(claim, claim.p) for claim in family if claim.p is not None]
    ps = [p for _, p in tested]
    adjusted = holm(ps) if correction == "holm" else benjamini_hochberg(ps) if correction == "bh" else ps
    corrected = {
        claim: _corrected(claim, p, float(q), correction, len(tested)) for (claim, p), q in zip(tested, adjusted, strict=True)
    }
    return [corrected.get(claim, claim.claim) for claim in family]


def _corrected(uncorrected: UncorrectedClaim, p: float, adjusted: float, correction: Correction, family: int) -> Claim:
    # where three claims adjust p = 0.01 to 0.03, it is tested at 0.05 / 3, and the interval has the level 1 - 0.05 / 3
    claim, level = uncorrected.claim, 1 - ALPHA * (p / adjusted if adjusted > 0 else 1 / family)
    corrected, alone = uncorrected.interval_at(level), uncorrected.interval_at(LEVEL)
    verdict: Verdict = "not shown" if adjusted >= ALPHA else "better" if corrected.value > 0 else "worse"
    lost: tuple[Caveat, ...] = ("before correction",) if p < ALPHA <= adjusted else ()
    wider = (corrected.high - corrected.low) / (alone.high - alone.low) if alone.high > alone.low else 1.0
    return replace(
        claim,
        difference=corrected,
        alone=alone if level > LEVEL else None,
        level=round(level, 6),
        p=adjusted,
        correction=correction if family > 1 else "none",
        family=family,
        verdict=verdict,
        detectable=claim.detectable * wider if claim.detectable else None,
        against=(*claim.against, *lost),
    )


def checkpoint_claim(question: QuestionId, comparison: Comparison, entry: Entry, *, half: Half | None, documents: int) -> Claim:
    """The claim about a checkpoint and its base, from a comparison that max-T has already corrected."""
    lost: tuple[Caveat, ...] = ("before correction",) if lost_to_family(comparison) else ()
    return Claim(
        question=question,
        a=entry.name,
        b=BASE,
        outcome=comparison.metric,
        documents="all" if half is None else "confirm",
        count=documents,
        seeds=(1, 1),
        difference=comparison.difference,
        test="sign flips",
        verdict=comparison.verdict,
        p=comparison.p_adjusted,
        correction=comparison.correction if comparison.family > 1 else "none",
        family=comparison.family,
        detectable=comparison.detectable,
        tokens=(entry.recorded_tokens, None),
        against=("checkpoint", *few_documents(documents), *lost),
    )


def means(group: Group, sides: Sequence[Runs], metric: str, *, seed: int, mask: ItemMask = None) -> list[Estimate | None]:
    """The mean over the evaluations of each side, with an interval over documents; None if a side did not run the metric."""
    usable = {n: side for n, side in enumerate(sides) if side and all(group.was_run(metric, entry) for entry in side)}
    entries = list(dict.fromkeys(entry for side in usable.values() for entry in side))
    columns = group.columns(metric, entries=entries, mask=mask) if entries else None
    if columns is None or not columns.items:
        return [None] * len(sides)
    column = {entry: number for number, entry in enumerate(entries)}
    parts = []
    for part in columns.parts:
        values = np.asarray(part.values)
        side_means = [values[:, [column[entry] for entry in side]].mean(axis=1) for side in usable.values()]
        parts.append(Part(np.stack(side_means, axis=1), part.clusters))
    estimates = dict(zip(usable, composite(parts, seed=seed), strict=True))
    return [estimates.get(number) for number in range(len(sides))]
