"""The one answer. In: a study. Out: an Answer: what to do, and every claim behind it. No other code decides what leads.

The rules are on docs/statistics.md. Methods that were fixed before anything was scored are judged on all documents, what was
chosen on `select` on `confirm`; a method is used only if it is shown better than the base; one seed says nothing about a method;
unequal training is never a verdict about methods.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.comparison.arms import Arm, base_of, equally_trained, method_name
from coref_automl.comparison.choice import next_time_of
from coref_automl.comparison.claims import (
    BASE,
    Action,
    Answer,
    Caveat,
    Claim,
    Keep,
    NextTime,
    Power,
    Question,
    QuestionId,
)
from coref_automl.comparison.coreference_methods import compare_coreference, pretraining_in
from coref_automl.comparison.coreference_runs import alike
from coref_automl.comparison.judging import (
    Among,
    Judged,
    Pair,
    Runs,
    checkpoint_claim,
    ends,
    half_of_pairs,
    judge_change,
    judge_pairs,
    settled,
    speaking_half,
    was_run,
)
from coref_automl.comparison.relation_methods import judge_relation
from coref_automl.comparison.scores import Entry, is_equal_training
from coref_automl.evaluation.metrics import METRICS
from coref_automl.evaluation.tasks.far import BUCKETS
from coref_automl.records import Half
from coref_automl.statistics.shrinkage import covariance, method_means

if TYPE_CHECKING:
    from coref_automl.comparison.study import Study

FLOOR = 0.02
"""If no model scores more, differences cannot show."""
FEWEST_ITEMS, FEWEST_DOCUMENTS = 50, 10
"""A source with fewer has no claim of its own; a distance needs as many items as a source documents."""
_FAR, _LAMBADA = ("real_far1_strict", "real_far_word"), ("lambada_top1_strict", "lambada_word")
"""The metric of a task, and the one that holds across tokenizers."""


def answer_of(study: Study, *, looks: int = 1, unread: Sequence[str] = ()) -> Answer:
    return _Deciding(study).answer(looks, tuple(unread))


@dataclass(frozen=True)
class _Deciding:
    """The methods of a study, and what is claimed of them, question by question."""

    study: Study

    def answer(self, looks: int, unread: tuple[str, ...]) -> Answer:
        study, action, keep = self.study, self._action, self._keep
        questions = tuple(one for one in self._questions() if one is not None)
        mine = self.mine
        method = mine.name if mine is not None and mine.seeds > 1 else None
        told = [one for name in ("method", "length") for one in self._claims(name) if method in (one.a, one.b) and not one.part]
        lost = {
            one.b if one.a == method else one.a: one.sign * (1 if one.a == method else -1)
            for one in told
            if _of_methods(one, study)
        }
        better = {one.a for one in self.over_base if one.verdict == "better"}
        base = study.own_base(self.top)
        return Answer(
            action=action,
            metric=study.metric,
            evalset=study.group.evalset,
            margin=study.margin,
            base=base.name if base else None,
            base_path=base.evaluation.path if base else "",
            method=method,
            highest=self.top.name,
            highest_path=self.top.evaluation.path,
            ties=tuple(name for name, sign in lost.items() if sign <= 0 and name in better) if action == "use method" else (),
            beats=tuple(name for name, sign in lost.items() if sign > 0) if action == "use method" else (),
            keep=keep,
            next_time=self._next_time() if keep else None,
            power=self._power(),
            questions=questions,
            candidates=len(study.choice.candidates),
            looks=looks,
            against=self._against(),
            unread=unread,
        )

    # -- the methods

    @cached_property
    def arms(self) -> list[Arm]:
        return self.study.arms

    @cached_property
    def firm(self) -> list[Arm]:
        """Methods with several seeds; the others say nothing about methods."""
        return [arm for arm in self.arms if arm.seeds > 1]

    @cached_property
    def half(self) -> Half | None:
        return half_of_pairs([(arm, arm) for arm in self.firm or self.arms])

    @cached_property
    def against_bases(self) -> list[Pair]:
        return [(arm, base) for arm in self.arms if (base := base_of(self.study, arm)) is not None]

    @cached_property
    def same_length(self) -> list[tuple[Arm, Arm]]:
        """Later methods and earlier ones at the same length from the same base."""
        return [(a, b) for b, a in combinations(self.arms, 2) if a.alike(b)]

    @cached_property
    def equal(self) -> list[tuple[Arm, Arm]]:
        return [pair for pair in self.same_length if equally_trained(*pair)]

    @cached_property
    def mine(self) -> Arm | None:
        """The method to use; where none is, the one that came out highest."""
        better = [one.a for one in self._of_bases if one.verdict == "better"]
        if better:
            value = {one.a: one.values[0] for one in self._of_bases if one.values}
            return max((arm for arm in self.firm if arm.name in better), key=lambda arm: value[arm.name])
        return next((arm for arm in self.arms if any(self.study.choice.chosen in run for run in arm.runs.values())), None)

    @cached_property
    def top(self) -> Entry:
        """The checkpoint to use, or what came out highest: of the method; with one seed, of what is shown better."""
        choice = self.study.choice
        if self._action == "use method" and self.mine is not None:
            held = [one for step in self.mine.steps() for one in step.values() if one in choice.candidates]
            return choice.highest(held) if held else choice.chosen
        if self._action == "use checkpoint":
            better = {one.a for one in self.over_base if one.verdict == "better"}
            return choice.highest([entry for entry in choice.candidates if entry.name in better])
        return choice.chosen

    # -- what follows

    @cached_property
    def _action(self) -> Action:
        if not any(entry.trained for entry in self.study.entries):
            return "undecided"
        if any(one.verdict == "better" for one in self.over_base):
            return "use checkpoint" if "checkpoint" in self.over_base[0].against else "use method"
        if not self.over_base or self.study.base is None:
            return "no base"
        return "undecided" if all(one.verdict == "not judged" for one in self.over_base) else "keep base"

    @cached_property
    def _keep(self) -> Keep | None:
        if self._action not in ("use method", "use checkpoint"):
            return None
        study, top = self.study, self.top
        believed = study.choice.candidates[top].believed
        base = study.own_base(top)
        half: Half | None = "select" if study.choice.halved else None
        columns = study.group.columns(study.metric, half=half, entries=[base]) if base is not None else None
        before = float(sum(np.asarray(part.values).mean() for part in columns.parts)) if columns and columns.items else None
        path = Path(top.evaluation.path)
        return Keep(
            path=top.evaluation.path,
            name=top.name,
            tokens=top.recorded_tokens,
            there=path.is_dir(),
            again="" if path.is_dir() else _again(top),
            value=believed,
            expected=believed - before if before is not None else None,
            tied=tuple(entry.name for entry in study.choice.tied_with(top)),
        )

    def _next_time(self) -> NextTime | None:
        mine, study = self.mine, self.study
        arm = mine or study.choice.arm(self.top)
        lead = next((one for one in self.over_base if one.a in (arm.name, self.top.name) and one.verdict == "better"), None)
        last_step = [one for one in self._claims("training") if one.a == arm.name and one.part == "last step"]
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
        claims = [one for one in self.over_base if one.verdict != "not judged"]
        if not claims:
            return None
        could = max((one.detectable for one in claims if one.detectable), default=None)
        most = max(claims, key=lambda one: one.difference.value)
        seen, count = most.difference.value, most.count
        needed = None
        if most.detectable and seen > 0 and most.verdict != "better":
            needed = int(count * (most.detectable / seen) ** 2) + 1
        return Power(could, count, min(one.seeds[0] for one in claims), seen, needed)

    def _against(self) -> tuple[Caveat, ...]:
        kept = ("few documents", "other tokenizer")
        found: set[Caveat] = {code for one in self.over_base for code in one.against if code in kept}
        values = [one.value for entry in self.study.entries if (one := entry.evaluation.estimates.get(self.study.metric))]
        if max(values, default=1.0) < FLOOR:
            found.add("floor")
        if not self.over_base:
            found.add("base not evaluated")
        if self.arms and not self.firm:
            found.add("one seed")
        if any(not equally_trained(*pair) for pair in self.same_length):
            found.add("unequal training")
        if self._keep is not None and not self._keep.there:
            found.add("weights gone")
        return tuple(sorted(found))

    # -- the questions

    def _questions(self) -> list[Question | None]:
        names: tuple[QuestionId, ...] = (
            "base", "method", "length", "training", "far", "lambada", "sources", "relation", "coreference"
        )  # fmt: skip
        return [self._asked(name) for name in names]

    def _asked(self, name: QuestionId) -> Question | None:
        """The leading claim is about the method to use: against the base, or as questions about methods ask, against mlm."""
        claims = self._claims(name)
        if not claims:
            return None
        mine = self.top.name if self.mine is None or "checkpoint" in claims[0].against else self.mine.name
        plain = next(
            (b.name for pair in self.equal for a, b in (pair, pair[::-1]) if a is self.mine and b.objective == "mlm"), None
        )
        first = (plain, BASE) if name in ("method", "relation", "coreference") else (BASE, plain)

        def order(claim: Claim) -> tuple[bool, bool, bool, int, float]:
            own, other = mine in (claim.a, claim.b), claim.b if claim.a == mine else claim.a
            main = claim.part in ("", "last step") and (claim.outcome == self.study.metric or name not in ("method", "length"))
            place = -first.index(other) if other in first else -len(first)
            weakest = -claim.difference.value if name == "sources" else 0.0  # every source: the least of them answers
            return own, claim.verdict != "not judged", main or name == "sources", place, weakest

        lead = max(claims, key=order)  # the first of equals
        return Question(name, lead, tuple(one for one in claims if one is not lead))

    def _claims(self, name: QuestionId) -> list[Claim]:
        return {
            "base": lambda: self.over_base,
            "method": lambda: self._methods,
            "length": lambda: self._lengths,
            "training": lambda: self._training,
            "far": lambda: self._elsewhere("far", _FAR),
            "lambada": lambda: self._elsewhere("lambada", _LAMBADA),
            "sources": lambda: self._sources,
            "relation": lambda: self._relation,
            "coreference": lambda: self._coreference,
        }[name]()

    def _judge(self, name: QuestionId, pairs: Sequence[Pair], metric: str, part: str = "", among: Among = None) -> list[Judged]:
        found = judge_pairs(self.study, name, pairs, metric, half=self.half, part=part, among=among)
        return [one for one in found if one is not None]

    @cached_property
    def over_base(self) -> list[Claim]:
        """Methods with several seeds against their base (Holm); single checkpoints (max-T) only where there are none."""
        study = self.study
        if any(one.seeds[0] > 1 for one in self._of_bases):
            return self._with_expected(self._of_bases)
        half, judged = study.group.judging, study.against_base()
        bases = {entry: study.own_base(entry) for entry in judged}
        known = {entry: one for entry, one in judged.items() if bases[entry] is not None}
        documents = study.table.documents if study.table else 0
        return [checkpoint_claim(study.group, "base", one, entry, half=half, documents=documents) for entry, one in known.items()]

    @cached_property
    def _of_bases(self) -> list[Claim]:
        return settled(self._judge("base", self.against_bases, self.study.metric), "holm", self.study.margin)

    def _with_expected(self, claims: list[Claim]) -> list[Claim]:
        """The gain to expect of the highest: the means of methods are drawn towards each other as far as the data do not say."""
        pairs = [(arm, base) for arm, base in self.against_bases if isinstance(base, Entry) and arm.seeds > 1]
        if len(pairs) < 2:
            return claims
        study, runs = self.study, [entry for arm, _ in pairs for entry in ends(arm)]
        bases = list(dict.fromkeys(base for _, base in pairs if isinstance(base, Entry)))
        columns = study.group.columns(study.metric, half=self.half, entries=[*runs, *bases])
        against = [len(runs) + bases.index(base) for (arm, base) in pairs for _ in arm.runs if isinstance(base, Entry)]
        parts = columns.differences(list(range(len(runs))), against)
        values = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in parts))
        gains = method_means(values, covariance(parts), methods=[arm.name for arm, _ in pairs for _ in arm.runs])
        mine = self.mine.name if self.mine else ""
        chosen = [one for one in claims if one.a == mine and mine in gains]
        return [
            replace(one, expected=min(gains[mine], one.difference.value), against=(*one.against, "chosen"))
            if one in chosen
            else one
            for one in claims
        ]

    @cached_property
    def _methods(self) -> list[Claim]:
        """Pairs at one length: of equal training (Holm over all); the others without a verdict, and again at equal tokens."""
        study, equal = self.study, {(a.name, b.name) for a, b in self.equal}
        found = self._judge("method", self.same_length, study.metric)
        unequal = [one for one in found if (one.claim.a, one.claim.b) not in equal]
        again = [one for pair in self.same_length if pair not in self.equal and (one := self._at_equal_tokens(pair)) is not None]
        claims = settled([*(one for one in found if one not in unequal), *again], "holm", study.margin)
        ranked = [one for one in judge_pairs(study, "method", self.equal, study.metric, half=self.half, measure="ranks") if one]
        left = [_without_verdict(one.claim, "unequal training") for one in unequal]
        return [*claims, *left, *settled(ranked, "bh", study.margin)]

    def _at_equal_tokens(self, pair: tuple[Arm, Arm]) -> Judged | None:
        """The latest checkpoints of either that had seen as many tokens; None if curves do not meet."""
        steps: list[tuple[int, Runs, Runs]] = []
        for ours in pair[0].steps():
            for theirs in pair[1].steps():
                seen = [entry.recorded_tokens or 0 for entry in (*ours.values(), *theirs.values())]
                if min(seen) > 0 and is_equal_training(min(seen), max(seen)):
                    steps.append((max(seen), list(ours.values()), list(theirs.values())))
        if not steps:
            return None
        _, a, b = max(steps, key=lambda step: step[0])
        found = judge_pairs(self.study, "method", [pair], self.study.metric, half=self.half, at=[(a, b)])[0]
        if found is None:
            return None
        return replace(found, claim=replace(found.claim, part="equal tokens", against=(*found.claim.against, "equal tokens")))

    @cached_property
    def _lengths(self) -> list[Claim]:
        """Longer minus shorter of one method: on the study's metric, and on far items by reach and by distance."""
        study = self.study
        both = [
            (b, a) for a, b in combinations(self.arms, 2) if a.length < b.length and (a.method, a.origin) == (b.method, b.origin)
        ]
        pairs = [pair for pair in both if equally_trained(*pair)]
        found = self._judge("length", pairs, study.metric)
        if (far := self._metric(_FAR)) is not None and far != study.metric:
            found += self._judge("length", pairs, far)
            for pair in pairs:
                found += self._by_reach(pair, far)
            for start, name in self._distances(far).items():
                found += self._judge("length", pairs, far, part=start, among=name)
        return settled(found, "bh", study.margin)

    def _by_reach(self, pair: tuple[Arm, Arm], metric: str) -> list[Judged]:
        """Within the shorter window's reach, beyond it, and beyond minus within; items differ by pair."""
        study = self.study
        beyond = np.any([entry.out_of_reach for entry in ends(pair[1])], axis=0)
        spoken = study.group.rows(metric, half=self.half, entries=[*ends(pair[0]), *ends(pair[1])])
        kinds = {"within reach": ~beyond, "beyond reach": beyond}
        enough = {part: int((rows & spoken).sum()) >= FEWEST_DOCUMENTS for part, rows in kinds.items()}
        found = [one for part, rows in kinds.items() if enough[part] for one in self._judge("length", [pair], metric, part, rows)]
        if all(enough.values()):
            part = "beyond minus within reach"
            contrast = judge_pairs(study, "length", [pair], metric, half=self.half, part=part, beyond=beyond)
            found += [one for one in contrast if one is not None]
        return found

    def _distances(self, metric: str) -> dict[str, Among]:
        items = self.study.group.items
        far = np.asarray(items.facts["task"] == METRICS[metric].task)
        out: dict[str, Among] = {}
        for low, high in BUCKETS:
            rows = far & (items.facts["distance"] >= low) & (items.facts["distance"] < high)
            if int(rows.sum()) >= FEWEST_DOCUMENTS:
                out[f"{low:,}–{high - 1:,}"] = np.asarray(rows)
        return out

    @cached_property
    def _training(self) -> list[Claim]:
        """Of every mean curve: its last step, and its peak (on select) minus its end (on confirm)."""
        study, found = self.study, []
        for arm in (arm.with_curve() for arm in self.arms):
            steps = [list(step.values()) for step in arm.steps()] if arm.runs else []
            if len(steps) < 2:
                continue
            half = speaking_half([steps[-1]])
            found.append(judge_change(study, "training", arm, (steps[-1], steps[-2]), study.metric, half=half, part="last step"))
            held = [np.mean([study.choice.candidates[one].value.value for one in step]) for step in steps]
            peak = int(np.argmax(held))
            if peak < len(steps) - 1 and study.choice.halved:
                fall = (steps[peak], steps[-1])
                found.append(judge_change(study, "training", arm, fall, study.metric, half="confirm", part="peak to end"))
        return settled(found, "bh", study.margin)

    def _metric(self, names: tuple[str, str]) -> str | None:
        name = names[self.study.group.tokenizers > 1]
        return name if any(was_run(self.study, entry, name) for entry in self.study.entries) else None

    def _elsewhere(self, name: QuestionId, names: tuple[str, str]) -> list[Claim]:
        """Every method against its base and against the others, on another task."""
        metric = self._metric(names)
        if metric is None or metric == self.study.metric:
            return []
        return settled(self._judge(name, [*self.against_bases, *self.equal], metric), "bh", self.study.margin)

    @cached_property
    def _sources(self) -> list[Claim]:
        """The method to use on every source of the study's metric, against the base and against mlm."""
        study, mine, items = self.study, self.mine, self.study.group.items
        if mine is None or METRICS[study.metric].parts:
            return []
        pairs = [(a, b) for a, b in self.against_bases if a is mine]
        pairs += [(a, b) for a, b in self.equal if a is mine and b.objective == "mlm"]
        of_task = np.asarray(items.facts["task"] == METRICS[study.metric].task)
        spoken = of_task & (True if self.half is None else items.halves == self.half)
        names = np.unique(items.facts["source"][spoken]).tolist()
        found: list[Judged] = []
        for name in names if len(names) > 1 else []:
            rows = spoken & (items.facts["source"] == name)
            if int(rows.sum()) >= FEWEST_ITEMS and len(np.unique(items.facts["cluster"][rows])) >= FEWEST_DOCUMENTS:
                found += self._judge("sources", pairs, study.metric, part=str(name), among=np.asarray(rows))
        return settled(found, "bh", study.margin)

    @cached_property
    def _relation(self) -> list[Claim]:
        families = judge_relation(self.study, self.study.relation)
        return [one for family in families for one in settled(family, "bh", self.study.margin)]

    @cached_property
    def _coreference(self) -> list[Claim]:
        runs = self.study.coreference
        if not runs:
            return []
        found = compare_coreference(alike(runs)[0], pretraining_in(self.study.entries), margin=self.study.margin)
        return [one.claim for one in found.answers]


