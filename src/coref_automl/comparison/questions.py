"""What is claimed of the methods of a study, question by question. In: a study. Out: Claims, each corrected within its family.

Each step needs the one before (`answer.answer_of` takes them):

    gains_over_bases      methods against their bases, or checkpoints if no method has several seeds
    answer.decide         the method that leads, by these gains
    with_expected_gain    the gain to expect of that method, which was selected among several
    StudyClaims           the claims of all questions; with_equivalence reads narrow intervals by that gain
    leading_question      the claim that answers a question first, and the others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm, is_equal_training
from coref_automl.comparison.carry_over import judge_check
from coref_automl.comparison.claims import BASE, Claim, Question, QuestionId, differences_from
from coref_automl.comparison.judging import Estimand, Pair, UncorrectedClaim, corrected_claims, judge_change, judge_pairs
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.scores import Entry, Group, verdict_half
from coref_automl.comparison.study_data import StudyData
from coref_automl.evaluation.metrics import METRICS, tasks_of
from coref_automl.evaluation.tasks.far import BUCKETS
from coref_automl.statistics.shrinkage import covariance, method_means

FEWEST_ITEMS, FEWEST_DOCUMENTS = 50, 10
"""A source with fewer has no claim of its own; a distance needs as many items as a source documents."""
TASKS: dict[QuestionId, str] = {
    "real": "real1", "new": "new1", "far": "real_far1", "lambada": "lambada_top1",
}  # fmt: skip
"""The metric of each task that has claims of its own beside the study's metric."""


def gains_over_bases(study: StudyData) -> list[Claim]:
    """Methods against their bases (Holm); checkpoints against theirs (max-T) if no method with several seeds has a base."""
    estimand = Estimand(group=study.group, question="base", metric=study.metric, half=study.half)
    claims = corrected_claims(judge_pairs(estimand, study.against_bases), "holm")
    if any(claim.seeds[0] > 1 for claim in claims):
        return claims
    return [claim for entry, claim in study.checkpoint_claims().items() if study.own_base(entry) is not None]


def with_expected_gain(study: StudyData, gains: list[Claim], leading: Arm | None) -> list[Claim]:
    """Add the expected gain of the leading method: its mean, shrunken towards those of the others it was selected from."""
    pairs = [(arm, base) for arm, base in study.against_bases if arm.seeds > 1]
    selected = len(pairs) > 1 and any(arm is leading for arm, _ in pairs)
    if leading is None or not selected or any(claim.of_checkpoint for claim in gains):
        return gains
    runs = [entry for arm, _ in pairs for entry in arm.ends]
    bases = list(dict.fromkeys(base for _, base in pairs))
    columns = study.group.columns(study.metric, half=study.half, entries=[*runs, *bases])
    base_of_run = [len(runs) + bases.index(base) for arm, base in pairs for _ in arm.runs]
    parts = columns.differences(list(range(len(runs))), base_of_run)
    values = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in parts))
    methods = [arm.name for arm, _ in pairs for _ in arm.runs]
    expected = method_means(values, covariance(parts), methods=methods)[leading.name]
    return [
        replace(claim, expected=min(expected, claim.difference.value), against=(*claim.against, "chosen"))
        if claim.a == leading.name
        else claim
        for claim in gains
    ]


