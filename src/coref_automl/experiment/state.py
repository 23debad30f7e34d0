"""What is ahead of an experiment and how far it has come, in records and words. In: a plan and the outcomes of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from coref_automl.comparison.power import Evidence
from coref_automl.engine.job import NAN
from coref_automl.experiment.plan import FEWEST_STEPS, MethodAtLength, Plan
from coref_automl.experiment.recipe import kind_name, step_kinds
from coref_automl.experiment.step import RUNS, Step
from coref_automl.progress import duration
from coref_automl.records import Record
from coref_automl.say import align, in_words, language, say
from coref_automl.training.folder import checkpoints_of

ANSWER = "answer.json"
"""What a study answers; written when all its steps are closed."""


@dataclass(frozen=True, slots=True)
class Failure(Record):
    step: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ArmSeeds(Record):
    """How many of an arm's seeds were trained and judged in full; `missing` says why each of the others was not."""

    name: str
    asked: int
    finished: int
    missing: dict[str, str]

    def __str__(self) -> str:
        text = f"{self.name}: " + say(f"시드 {self.finished}/{self.asked}", f"{self.finished} of {self.asked} seeds")
        why = "; ".join(say(f"시드 {seed}: {reason}", f"seed {seed}: {reason}") for seed, reason in self.missing.items())
        return f"{text} ({why})" if why else text


@dataclass(frozen=True, slots=True)
class ExperimentResult(Record):
    """What a call left behind. `steps` counts all steps of the study, `finished` those that are done, by kind.

    `resumes` says whether the same call would find work left.
    """

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
        shown = [f"{self.out}: {counts}", *map(str, self.arms), *failed, *([self.sentence] if self.sentence else [])]
        if self.report:
            shown.append(say(f"보고서: {self.report}", f"Report: {self.report}"))
        if self.archive:
            shown.append(say(f"수치만 담은 보관본: {self.archive}", f"Archive, without any text: {self.archive}"))
        again = say("같은 명령을 다시 실행하면 이어서 진행합니다.", "The same command resumes.")
        return [*shown, *([again] if self.resumes else [])]


_LONG = 1_800
"""Seconds from which a person at a terminal is asked."""


