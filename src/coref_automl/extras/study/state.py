"""How far an experiment has come. In: a plan and the outcomes of its steps. Out: what is left to run, and an ExperimentResult."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from coref_automl.base.job import NAN
from coref_automl.base.records import Record
from coref_automl.base.say import in_words, say
from coref_automl.extras.study.plan import Plan, PlannedArm
from coref_automl.extras.study.recipe import kind_name, step_kinds
from coref_automl.extras.study.step import RUNS, Step
from coref_automl.training.folder import checkpoints_of

ANSWER = "answer.json"
"""The answer of a study; written when all its steps are closed."""


@dataclass(frozen=True, slots=True)
class Failure(Record):
    step: str
    kind: str
    reason: str  # in English

    def __str__(self) -> str:
        return f"{self.step}: {in_words(self.reason)}"


@dataclass(frozen=True, slots=True)
class ArmSeeds(Record):
    """How many of an arm's seeds were trained and judged in full; `missing` says, in English, why each of the others was not."""

    name: str
    asked: int
    finished: int
    missing: dict[str, str]

    def __str__(self) -> str:
        text = f"{self.name}: " + say(f"시드 {self.finished}/{self.asked}", f"{self.finished} of {self.asked} seeds")
        told = [(seed, ": ".join(map(in_words, reason.split(": ", 1)))) for seed, reason in self.missing.items()]  # step: reason
        reasons = "; ".join(say(f"시드 {seed}: {reason}", f"seed {seed}: {reason}") for seed, reason in told)
        return f"{text} ({reasons})" if reasons else text


@dataclass(frozen=True, slots=True)
class ExperimentResult(Record):
    """What a call left behind: all `steps` of the study and those `finished`, by kind; `resumes`: the same call has work left."""

    out: str
    steps: dict[str, int]
    finished: dict[str, int]
    arms: tuple[ArmSeeds, ...]
    failures: tuple[Failure, ...]
    sentence: str = ""
    report: str = ""
    archive: str = ""
    resumes: bool = False

    @property
    def broken(self) -> bool:
        """Did anything fail that another call might mend? A loss that became NaN is a result."""
        return any(failure.kind != NAN for failure in self.failures)

    def lines(self) -> list[str]:
        counts = ", ".join(
            f"{kind_name(kind)} " + say(f"{self.finished[kind]}/{count}", f"{self.finished[kind]} of {count}")
            for kind, count in self.steps.items()
        )
        failed = [say(f"실패: {failure}", f"Failed: {failure}") for failure in self.failures]
        lines = [f"{self.out}: {counts}", *map(str, self.arms), *failed, *([self.sentence] if self.sentence else [])]
        if self.report:
            lines.append(say(f"보고서: {self.report}", f"Report: {self.report}"))
        if self.archive:
            lines.append(say(f"수치만 담은 보관본: {self.archive}", f"Archive, without any text: {self.archive}"))
        if self.resumes:
            lines.append(say("같은 명령을 다시 실행하면 이어서 진행합니다.", "The same command resumes."))
        return lines


@dataclass(slots=True)
class ExperimentState:
    """Which steps are done or failed, and so which may run."""

    plan: Plan
    steps: list[Step] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    failures: dict[str, Failure] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> ExperimentState:
        state = cls(plan)
        state.add(plan.steps)
        return state

    def add(self, steps: Sequence[Step]) -> None:
        """Add steps, with how they ended in earlier calls."""
        for step in steps:
            outcome = step.outcome(self.plan.out)
            if outcome is not None and outcome.done:
                self.done.add(step.label)
            elif outcome is not None and outcome.kind == NAN:
                self.failures[step.label] = Failure(step.label, NAN, outcome.reason)
        self.steps += steps

    def unfinished(self, kinds: Collection[str]) -> list[Step]:
        """Return the steps of these kinds that are left, and reopen finished runs whose removed weights one of them needs."""
        left = [step for step in self.steps if step.kind in kinds and not self.is_closed(step)]
        without_weights = {step.run for step in left if step.kind != "train" and step.run and not self._has_weights(step.run)}
        if "train" not in kinds:
            return [step for step in left if step.run not in without_weights]
        self.done -= {f"train {run}" for run in without_weights}
        return [step for step in self.steps if step in left or (step.kind == "train" and step.run in without_weights)]

    def is_closed(self, step: Step) -> bool:
        """Would a further call leave this step alone? It is done, its loss became NaN, or the training it needs failed."""
        return step.label in self.done or step.label in self.failures or self.is_unreachable(step)

    def is_unreachable(self, step: Step) -> bool:
        """Did the training fail that this step needs?"""
        return step.kind != "train" and f"train {step.run}" in self.failures

    def is_ready(self, step: Step) -> bool:
        return step.kind == "train" or step.run is None or f"train {step.run}" in self.done

    def _has_weights(self, run: str) -> bool:
        return f"train {run}" in self.done and bool(checkpoints_of(self.plan.out / RUNS / run))

    @property
    def can_choose(self) -> bool:
        """Is every training and evaluation closed, and one done, so that a model can be recommended?"""
        closed = all(self.is_closed(step) for step in self.steps if step.kind in ("train", "evaluate"))
        return closed and self.finished("evaluate") > 0

    def finished(self, kind: str) -> int:
        return sum(step.label in self.done for step in self.steps if step.kind == kind)

    def of_run(self, run: str) -> list[Step]:
        return [step for step in self.steps if step.run == run]

    def resumes(self, kinds: Collection[str]) -> bool:
        """Would a further call for these kinds run anything? It retries failures other than a loss that became NaN."""
        final = {label: failure for label, failure in self.failures.items() if failure.kind == NAN}
        return bool(ExperimentState(self.plan, self.steps, set(self.done), final).unfinished(kinds))

    def result(self, kinds: Collection[str]) -> ExperimentResult:
        counts = Counter(step.kind for step in self.steps)
        present = [kind for kind in step_kinds() if counts[kind]]
        return ExperimentResult(
            out=str(self.plan.out), arms=tuple(map(self._arm_seeds, self.plan.arms)), resumes=self.resumes(kinds),
            steps={kind: counts[kind] for kind in present}, failures=tuple(self.failures.values()),
            finished={kind: self.finished(kind) for kind in present},
        )  # fmt: skip

    def _arm_seeds(self, arm: PlannedArm) -> ArmSeeds:
        missing = {}
        for seed in self.plan.seeds:
            steps = self.of_run(arm.run(seed))
            failed = [self.failures[step.label] for step in steps if step.label in self.failures]
            left = [step for step in steps if step.label not in self.done]
            if failed or left:
                why = [f"{failure.step}: {failure.reason}" for failure in failed] or [f"{len(left)} of {len(steps)} steps left"]
                missing[str(seed)] = why[0]
        return ArmSeeds(str(arm), len(self.plan.seeds), len(self.plan.seeds) - len(missing), missing)
