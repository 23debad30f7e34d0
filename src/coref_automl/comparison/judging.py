"""Verdicts about methods. In: pairs of arms and a metric. Out: Claims, corrected for their number.

Arms are compared at the last checkpoint of each run, or at others that the data did not choose, runs crossed with documents. All
documents speak where neither checkpoint nor setting was chosen on the set, else those of the `confirm` half. The interval of a
claim is that of its corrected level, so that it excludes 0 exactly where something is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import ALPHA, BASE, Caveat, Claim, QuestionId, Verdict
from coref_automl.comparison.differences import lost_to_family
from coref_automl.comparison.scores import Columns, Entry, Group, has_room
from coref_automl.records import Comparison, Correction, Estimate, Half
from coref_automl.statistics.closed_forms import LEVEL, holm
from coref_automl.statistics.crossed import CrossedVerdict, composite_crossed
from coref_automl.statistics.intervals import benjamini_hochberg, composite
from coref_automl.statistics.resampling import Floats, Part
from coref_automl.statistics.shrinkage import change_of_runs

FEW = 20
"""Fewer documents show nothing."""
Among = NDArray[np.bool_] | None
Runs = Sequence[Entry]
"""Evaluations of one method, one per seed."""
Pair = tuple[Arm, Arm | Entry]
Values = list[tuple[Floats, NDArray[Any]]]
"""By part of a metric: one row per run, and the documents of the items."""


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A claim before it is corrected, and its interval at any level. What cannot be judged has no p."""

    claim: Claim
    p: float | None
    interval_at: Callable[[float], Estimate]


def speaking_half(methods: Iterable[Runs]) -> Half | None:
    """The half of the documents that may speak about last checkpoints, one sequence per method; None for all of them.

    All speak if every run ends where it was planned to, or if its record does not say and all runs of a method end at one epoch.
    """
    return None if all(map(_unchosen, methods)) else "confirm"


def _unchosen(ends: Runs) -> bool:
    records = [entry.evaluation.provenance for entry in ends]
    planned = [made.planned_end if made else False for made in records]
    if False in planned:
        return False
    return None not in planned or len({round(made.epoch, 3) for made in records if made}) == 1


def judge_pairs(
    group: Group,
    question: QuestionId,
    pairs: Sequence[Pair],
    metric: str,
    *,
    half: Half | None,
    part: str = "",
    among: Among = None,
    ranks: bool = False,
) -> list[Judged | None]:
    """Compare the last checkpoints of each pair; None if the metric was not run by both.

    `among` are the items to compare on; `ranks`: by MRR.
    """
    out, outcome = list[Judged | None](), f"{metric}:mrr" if ranks else metric
    for a, b in pairs:
        ours, theirs = a.ends, b.ends if isinstance(b, Arm) else [b]
        if values := _values(group, [*ours, *theirs], metric, half, among, ranks):
            verdict = crossed(values, len(ours), model=isinstance(b, Entry))
            out.append(_judged(group, question, (a, b), (ours, theirs), outcome, verdict, values, half, part))
        else:
            out.append(None)
    return out


def judge_change(
    group: Group, question: QuestionId, arm: Arm, steps: tuple[Runs, Runs], metric: str, *, half: Half | None, part: str
) -> Judged | None:
    """One checkpoint of each run minus another of the same run: it is these differences that vary over seeds."""
    now, before = steps
    values = _values(group, [*now, *before], metric, half)
    if values is None:
        return None
    later, earlier = _sides(values, len(now))
    verdict = change_of_runs(later, earlier, [clusters for _, clusters in values])
    return _judged(group, question, (arm, arm), steps, metric, verdict, values, half, part)


def corrected_claims(judged: Iterable[Judged | None], correction: Correction) -> list[Claim]:
    """The claims of one family: p adjusted, the interval of the level that this amounts to, and the verdict."""
    family = [one for one in judged if one is not None]
    ps = [one.p for one in family if one.p is not None]
    adjusted = iter(holm(ps) if correction == "holm" else benjamini_hochberg(ps) if correction == "bh" else ps)
    claims = (
        _corrected(one, one.p, float(next(adjusted)), correction, len(ps)) if one.p is not None else one.claim for one in family
    )
    return [_within_reach(claim) for claim in claims]


def _within_reach(claim: Claim) -> Claim:
    """Where strict can reach few of the answers, a difference is a verdict, and its absence none."""
    return replace(claim, verdict="not judged") if "no room" in claim.against and not claim.shown else claim


def _corrected(judged: Judged, p: float, adjusted: float, correction: Correction, family: int) -> Claim:
    claim, level = judged.claim, 1 - ALPHA * (p / adjusted if adjusted > 0 else 1 / family)
    corrected, alone = judged.interval_at(level), judged.interval_at(LEVEL)
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