@dataclass(frozen=True, slots=True)
class Share(Record):
    """What is left of one kind of step: how many, seconds one after another, and where the figure comes from."""

    kind: str
    steps: int
    left: int
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class Preflight(Record):
    """`tokens` are those of one epoch; `disk` and `memory` are in gigabytes.

    `shares` are empty where nothing was timed. `evidence` is what judges the runs. `left_out` are documents by reason. `methods`
    are those of a study, with the settings that are their own.
    """

    device: str
    documents: int
    rows: int
    length: int
    tokens: int
    batch: int
    epochs: float
    steps: int
    runs: int
    disk: float
    jobs: int = 1
    memory: float = 0.0
    shares: tuple[Share, ...] = ()
    evidence: Evidence | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    methods: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all steps, one after another."""
        return sum(share.seconds for share in self.shares)

    @property
    def too_short(self) -> bool:
        return self.steps < FEWEST_STEPS

    @property
    def long(self) -> bool:
        return self.seconds / self.jobs > _LONG

    def lines(self) -> list[str]:
        size = f"{self.batch} x {self.epochs:g}"
        ahead = say(
            f"학습: 문서 {self.documents:,}개, 토큰 {self.tokens:,}개({self.length:,}토큰 행 {self.rows:,}개). "
            f"실행 {self.runs}개, 각 {self.steps:,}스텝(배치 x 에폭: {size}), {self.device}.",
            f"Training: {self.documents:,} documents, {self.tokens:,} tokens ({self.rows:,} rows of {self.length:,}). "
            f"{self.runs} run{'s' * (self.runs != 1)} of {self.steps:,} steps each (batch x epochs: {size}) on {self.device}.",
        )
        short = say(
            f"{self.steps}스텝으로는 거의 바뀌지 않습니다. {FEWEST_STEPS}스텝에 약 {self.enough:,}토큰이 필요합니다.",
            self.shortage,
        )
        reasons = ", ".join(
            say(f"{in_words(reason)} {count:,}개", f"{count:,} {reason}") for reason, count in self.left_out.items()
        )
        whole = self.documents + sum(self.left_out.values())
        left = [say(f"문서 {whole:,}개 중 제외: {reasons}.", f"Left out of {whole:,} documents: {reasons}.")] if reasons else []
        judged = self.evidence.lines() if self.evidence else []
        methods = [say("방법: ", "Methods: ") + "; ".join(self.methods) + "."] if self.methods else []
        return [ahead, *methods, *left, *judged, *(self._costs() if self.shares else []), *([short] if self.too_short else [])]

    @property
    def shortage(self) -> str:
        return f"{self.steps} steps change next to nothing; {FEWEST_STEPS} take about {self.enough:,} tokens."

    @property
    def enough(self) -> int:
        """Tokens of text that would give as many steps as a run needs."""
        return int(FEWEST_STEPS * self.batch * self.tokens / max(1.0, self.epochs * self.rows))

    def _costs(self) -> list[str]:
        rows = [(say("단계", "step"), say("남음", "left"), say("시간", "time"), say("근거", "measured"))]
        for share in self.shares:
            left = say(f"{share.left}/{share.steps}", f"{share.left} of {share.steps}")
            rows.append((kind_name(share.kind), left, duration(share.seconds, language()), share.source))
        whole, least = (duration(seconds, language()) for seconds in (self.seconds, self.seconds / self.jobs))
        jobs = say(f"({self.jobs}개씩 함께 하면 최소 {least})", f"(at least {least} with {self.jobs} at a time)")
        whole = f"{whole} {jobs}" if self.jobs > 1 else whole
        return [
            *(f"  {line}" for line in align(rows)),
            say(
                f"이 컴퓨터에서 약 {whole}, 메모리는 학습 하나에 {self.memory:.1f} GB, 디스크는 최대 {self.disk:.1f} GB.",
                f"About {whole} on this machine, {self.memory:.1f} GB of memory per training, up to {self.disk:.1f} GB of disk.",
            ),
        ]


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
        """Take in steps, with how they ended in earlier calls."""
        for step in steps:
            outcome = step.outcome(self.plan.out)
            if outcome is not None and outcome.done:
                self.done.add(step.label)
            elif outcome is not None and outcome.kind == NAN:
                self.failures[step.label] = Failure(step.label, NAN, outcome.reason)
        self.steps += steps

    def needed(self, kinds: Collection[str]) -> list[Step]:
        """What of these kinds is left to do. A finished training is repeated if its weights are gone and something needs them."""
        left = [step for step in self.steps if step.kind in kinds and not self.closed(step)]
        absent = {step.run for step in left if step.kind != "train" and step.run and not self._trained(step.run)}
        if "train" not in kinds:
            return [step for step in left if step.run not in absent]
        self.done -= {f"train {run}" for run in absent}
        return [step for step in self.steps if step in left or (step.kind == "train" and step.run in absent)]

    def closed(self, step: Step) -> bool:
        """Would a further call leave this step alone? It is done, its loss became NaN, or the training it needs failed."""
        return step.label in self.done or step.label in self.failures or self.lost(step)

    def lost(self, step: Step) -> bool:
        """Did the training fail that this step needs?"""
        return step.kind != "train" and f"train {step.run}" in self.failures

    def _trained(self, run: str) -> bool:
        return f"train {run}" in self.done and bool(checkpoints_of(self.plan.out / RUNS / run))

    def ready(self, step: Step) -> bool:
        return step.kind == "train" or step.run is None or f"train {step.run}" in self.done

    @property
    def judged(self) -> bool:
        """Is all that chooses over: is every training and evaluation closed?"""
        return all(self.closed(step) for step in self.steps if step.kind in ("train", "evaluate"))

    def finished(self, kind: str) -> int:
        return sum(step.label in self.done for step in self.steps if step.kind == kind)

    def of_run(self, run: str) -> list[Step]:
        return [step for step in self.steps if step.run == run]

    def resumes(self, kinds: Collection[str]) -> bool:
        """Would a further call for these kinds run anything? It tries failures anew, but for a loss that became NaN."""
        final = {label: failure for label, failure in self.failures.items() if failure.kind == NAN}
        return bool(ExperimentState(self.plan, self.steps, set(self.done), final).needed(kinds))

    def result(self, kinds: Collection[str]) -> ExperimentResult:
        counts = Counter(step.kind for step in self.steps)
        present = [kind for kind in step_kinds() if counts[kind]]
        return ExperimentResult(
            out=str(self.plan.out), arms=tuple(self._seeds(arm) for arm in self.plan.arms), resumes=self.resumes(kinds),
            steps={kind: counts[kind] for kind in present}, failures=tuple(self.failures.values()),
            finished={kind: self.finished(kind) for kind in present},
        )  # fmt: skip

    def _seeds(self, arm: MethodAtLength) -> ArmSeeds:
        missing = {}
        for seed in self.plan.seeds:
            steps = self.of_run(arm.run(seed))
            failed = [self.failures[step.label] for step in steps if step.label in self.failures]
            left = [step for step in steps if step.label not in self.done]
            if failed or left:
                open_ = say(f"단계 {len(steps)}개 중 {len(left)}개 남음", f"{len(left)} of {len(steps)} steps left")
                missing[str(seed)] = str(failed[0]) if failed else open_
        return ArmSeeds(str(arm), len(self.plan.seeds), len(self.plan.seeds) - len(missing), missing)
