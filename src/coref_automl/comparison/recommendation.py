"""Which checkpoint to keep. In: evaluated checkpoints of one or more runs. Out: a Recommendation, in numbers.

Chosen on the `select` half: in order of training tokens, the earliest checkpoint that is surely within the margin of the best.
Judged on the `confirm` half: chosen against base, best against chosen. Where every checkpoint is the planned end of its run,
nothing was chosen among checkpoints, and all documents say which of them beat the base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coref_automl.comparison.differences import adjusted_to, against, finding, over_own
from coref_automl.comparison.references import bases_of, own_base
from coref_automl.comparison.scores import Entry, Group
from coref_automl.errors import ComparisonError
from coref_automl.records import Comparison, Estimate, Record
from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.intervals import Bounds, composite, simultaneous_bounds

MARGIN = 0.02
Confirmation = Literal["confirmed", "not confirmed", "open"]


@dataclass(frozen=True, slots=True)
class Candidate(Record):
    """A checkpoint on the `select` half: how far the truly best may lie above it, with 95% confidence for all at once."""

    name: str
    path: str
    run: str
    tokens: int
    value: Estimate
    bound: float


@dataclass(frozen=True, slots=True)
class OverFitting(Record):
    """A run's peak (found on `select`) against its last checkpoint, judged on `confirm`."""

    run: str
    peak: str
    last: str
    comparison: Comparison | None
    shown: bool


