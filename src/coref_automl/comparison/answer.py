"""The one answer. In: a study. Out: an Answer: what to do, and every claim behind it. No other code decides what leads.

The first row that applies decides the action, and which checkpoint the answer names (`decide`):

    gains over the base                                           action            checkpoint
    nothing was trained                                           undecided         the highest
    a method with several seeds is shown better                   use method        the highest of the best such method
    no method has several seeds; a checkpoint is shown better     use checkpoint    the highest of such checkpoints
    no base was evaluated                                         no base           the highest
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
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import BASE, Action, Answer, Caveat, Claim, Keep, NextTime, Power, Question, QuestionId
from coref_automl.comparison.next_step import next_step, next_time_of, train_command
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS, StudyClaims, gains_over_bases, metric_of, with_expected_gain
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study_data import StudyData
from coref_automl.records import Half
from coref_automl.statistics.planning import SEEDS, detectable_difference

_SELECT: Half = "select"
_FLOOR = 0.02
"""If no model scores more, differences cannot show."""


def answer_of(study: StudyData) -> Answer:
    gains = gains_over_bases(study)
    decision = decide(study, gains)
    gains = with_expected_gain(study, gains, decision.leading)
    return _AnswerBuilder(study, decision, StudyClaims(study, gains, decision.leading)).answer()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, the checkpoint to use or else the highest (`top`), and its method."""

    action: Action
    top: Entry
    leading: Arm | None


def decide(study: StudyData, gains: Sequence[Claim]) -> Decision:
    choice, action = study.choice, _action(study, gains)
    better = [claim for claim in gains if claim.verdict == "better"]
    heights = {claim.a: claim.values[0] for claim in better if not claim.of_checkpoint and claim.values}
    if heights:
        leading = max((arm for arm in study.replicated if arm.name in heights), key=lambda arm: heights[arm.name])
        candidates = [entry for entry in leading.matched_entries() if entry in choice.candidates]
        return Decision(action, choice.highest(candidates) if candidates else choice.chosen, leading)
    checkpoints = [entry for entry in choice.candidates if any(entry.name == claim.a for claim in better)]
    highest = choice.highest(checkpoints) if checkpoints else choice.chosen
    arms = (arm for arm in study.arms if any(highest in run for run in arm.runs.values()))
    return Decision(action, highest, next(arms, None))


def _action(study: StudyData, gains: Sequence[Claim]) -> Action:
    if not any(entry.trained for entry in study.entries):
        return "undecided"
    if any(claim.verdict == "better" for claim in gains):
        return "use checkpoint" if gains[0].of_checkpoint else "use method"
    if not gains or study.choice.base is None:
        return "no base"
    return "keep base" if any(claim.judged for claim in gains) else "undecided"


class _Rank(NamedTuple):
    """How directly a claim answers its question. Compared field by field; the largest answers first. With entity 512 to use:

    about_used       entity 512 - base                    before  combined 512 - base
    about_itself     the checkpoint to use - base         before  another checkpoint of its method - base
    judged           entity 512 - base, better            before  entity 512 - base, not judged
    on_main_items    on all items, or the last step       before  on one distance, from peak to end, by MRR
    other_side       entity 512 - base, then - mlm 512    before  entity 512 - combined 512 (methods: - mlm 512, then - base)
    """

    about_used: bool
    about_itself: bool
    judged: bool
    on_main_items: bool
    other_side: int


def _rank(claim: Claim, question: QuestionId, *, used: Sequence[str], mlm: str | None, metric: str) -> _Rank:
    """`used` is the method to use, or the checkpoint to use and then all of its method; `mlm` its equally trained mlm arm."""
    other = claim.b if claim.a in used else claim.a
    preferred = (mlm, BASE) if question == "method" else (BASE, mlm)
    on_metric = claim.outcome == metric or question not in ("method", "length")
    return _Rank(
        about_used=claim.a in used or claim.b in used,
        about_itself=used[0] in (claim.a, claim.b),
        judged=claim.judged,
        on_main_items=question == "sources" or (claim.part in ("", "last step") and on_metric),
        other_side=-preferred.index(other) if other in preferred else -len(preferred),
    )


