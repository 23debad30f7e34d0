"""Outside checks: does an adaptation carry over to a task that checkpoints are fine-tuned on? In: a study and runs of the task.
Out: Claims.

The unit is the pretraining seed: a start (the checkpoint that fine-tuning began from) counts with the mean over its fine-tuning
seeds, so that variance in pretraining counts. If a method has a single start, its fine-tuning seeds are compared, and the claim
is about that checkpoint. Relation extraction pairs runs by seed; coreference crosses runs with documents, because other novels
would move a difference. A check is one entry of CHECKS; the reader, the archive, studies and reports iterate over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm, equally_trained, read_share
from coref_automl.comparison.claims import BASE, COREFERENCE, RELATION, Caveat, Claim, Documents, QuestionId, Test
from coref_automl.comparison.coreference_results import COREFERENCE_FILES, DocumentSums
from coref_automl.comparison.judging import Judged, corrected_claims, few_documents, why_unjudged
from coref_automl.comparison.relation_results import RELATION_FILES, RowFacts
from coref_automl.comparison.runs import TaskFiles, TaskRun
from coref_automl.comparison.scores import Entry, grouped, model_label
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.statistics.intervals import DRAWS, from_draws
from coref_automl.statistics.methods import MethodVerdict, method_verdict, ratio_verdict
from coref_automl.statistics.resampling import Floats, resampled_f1
from coref_automl.store import fingerprint

if TYPE_CHECKING:
    from coref_automl.comparison.study import Study


Run = TaskRun
Start = Mapping[int, tuple[Run, int]]
"""Of every fine-tuning seed from one checkpoint, its run and the column of the run's facts."""
Starts = Mapping[int, Start]
"""By pretraining seed; a base or a single checkpoint is one start."""


def start_of(runs: Iterable[Run]) -> Start:
    """Runs from one checkpoint; a seed that several have counts once."""
    held: dict[int, tuple[Run, int]] = {}
    for run in runs:
        for column, seed in enumerate(run.seeds):
            held.setdefault(seed, (run, column))
    return held


def rows_of(run: Run) -> int:
    """The rows that a relation run was trained on."""
    return (run.result.train_rows or 0) + (run.result.validation_rows or 0)


def judge_relation(a: Starts, b: Starts, claim: Callable[..., Claim], seed: int) -> Judged | None:
    """Starts of one pretraining seed are paired; every start with a base; of a single start, its fine-tuning seeds.

    None if seeds are not shared: a verdict over a base must cover every start of the method, one between methods two pairs.
    """
    both = [(a[n], b[n]) for n in a if n in b] if len(b) > 1 else [(start, one) for start in a.values() for one in b.values()]
    pairs = [pair for ours, theirs in both if (pair := shared(ours, theirs)) is not None]
    if len(pairs) < (2 if len(b) > 1 else len(a)):
        return None
    if len(a) == 1:
        pairs = [pairs[0].of([number]) for number in pairs[0].seeds]
    ours, theirs = (float(np.mean([getattr(pair, side).f1().mean() for pair in pairs])) for side in "ab")
    count, found = over_pairs(pairs, seed=seed)
    run = next(iter(both[0][0].values()))[0]
    judged = count > 1 and found.p_seeds is not None
    same = found.difference == 0 and found.interval.low == found.interval.high
    lost: tuple[Caveat, ...] = () if judged or same else ("one seed" if count < 2 else "copies",)
    told = claim(
        *lost,
        count=run.result.n,
        seeds=(count, count),
        difference=found.interval,
        verdict="same" if same else "not judged",
        values=(ours, theirs),
        detectable=found.detectable,
        rows=rows_of(run) or None,
        share=read_share(run.name),
    )
    return Judged(told, found.p if judged else None, found.interval_at)


@dataclass(frozen=True, slots=True, eq=False)
class SeedPairs:
    """Two sides on the same rows under the same fine-tuning seeds, a column each."""

    a: RowFacts
    b: RowFacts
    seeds: tuple[int, ...]

    def of(self, seeds: Sequence[int]) -> SeedPairs:
        columns = [self.seeds.index(seed) for seed in seeds]
        return SeedPairs(self.a.of(columns), self.b.of(columns), tuple(seeds))

    def differences(self) -> NDArray[np.float64]:
        """In micro-F1, seed by seed."""
        return np.asarray(self.a.f1() - self.b.f1())


def shared(a: Start, b: Start) -> SeedPairs | None:
    """Both sides under their shared fine-tuning seeds; None if there are none, or if the rows differ."""
    seeds = [number for number in a if number in b]
    ours, theirs = ([run.facts.of([column]) for run, column in (side[number] for number in seeds)] for side in (a, b))
    if not seeds or not all(np.array_equal(one.gold, ours[0].gold) for one in (*ours, *theirs)):
        return None
    return SeedPairs(_joined(ours), _joined(theirs), tuple(seeds))