@dataclass(frozen=True)
class StudyClaims:
    """The claims of all questions, given the gains over the bases and the method that leads."""

    study: StudyData
    gains: list[Claim]
    leading: Arm | None

    @cached_property
    def shown_gain(self) -> Claim | None:
        """The gain of the method to use; None if it is not shown."""
        name = self.leading.name if self.leading is not None else ""
        return next((claim for claim in self.gains if claim.a == name and claim.verdict == "better"), None)

    @cached_property
    def by_question(self) -> dict[QuestionId, list[Claim]]:
        """In the order in which questions are asked."""
        study, lead = self.study, self.shown_gain
        claims: dict[QuestionId, list[Claim]] = {
            "base": self.gains,
            "method": self._methods(),
            "length": self._lengths(),
            "training": self._training(),
            **{name: self._on_task(name) for name in TASKS},
            "sources": self._sources(),
            **{name: judge_check(name, study.arms, study.checks.get(name, ()), study.seed) for name in CHECKS},
        }
        gain = None if lead is None else lead.difference.value if lead.expected is None else lead.expected
        return {
            name: [with_equivalence(claim, metric=study.metric, margin=study.margin, gain=gain) for claim in asked]
            for name, asked in claims.items()
        }

    def questions(self, top: Entry) -> tuple[Question, ...]:
        """The questions that have claims, each with its leading claim; `top` is the checkpoint to use, or else the highest."""
        alike = (arm for pair in self.study.equal_training if self.leading in pair for arm in pair if arm is not self.leading)
        mlm = next((arm.name for arm in alike if arm.objective == "mlm"), None)
        return tuple(
            leading_question(claims, self._used_names(top), mlm=mlm, metric=self.study.metric)
            for claims in self.by_question.values()
            if claims
        )

    def _used_names(self, top: Entry) -> list[str]:
        """What claims call what is to be used: its method, the checkpoint, and then all checkpoints of the method."""
        if self.leading is None:
            return [top.name]
        return [self.leading.name, top.name, *(entry.name for run in self.leading.runs.values() for entry in run)]

    def differences_from(self, method: str) -> dict[str, Claim]:
        """A method minus each other one on the study's metric."""
        return differences_from(method, chain.from_iterable(self.by_question.values()), self.study.metric)

    def _estimand(self, question: QuestionId, metric: str = "") -> Estimand:
        study = self.study
        return Estimand(group=study.group, question=question, metric=metric or study.metric, half=study.half)

    def _methods(self) -> list[Claim]:
        """Pairs at one length: of equal training (Holm over all); the others without a verdict, and again at equal tokens."""
        equal, estimand = self.study.equal_training, self._estimand("method")
        unequal = [pair for pair in self.study.same_setting if pair not in equal]
        at_equal_tokens = [claim for pair in unequal for claim in self._at_equal_tokens(pair)]
        claims = corrected_claims([*judge_pairs(estimand, equal), *at_equal_tokens], "holm")
        not_judged = [
            replace(claim, verdict="not judged", against=tuple(dict.fromkeys((*claim.against, "unequal training"))))
            for claim in (uncorrected.claim for uncorrected in judge_pairs(estimand, unequal))
        ]
        by_rank = judge_pairs(replace(estimand, ranks=True), equal)
        return [*claims, *not_judged, *corrected_claims(by_rank, "bh")]

    def _at_equal_tokens(self, pair: tuple[Arm, Arm]) -> list[UncorrectedClaim]:
        """The latest checkpoints of both at which they had seen as many tokens; nothing if their curves do not meet."""
        a, b = pair
        meetings: list[tuple[int, Pair]] = []
        for ours, theirs in product(a.matched_checkpoints(), b.matched_checkpoints()):
            seen = [entry.recorded_tokens or 0 for entry in (*ours.values(), *theirs.values())]
            if min(seen) > 0 and is_equal_training(*seen):
                meetings.append((max(seen), (a.ending_at(ours), b.ending_at(theirs))))
        latest = [max(meetings, key=lambda meeting: meeting[0])[1]] if meetings else []
        uncorrected = judge_pairs(replace(self._estimand("method"), part="equal tokens"), latest)
        return [replace(each, claim=replace(each.claim, against=(*each.claim.against, "equal tokens"))) for each in uncorrected]

    def _lengths(self) -> list[Claim]:
        """Longer minus shorter of one method: on the study's metric, and on far items, all and by distance."""
        study = self.study
        same = [(b, a) for a, b in combinations(study.arms, 2) if (a.method, a.origin) == (b.method, b.origin)]
        pairs = [(b, a) for b, a in same if a.length < b.length and b.equally_trained_as(a)]
        uncorrected = judge_pairs(self._estimand("length"), pairs)
        if (far := self._metric("far")) is not None and far != study.metric:
            estimand = self._estimand("length", far)
            uncorrected += judge_pairs(estimand, pairs)
            for distance, rows in by_distance(study.group, far).items():
                uncorrected += judge_pairs(replace(estimand, part=distance, mask=rows), pairs)
        return corrected_claims(uncorrected, "bh")

    def _training(self) -> list[Claim]:
        """Every mean curve: its last step, and its peak (on select) minus its end (on confirm)."""
        study, uncorrected = self.study, []
        for arm in study.arms:
            points = [list(point.values()) for point in arm.with_curve().matched_checkpoints()]
            if len(points) < 2:
                continue
            last_step = replace(self._estimand("training"), half=verdict_half([points[-1]]), part="last step")
            uncorrected.append(judge_change(last_step, arm, points[-1], points[-2]))
            heights = [np.mean([study.choice.candidates[entry].value.value for entry in point]) for point in points]
            peak = int(np.argmax(heights))
            if peak < len(points) - 1 and study.choice.half:
                fall = replace(self._estimand("training"), half="confirm", part="peak to end")
                uncorrected.append(judge_change(fall, arm, points[peak], points[-1]))
        return corrected_claims((claim for claim in uncorrected if claim is not None), "bh")

    def _metric(self, task: QuestionId) -> str | None:
        """The metric of a task; None if no evaluation ran it."""
        name, group = TASKS[task], self.study.group
        return name if any(group.was_run(name, entry) for entry in self.study.entries) else None

    def _on_task(self, task: QuestionId) -> list[Claim]:
        """Every method against its base and against the others, on another task."""
        metric, study = self._metric(task), self.study
        if metric is None or metric == study.metric:
            return []
        return corrected_claims(judge_pairs(self._estimand(task, metric), [*study.against_bases, *study.equal_training]), "bh")

    def _sources(self) -> list[Claim]:
        """The method to use on every source of the study's metric, against the base and against mlm."""
        study, leading, items = self.study, self.leading, self.study.group.items
        if leading is None:
            return []
        pairs: list[Pair] = [(a, b) for a, b in study.against_bases if a is leading]
        pairs += [(a, b) for a, b in study.equal_training if a is leading and b.objective == "mlm"]
        of_task = np.isin(items.facts["task"], list(tasks_of(study.metric)))
        used = of_task & (True if study.half is None else items.halves == study.half)
        uncorrected: list[list[UncorrectedClaim]] = []
        for source in np.unique(items.facts["source"][used]).tolist():
            rows = used & (items.facts["source"] == source)
            if int(rows.sum()) >= FEWEST_ITEMS and len(np.unique(items.facts["cluster"][rows])) >= FEWEST_DOCUMENTS:
                estimand = replace(self._estimand("sources"), part=str(source), mask=np.asarray(rows))
                uncorrected.append(judge_pairs(estimand, pairs))
        return corrected_claims([*chain(*uncorrected)] if len(uncorrected) > 1 else [], "bh")


