"""Tuning relation extraction. In: models and relation rows. Out: a Problem whose trials are relation runs of one seed.

`select` is the sentence-disjoint slice of train that also chooses a run's epoch; the verdict is on `dev`, which chooses nothing.
A trial reports its best score so far after every epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.config import choose, from_mapping, to_mapping
from coref_automl.base.errors import TuningError
from coref_automl.base.folders import EVENTS, remove
from coref_automl.base.job import Job
from coref_automl.base.machine import device_seen
from coref_automl.base.progress import Progress
from coref_automl.base.records import Half
from coref_automl.corpus.batch import skipped
from coref_automl.extras.relation.data import RelationData, read_relations, sentence_key, split_by_sentence
from coref_automl.extras.relation.metrics import Scored, method_verdict
from coref_automl.extras.relation.recipe import RelationRecipe, default_learning_rate
from coref_automl.extras.relation.rows import gold_indices
from coref_automl.extras.relation.scoring import read_predictions, read_scores, rows_fingerprint
from coref_automl.extras.relation.train import VALIDATION, train_relation
from coref_automl.extras.tune.portfolio import relation_space
from coref_automl.extras.tune.problem import (
    Problem,
    Report,
    Start,
    events_of,
    job_of,
    models_bytes,
    run_folder,
    shape_of,
    whole_space,
)
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.space import check_ends
from coref_automl.models.model_files import weights_fingerprint
from coref_automl.statistics.closed_forms import LEVEL, NORMAL
from coref_automl.statistics.planning import Paired

METRICS = {"micro_f1": "micro-F1", "auprc": "AUPRC"}


@dataclass(eq=False, kw_only=True)
class RelationProblem(Problem):
    recipe: TuneRecipe
    out: Path
    judged: RelationData
    fingerprints: dict[str, str]
    best: dict[str, float] = field(default_factory=dict)

    def starts(self) -> list[Start]:
        points = [self.space.point(self.defaults(model), self.fixed) for model in self.recipe.models]
        return [Start("recommended", "recommended", point) for point in points]

    def defaults(self, model: str) -> dict[str, Any]:
        rate = default_learning_rate(shape_of(model)[1])
        return {**to_mapping(RelationRecipe("", "", "")), "learning_rate": rate, "model": model}

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:  # noqa: ARG002
        """Return the job of a run; every run is scored on the rows of the verdict."""
        recipe = self._relation_recipe(params, seed)
        names = (f"model {recipe.model}", "train", "dev")
        fingerprints = {name: self.fingerprints[name] for name in names if name in self.fingerprints}
        return job_of(train_job, self.task, recipe, fingerprints, self.out)

    def _relation_recipe(self, params: Mapping[str, Any], seed: int) -> RelationRecipe:
        values = {"model": self.recipe.models[0], **self.recipe.settings, **params}
        values.pop("average", None)
        values |= {"train": self.recipe.train, "dev": self.recipe.dev, "out": "", "seeds": 1, "first_seed": seed}
        values |= {"device": device_seen(self.recipe.device), "choose_by": self.metric, "epochs": int(self.recipe.epochs or 5)}
        return from_mapping(RelationRecipe, values, "settings")

    def reports(self, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        """Report the best score so far, kept between calls: how often events are read must not change a score."""
        for event in events:
            if event["event"] == "epoch":
                previous = self.best.get(job.key, 0.0) if event["epoch"] > 1 else 0.0  # a first epoch restarts the run
                self.best[job.key] = max(previous, float(event[self.metric]) / 100)
                yield Report(max(1, REPORTS * event["epoch"] // event["epochs"]), self.best[job.key])

    def cost(self, job: Job) -> dict[str, float]:
        times = [float(event["time"]) for event in events_of(job).rows()]
        return {"tokens": 0.0, "seconds": times[-1] - times[0] if times else 0.0}

    def best_recipe(self, params: Mapping[str, Any], out: Path) -> RelationRecipe:
        recipe = self._relation_recipe(params, self.recipe.seed)
        return dataclasses.replace(recipe, out=str(out), seeds=3, device="auto")

    def weights(self, job: Job) -> Path:
        model = self._seed_folder(job) / "model"
        if not model.is_dir():
            raise TuningError(f"{model} is gone; remove {job.folder} and run the same command again.")
        return model

    def drop_weights(self, job: Job, *, keep_last: bool = False) -> None:
        if not keep_last:
            remove(self._seed_folder(job) / "model")

    def _seed_folder(self, job: Job) -> Path:
        return run_folder(job) / f"seed-{job.recipe['first_seed']}"

    def confirmed(self, jobs: list[Job]) -> list[float]:
        scores = (read_scores(self._predictions(job, "json")) for job in jobs)
        return [float(getattr(score, self.metric)) / 100 for score in scores]

    def paired(self, ours: list[Job], theirs: list[Job], _half: Half) -> Paired:
        """Compare on the rows of the verdict for either half: a run keeps no predictions of those that chose its epoch."""
        answered = [set(read_predictions(self._predictions(job))[0]) for job in (*ours, *theirs)]
        shared = set.intersection(*answered)  # skipped rows may differ: one scheme can mark a row that another cannot
        sides = self._scored(ours, shared), self._scored(theirs, shared)
        verdict = method_verdict(*sides, metric=self.metric, seed=0)
        width = verdict.over_documents.high - verdict.over_documents.low
        per_seed = sides[0].per_seed(self.metric) - sides[1].per_seed(self.metric)
        return Paired(
            tuple(per_seed.tolist()), width / (2 * NORMAL.inv_cdf((1 + LEVEL) / 2)), len(set(sides[0].sentences)), len(shared)
        )

    def _predictions(self, job: Job, suffix: str = "jsonl") -> Path:
        return self._seed_folder(job) / "predictions" / f"{self.judged.split}.{suffix}"

    def _scored(self, jobs: list[Job], shared: set[str]) -> Scored:
        by_run = []
        for job in jobs:
            ids, _, probabilities = read_predictions(self._predictions(job))
            by_run.append(probabilities[[row in shared for row in ids]])
        rows = [row for row in self.judged.rows if row.guid in shared]
        sentences = np.array([sentence_key(row.sentence) for row in rows])
        return Scored(gold_indices(rows), np.stack(by_run), sentences)


def open_relation(recipe: TuneRecipe, out: Path, progress: Progress) -> RelationProblem:
    """Read the rows, so that a bad file is refused before any trial, and settle the space."""
    metric = recipe.metric or "micro_f1"
    choose(metric, METRICS, "metric")
    skip_bad = bool(recipe.settings.get("skip_bad"))
    train = read_relations(str(recipe.train), skip_bad=skip_bad, max_rows=recipe.settings.get("max_rows"))
    dev = read_relations(recipe.dev, skip_bad=skip_bad) if recipe.dev else None
    for data in (train, *([dev] if dev else [])):
        if data.problems:
            progress.note(skipped(len(data.problems), data.split))
    if dev is None:
        progress.note(
            "--dev가 없어 에폭을 고른 학습 문장으로 판정합니다. 독립적인 판정이 아닙니다.",
            "No --dev: the verdict uses the training sentences that also chose the epoch, so it is not independent.",
        )
    held_out = split_by_sentence(train.rows, float(recipe.settings.get("holdout", RelationRecipe("", "", "").holdout)))[1]
    fingerprints = {"train": rows_fingerprint(train.rows)} | ({"dev": rows_fingerprint(dev.rows)} if dev else {})
    fingerprints |= {f"model {model}": weights_fingerprint(model) for model in recipe.models}
    fingerprints["models"] = models_bytes(recipe)
    space = whole_space(
        recipe, lambda: relation_space(min(shape_of(model)[1] for model in recipe.models)), {"model": recipe.models}
    )
    problem = RelationProblem(
        recipe=recipe, out=out, metric=metric, label=METRICS[metric], space=space, task="re", fingerprints=fingerprints,
        judged=(judged := dev or RelationData(VALIDATION, held_out)), confirm_name=judged.split,
        shape=("", shape_of(recipe.models[0])[1]),
        fixed={**to_mapping(RelationRecipe("", "", "")), **recipe.settings, "model": recipe.models[0]},
        binding={
            "task": "re", "metric": metric, "seed": recipe.seed, "space": space.plain(), "settings": recipe.settings,
            "budget": {"epochs": recipe.epochs}, "bytes": fingerprints,
        },
    )  # fmt: skip
    check_ends(space, problem.defaults(recipe.models[0]), problem.fixed, lambda params: bool(problem.job(params, recipe.seed)))
    return problem


def train_job(job: Job) -> None:
    """Do the work of a trial, in a process of its own: a relation run of one seed that reports every epoch."""
    recipe = from_mapping(RelationRecipe, job.recipe, "trial")
    events = Progress(shown=False, events=run_folder(job) / EVENTS)

    def report(_seed: int, epoch: int, scores: Any) -> None:
        events.event("epoch", epoch=epoch, epochs=recipe.epochs, micro_f1=scores.micro_f1, auprc=scores.auprc)

    train_relation(recipe, progress=Progress(), on_epoch=report)