def _of_methods(claim: Claim, study: Study) -> bool:
    return claim.outcome == study.metric and claim.verdict != "not judged"


def _without_verdict(claim: Claim, why: Caveat) -> Claim:
    return replace(claim, verdict="not judged", against=tuple(dict.fromkeys((*claim.against, why))))


def _again(entry: Entry) -> str:
    """The command that makes a checkpoint again, from its run's recipe or from what its record says."""
    run, made = Path(entry.evaluation.path).parent, entry.evaluation.provenance
    out = shlex.quote(f"{run}-again")
    if (run / "recipe.yaml").is_file():
        return f"coref-automl train --recipe {shlex.quote(str(run / 'recipe.yaml'))} --out {out}"
    if made is None:
        return ""
    if method_name(made) not in ("", made.objective):  # its settings are in the recipe of its study, not in its record
        told = f"--method {shlex.quote(method_name(made))} --length {made.seq_len} --first-seed {made.seed} --seeds 1"
        return f"coref-automl study --recipe STUDY.yaml {told} --only train --out {shlex.quote(f'{run}-study')}"
    told = f"--objective {shlex.quote(made.objective)} --seq-len {made.seq_len} --seed {made.seed} --max-tokens {made.tokens}"
    data = f"--dataset {shlex.quote(made.dataset)}" if made.dataset else "--dataset DATASET"
    return f"coref-automl train --model {shlex.quote(made.base)} {data} {told} --out {out}"
