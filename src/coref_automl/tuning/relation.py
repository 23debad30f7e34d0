"""Tuning relation extraction. In: models and relation rows. Out: a Problem whose trials are relation runs of one seed.

`select` is the sentence-disjoint slice of train that also chooses a run's epoch; the verdict is on `dev`, which chooses nothing.
A trial reports after every epoch, the best so far; trials are cut by successive halving alone, as a micro-F1 has no hits by item.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import choose, from_mapping, to_mapping
from coref_automl.engine.job import Job
from coref_automl.errors import RecipeError
from coref_automl.machine import device_seen
from coref_automl.progress import Progress
from coref_automl.relation.data import RelationData, read_relations, sentence_key, split_by_sentence
from coref_automl.relation.labels import gold_indices
from coref_automl.relation.metrics import Scored, Scores, method_verdict
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.relation.results import read_predictions
from coref_automl.relation.scoring import rows_fingerprint
from coref_automl.relation.stored import read_scores
from coref_automl.relation.train import VALIDATION
from coref_automl.say import skipped
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.store import remove
from coref_automl.tuning.problem import Follower, Report, job_key, models_bytes
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.space import Space, read_space, relation_space
from coref_automl.tuning.work import RELATION

METRICS = {"micro_f1": "micro-F1", "auprc": "AUPRC"}


@dataclass(frozen=True, slots=True, eq=False)
class RelationProblem:
    """A study of relation extraction, opened."""

    recipe: TuneRecipe
    out: Path
    metric: str
    space: Space
    judged: RelationData
    prints: dict[str, str]
    task: str = "re"
    fixed: dict[str, Any] = field(default_factory=dict)
    binding: dict[str, Any] = field(default_factory=dict)
    clusters: tuple[NDArray[np.str_], ...] = ()
    best: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return METRICS[self.metric]

    @property
    def confirm_name(self) -> str:
        return self.judged.split

    def recommended(self) -> list[dict[str, Any]]:
        plain = to_mapping(RelationRecipe("", "", ""))
        points = []
        for model in self.recipe.models:
            rate = 3e-4 if _hidden(model) < 512 else 5e-5
            points.append(self.space.point({**plain, "learning_rate": rate, "model": model}, self.fixed))
        return points

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        recipe = self._relation_recipe(params, seed)
        prints = {name: self.prints[name] for name in (f"model {recipe.model}", "train", "dev") if name in self.prints}
        key = job_key(self.task, to_mapping(recipe), prints)
        folder = self.out / "trials" / key
        recipe = dataclasses.replace(recipe, out=str(folder / f"run-{key}"))
        return Job(RELATION, key, str(folder), to_mapping(recipe), self.judged.split if confirm else None)

    def _relation_recipe(self, params: Mapping[str, Any], seed: int) -> RelationRecipe:
        values = {"model": self.recipe.models[0], **self.recipe.settings, **params}
        values |= {"train": self.recipe.train, "dev": self.recipe.dev, "out": "", "seeds": 1, "first_seed": seed}
        values |= {"device": device_seen(self.recipe.device), "choose_by": self.metric, "epochs": int(self.recipe.epochs or 5)}
        return from_mapping(RelationRecipe, values, "settings")

    def reports(self, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        """The best so far, which outlives one look at the events: how often the parent looks must not change a score."""
        for event in events:
            if event["event"] == "epoch":
                before = self.best.get(job.key, 0.0) if event["epoch"] > 1 else 0.0  # a first epoch begins the run anew
                self.best[job.key] = max(before, float(event[self.metric]) / 100)
                yield Report(max(1, REPORTS * event["epoch"] // event["epochs"]), self.best[job.key])

    def cost(self, job: Job) -> dict[str, float]:
        times = [float(event["time"]) for event in Follower(job.run / "events.ndjson").rows()]
        return {"tokens": 0.0, "seconds": times[-1] - times[0] if times else 0.0}

    def best_recipe(self, params: Mapping[str, Any], out: Path) -> RelationRecipe:
        recipe = self._relation_recipe(params, self.recipe.seed)
        return dataclasses.replace(recipe, out=str(out), seeds=max(3, self.recipe.seeds), device="auto")

    def weights(self, job: Job) -> Path:
        return job.run / f"seed-{job.recipe['first_seed']}" / "model"

    def drop_weights(self, job: Job) -> None:
        for folder in job.run.glob("seed-*/model"):
            remove(folder)

    def confirmed(self, jobs: list[Job]) -> list[float]:
        return [float(getattr(self._scores(job), self.metric)) / 100 for job in jobs]

    def verdict(self, ours: list[Job], theirs: list[Job], seed: int) -> MethodVerdict:
        answered = [set(read_predictions(self._path(job))[0]) for job in (*ours, *theirs)]
        shared = set.intersection(*answered)  # skipped rows may differ: one scheme can mark a row that another cannot
        return method_verdict(self._scored(ours, shared), self._scored(theirs, shared), metric=self.metric, seed=seed)

    def _predictions(self, job: Job) -> Path:
        return job.run / f"seed-{job.recipe['first_seed']}" / "predictions"

    def _scores(self, job: Job) -> Scores:
        return read_scores(self._predictions(job) / f"{self.judged.split}.json")[1]

    def _path(self, job: Job) -> Path:
        return self._predictions(job) / f"{self.judged.split}.jsonl"

    def _scored(self, jobs: list[Job], shared: set[str]) -> Scored:
        found = []
        for job in jobs:
            ids, _, probabilities = read_predictions(self._path(job))
            found.append(probabilities[[row in shared for row in ids]])
        rows = [row for row in self.judged.rows if row.guid in shared]
        sentences = np.array([sentence_key(row.sentence) for row in rows])
        return Scored(gold_indices(rows), np.stack(found), sentences)


def open_relation(recipe: TuneRecipe, out: Path, progress: Progress) -> RelationProblem:
    """Read the rows once, so that a bad file is an error now, and settle the space."""
    from coref_automl.models.load import weights_fingerprint

    metric = recipe.metric or "micro_f1"
    choose(metric, METRICS, "metric")
    skip_bad = bool(recipe.settings.get("skip_bad"))
    train = read_relations(str(recipe.train), skip_bad=skip_bad, max_rows=recipe.settings.get("max_rows"))
    dev = read_relations(recipe.dev, skip_bad=skip_bad) if recipe.dev else None
    for read in (train, *([dev] if dev else [])):
        if read.problems:
            progress.note(skipped(len(read.problems), read.split))
    if dev is None:
        progress.note(
            progress.say(
                "--dev가 없어 에폭을 고른 학습 문장으로 판정합니다. 독립적인 판정이 아닙니다.",
                "No --dev: the verdict uses the training sentences that also chose the epoch, so it is not independent.",
            )
        )
    held = split_by_sentence(train.rows, float(recipe.settings.get("holdout", RelationRecipe("", "", "").holdout)))[1]
    prints = {"train": rows_fingerprint(train.rows)} | ({"dev": rows_fingerprint(dev.rows)} if dev else {})
    prints |= {f"model {model}": weights_fingerprint(model) for model in recipe.models}
    prints["models"] = models_bytes(recipe)
    given = recipe.space
    if given is None:
        given = relation_space(min(_hidden(model) for model in recipe.models))
        given = {name: entry for name, entry in given.items() if name not in recipe.settings}
    whole = {**({"model": list(recipe.models)} if len(recipe.models) > 1 else {}), **given}
    if both := sorted(set(whole) & set(recipe.settings)):
        raise RecipeError(f"{both[0]} is in settings and in space; keep it in one of them.")
    space = read_space(whole, "re")
    fixed = {**to_mapping(RelationRecipe("", "", "")), **recipe.settings, "model": recipe.models[0]}
    binding = {
        "task": "re", "metric": metric, "seed": recipe.seed, "space": space.plain(), "settings": recipe.settings,
        "budget": {"epochs": recipe.epochs}, "bytes": prints,
    }  # fmt: skip
    problem = RelationProblem(
        recipe, out, metric, space, dev or RelationData(VALIDATION, held), prints, fixed=fixed, binding=binding
    )
    start = problem.recommended()[0]
    for dimension in space:
        for value in dimension.ends():
            problem.job({**start, dimension.name: value}, recipe.seed)  # a recipe checks itself
    return problem


def _hidden(model: str) -> int:
    from coref_automl.models.model_files import config_of, folder_of

    return int(config_of(folder_of(model)).get("hidden_size", 768))