class _Rank(NamedTuple):
    """How directly a claim answers its question. Compared field by field; the largest answers first. With entity 512 to use:

    about_used       entity 512 - base                    before  combined 512 - base
    about_itself     it, or the checkpoint to use         before  another checkpoint of its method - base
    judged           entity 512 - base, better            before  entity 512 - base, not judged
    on_main_items    on all items, or the last step       before  on one distance, from peak to end, by MRR
    other_side       entity 512 - base, then - mlm 512    before  entity 512 - combined 512 (methods: - mlm 512, then - base)
    """

    about_used: bool
    about_itself: bool
    judged: bool
    on_main_items: bool
    other_side: int


def _rank(claim: Claim, used: Sequence[str], *, mlm: str | None, metric: str) -> _Rank:
    question, other = claim.question, claim.b if claim.a in used else claim.a
    preferred = (mlm, BASE) if question == "method" else (BASE, mlm)
    on_metric = claim.outcome == metric or question not in ("method", "length")
    return _Rank(
        about_used=claim.a in used or claim.b in used,
        about_itself=not {claim.a, claim.b}.isdisjoint(used[:2]),
        judged=claim.judged,
        on_main_items=question == "sources" or (claim.part in ("", "last step") and on_metric),
        other_side=-preferred.index(other) if other in preferred else -len(preferred),
    )


def leading_question(claims: Sequence[Claim], used: Sequence[str], *, mlm: str | None, metric: str) -> Question:
    """A question with its leading claim: the first by `_rank`, and among equals the first in order. `used` names the method to
    use, its checkpoint to use, and then its others (a lone checkpoint stands first); `mlm` its equally trained mlm arm."""
    question, ordered = claims[0].question, claims
    if question == "sources":  # the weakest source answers for all
        ordered = sorted(claims, key=lambda claim: (claim.verdict == "better", claim.difference.value))
    rank = partial(_rank, used=used, mlm=mlm, metric=metric)
    lead = max(ordered, key=rank)
    others = tuple(claim for claim in claims if claim is not lead)
    return Question(question, lead, others, tested=rank(lead).about_used)


def by_distance(group: Group, metric: str) -> dict[str, NDArray[np.bool_]]:
    """The items of a metric by distance to the other mention; distances with too few are left out."""
    of_task, distance = group.items.facts["task"] == METRICS[metric].task, group.items.facts["distance"]
    masks = {f"{low:,}–{high - 1:,}": np.asarray(of_task & (distance >= low) & (distance < high)) for low, high in BUCKETS}
    return {name: mask for name, mask in masks.items() if int(mask.sum()) >= FEWEST_DOCUMENTS}


def with_equivalence(claim: Claim, *, metric: str, margin: float, gain: float | None) -> Claim:
    """Turn "not shown" into "no gain" over the base, or "equivalent" between methods, if the interval is narrow enough.

    `gain` is the shown gain of the method to use. No gain: one as large as that, or as the margin if that is less, is excluded.
    Equivalent, on the study's `metric` alone: either keeps half of it, within the margin. With a gain of 1.2 points, [-0.9, +0.6]
    is no gain, [-0.5, +0.4] is equivalent. Claims about checkpoints, and those lost to correction alone, are unchanged.
    """
    if claim.verdict != "not shown" or claim.of_checkpoint or "before correction" in claim.against:
        return claim
    low, high = claim.difference.low, claim.difference.high
    if claim.b == BASE:
        return replace(claim, verdict="no gain") if high < min(margin, margin if gain is None else gain) else claim
    compares_methods = claim.question in ("method", "length") and claim.outcome == metric
    if gain is None or not compares_methods or max(-low, high) >= (near := min(margin, gain / 2)):
        return claim
    return replace(claim, verdict="equivalent", within=near)
