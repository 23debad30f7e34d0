"""What to use, and how long to train. In: evaluated checkpoints of one or more runs. Out: a Recommendation, in numbers.

Chosen on the `select` half: the method of highest posterior mean over seeds, and its highest checkpoint (`advice`).
Judged on the `confirm` half: chosen against base, best against chosen. If every checkpoint is the planned end of its run, nothing
was chosen among checkpoints, and all documents judge which of them beat the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coref_automl.comparison.advice import NextTime, Use, beliefs, next_time_of, use_of
from coref_automl.comparison.differences import against, compare_with_bases, finding, readjust
from coref_automl.comparison.references import bases_of, own_base
from coref_automl.comparison.scores import Entry, Group
from coref_automl.errors import ComparisonError
from coref_automl.records import Comparison, Estimate, Record
from coref_automl.say import say
from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.intervals import composite, simultaneous_bounds

MARGIN = 0.02
POINTS = 100 * MARGIN
"""The margin as it is given and written: in points."""
_FEWEST_POINTS = 0.1
Confirmation = Literal["confirmed", "not confirmed", "open"]


@dataclass(frozen=True, slots=True)
class Candidate(Record):
    """A checkpoint on the `select` half. `bound` is its largest distance to the best (95% simultaneous confidence).

    `believed` is its posterior mean: what its neighbours and the other seeds leave of its value. `tokens` is None if its run did
    not record them.
    """

    name: str
    path: str
    run: str
    tokens: int | None
    value: Estimate
    bound: float
    believed: float


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
    """What to use and why, and how long to train next time. `confirmation` says whether the other half agrees.

    `use` and `next_time` are the advice; `next_time` is None if no run has a curve. `chosen` and `best_path` are folders; `name`,
    `best` and `base` are labels for people, never used to look anything up. `chosen` is the checkpoint of `use`, `best` the one
    of highest value on `select`, and `value` the chosen one's own. `over_bases` is every candidate against its base, of which
    `over_base` is the chosen one's, on the `documents` of `judged_on`. `sentence` says it in words; the report room writes it.
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
    use: Use
    next_time: NextTime | None
    over_fitting: tuple[OverFitting, ...]
    sentence: str = ""
    over_bases: tuple[Comparison, ...] = ()
    judged_on: Literal["all", "confirm"] = "confirm"
    documents: int = 0
    notes: tuple[str, ...] = ()
    best_path: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A recommendation with its evaluations; `falls` are the peak and last checkpoint of each `over_fitting`."""

    recommendation: Recommendation
    chosen: Entry
    best: Entry
    base: Entry | None
    candidates: dict[Entry, Candidate]
    falls: tuple[tuple[Entry, Entry], ...]


def checked_margin(points: float) -> float:
    """A margin in points, as everyone gives it, as the fraction that is computed with. A fraction, as it once was, is refused."""
    if 0 < points < _FEWEST_POINTS:
        raise ComparisonError(f"A margin is a number of points, and {points:g} is a fraction of 1; write {100 * points:g}.")
    if not 0 < points < 100:
        raise ComparisonError(f"A margin of {points:g} points cannot be; give a number of points such as 2.")
    return points / 100


def choose_entry(group: Group, metric: str, *, margin: float = MARGIN, seed: int = 0, notes: Sequence[str] = ()) -> Choice:
    """The recommendation, with the evaluations themselves for further use."""
    eligible = eligible_entries(group)
    select = group.columns(metric, half="select", entries=eligible)
    told = list(notes)
    if not select.items:
        select = group.columns(metric, entries=eligible)
        told.append(
            say(
                "세트가 작아 선택용 절반이 비었습니다. 모든 문항으로 골랐으므로 확인된 것은 없습니다.",
                "The select half of this small set is empty: all items served to choose, so nothing is confirmed.",
            )
        )
    bounds = simultaneous_bounds(select.parts, seed=seed)
    values = composite(select.parts, seed=seed)
    believed = beliefs(select, eligible)
    candidates = tuple(
        Candidate(entry.name, entry.evaluation.path, entry.run, entry.recorded_tokens, value, float(bound), believed.means[entry])
        for entry, value, bound in zip(eligible, values, bounds.upper, strict=True)
    )
    best = max(range(len(eligible)), key=lambda number: (candidates[number].value.value, -eligible[number].tokens, -number))
    chosen = eligible.index(believed.chosen())
    base = _base_for(group, eligible[chosen])
    over_bases, best_over, beaten = _judge(group, metric, eligible, base, chosen, best, seed)
    confirm = group.columns(metric, half="confirm", entries=[eligible[chosen]])
    value = composite(confirm.parts, seed=seed)[0] if confirm.items else candidates[chosen].value
    use = use_of(group, metric, believed, eligible[chosen], base, over_bases[chosen], seed=seed)
    gain = use.over_base.value if use.over_base and use.status != "not better than the base" else None
    ahead = next_time_of(group, metric, believed, eligible[chosen], margin=margin, gain=gain, seed=seed)
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
        use=use,
        next_time=ahead,
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
    """Trained checkpoints by training tokens; all evaluations if nothing was trained."""
    trained = [entry for entry in group.entries if entry.trained] or list(group.entries)
    return sorted(trained, key=lambda entry: entry.tokens)


def _base_for(group: Group, chosen: Entry) -> Entry | None:
    """The base of a checkpoint, preferably in windows of the same length; any untrained model if the base is not recorded."""
    made, others = chosen.evaluation.provenance, [entry for entry in group.entries if entry is not chosen]
    bases = bases_of(others, made) if made else [entry for entry in others if not entry.trained]
    found = min(bases, key=lambda entry: entry.evaluation.seq_len != chosen.evaluation.seq_len, default=None)
    return found if any(entry.trained for entry in group.entries) else None


def over_fitting(
    group: Group, metric: str, eligible: Sequence[Entry], values: Sequence[Estimate], *, seed: int
) -> list[tuple[OverFitting, Entry, Entry]]:
    """For every run with two or more checkpoints: is the last one worse than the peak? Holm over the runs."""
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
    answers = [readjust(answer, float(next(adjusted))) if answer else None for answer in answers]
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
    """Compare `one` with `other` on `confirm`; None if that half is empty."""
    columns = group.columns(metric, half="confirm", entries=[other, one])
    return against(columns, [other.name, one.name], 0, metric, seed=seed, family=family)[1] if columns.items else None


def _judge(
    group: Group, metric: str, eligible: Sequence[Entry], base: Entry | None, chosen: int, best: int, seed: int
) -> tuple[Sequence[Comparison | None], Comparison | None, bool | None]:
    """Each against its base (max-T over all); best against chosen on `confirm`; whether any checkpoint beats this base."""
    best_over = _answer(group, metric, eligible[best], eligible[chosen], seed) if best != chosen else None
    if base is None:
        return [None] * len(eligible), best_over, None
    own = [own_base(group.entries, entry, base) for entry in eligible]
    answers = compare_with_bases(group, metric, eligible, own, seed=seed)
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
