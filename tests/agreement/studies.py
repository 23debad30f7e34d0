"""Generated studies. In: a seed. Out: a Plan, and the folder that holds its evaluations, relation and coreference runs.

Nothing is trained: ranks and hits are drawn, and the product's own functions write them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from coref_automl.base.records import Provenance, Task
from coref_automl.base.store import read_json, write_json
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.study import LOOKS
from coref_automl.extras.coreference.results import COREFERENCE_FILES, MODES, DocumentSums
from coref_automl.extras.relation.results import RELATION_FILES, RowFacts
from tests.comparison.conftest import Model, coreference_result, make_scores, mention_sums, relation_result, write_evaluation

Base = Literal["evaluated", "at one length", "missing"]
NAMES = ("mlm", "entity", "combined", "copy+link", "copy+link+light", "entity4x", "mlm+plain", "entity+b")
_OBJECTIVES = ("copy+link", "combined", "entity", "mlm")
_BASE = -1.0
_TOKENS = 100_000
_MOST = 28
"""Evaluations of trained checkpoints in a study: larger ones cost time and show no more."""
_LIGHT, _LIGHT_DOCUMENTS = 6, 30
_ROWS, _TEXTS = 240, 12
_EXTRA: tuple[Task, ...] = ("new", "lambada", "real-far")


@dataclass(frozen=True)
class Method:
    """The skill of each checkpoint of a method, and the tokens that its last one had seen."""

    name: str
    skills: tuple[float, ...]
    tokens: int = _TOKENS

    @property
    def objective(self) -> str:
        return next(kind for kind in _OBJECTIVES if self.name.startswith(kind))


@dataclass(frozen=True)
class Plan:
    """What a study is made of. `spread` is that of seeds, `planned` what checkpoints say of their end; `gone`: no weights are
    left; `copies`: the seeds of a method are the same run; `other`: the last method has a tokenizer of its own; `partial`: it
    was scored on the first task alone."""

    seed: int
    methods: tuple[Method, ...]
    seeds: int
    lengths: tuple[int, ...]
    documents: int
    tasks: tuple[Task, ...]
    base: Base = "evaluated"
    spread: float = 0.1
    planned: bool | None = None
    gone: bool = False
    copies: bool = False
    other: bool = False
    relation: bool = False
    coreference: bool = False
    looks: int = 1
    partial: bool = False

    @property
    def names(self) -> set[str]:
        """The methods as their owner calls them."""
        return {f"{method.name} {length:,}" for method in self.methods for length in self.lengths}

    def tokens(self, name: str) -> int:
        return next(method.tokens for method in self.methods if name.rpartition(" ")[0] == method.name)


def draw(seed: int, *, light: bool = False) -> Plan:
    """`light`: the same kinds of studies with fewer documents and runs, for the suite."""
    rng = np.random.default_rng((seed, 36))
    kind = str(rng.choice(["null", "gain", "tie", "mixed", "worse", "rising", "single", "ten"], p=_shares()))
    points = int(rng.choice([1, 1, 2, 3])) if kind != "rising" else int(rng.integers(2, 5))
    seeds = int(rng.choice([1, 2, 3, 3, 5, 8]))
    count = int(rng.integers(1, 4))
    if kind == "single":
        points, seeds, count = 1, 1, 1
    if kind == "ten":
        points, count, seeds = (10, 1, int(rng.integers(1, 3))) if rng.random() < 0.5 else (1, 8, min(seeds, 3))
    lengths = (128, 1024) if rng.random() < 0.2 and kind != "single" else (128,)
    while seeds > (2 if light else 1) and count * points * seeds * len(lengths) > (_LIGHT if light else _MOST):
        seeds -= 1
    names = [str(name) for name in rng.permutation(NAMES[:count] if rng.random() < 0.5 and count > 1 else NAMES)[:count]]
    unequal = count > 1 and rng.random() < 0.2
    methods = tuple(_method(name, number, kind, points, unequal, rng) for number, name in enumerate(names))
    return Plan(
        seed,
        methods,
        seeds,
        lengths,
        documents=min(
            int(rng.choice([10, 16, 30, 60, 100, 200], p=[0.1, 0.1, 0.25, 0.3, 0.15, 0.1])), _LIGHT_DOCUMENTS if light else 200
        ),
        tasks=("real", *(task for task in _EXTRA if rng.random() < 0.35)),
        base="missing" if rng.random() < 0.12 else "at one length" if len(lengths) > 1 and rng.random() < 0.3 else "evaluated",
        spread=float(rng.choice([0.02, 0.1, 0.3])),
        planned=(None, True, False)[int(rng.choice(3, p=[0.4, 0.4, 0.2]))],
        gone=rng.random() < 0.2,
        copies=rng.random() < 0.05,
        other=count > 1 and rng.random() < 0.06,
        relation=rng.random() < 0.25,
        coreference=rng.random() < 0.2,
        looks=int(rng.choice([1, 1, 1, 1, 3])),
        partial=count > 1 and rng.random() < 0.15,
    )


def _shares() -> list[float]:
    return [0.2, 0.2, 0.15, 0.15, 0.05, 0.1, 0.06, 0.09]


def _method(name: str, number: int, kind: str, points: int, unequal: bool, rng: np.random.Generator) -> Method:
    gain = {"null": 0.0, "gain": 0.9, "tie": 0.8, "worse": -0.6, "rising": 0.4}.get(kind, float(rng.choice([0.0, 0.5, 1.0])))
    step = 0.5 if kind == "rising" else 0.1 if kind == "gain" else 0.0
    skills = tuple(_BASE + gain * (number > 0 or kind != "gain" or points > 1) + step * place for place in range(points))
    return Method(name, skills, _TOKENS * (4 if unequal and number == 0 else 1))


def write(plan: Plan, root: Path) -> Path:
    """As `study`, `evaluate`, `re train` and `coref train` leave it; the relation and coreference runs as an archive has them."""
    rng = np.random.default_rng((plan.seed, 37))
    bases = {"evaluated": plan.lengths, "at one length": plan.lengths[:1], "missing": ()}[plan.base]
    for number, length in enumerate(bases):
        _evaluate(plan, root, Model("base", 0, _BASE, seq_len=length), number)
    count = len(bases)
    for length in plan.lengths:
        for method in plan.methods:
            same = count
            for seed in range(plan.seeds):
                luck = 0.0 if plan.copies else plan.spread * float(rng.normal())
                for place, skill in enumerate(method.skills, 1):
                    model = Model(
                        f"{method.name}-{length}-s{seed}",
                        100 * place,
                        skill + luck,
                        tokens=method.tokens * place // len(method.skills),
                        objective=method.objective,
                        seq_len=length,
                        seed=seed,
                        tokenizer="other" if plan.other and method is plan.methods[-1] else "tok",
                    )
                    count += 1
                    _evaluate(plan, root, model, same + place if plan.copies else count)
    if plan.relation:
        RELATION_FILES.archive(list(_relation_runs(plan, rng)), root)
    if plan.coreference:
        COREFERENCE_FILES.archive(list(_coreference_runs(plan, rng)), root)
    if plan.looks > 1:
        write_json(root / LOOKS, list(range(2, 2 + plan.looks)))
    if plan.gone:
        for folder in root.glob("*/checkpoint-*"):
            shutil.rmtree(folder)
    return root


def _evaluate(plan: Plan, root: Path, model: Model, own: int) -> None:
    last = plan.methods[-1].name
    tasks = plan.tasks[:1] if plan.partial and model.run.startswith(f"{last}-") else plan.tasks
    scores = make_scores(model, documents=plan.documents, seed=plan.seed, tasks=tasks, own=own)
    folder = write_evaluation(root, model, scores)
    if plan.planned is not None and model.step:
        held = read_json(folder / "result.json")
        write_json(folder / "result.json", held | {"provenance": held["provenance"] | {"planned_end": plan.planned}})


def _starts(plan: Plan) -> list[tuple[str, str, Method | None, int]]:
    """Name, model, method and seed of what a downstream task starts from; the base last."""
    length, found = plan.lengths[0], []
    for method in plan.methods:
        for seed in range(plan.seeds):
            run = f"{method.name}-{length}-s{seed}"
            found.append((run, f"runs/{run}/checkpoint-{100 * len(method.skills)}", method, seed))
    return [*found, ("base", "base", None, 0)]


def _relation_runs(plan: Plan, rng: np.random.Generator) -> Sequence[TaskRun]:
    gold = rng.random(_ROWS) < 0.7
    sentences = np.arange(_ROWS, dtype=np.int32) // 2
    skills = _downstream(plan, rng)
    out = []
    for name, model, method, _ in _starts(plan):
        right = (rng.random((_ROWS, 2)) < skills[method.name if method else ""]) & gold[:, None]
        given = right | (rng.random((_ROWS, 2)) < 0.7)
        facts = RowFacts(gold, right, given, sentences)
        result = relation_result(model, range(2), n=_ROWS, micro_f1=100 * float(facts.f1().mean()))
        out.append(TaskRun(f"re-{name}", result, facts))
    return out


def _coreference_runs(plan: Plan, rng: np.random.Generator) -> Sequence[TaskRun]:
    mentions = rng.integers(20, 60, size=_TEXTS)
    skills = _downstream(plan, rng)
    out = []
    for name, model, method, seed in _starts(plan):
        sums = {way: mention_sums(mentions, skills[method.name if method else ""], rng) for way in MODES}
        marks = tuple(f"text-{number}" for number in range(_TEXTS))
        made = None if method is None else Provenance(
            f"{method.name}-{plan.lengths[0]}-s{seed}", 100 * len(method.skills), 1.0, method.tokens, method.objective, "base",
            plan.lengths[0], seed,
        )  # fmt: skip
        weights = f"w{name}{100 * len(method.skills) if method else 0}"  # as in the evaluations of the same encoders
        prints = {"weights": weights}
        result = coreference_result(model, run=name, mentions=int(mentions.sum()), fingerprints=prints, pretraining=made)
        out.append(TaskRun(f"coref-{name}", result, DocumentSums(marks, mentions, sums)))
    return out


def _downstream(plan: Plan, rng: np.random.Generator) -> dict[str, float]:
    """How often a start is right: most methods as the base, some better."""
    return {"": 0.6} | {method.name: 0.6 + float(rng.choice([0.0, 0.0, 0.2])) for method in plan.methods}


def small(seed: int = 0, **changes: object) -> Plan:
    """One method that beats the base and one that ties with it, three seeds: what seeded contradictions are edited into."""
    methods = (Method("mlm", (-1.0, -1.0)), Method("entity", (-0.2, 0.5)), Method("combined", (-0.2, 0.5)))
    plan = Plan(seed, methods, 3, (128,), 60, ("real",), planned=True, relation=True)
    return replace(plan, **changes)  # type: ignore[arg-type]
