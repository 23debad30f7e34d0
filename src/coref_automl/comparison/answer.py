"""The one answer. In: a study. Out: an Answer: what to do, and every claim behind it. No other code decides what leads.

The first row that applies decides the action, and which checkpoint the answer names (`decide`):

    gains over the base                                           action            checkpoint
    nothing was trained                                           undecided         the highest
    a method with several seeds is shown better                   use method        the highest of the best such method
    no method has several seeds; a checkpoint is shown better     use checkpoint    the highest of such checkpoints
    its base was not evaluated on these items at this length      no base           the highest
    a gain was judged, and none is shown                          keep base         the highest, which is not to be used
    no gain could be judged                                       undecided         the highest

The best method has the highest estimate, the highest checkpoint the highest posterior mean on the documents that choose.
docs/statistics.md has the rules: methods that were fixed before anything was scored are judged on all documents, what was chosen
on `select` on `confirm`; one seed says nothing about a method; unequal training is never a verdict about methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from coref_automl.base.folders import is_folder
from coref_automl.base.records import Evaluation
from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import Action, Answer, Caveat, Claim, Keep, NextTime, Power, Question, QuestionId
from coref_automl.comparison.next_step import next_step, next_time_of, train_command
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS, StudyClaims, gains_over_bases, with_expected_gain
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study_data import StudyData
from coref_automl.evaluation.columns import holds_text
from coref_automl.evaluation.metrics import tasks_of
from coref_automl.evaluation.targets import has_bytes
from coref_automl.statistics.planning import SEEDS, detectable_difference

_FEW_ITEMS, _FEW_NAMES = 1 / 2, 1 / 3
_FLOOR = 0.02
"""If no model scores more, differences cannot show."""


def answer_of(study: StudyData) -> Answer:
    """Decide by the gains over the bases; all other claims and what follows from them are about what was decided."""
    gains = gains_over_bases(study)
    decision = decide(study, gains)
    gains = with_expected_gain(study, gains, decision.leading)
    return _AnswerBuilder(study, decision, StudyClaims(study, gains, decision.leading)).answer()


def counts_few(evaluation: Evaluation, metric: str) -> bool:
    """Does a model count under half of the metric's items, or under a third of the repeated names?"""
    share = min((evaluation.counted.get(task, 1.0) for task in tasks_of(metric)), default=1.0)
    return share < _FEW_ITEMS or 0 < evaluation.counted_names < _FEW_NAMES


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, the checkpoint to use or else the highest (`top`), and its method."""

    action: Action
    top: Entry
    leading: Arm | None

    @property
    def method(self) -> str | None:
        """The name of the leading method; None if it has a single seed, which says nothing about a method."""
        return self.leading.name if self.leading is not None and self.leading.seeds > 1 else None


def decide(study: StudyData, gains: Sequence[Claim]) -> Decision:
    """Decide by the table above. `gains` are all about methods or all about checkpoints (`gains_over_bases`)."""
    choice, action = study.choice, _action(study, gains)
    better = [claim for claim in gains if claim.verdict == "better"]
    if action == "use method":
        heights = {claim.a: claim.values[0] for claim in better if claim.values}
        leading = max((arm for arm in study.replicated if arm.name in heights), key=lambda arm: heights[arm.name])
        candidates = [entry for entry in leading.matched_entries() if entry in choice.candidates]
        return Decision(action, choice.highest(candidates) if candidates else choice.chosen, leading)
    checkpoints = [entry for entry in choice.candidates if any(entry.name == claim.a for claim in better)]
    highest = choice.highest(checkpoints) if checkpoints else choice.chosen
    arms = (arm for arm in study.arms if any(highest in run for run in arm.runs.values()))
    return Decision(action, highest, next(arms, None))


def _action(study: StudyData, gains: Sequence[Claim]) -> Action:
    """The first row of the table above that applies; `gains` are all of one kind, so the first tells which."""
    if not any(entry.trained for entry in study.entries):
        return "undecided"
    if any(claim.verdict == "better" for claim in gains):
        return "use checkpoint" if gains[0].of_checkpoint else "use method"
    if study.own_base(study.choice.chosen) is None:
        return "no base"
    return "keep base" if any(claim.judged for claim in gains) else "undecided"


@dataclass(frozen=True)
class _AnswerBuilder:
    """Fills in an Answer: what follows from a decision and the claims of a study."""

    study: StudyData
    decision: Decision
    claims: StudyClaims

    def answer(self) -> Answer:
        study, top, method = self.study, self.decision.top, self.decision.method
        base, questions = study.own_base(top), self.claims.questions(top)
        differences = [*self.claims.differences_from(method).values()] if method and self.decision.action == "use method" else []
        not_beaten = [claim for claim in differences if claim.judged and claim.verdict != "better"]
        not_beaten.sort(key=lambda claim: claim.difference.value)
        gaining = {claim.a for claim in self.claims.gains if claim.verdict == "better"}
        answer = Answer(
            action=self.decision.action,
            metric=study.metric,
            evalset=study.group.evalset,
            margin=study.margin,
            base=base.name if base else None,
            base_path=base.evaluation.path if base else "",
            method=method,
            highest=top.name,
            highest_path=top.evaluation.path,
            ties=tuple(claim.b for claim in not_beaten if claim.b in gaining),
            beats=tuple(claim.b for claim in differences if claim.verdict == "better"),
            keep=self._keep,
            next_time=self._next_time() if self._keep else None,
            power=self._power(),
            questions=questions,
            candidates=len(study.choice.candidates),
            against=self._caveats(),
            unproven=tuple(claim.b for claim in not_beaten if claim.b not in gaining),
            unjudged=tuple(claim.b for claim in differences if not claim.judged),
            untested=self._untested(questions),
        )
        return replace(answer, step=next_step(study, answer, top))

    @cached_property
    def _keep(self) -> Keep | None:
        if self.decision.action not in ("use method", "use checkpoint"):
            return None
        study, top = self.study, self.decision.top
        path = Path(top.evaluation.path)  # that of an archived evaluation may lead to another model here
        there = is_folder(path) and (holds_text(top.folder) or has_bytes(path, top.weights))
        return Keep(
            path=top.evaluation.path,
            name=top.name,
            tokens=top.recorded_tokens,
            there=there,
            again="" if there else train_command(top),
            value=study.choice.candidates[top].posterior_mean,
            expected=self._expected(top),
            tied=tuple(entry.name for entry in study.choice.tied_with(top)),
            chose=study.choice.half,
        )

    def _expected(self, top: Entry) -> float | None:
        """The gain to expect of a checkpoint: its method's. For a single run, its posterior mean over the base on the documents
        that chose, at most the measured gain and at least 0, since it is shown better."""
        if self.claims.shown_gain is not None:
            return self.claims.shown_gain.expected
        gain = next((claim for claim in self.claims.gains if claim.a == top.name), None)
        base, choice = self.study.own_base(top), self.study.choice
        if gain is None or base is None:
            return None
        columns = self.study.group.columns(self.study.metric, half=choice.half, entries=[top, base])
        if not columns.items:
            return None
        measured, candidate = columns.differences([0], [1]), choice.candidates[top]
        shrunken_by = candidate.value.value - candidate.posterior_mean
        above_base = float(sum(np.asarray(part.values).mean() for part in measured)) - shrunken_by
        return max(0.0, min(above_base, gain.difference.value))

    def _next_time(self) -> NextTime | None:
        study, claims, top = self.study, self.claims, self.decision.top
        arm = self.decision.leading or study.choice.arm(top)
        better = [claim for claim in claims.gains if claim.a in (arm.name, top.name) and claim.verdict == "better"]
        last_steps = [claim for claim in claims.by_question["training"] if claim.a == arm.name and claim.part == "last step"]
        gain = better[0].difference.value if better else None
        rising = any(claim.verdict == "better" for claim in last_steps)
        return next_time_of(study.group, study.metric, arm, top, margin=study.margin, seed=study.seed, gain=gain, rising=rising)

    def _power(self) -> Power | None:
        """What the gains over the base could show; what showing the largest would take, if it is not shown or is of one seed."""
        judged = [claim for claim in self.claims.gains if claim.judged]
        if not judged:
            return None
        largest = max(judged, key=lambda claim: claim.difference.value)
        gain = largest.difference.value
        power = Power(
            detectable=max((claim.detectable for claim in judged if claim.detectable), default=None),
            documents=largest.count,
            seeds=min(claim.seeds[0] for claim in judged),
            largest=gain,
        )
        if largest.verdict == "better":
            return power if self.study.replicated else replace(power, needed_seeds=self._seeds_to_show(gain))
        if not largest.detectable or gain <= 0 or not self.study.replicated:  # one seed does not show how seeds vary
            return power
        # the detectable difference shrinks with the square root of a study's size: half the gain takes four times as many of both
        times = max(1.0, (largest.detectable / gain) ** 2)
        return replace(power, needed=math.ceil(times * power.documents), needed_seeds=math.ceil(times * power.seeds))

    def _seeds_to_show(self, gain: float) -> int | None:
        """The fewest seeds that would show the gain of one checkpoint as that of its method."""
        sizes = self.study.group.columns(self.study.metric).sizes
        detectable = ((seeds, detectable_difference(sizes, seeds, against_model=True)) for seeds in SEEDS)
        return next((seeds for seeds, least in detectable if least and least <= gain), None)

    def _caveats(self) -> tuple[Caveat, ...]:
        study, gains = self.study, self.claims.gains
        scores = [score.value for entry in study.entries if (score := entry.evaluation.estimates.get(study.metric))]
        caveats: dict[Caveat, bool] = {
            "few documents": any("few documents" in claim.against for claim in gains),
            "few counted": counts_few(self.decision.top.evaluation, study.metric),
            "floor": max(scores, default=1.0) < _FLOOR,
            "base not evaluated": self.decision.action == "no base",
            "one seed": bool(study.arms) and not study.replicated,
            "unequal training": len(study.equal_training) < len(study.same_setting),
            "weights gone": self._keep is not None and not self._keep.there,
        }
        return tuple(sorted(caveat for caveat, holds in caveats.items() if holds))

    def _untested(self, questions: Sequence[Question]) -> tuple[QuestionId, ...]:
        """Tasks that the model to use was not evaluated on; one scored without anything to compare with counts as evaluated."""
        group, top = self.study.group, self.decision.top
        tested = {question.id for question in questions if question.tested}
        tested |= {task for task, metric in TASKS.items() if group.was_run(metric, top)}
        tested |= {name for name, runs in self.study.checks.items() if any(top.is_of(run.model, run.weights) for run in runs)}
        return tuple(name for name in (*TASKS, *CHECKS) if name not in tested)
