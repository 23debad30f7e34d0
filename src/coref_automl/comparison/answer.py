"""The one answer. In: a study. Out: an Answer: what to do, and every claim behind it. No other code decides what leads.

The rules are on docs/statistics.md. Methods that were fixed before anything was scored are judged on all documents, what was
chosen on `select` on `confirm`; a method is used only if it is shown better than the base; one seed says nothing about a method;
unequal training is never a verdict about methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coref_automl.comparison.arms import equally_trained
from coref_automl.comparison.choice import next_time_of
from coref_automl.comparison.claims import BASE, Action, Answer, Caveat, Claim, Keep, NextTime, Power, Question, QuestionId
from coref_automl.comparison.next_step import next_step, train_command
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS, StudyClaims, metric_of
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study_data import StudyData
from coref_automl.records import Half
from coref_automl.statistics.planning import SEEDS, detectable_difference

_SELECT: Half = "select"
FLOOR = 0.02
"""If no model scores more, differences cannot show."""


def answer_of(study: StudyData) -> Answer:
    return _Decision(study, StudyClaims(study)).answer()


class _Lead(NamedTuple):
    """What makes a claim answer its question first. The largest leads; an earlier field decides before a later one."""

    about_method: bool  # about what is to be used, or another checkpoint of its method
    about_itself: bool  # about the method or checkpoint to use itself
    judged: bool
    on_main_items: bool  # on all items or the last step of training; of methods and lengths, on the study's metric
    other_side: int  # how early the other side is asked about: the base before mlm; of methods, mlm before the base


@dataclass(frozen=True)
class _Decision:
    """What follows from the claims of a study: what to use, what to keep, which claim answers a question first."""

    study: StudyData
    claims: StudyClaims

    def answer(self) -> Answer:
        study, claims = self.study, self.claims
        leading = claims.leading
        method = leading.name if leading is not None and leading.seeds > 1 else None
        beside = claims.beside(method) if method is not None and self._action == "use method" else {}
        better = {claim.a for claim in claims.gains if claim.verdict == "better"}
        beaten = tuple(claim.b for claim in beside.values() if claim.verdict == "better")
        unbeaten = [claim for claim in beside.values() if claim.judged and claim.b not in beaten]
        unbeaten.sort(key=lambda claim: claim.difference.value)
        unjudged = tuple(name for name, claim in beside.items() if not claim.judged)
        questions = tuple(question for name in claims.by_question if (question := self._question(name)) is not None)
        base = study.own_base(self.top)
        answer = Answer(
            action=self._action,
            metric=study.metric,
            evalset=study.group.evalset,
            margin=study.margin,
            base=base.name if base else None,
            base_path=base.evaluation.path if base else "",
            method=method,
            highest=self.top.name,
            highest_path=self.top.evaluation.path,
            ties=tuple(claim.b for claim in unbeaten if claim.b in better),
            beats=beaten,
            keep=self._keep,
            next_time=self._next_time() if self._keep else None,
            power=self._power(),
            questions=questions,
            candidates=len(study.choice.candidates),
            against=self._against(),
            unproven=tuple(claim.b for claim in unbeaten if claim.b not in better),
            unjudged=unjudged,
            untested=self._untested(questions),
        )
        return replace(answer, step=next_step(study, answer, self.top, unequal=self._less_trained(unjudged)))

    def _less_trained(self, unjudged: Sequence[str]) -> tuple[Entry, int] | None:
        """Of the method to use and one that could not be judged beside it, the one of less training, and the other's tokens."""
        for a, b in self.claims.same_setting:
            if self.claims.leading in (a, b) and {a.name, b.name} & {*unjudged} and not equally_trained(a, b):
                less, more = sorted((a, b), key=lambda arm: arm.tokens)
                return less.ends[0], more.tokens
        return None

    @cached_property
    def top(self) -> Entry:
        """The checkpoint to use, or what came out highest: of the method; with one seed, of what is shown better."""
        choice, leading = self.study.choice, self.claims.leading
        if self._action == "use method" and leading is not None:
            candidates = [entry for entry in leading.step_entries() if entry in choice.candidates]
            return choice.highest(candidates) if candidates else choice.chosen
        return self.claims.highest

    # -- what follows

    @cached_property
    def _action(self) -> Action:
        gains = self.claims.gains
        if not any(entry.trained for entry in self.study.entries):
            return "undecided"
        if any(claim.verdict == "better" for claim in gains):
            return "use checkpoint" if gains[0].of_checkpoint else "use method"
        if not gains or self.study.choice.base is None:
            return "no base"
        return "keep base" if any(claim.judged for claim in gains) else "undecided"

    @cached_property
    def _keep(self) -> Keep | None:
        if self._action not in ("use method", "use checkpoint"):
            return None
        study, top = self.study, self.top
        path = Path(top.evaluation.path)
        return Keep(
            path=top.evaluation.path,
            name=top.name,
            tokens=top.recorded_tokens,
            there=path.is_dir(),
            again="" if path.is_dir() else train_command(top),
            value=study.choice.candidates[top].believed,
            expected=self._expected(top),
            tied=tuple(entry.name for entry in study.choice.tied_with(top)),
            chose=_SELECT if study.choice.halved else None,
        )

    def _expected(self, top: Entry) -> float | None:
        """Of a checkpoint: what is expected of its method; of a single run, its posterior mean over the base on the documents
        that chose, never more than was measured and never a loss: it is shown better."""
        study, choice = self.study, self.study.choice
        if self.claims.shown_gain is not None:
            return self.claims.shown_gain.expected
        gain = next((claim for claim in self.claims.gains if claim.a == top.name), None)
        base, half = study.own_base(top), _SELECT if choice.halved else None
        columns = study.group.columns(study.metric, half=half, entries=[base]) if base is not None else None
        if gain is None or columns is None or not columns.items:
            return None
        before = float(sum(np.asarray(part.values).mean() for part in columns.parts))
        return max(0.0, min(choice.candidates[top].believed - before, gain.difference.value))

    def _next_time(self) -> NextTime | None:
        study, claims = self.study, self.claims
        arm = claims.leading or study.choice.arm(self.top)
        better = [claim for claim in claims.gains if claim.a in (arm.name, self.top.name) and claim.verdict == "better"]
        last_steps = [claim for claim in claims.by_question["training"] if claim.a == arm.name and claim.part == "last step"]
        return next_time_of(
            study.group,
            study.metric,
            arm,
            self.top,
            margin=study.margin,
            seed=study.seed,
            gain=better[0].difference.value if better else None,
            rising=any(claim.verdict == "better" for claim in last_steps),
        )

    def _power(self) -> Power | None:
        judged = [claim for claim in self.claims.gains if claim.judged]
        if not judged:
            return None
        largest_claim = max(judged, key=lambda claim: claim.difference.value)
        largest = largest_claim.difference.value
        power = Power(
            detectable=max((claim.detectable for claim in judged if claim.detectable), default=None),
            documents=largest_claim.count,
            seeds=min(claim.seeds[0] for claim in judged),
            largest=largest,
        )
        if largest_claim.verdict == "better":
            return power if self.claims.replicated else replace(power, needed_seeds=self._seeds_to_show(largest))
        if not largest_claim.detectable or largest <= 0:
            return power
        # what a study detects shrinks with the square root of its size: half the gain takes four times as many of both
        times = max(1.0, (largest_claim.detectable / largest) ** 2)
        return replace(power, needed=math.ceil(times * power.documents), needed_seeds=math.ceil(times * power.seeds))

    def _seeds_to_show(self, gain: float) -> int | None:
        """The fewest seeds that would show of a method what one of its checkpoints gains."""
        sizes = self.study.group.columns(self.study.metric).sizes
        enough = (
            seeds for seeds in SEEDS if (least := detectable_difference(sizes, seeds, against_model=True)) and least <= gain
        )
        return next(enough, None)

    def _against(self) -> tuple[Caveat, ...]:
        study, claims = self.study, self.claims
        scores = [score.value for entry in study.entries if (score := entry.evaluation.estimates.get(study.metric))]
        caveats: dict[Caveat, bool] = {
            "few documents": any("few documents" in claim.against for claim in claims.gains),
            "other tokenizer": any("other tokenizer" in claim.against for claim in claims.gains),
            "floor": max(scores, default=1.0) < FLOOR,
            "base not evaluated": not claims.gains,
            "one seed": bool(study.arms) and not claims.replicated,
            "unequal training": len(claims.equal_training) < len(claims.same_setting),
            "weights gone": self._keep is not None and not self._keep.there,
        }
        return tuple(sorted(caveat for caveat, holds in caveats.items() if holds))

    # -- the questions

    def _untested(self, questions: Sequence[Question]) -> tuple[QuestionId, ...]:
        """Tasks that what is to be used took no part in. What was scored without anything to compare with is none."""
        group, place = self.study.group, Path(self.top.evaluation.path).parts[-2:]
        known = {question.id for question in questions if question.tested}
        known |= {name for name in TASKS if group.was_run(metric_of(group, name), self.top)}
        known |= {name for name, runs in self.study.checks.items() if any(Path(run.model).parts[-2:] == place for run in runs)}
        return tuple(name for name in (*TASKS, *CHECKS) if name not in known)

    def _question(self, name: QuestionId) -> Question | None:
        """The leading claim is about the method to use: against the base, or as the question about methods asks, against mlm."""
        claims, leading = self.claims.by_question[name], self.claims.leading
        if not claims:
            return None
        method = "" if leading is None or claims[0].of_checkpoint else leading.name
        of_method = leading.runs.values() if leading is not None and not method else ()
        used = [method or self.top.name, *(entry.name for run in of_method for entry in run)]
        pairs = [pair for a, b in self.claims.equal_training for pair in ((a, b), (b, a))]
        mlm = next((b.name for a, b in pairs if a is leading and b.objective == "mlm"), None)
        asked_first = (mlm, BASE) if name == "method" else (BASE, mlm)

        def rank(claim: Claim) -> _Lead:
            other = claim.b if claim.a in used else claim.a
            on_metric = claim.outcome == self.study.metric or name not in ("method", "length")
            return _Lead(
                about_method=claim.a in used or claim.b in used,
                about_itself=used[0] in (claim.a, claim.b),
                judged=claim.judged,
                on_main_items=name == "sources" or (claim.part in ("", "last step") and on_metric),
                other_side=-asked_first.index(other) if other in asked_first else -len(asked_first),
            )

        in_order = claims
        if name == "sources":  # the weakest answers for all
            in_order = sorted(claims, key=lambda claim: (claim.verdict == "better", claim.difference.value))
        lead = max(in_order, key=rank)  # the first of equals
        tested = rank(lead).about_method  # what others do answers nothing about the method to use
        return Question(name, lead, tuple(claim for claim in claims if claim is not lead), tested)
