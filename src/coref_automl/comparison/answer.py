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
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.comparison.arms import equally_trained
from coref_automl.comparison.choice import next_step, next_time_of, train_command
from coref_automl.comparison.claims import BASE, Action, Answer, Caveat, Claim, Keep, NextTime, Power, Question, QuestionId
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.power import sizes_by_document
from coref_automl.comparison.questions import TASKS, StudyClaims, metric_of
from coref_automl.comparison.scores import Entry
from coref_automl.records import Half
from coref_automl.statistics.planning import SEEDS, can_show

if TYPE_CHECKING:
    from coref_automl.comparison.study import Study

_SELECT: Half = "select"
FLOOR = 0.02
"""If no model scores more, differences cannot show."""


def answer_of(study: Study, *, looks: int = 1, unread: Sequence[str] = ()) -> Answer:
    return _Deciding(study).answer(looks, tuple(unread))


@dataclass(frozen=True)
class _Deciding(StudyClaims):
    """What follows from the claims of a study: what to use, what to keep, which claim answers a question first."""

    def answer(self, looks: int, unread: tuple[str, ...]) -> Answer:
        study, action, keep = self.study, self._action, self._keep
        questions = tuple(one for name in self.by_question if (one := self._question(name)) is not None)
        method = self.leading.name if self.leading is not None and self.leading.seeds > 1 else None
        beside = self._beside(method) if action == "use method" else {}
        better = {one.a for one in self.gains if one.verdict == "better"}
        judged = [one for one in beside.values() if one.verdict != "not judged"]
        level = sorted((one for one in judged if one.sign <= 0), key=lambda one: one.difference.value)
        unjudged = tuple(name for name, one in beside.items() if one not in judged)
        base = study.own_base(self.top)
        it = Answer(
            action=action,
            metric=study.metric,
            evalset=study.group.evalset,
            margin=study.margin,
            base=base.name if base else None,
            base_path=base.evaluation.path if base else "",
            method=method,
            highest=self.top.name,
            highest_path=self.top.evaluation.path,
            ties=tuple(one.b for one in level if one.b in better),
            beats=tuple(one.b for one in judged if one.sign > 0),
            keep=keep,
            next_time=self._next_time() if keep else None,
            power=self._power(),
            questions=questions,
            candidates=len(study.choice.candidates),
            looks=looks,
            against=self._against(),
            unread=unread,
            unproven=tuple(one.b for one in level if one.b not in better),
            unjudged=unjudged,
            untested=self._untested(questions),
        )
        step = next_step(study, it, self.top, replicated=bool(self.replicated), unequal=self._less_trained(unjudged))
        return replace(it, step=step)

    def _beside(self, method: str | None) -> dict[str, Claim]:
        """The method to use minus each other one; at equal tokens where training was unequal."""
        out: dict[str, Claim] = {}
        for one in (*self.by_question["method"], *self.by_question["length"]):
            if method in (one.a, one.b) and one.outcome == self.study.metric and one.part in ("", "equal tokens"):
                claim = one if one.a == method else one.reversed()
                if claim.verdict != "not judged" or claim.b not in out:
                    out[claim.b] = claim
        return out

    def _less_trained(self, unjudged: Sequence[str]) -> tuple[Entry, int] | None:
        """Of the method to use and one that could not be judged beside it, the one of less training, and the other's tokens."""
        for a, b in self.same_length:
            names = {a.name, b.name}
            if self.leading in (a, b) and names & {*unjudged} and not equally_trained(a, b):
                less, more = sorted((a, b), key=lambda arm: arm.tokens)
                return less.ends[0], more.tokens
        return None

    @cached_property
    def top(self) -> Entry:
        """The checkpoint to use, or what came out highest: of the method; with one seed, of what is shown better."""
        choice = self.study.choice
        if self._action == "use method" and self.leading is not None:
            held = [one for step in self.leading.steps() for one in step.values() if one in choice.candidates]
            return choice.highest(held) if held else choice.chosen
        return self.highest

    # -- what follows

    @cached_property
    def _action(self) -> Action:
        if not any(entry.trained for entry in self.study.entries):
            return "undecided"
        if any(one.verdict == "better" for one in self.gains):
            return "use checkpoint" if "checkpoint" in self.gains[0].against else "use method"
        if not self.gains or self.study.base is None:
            return "no base"
        if all(one.verdict == "not judged" for one in self.gains):
            return "undecided"
        return "keep base"

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
        if self._shown is not None:
            return self._shown.expected
        lead = next((one for one in self.gains if one.a == top.name), None)
        base, half = study.own_base(top), _SELECT if choice.halved else None
        columns = study.group.columns(study.metric, half=half, entries=[base]) if base is not None else None
        if lead is None or columns is None or not columns.items:
            return None
        before = float(sum(np.asarray(part.values).mean() for part in columns.parts))
        return max(0.0, min(choice.candidates[top].believed - before, lead.difference.value))

    def _next_time(self) -> NextTime | None:
        study = self.study
        arm = self.leading or study.choice.arm(self.top)
        lead = next((one for one in self.gains if one.a in (arm.name, self.top.name) and one.verdict == "better"), None)
        last_step = [one for one in self.by_question["training"] if one.a == arm.name and one.part == "last step"]
        return next_time_of(
            study.group,
            study.metric,
            arm,
            self.top,
            margin=study.margin,
            seed=study.seed,
            gain=lead.difference.value if lead else None,
            rising=any(one.verdict == "better" for one in last_step),
        )

    def _power(self) -> Power | None:
        claims = [one for one in self.gains if one.verdict != "not judged"]
        if not claims:
            return None
        could = max((one.detectable for one in claims if one.detectable), default=None)
        most = max(claims, key=lambda one: one.difference.value)
        seen, count, seeds = most.difference.value, most.count, min(one.seeds[0] for one in claims)
        if not self.replicated and most.verdict == "better":
            sizes = sizes_by_document(self.study.group, self.study.metric)
            able = [number for number in SEEDS if (least := can_show(sizes, number, against_model=True)) and least <= seen]
            return Power(could, count, seeds, seen, needed_seeds=able[0] if able else None)
        if not most.detectable or seen <= 0 or most.verdict == "better":
            return Power(could, count, seeds, seen)
        times = max(1.0, (most.detectable / seen) ** 2)
        return Power(could, count, seeds, seen, math.ceil(times * count), math.ceil(times * seeds))

    def _against(self) -> tuple[Caveat, ...]:
        kept = ("few documents", "other tokenizer")
        found: set[Caveat] = {code for one in self.gains for code in one.against if code in kept}
        values = [one.value for entry in self.study.entries if (one := entry.evaluation.estimates.get(self.study.metric))]
        if max(values, default=1.0) < FLOOR:
            found.add("floor")
        if not self.gains:
            found.add("base not evaluated")
        if self.study.arms and not self.replicated:
            found.add("one seed")
        if any(not equally_trained(*pair) for pair in self.same_length):
            found.add("unequal training")
        if self._keep is not None and not self._keep.there:
            found.add("weights gone")
        return tuple(sorted(found))

    # -- the questions

    def _untested(self, questions: Sequence[Question]) -> tuple[QuestionId, ...]:
        """Tasks that what is to be used took no part in. What was scored without anything to compare with is none."""
        asked, group = {one.id: one.tested for one in questions}, self.study.group
        scored = {name for name in TASKS if group.was_run(metric_of(group, name), self.top)}
        own = Path(self.top.evaluation.path).parts[-2:]
        scored |= {name for name, runs in self.study.checks.items() if any(Path(run.model).parts[-2:] == own for run in runs)}
        return tuple(name for name in (*TASKS, *CHECKS) if not asked.get(name) and name not in scored)

    def _question(self, name: QuestionId) -> Question | None:
        """The leading claim is about the method to use: against the base, or as the question about methods asks, against mlm."""
        claims = self.by_question[name]
        if not claims:
            return None
        method = "" if self.leading is None or "checkpoint" in claims[0].against else self.leading.name
        runs = self.leading.runs.values() if self.leading is not None and not method else ()
        own = [method or self.top.name, *(entry.name for run in runs for entry in run)]  # the latter: others of its method
        plain = next(
            (b.name for pair in self.equal for a, b in (pair, pair[::-1]) if a is self.leading and b.objective == "mlm"), None
        )
        first = (plain, BASE) if name == "method" else (BASE, plain)

        def order(claim: Claim) -> tuple[bool, bool, bool, bool, int, bool, float]:
            other = claim.b if claim.a in own else claim.a
            main = claim.part in ("", "last step") and (claim.outcome == self.study.metric or name not in ("method", "length"))
            place = -first.index(other) if other in first else -len(first)
            every = name == "sources"  # the weakest of them answers: one that is not better, then the lowest
            weakest = (claim.verdict != "better", -claim.difference.value) if every else (False, 0.0)
            sides = (claim.a, claim.b)
            about = any(one in sides for one in own), own[0] in sides
            return *about, claim.verdict != "not judged", main or every, place, *weakest

        lead = max(claims, key=order)  # the first of equals
        tested = any(one in (lead.a, lead.b) for one in own)  # what others do answers nothing about the method to use
        return Question(name, lead, tuple(one for one in claims if one is not lead), tested)