def _judged(
    group: Group,
    question: QuestionId,
    pair: Pair,
    sides: tuple[Runs, Runs],
    outcome: str,
    result: CrossedVerdict,
    values: Values,
    half: Half | None,
    part: str,
) -> Judged:
    (a, b), (ours, theirs) = pair, sides
    value, other = (float(sum(rows.mean() for rows in side)) for side in _sides(values, len(ours)))
    claim = Claim(
        question=question,
        a=a.name,
        b=BASE if isinstance(b, Entry) else b.name,
        outcome=outcome,
        documents="all" if half is None else "confirm",
        count=result.documents,
        seeds=(len(ours), len(theirs)),
        difference=result.interval,
        test="crossed",
        verdict="same" if result.reason == "same" else "not judged",  # until `corrected_claims`
        values=(value, other),
        detectable=result.detectable,
        part=part,
        tokens=(_tokens(ours), _tokens(theirs)),
        against=(*why_unjudged(result), *standing_against(group, outcome, result.documents)),
    )
    return Judged(claim, None if result.reason else result.p, result.interval_at)


def why_unjudged(verdict: CrossedVerdict) -> tuple[Caveat, ...]:
    return (verdict.reason,) if verdict.reason not in ("", "same") else ()  # type: ignore[return-value]


def few_documents(documents: int) -> tuple[Caveat, ...]:
    return ("few documents",) if documents < FEW else ()


def standing_against(group: Group, outcome: str, documents: int) -> tuple[Caveat, ...]:
    other: tuple[Caveat, ...] = ("other tokenizer",) if group.tokenizers > 1 else ()
    room: tuple[Caveat, ...] = () if has_room(group, outcome.partition(":")[0]) else ("no room",)
    return *few_documents(documents), *other, *room


def checkpoint_claim(
    group: Group, question: QuestionId, compared: Comparison, entry: Entry, *, half: Half | None, documents: int
) -> Claim:
    """A checkpoint against its base, max-T over all that stand beside it."""
    lost: tuple[Caveat, ...] = ("before correction",) if lost_to_family(compared) else ()
    claim = Claim(
        question=question,
        a=entry.name,
        b=BASE,
        outcome=compared.metric,
        documents="all" if half is None else "confirm",
        count=documents,
        seeds=(1, 1),
        difference=compared.difference,
        test="sign flips",
        verdict=compared.verdict,
        p=compared.p_adjusted,
        correction=compared.correction if compared.family > 1 else "none",
        family=compared.family,
        detectable=compared.detectable,
        tokens=(entry.recorded_tokens, None),
        against=("checkpoint", *standing_against(group, compared.metric, documents), *lost),
    )
    return _within_reach(claim)


def _tokens(runs: Runs) -> int | None:
    """The most that a run was trained on; None if one of them does not say."""
    recorded = [entry.recorded_tokens for entry in runs]
    return None if None in recorded else max(tokens for tokens in recorded if tokens is not None)


def crossed(values: Values, count: int, *, model: bool) -> CrossedVerdict:
    """The first `count` runs against the others; `model`: these are one model, without seeds."""
    ours, theirs = _sides(values, count)
    return composite_crossed(ours, theirs, [clusters for _, clusters in values], against_model=model)


def _sides(values: Values, count: int) -> tuple[list[Floats], list[Floats]]:
    """The first `count` runs, and the others."""
    return [rows[:count] for rows, _ in values], [rows[count:] for rows, _ in values]


def _values(group: Group, runs: Runs, metric: str, half: Half | None, among: Among = None, ranks: bool = False) -> Values | None:
    """Values of all runs, on the items that all have; None if one did not run the metric."""
    if not all(group.was_run(metric, entry) for entry in runs):
        return None
    columns = group.columns(metric, half=half, entries=runs, among=among, ranks=ranks)
    return by_run(columns) if columns.items else None


def by_run(columns: Columns) -> Values:
    return [(np.asarray(part.values, np.float64).T, np.asarray(part.clusters)) for part in columns.parts]


def means(group: Group, sides: Sequence[Runs], metric: str, *, seed: int, among: Among = None) -> list[Estimate | None]:
    """The mean over the evaluations of each side, with an interval over documents."""
    usable = {n: side for n, side in enumerate(sides) if side and all(group.was_run(metric, entry) for entry in side)}
    entries = list(dict.fromkeys(entry for side in usable.values() for entry in side))
    columns = group.columns(metric, entries=entries, among=among) if entries else None
    if columns is None or not columns.items:
        return [None] * len(sides)
    column = {entry: number for number, entry in enumerate(entries)}
    parts = []
    for part in columns.parts:
        values = np.asarray(part.values)
        means_of = [values[:, [column[entry] for entry in side]].mean(axis=1) for side in usable.values()]
        parts.append(Part(np.stack(means_of, axis=1), part.clusters))
    estimates = dict(zip(usable, composite(parts, seed=seed), strict=True))
    return [estimates.get(number) for number in range(len(sides))]