def _joined(rows: Sequence[RowFacts]) -> RowFacts:
    right, given = (np.hstack([getattr(one, name) for one in rows]) for name in ("right", "given"))
    return replace(rows[0], right=right, given=given)


def over_pairs(pairs: Sequence[SeedPairs], *, seed: int) -> tuple[int, MethodVerdict]:
    """Are the first sides better than the second ones, over pairs, fine-tuning seeds and sentences? And the number of pairs.

    If pairs share fine-tuning seeds, these are crossed with the pairs, provided that all pairs have them. Pairs that all have one
    seed count as one: its luck is in each of them.
    """
    crossed = len({number for pair in pairs for number in pair.seeds}) < sum(len(pair.seeds) for pair in pairs)
    if crossed and (common := [number for number in pairs[0].seeds if all(number in pair.seeds for pair in pairs)]):
        pairs = [pair.of(common) for pair in pairs]
        differences = np.stack([pair.differences() for pair in pairs])
    else:
        differences = np.array([pair.differences().mean() for pair in pairs])
        differences = differences[:, None] if crossed else differences  # no seed is in every pair: counted as one seed
    marks = min((rows.sentences for pair in pairs for rows in (pair.a, pair.b)), key=lambda held: len(np.unique(held)))
    over = from_draws(float(differences.mean()), _draws(pairs, marks, seed), marks)
    verdict = method_verdict(differences, over.interval, over.error, over.held)
    return 1 if differences.shape[1:] == (1,) else len(pairs), verdict


