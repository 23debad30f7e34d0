"""What is claimed of the methods of a study, question by question. In: a study. Out: Claims, each corrected within its family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm, base_of, equally_trained
from coref_automl.comparison.claims import BASE, Claim, QuestionId, beside_others
from coref_automl.comparison.judging import Among, Judged, Pair, corrected_claims, judge_change, judge_pairs, speaking_half
from coref_automl.comparison.outside_checks import CHECKS, judge_check
from coref_automl.comparison.scores import Entry, Group, has_room, is_equal_training
from coref_automl.comparison.study_data import StudyData
from coref_automl.evaluation.metrics import METRICS
from coref_automl.evaluation.tasks.far import BUCKETS
from coref_automl.records import Half
from coref_automl.statistics.shrinkage import covariance, method_means

FEWEST_ITEMS, FEWEST_DOCUMENTS = 50, 10
"""A source with fewer has no claim of its own; a distance needs as many items as a source documents."""
TASKS: dict[QuestionId, tuple[str, str]] = {
    "far": ("real_far1_strict", "real_far_word"),
    "lambada": ("lambada_top1_strict", "lambada_word"),
}
"""The metric of a task, and the one that holds across tokenizers and where strict can reach few answers."""


def metric_of(group: Group, task: QuestionId) -> str:
    strict, word = TASKS[task]
    return strict if group.tokenizers == 1 and has_room(group, strict) else word


@dataclass(frozen=True)
class StudyClaims:
    """The methods of a study, and what is judged of them."""

    study: StudyData

    @cached_property
    def by_question(self) -> dict[QuestionId, list[Claim]]:
        """In the order in which questions are asked."""
        study = self.study
        asked: dict[QuestionId, list[Claim]] = {
            "base": self.gains,
            "method": self._methods(),
            "length": self._lengths(),
            "training": self._training(),
            **{name: self._on_task(name) for name in TASKS},
            "sources": self._sources(),
            **{name: judge_check(name, study.arms, study.checks.get(name, ()), study.seed) for name in CHECKS},
        }
        return {name: [self._settled(claim) for claim in claims] for name, claims in asked.items()}

    def beside(self, method: str) -> dict[str, Claim]:
        """A method minus each other one."""
        return beside_others((claim for claims in self.by_question.values() for claim in claims), method, self.study.metric)

    def _settled(self, claim: Claim) -> Claim:
        """Where nothing is shown, what is known all the same: that a gain like the shown one or the margin is excluded; of two
        methods, that either keeps half of the shown gain. What correction took back is not known."""
        if claim.verdict != "not shown" or claim.of_checkpoint or "before correction" in claim.against:
            return claim
        lead, difference, margin = self.shown_gain, claim.difference, self.study.margin
        gain = None if lead is None else lead.difference.value if lead.expected is None else lead.expected
        if claim.b == BASE:
            return replace(claim, verdict="no gain") if difference.high < min(margin, margin if gain is None else gain) else claim
        near = min(margin, gain / 2) if gain is not None else 0.0
        asks_if_same = claim.question in ("method", "length") and claim.outcome == self.study.metric
        is_near = max(-difference.low, difference.high) < near
        return replace(claim, verdict="equivalent", within=near) if asks_if_same and is_near else claim

    @cached_property
    def shown_gain(self) -> Claim | None:
        """The gain of the method to use; None where it is not shown."""
        name = self.leading.name if self.leading is not None else ""
        return next((claim for claim in self.gains if claim.a == name and claim.verdict == "better"), None)

    @cached_property
    def replicated(self) -> list[Arm]:
        """Methods with several seeds; a single seed says nothing about a method."""
        return [arm for arm in self.study.arms if arm.seeds > 1]

    @cached_property
    def half(self) -> Half | None:
        """The documents that speak about methods."""
        return speaking_half(arm.ends for arm in self.replicated or self.study.arms)

    @cached_property
    def against_bases(self) -> list[tuple[Arm, Entry]]:
        return [(arm, base) for arm in self.study.arms if (base := base_of(self.study.group.entries, arm)) is not None]

    @cached_property
    def same_setting(self) -> list[tuple[Arm, Arm]]:
        """Later methods and earlier ones at the same length from the same base."""
        return [(a, b) for b, a in combinations(self.study.arms, 2) if a.same_setting_as(b)]

    @cached_property
    def equal_training(self) -> list[tuple[Arm, Arm]]:
        """Those of `same_setting` that were trained equally."""
        return [pair for pair in self.same_setting if equally_trained(*pair)]

    @cached_property
    def leading(self) -> Arm | None:
        """The method to use; if none is shown better than its base, that of the highest checkpoint."""
        heights = {claim.a: claim.values[0] for claim in self.method_gains if claim.verdict == "better" and claim.values}
        if heights:
            return max((arm for arm in self.replicated if arm.name in heights), key=lambda arm: heights[arm.name])
        return next((arm for arm in self.study.arms if any(self.highest in run for run in arm.runs.values())), None)

    @cached_property
    def highest(self) -> Entry:
        """The checkpoint that came out highest; with one seed per method, of those that are shown better than their base."""
        better = set() if self._judges_methods else {claim.a for claim in self.gains if claim.verdict == "better"}
        choice = self.study.choice
        shown = [entry for entry in choice.candidates if entry.name in better]
        return choice.highest(shown) if shown else choice.chosen

    @property
    def _judges_methods(self) -> bool:
        """Is a method with several seeds judged against its base?"""
        return any(claim.seeds[0] > 1 for claim in self.method_gains)

    def _judge(self, name: QuestionId, pairs: Sequence[Pair], metric: str, part: str = "", among: Among = None) -> list[Judged]:
        judged = judge_pairs(self.study.group, name, pairs, metric, half=self.half, part=part, among=among)
        return [verdict for verdict in judged if verdict is not None]

    @cached_property
    def gains(self) -> list[Claim]:
        """Methods with several seeds against their base (Holm); single checkpoints (max-T) only where there are none."""
        study = self.study
        if self._judges_methods:
            return self._with_expected(self.method_gains)
        return [claim for entry, claim in study.checkpoint_claims().items() if study.own_base(entry) is not None]

    @cached_property
    def method_gains(self) -> list[Claim]:
        return corrected_claims(self._judge("base", self.against_bases, self.study.metric), "holm")

    def _with_expected(self, claims: list[Claim]) -> list[Claim]:
        """With the gain to expect of the leading method, whose own mean is shrunk towards those of the others."""
        pairs = [(arm, base) for arm, base in self.against_bases if arm.seeds > 1]
        leading = self.leading.name if self.leading else ""
        if len(pairs) < 2 or leading not in {arm.name for arm, _ in pairs}:
            return claims  # nothing was chosen among several
        study, runs = self.study, [entry for arm, _ in pairs for entry in arm.ends]
        bases = list(dict.fromkeys(base for _, base in pairs))
        columns = study.group.columns(study.metric, half=self.half, entries=[*runs, *bases])
        against = [len(runs) + bases.index(base) for arm, base in pairs for _ in arm.runs]
        parts = columns.differences(list(range(len(runs))), against)
        values = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in parts))
        gain = method_means(values, covariance(parts), methods=[arm.name for arm, _ in pairs for _ in arm.runs])[leading]
        return [
            replace(claim, expected=min(gain, claim.difference.value), against=(*claim.against, "chosen"))
            if claim.a == leading
            else claim
            for claim in claims
        ]

    def _methods(self) -> list[Claim]:
        """Pairs at one length: of equal training (Holm over all); the others without a verdict, and again at equal tokens."""
        study, equal = self.study, self.equal_training
        unequal = [pair for pair in self.same_setting if pair not in equal]
        at_equal_tokens = [self._at_equal_tokens(pair) for pair in unequal]
        claims = corrected_claims([*self._judge("method", equal, study.metric), *at_equal_tokens], "holm")
        not_judged = [
            replace(claim, verdict="not judged", against=tuple(dict.fromkeys((*claim.against, "unequal training"))))
            for claim in (judged.claim for judged in self._judge("method", unequal, study.metric))
        ]
        by_rank = judge_pairs(study.group, "method", equal, study.metric, half=self.half, ranks=True)
        return [*claims, *not_judged, *corrected_claims(by_rank, "bh")]

    def _at_equal_tokens(self, pair: tuple[Arm, Arm]) -> Judged | None:
        """The latest checkpoints of either that had seen as many tokens; None if curves do not meet."""
        a, b = pair
        meetings: list[tuple[int, Pair]] = []
        for ours, theirs in product(a.steps(), b.steps()):
            seen = [entry.recorded_tokens or 0 for entry in (*ours.values(), *theirs.values())]
            if min(seen) > 0 and is_equal_training(min(seen), max(seen)):
                meetings.append((max(seen), (a.ending_at(ours), b.ending_at(theirs))))
        if not meetings:
            return None
        _, latest = max(meetings, key=lambda meeting: meeting[0])
        judged = self._judge("method", [latest], self.study.metric, part="equal tokens")
        marked = [replace(one, claim=replace(one.claim, against=(*one.claim.against, "equal tokens"))) for one in judged]
        return next(iter(marked), None)

    def _lengths(self) -> list[Claim]:
        """Longer minus shorter of one method: on the study's metric, and on far items, all and by distance."""
        study = self.study
        same = [(b, a) for a, b in combinations(study.arms, 2) if (a.method, a.origin) == (b.method, b.origin)]
        pairs = [(b, a) for b, a in same if a.length < b.length and equally_trained(b, a)]
        judged = self._judge("length", pairs, study.metric)
        if (far := self._metric("far")) is not None and far != study.metric:
            judged += self._judge("length", pairs, far)
            for name, rows in by_distance(study.group, far).items():
                judged += self._judge("length", pairs, far, part=name, among=rows)
        return corrected_claims(judged, "bh")

    def _training(self) -> list[Claim]:
        """Of every mean curve: its last step, and its peak (on select) minus its end (on confirm)."""
        study, judged = self.study, []
        for arm in (arm.with_curve() for arm in study.arms):
            steps = [list(step.values()) for step in arm.steps()] if arm.runs else []
            if len(steps) < 2:
                continue
            half = speaking_half([steps[-1]])
            last = (steps[-1], steps[-2])
            judged.append(judge_change(study.group, "training", arm, last, study.metric, half=half, part="last step"))
            heights = [np.mean([study.choice.candidates[entry].value.value for entry in step]) for step in steps]
            peak = int(np.argmax(heights))
            if peak < len(steps) - 1 and study.choice.halved:
                fall = (steps[peak], steps[-1])
                judged.append(judge_change(study.group, "training", arm, fall, study.metric, half="confirm", part="peak to end"))
        return corrected_claims(judged, "bh")

    def _metric(self, task: QuestionId) -> str | None:
        """The metric of a task; None if no evaluation ran it."""
        name, group = metric_of(self.study.group, task), self.study.group
        return name if any(group.was_run(name, entry) for entry in self.study.entries) else None

    def _on_task(self, name: QuestionId) -> list[Claim]:
        """Every method against its base and against the others, on another task."""
        metric = self._metric(name)
        if metric is None or metric == self.study.metric:
            return []
        return corrected_claims(self._judge(name, [*self.against_bases, *self.equal_training], metric), "bh")

    def _sources(self) -> list[Claim]:
        """The method to use on every source of the study's metric, against the base and against mlm."""
        study, leading, items = self.study, self.leading, self.study.group.items
        if leading is None or METRICS[study.metric].parts:
            return []
        pairs: list[Pair] = [(a, b) for a, b in self.against_bases if a is leading]
        pairs += [(a, b) for a, b in self.equal_training if a is leading and b.objective == "mlm"]
        of_task = np.asarray(items.facts["task"] == METRICS[study.metric].task)
        speaking = of_task & (True if self.half is None else items.halves == self.half)
        sources = np.unique(items.facts["source"][speaking]).tolist()
        judged: list[Judged] = []
        for source in sources if len(sources) > 1 else []:
            rows = speaking & (items.facts["source"] == source)
            if int(rows.sum()) >= FEWEST_ITEMS and len(np.unique(items.facts["cluster"][rows])) >= FEWEST_DOCUMENTS:
                judged += self._judge("sources", pairs, study.metric, part=str(source), among=np.asarray(rows))
        return corrected_claims(judged, "bh")


def by_distance(group: Group, metric: str) -> dict[str, NDArray[np.bool_]]:
    """The items of a metric by distance to the other mention; distances with too few are left out."""
    of_task, distance = group.items.facts["task"] == METRICS[metric].task, group.items.facts["distance"]
    rows = {f"{low:,}–{high - 1:,}": np.asarray(of_task & (distance >= low) & (distance < high)) for low, high in BUCKETS}
    return {name: inside for name, inside in rows.items() if int(inside.sum()) >= FEWEST_DOCUMENTS}