@dataclass(frozen=True, slots=True)
class Recommendation(Record):
    """The checkpoint to keep and why. `confirmation` says whether the other half agrees.

    `chosen` and `best_path` are folders; `name`, `best` and `base` are labels for people, and nothing is found by them.
    `saves` is true where the rule chose an earlier checkpoint than the best. `more_documents` is how many further documents alike
    would let the earliest promising checkpoint be chosen; None where there is nothing to gain. `over_bases` is every candidate
    against its base, of which `over_base` is the chosen one's, on the `documents` of `judged_on`. `sentence` says the same in
    words; the report room writes it.
    """

    chosen: str
    name: str
    best: str
    base: str | None
    metric: str
    margin: float
    evalset: str
    candidates: tuple[Candidate, ...]
    value: Estimate
    over_base: Comparison | None
    best_over_chosen: Comparison | None
    confirmation: Confirmation
    beaten_base: bool | None
    saves: bool
    settled: bool
    more_documents: int | None
    promising: str | None
    over_fitting: tuple[OverFitting, ...]
    sentence: str = ""
    over_bases: tuple[Comparison, ...] = ()
    judged_on: Literal["all", "confirm"] = "confirm"
    documents: int = 0
    notes: tuple[str, ...] = ()
    best_path: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A recommendation and the evaluations it speaks of; `falls` are the peak and the last checkpoint of `over_fitting`."""

    recommendation: Recommendation
    chosen: Entry
    best: Entry
    base: Entry | None
    candidates: dict[Entry, Candidate]
    falls: tuple[tuple[Entry, Entry], ...]


def checked_margin(margin: float) -> float:
    """A margin as a fraction of 1; on the command line it is given in points."""
    if not 0 < margin < 1:
        raise ComparisonError(f"A margin of {100 * margin:g} points cannot be; give a number of points such as 2.")
    return margin


def choose_entry(group: Group, metric: str, *, margin: float = MARGIN, seed: int = 0, notes: Sequence[str] = ()) -> Choice:
    """The recommendation with the evaluations themselves, for those who go on from them."""
    eligible = eligible_entries(group)
    select = group.columns(metric, half="select", entries=eligible)
    told = list(notes)
    if not select.items:
        select = group.columns(metric, entries=eligible)
        told.append("The select half is empty on this small set: all items served to choose, so nothing is confirmed.")
    bounds = simultaneous_bounds(select.parts, seed=seed)
    values = composite(select.parts, seed=seed)
    candidates = tuple(
        Candidate(entry.name, entry.evaluation.path, entry.run, entry.tokens, value, float(bound))
        for entry, value, bound in zip(eligible, values, bounds.upper, strict=True)
    )
    best = max(range(len(eligible)), key=lambda number: (candidates[number].value.value, -eligible[number].tokens, -number))
    within = next((number for number, one in enumerate(candidates) if one.bound <= margin), None)
    chosen = best if within is None or eligible[best].tokens <= eligible[within].tokens else within
    need, promising = _documents_needed(bounds, chosen, margin, [entry.tokens for entry in eligible])
    base = _base_for(group, eligible[chosen])
    over_bases, best_over, beaten = _judge(group, metric, eligible, base, chosen, best, seed)
    confirm = group.columns(metric, half="confirm", entries=[eligible[chosen]])
    value = composite(confirm.parts, seed=seed)[0] if confirm.items else candidates[chosen].value
    fallen = over_fitting(group, metric, eligible, values, seed=seed)
    out = Recommendation(
        chosen=candidates[chosen].path,
        name=candidates[chosen].name,
        best=candidates[best].name,
        base=base.name if base else None,
        metric=metric,
        margin=margin,
        evalset=group.evalset,
        candidates=candidates,
        value=value,
        over_base=over_bases[chosen],
        best_over_chosen=best_over,
        confirmation=_confirmation(best_over, margin, bool(confirm.items)),
        beaten_base=beaten,
        saves=chosen != best and eligible[chosen].tokens < eligible[best].tokens,
        settled=within is not None,
        more_documents=need,
        promising=candidates[promising].name if promising is not None else None,
        over_fitting=tuple(one for one, _, _ in fallen),
        over_bases=tuple(answer for answer in over_bases if answer is not None),
        judged_on="confirm" if group.judging else "all",
        documents=group.columns(metric, half=group.judging, entries=eligible).documents,
        notes=tuple(told),
        best_path=candidates[best].path,
    )
    return Choice(
        out,
        eligible[chosen],
        eligible[best],
        base,
        dict(zip(eligible, candidates, strict=True)),
        tuple((peak, last) for _, peak, last in fallen),
    )


def eligible_entries(group: Group) -> list[Entry]:
    """Trained checkpoints in order of training tokens; where there are none, all that was evaluated."""
    trained = [entry for entry in group.entries if entry.trained] or list(group.entries)
    return sorted(trained, key=lambda entry: entry.tokens)


def _base_for(group: Group, chosen: Entry) -> Entry | None:
    """The model that a checkpoint began from, in windows as long if it is here; with no record of it, any not trained here."""
    made, others = chosen.evaluation.provenance, [entry for entry in group.entries if entry is not chosen]
    bases = bases_of(others, made) if made else [entry for entry in others if not entry.trained]
    found = min(bases, key=lambda entry: entry.evaluation.seq_len != chosen.evaluation.seq_len, default=None)
    return found if any(entry.trained for entry in group.entries) else None


def over_fitting(
    group: Group, metric: str, eligible: Sequence[Entry], values: Sequence[Estimate], *, seed: int
) -> list[tuple[OverFitting, Entry, Entry]]:
    """For every run with two or more checkpoints: is its last one worse than its peak? With both; Holm over the runs."""
    runs: dict[tuple[str, int], list[int]] = {}
    for number, entry in enumerate(eligible):
        if entry.trained:
            runs.setdefault((entry.run, entry.evaluation.seq_len), []).append(number)
    pairs = []
    for (run, _), numbers in runs.items():
        if len(numbers) > 1:
            pairs.append((run, max(numbers, key=lambda n: (values[n].value, -eligible[n].tokens)), numbers[-1]))
    family = sum(peak != last for _, peak, last in pairs)
    answers = [
        _answer(group, metric, eligible[peak], eligible[last], seed, family=family) if peak != last else None
        for _, peak, last in pairs
    ]
    adjusted = iter(holm([answer.p for answer in answers if answer]))
    answers = [adjusted_to(answer, float(next(adjusted))) if answer else None for answer in answers]
    return [
        (
            OverFitting(
                run, eligible[peak].name, eligible[last].name, answer, answer is not None and finding(answer) == "better"
            ),
            eligible[peak],
            eligible[last],
        )
        for (run, peak, last), answer in zip(pairs, answers, strict=True)
    ]


def _answer(group: Group, metric: str, one: Entry, other: Entry, seed: int, *, family: int = 1) -> Comparison | None:
    """`one` against `other` on `confirm`; None where that half is empty."""
    columns = group.columns(metric, half="confirm", entries=[other, one])
    return against(columns, [other.name, one.name], 0, metric, seed=seed, family=family)[1] if columns.items else None


def _judge(
    group: Group, metric: str, eligible: Sequence[Entry], base: Entry | None, chosen: int, best: int, seed: int
) -> tuple[Sequence[Comparison | None], Comparison | None, bool | None]:
    """Each against its base (Holm over all); best against chosen on `confirm`; whether any from this base beats it."""
    best_over = _answer(group, metric, eligible[best], eligible[chosen], seed) if best != chosen else None
    if base is None:
        return [None] * len(eligible), best_over, None
    own = [own_base(group.entries, entry, base) for entry in eligible]
    answers = over_own(group, metric, eligible, own, seed=seed)
    if answers[chosen] is None:
        return answers, best_over, None
    beaten = any(
        answer is not None and one is base and finding(answer) == "better" for one, answer in zip(own, answers, strict=True)
    )
    return answers, best_over, beaten


def _confirmation(best_over: Comparison | None, margin: float, judged: bool) -> Confirmation:
    if not judged:
        return "open"
    if best_over is None or best_over.difference.high <= margin:
        return "confirmed"
    return "not confirmed" if best_over.difference.value > margin else "open"


def _documents_needed(bounds: Bounds, chosen: int, margin: float, tokens: Sequence[int]) -> tuple[int | None, int | None]:
    """The checkpoint of less training than the chosen one that the fewest further documents would let in.

    That is if the differences stay as they are. Where the chosen one itself is not surely within the margin, the count is for it.
    """
    if bounds.upper[chosen] > margin:
        factor = _factor(bounds, chosen, margin)
        return (math.ceil((factor - 1) * bounds.documents), chosen) if factor is not None else (None, None)
    before = [number for number in range(chosen) if tokens[number] < tokens[chosen]]
    found = [(factor, number) for number in before if (factor := _factor(bounds, number, margin)) is not None]
    if not found:
        return None, None
    factor, number = min(found)
    return math.ceil((factor - 1) * bounds.documents), number


def _factor(bounds: Bounds, number: int, margin: float) -> float | None:
    """How many times as many documents bring one bound under the margin; None beyond a hundred."""
    room = margin - bounds.gaps[:, number]
    if np.any(room <= 0):
        return None
    factor = float(((bounds.reach[:, number] / room) ** 2).max())
    return max(1.0, factor) if factor <= 100 else None