def _draws(pairs: Sequence[SeedPairs], sentences: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """Bootstrap draws of the mean micro-F1 difference: each draw resamples the same sentences for all pairs."""
    sides = [rows for pair in pairs for rows in (pair.a, pair.b)]
    joined = _joined(sides)
    gold = np.repeat(joined.gold[:, None], joined.count, axis=1)
    share = np.concatenate([np.full(rows.count, (-1) ** side / rows.count / len(pairs)) for side, rows in enumerate(sides)])
    return np.asarray(resampled_f1(joined.right, joined.given, gold, sentences, seed=seed, draws=DRAWS) @ share)


def judge_coreference(a: Starts, b: Starts, claim: Callable[..., Claim], _seed: int) -> Judged:
    """CoNLL with gold mentions, runs crossed with documents: the starts of a method, or the fine-tuning seeds of a single one."""
    documents: DocumentSums = next(iter(next(iter(a.values())).values()))[0].facts
    sides = [_by_document(side) for side in (a, b)]
    ours, theirs = (float(np.mean([np.average(run, weights=documents.sizes) for run in runs])) for runs in sides)
    found = ratio_verdict(sides[0], sides[1], documents.sizes)
    told = claim(
        *why_unjudged(found),
        *few_documents(len(documents.marks)),
        count=len(documents.marks),
        seeds=found.seeds,
        difference=found.interval,
        verdict="same" if found.reason == "same" else "not judged",
        values=(ours, theirs),
        detectable=found.detectable,
    )
    return Judged(told, None if found.reason else found.p, found.interval_at)


def _by_document(starts: Starts) -> list[Floats]:
    found = [[run.facts.values("gold", column) for run, column in start.values()] for start in starts.values()]
    return [np.mean(values, axis=0) for values in found] if len(found) > 1 else found[0]


_RELATION_CONDITIONS = ("data", "train", "settings")


@dataclass(frozen=True, slots=True)
class OutsideCheck:
    """A task: its files and its names (Korean, English), how its claims read, which runs may be compared, and the verdict."""

    files: TaskFiles
    name: tuple[str, str]
    metric: tuple[str, str]
    outcome: str
    documents: Documents
    test: Test
    comparable: Callable[[Sequence[Run]], list[list[Run]]]
    judge: Callable[[Starts, Starts, Callable[..., Claim], int], Judged | None]

    def claim(self, several: bool, names: Mapping[str, Any], *against: Caveat, **found: Any) -> Claim:
        """A claim of this check; of single starts it is about checkpoints."""
        told: tuple[Caveat, ...] = against if several else ("checkpoint", *against)
        return Claim(**names, outcome=self.outcome, documents=self.documents, test=self.test, against=told, **found)


def _same_rows(runs: Sequence[Run]) -> list[list[Run]]:
    """Relation runs by split, data and settings, those with the most training rows first."""
    found = grouped(runs, lambda run: (run.result.split, *map(run.result.fingerprints.get, _RELATION_CONDITIONS)))
    return sorted(found.values(), key=lambda some: -rows_of(some[0]))


def _same_documents(runs: Sequence[Run]) -> list[list[Run]]:
    """The largest group of coreference runs on the same documents and folds with the same settings."""
    found = grouped(runs, lambda run: fingerprint(run.result.conditions, run.facts.marks))
    return sorted(found.values(), key=len, reverse=True)[:1]


CHECKS: dict[QuestionId, OutsideCheck] = {
    "relation": OutsideCheck(
        RELATION_FILES,
        ("관계 추출", "relation extraction"),
        ("관계 추출 micro-F1", "Relation extraction, micro-F1"),
        RELATION,
        "rows",
        "paired",
        _same_rows,
        judge_relation,
    ),
    "coreference": OutsideCheck(
        COREFERENCE_FILES,
        ("상호참조 해결", "coreference"),
        ("상호참조, 정답 언급의 CoNLL", "Coreference, CoNLL with gold mentions"),
        COREFERENCE,
        "texts",
        "crossed",
        _same_documents,
        judge_coreference,
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class FineTuned:
    """An arm and what was fine-tuned from it, by pretraining seed. The arm's runs end at the checkpoints that it began from."""

    arm: Arm
    starts: Starts

    @property
    def several(self) -> bool:
        return len(self.starts) > 1

    @property
    def name(self) -> str:
        return self.arm.name if self.several else self.arm.ends[0].name

    def comparable(self, other: FineTuned) -> bool:
        """Do they differ in method alone?"""
        ours, theirs = ((one.several, one.arm.origin, one.arm.trained_at) for one in (self, other))
        return ours == theirs and equally_trained(self.arm, other.arm)


def judge_check(study: Study, question: QuestionId) -> list[Claim]:
    """Every method against its base, and later methods against earlier ones; corrected within each group of comparable runs."""
    check, out = CHECKS[question], []
    for runs in check.comparable(study.checks.get(question, ())):
        found = []
        for one, b, starts in _pairs(study.arms, runs):
            names = {"question": question, "a": one.name, "b": b}
            found.append(check.judge(one.starts, starts, partial(check.claim, one.several, names), study.seed))
        out += corrected_claims(found, "bh")
    return out


def _pairs(arms: Sequence[Arm], runs: Sequence[Run]) -> Iterator[tuple[FineTuned, str, Starts]]:
    """A method, the name of the other side, and its starts."""
    methods = fine_tuned(arms, runs)
    for one in methods:
        if base := start_of(run for run in runs if _is_base(run, one.arm)):
            yield one, BASE, {0: base}
    for other, one in combinations(methods, 2):
        if one.comparable(other):
            yield one, other.name, other.starts


def fine_tuned(arms: Sequence[Arm], runs: Sequence[Run]) -> list[FineTuned]:
    """The arms with runs, each of their seeds at its latest checkpoint that has one.

    An arm scored at several window lengths counts once, preferably at its training length: windows do not affect fine-tuning.
    """
    found: dict[frozenset[str], FineTuned] = {}
    for arm in sorted(arms, key=lambda arm: arm.length != arm.trained_at):
        begun = {seed: some for seed, entries in arm.runs.items() if (some := _until_start(entries, runs))}
        starts = {seed: start_of(_from(runs, entries[-1])) for seed, entries in begun.items()}
        if starts:
            names = frozenset(run.name for start in starts.values() for run, _ in start.values())
            found.setdefault(names, FineTuned(replace(arm, runs=begun), starts))
    return [found[names] for names in found]


def _from(runs: Iterable[Run], entry: Entry) -> list[Run]:
    return [run for run in runs if entry.is_of(run.model, run.weights)]


def _until_start(entries: Sequence[Entry], runs: Sequence[Run]) -> list[Entry]:
    """A run's checkpoints up to the latest one that fine-tuning started from; empty if there is none."""
    held = (n for n in range(len(entries), 0, -1) if _from(runs, entries[n - 1]))
    return list(entries[: next(held, 0)])


def _is_base(run: Run, arm: Arm) -> bool:
    """Did a run start from the arm's base? Decided by bytes if both are known."""
    made = arm.made
    if made and made.base_bytes and run.weights:
        return made.base_bytes == run.weights
    return model_label(run.model) == arm.base


def not_compared(study: Study, question: QuestionId) -> tuple[list[str], list[str]]:
    """Runs that take part in no claim: those whose start was not evaluated here, and those of other data or settings."""
    runs = study.checks.get(question, ())
    from_checkpoints = [run for run in runs if CHECKPOINT.search(model_label(run.model))]
    unknown = [run.name for run in from_checkpoints if not any(_from([run], entry) for entry in study.entries)]
    compared = {run.name for some in CHECKS[question].comparable(runs) for run in some}
    return unknown, [run.name for run in runs if run.name not in compared]