@dataclass(frozen=True)
class _AnswerBuilder:
    """What follows from a decision and the claims of a study."""

    study: StudyData
    decision: Decision
    claims: StudyClaims

    def answer(self) -> Answer:
        study, claims, action, top = self.study, self.claims, self.decision.action, self.decision.top
        leading = self.decision.leading
        method = leading.name if leading is not None and leading.seeds > 1 else None
        others = claims.differences_from(method) if method is not None and action == "use method" else {}
        better = {claim.a for claim in claims.gains if claim.verdict == "better"}
        beaten = tuple(name for name, claim in others.items() if claim.verdict == "better")
        unbeaten = [claim for claim in others.values() if claim.judged and claim.b not in beaten]
        unbeaten.sort(key=lambda claim: claim.difference.value)
        unjudged = tuple(name for name, claim in others.items() if not claim.judged)
        questions = tuple(question for name in claims.by_question if (question := self._question(name)) is not None)
        base = study.own_base(top)
        answer = Answer(
            action=action,
            metric=study.metric,
            evalset=study.group.evalset,
            margin=study.margin,
            base=base.name if base else None,
            base_path=base.evaluation.path if base else "",
            method=method,
            highest=top.name,
            highest_path=top.evaluation.path,
            ties=tuple(claim.b for claim in unbeaten if claim.b in better),
            beats=beaten,
            keep=self._keep,
            next_time=self._next_time() if self._keep else None,
            power=self._power(),
            questions=questions,
            candidates=len(study.choice.candidates),
            against=self._caveats(),
            unproven=tuple(claim.b for claim in unbeaten if claim.b not in better),
            unjudged=unjudged,
            untested=self._untested(questions),
        )
        return replace(answer, step=next_step(study, answer, top, unequal=self._less_trained(unjudged)))

    def _less_trained(self, unjudged: Sequence[str]) -> tuple[Entry, int] | None:
        """A last checkpoint of the less trained of two methods, and the other's tokens: the leading one and one left unjudged."""
        for a, b in self.study.same_setting:
            if self.decision.leading in (a, b) and {a.name, b.name} & {*unjudged} and not a.equally_trained_as(b):
                less, more = sorted((a, b), key=lambda arm: arm.tokens)
                return less.ends[0], more.tokens
        return None

    # -- what follows

    @cached_property
    def _keep(self) -> Keep | None:
        if self.decision.action not in ("use method", "use checkpoint"):
            return None
        study, top = self.study, self.decision.top
        path = Path(top.evaluation.path)
        return Keep(
            path=top.evaluation.path,
            name=top.name,
            tokens=top.recorded_tokens,
            there=path.is_dir(),
            again="" if path.is_dir() else train_command(top),
            value=study.choice.candidates[top].posterior_mean,
            expected=self._expected(top),
            tied=tuple(entry.name for entry in study.choice.tied_with(top)),
            chose=_SELECT if study.choice.halved else None,
        )

    def _expected(self, top: Entry) -> float | None:
        """The gain to expect of a checkpoint: its method's. For a single run, its posterior mean over the base on the documents
        that chose, at most the measured gain and at least 0, since it is shown better."""
        study, choice = self.study, self.study.choice
        if self.claims.shown_gain is not None:
            return self.claims.shown_gain.expected
        gain = next((claim for claim in self.claims.gains if claim.a == top.name), None)
        base, half = study.own_base(top), _SELECT if choice.halved else None
        columns = study.group.columns(study.metric, half=half, entries=[base]) if base is not None else None
        if gain is None or columns is None or not columns.items:
            return None
        base_value = float(sum(np.asarray(part.values).mean() for part in columns.parts))
        return max(0.0, min(choice.candidates[top].posterior_mean - base_value, gain.difference.value))

    def _next_time(self) -> NextTime | None:
        study, claims, top = self.study, self.claims, self.decision.top
        arm = self.decision.leading or study.choice.arm(top)
        better = [claim for claim in claims.gains if claim.a in (arm.name, top.name) and claim.verdict == "better"]
        last_steps = [claim for claim in claims.by_question["training"] if claim.a == arm.name and claim.part == "last step"]
        return next_time_of(
            study.group,
            study.metric,
            arm,
            top,
            margin=study.margin,
            seed=study.seed,
            gain=better[0].difference.value if better else None,
            rising=any(claim.verdict == "better" for claim in last_steps),
        )

    def _power(self) -> Power | None:
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
        if not largest.detectable or gain <= 0:
            return power
        # the detectable difference shrinks with the square root of a study's size: half the gain takes four times as many of both
        times = max(1.0, (largest.detectable / gain) ** 2)
        return replace(power, needed=math.ceil(times * power.documents), needed_seeds=math.ceil(times * power.seeds))

    def _seeds_to_show(self, gain: float) -> int | None:
        """The fewest seeds that would show the gain of one checkpoint as that of its method."""
        sizes = self.study.group.columns(self.study.metric).sizes
        enough = (
            seeds for seeds in SEEDS if (least := detectable_difference(sizes, seeds, against_model=True)) and least <= gain
        )
        return next(enough, None)

    def _caveats(self) -> tuple[Caveat, ...]:
        study, gains = self.study, self.claims.gains
        scores = [score.value for entry in study.entries if (score := entry.evaluation.estimates.get(study.metric))]
        caveats: dict[Caveat, bool] = {
            "few documents": any("few documents" in claim.against for claim in gains),
            "other tokenizer": any("other tokenizer" in claim.against for claim in gains),
            "floor": max(scores, default=1.0) < _FLOOR,
            "base not evaluated": not gains,
            "one seed": bool(study.arms) and not study.replicated,
            "unequal training": len(study.equal_training) < len(study.same_setting),
            "weights gone": self._keep is not None and not self._keep.there,
        }
        return tuple(sorted(caveat for caveat, holds in caveats.items() if holds))

    # -- the questions

    def _untested(self, questions: Sequence[Question]) -> tuple[QuestionId, ...]:
        """Tasks that the model to use was not evaluated on; one scored without anything to compare with counts as evaluated."""
        group, top = self.study.group, self.decision.top
        tested = {question.id for question in questions if question.tested}
        tested |= {task for task in TASKS if group.was_run(metric_of(group, task), top)}
        tested |= {name for name, runs in self.study.checks.items() if any(top.is_of(run.model, run.weights) for run in runs)}
        return tuple(name for name in (*TASKS, *CHECKS) if name not in tested)

    def _question(self, name: QuestionId) -> Question | None:
        """A question with its leading claim: the first by `_rank`, and among equals the first in order."""
        claims, leading = self.claims.by_question[name], self.decision.leading
        if not claims:
            return None
        used = [leading.name] if leading is not None else [self.decision.top.name]
        if claims[0].of_checkpoint:
            runs = leading.runs.values() if leading is not None else ()
            used = [self.decision.top.name, *(entry.name for run in runs for entry in run)]
        pairs = [pair for a, b in self.study.equal_training for pair in ((a, b), (b, a))]
        mlm = next((b.name for a, b in pairs if a is leading and b.objective == "mlm"), None)
        rank = partial(_rank, question=name, used=used, mlm=mlm, metric=self.study.metric)
        in_order = claims
        if name == "sources":  # the weakest source answers for all
            in_order = sorted(claims, key=lambda claim: (claim.verdict == "better", claim.difference.value))
        lead = max(in_order, key=rank)
        others = tuple(claim for claim in claims if claim is not lead)
        return Question(name, lead, others, tested=rank(lead).about_used)
