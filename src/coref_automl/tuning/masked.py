"""Tuning continued pretraining. In: models, datasets or texts, an evaluation set. Out: a Problem; a trial is a training run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import choose, from_mapping, to_mapping
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.engine.job import Job
from coref_automl.errors import EvaluationError, RecipeError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.evaluation.results import StoredEvaluation, find_evaluations
from coref_automl.machine import device_seen
from coref_automl.progress import Progress
from coref_automl.records import Half
from coref_automl.statistics.methods import MethodVerdict, composite_verdicts
from coref_automl.store import natural_order
from coref_automl.training.folder import remove_checkpoint
from coref_automl.training.recipe import TrainRecipe, check, recommended
from coref_automl.tuning.halves import clusters_of, decode_hits, encode_hits, split_set
from coref_automl.tuning.problem import Follower, Report, job_key, models_bytes
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.space import Space, masked_space, read_space
from coref_automl.tuning.work import MASKED

TRIALS = "trials"


@dataclass(frozen=True, slots=True, eq=False)
class MaskedProblem:
    """A masked-language-model study, opened: nothing is missing that a trial would stumble over."""

    recipe: TuneRecipe
    out: Path
    metric: str
    space: Space
    datasets: dict[str, PackedDataset]
    halves: dict[Half, EvalSet]
    prints: dict[str, str]
    task: str = "mlm"
    fixed: dict[str, Any] = field(default_factory=dict)
    binding: dict[str, Any] = field(default_factory=dict)
    clusters: tuple[NDArray[np.str_], ...] = ()
    confirm_name: str = "confirm"

    @property
    def label(self) -> str:
        return METRICS[self.metric].label

    def recommended(self) -> list[dict[str, Any]]:
        """The recommended settings for each model, dataset and objective: the first trials, and the verdict's reference."""
        points: list[dict[str, Any]] = []
        known = {dimension.name: dimension for dimension in self.space}
        objectives = known["objective"].choices if "objective" in known else (self.fixed["objective"],)
        words = bool(self.recipe.settings.get("words_from"))
        for model in self.recipe.models:
            for name, dataset in self.datasets.items():
                advice = dataclasses.asdict(recommended(dataset.seq_len, model, words=words))
                for objective in objectives:
                    wanted = {**_DEFAULTS, **advice, "model": model, "dataset": name, "objective": objective}
                    point = self.space.point(wanted, self.fixed)
                    if point not in points:
                        points.append(point)
        return points

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        recipe = self._train_recipe(params, seed)
        model, dataset = recipe.model, params.get("dataset", next(iter(self.datasets)))
        prints = {name: self.prints[name] for name in (f"model {model}", f"dataset {dataset}", "eval_set")}
        key = job_key(self.task, to_mapping(recipe), prints)
        folder = self.out / TRIALS / key
        recipe = dataclasses.replace(recipe, out=str(folder / f"run-{key}"))
        return Job(MASKED, key, str(folder), to_mapping(recipe), str(self.halves["confirm"].folder) if confirm else None)

    def _train_recipe(self, params: Mapping[str, Any], seed: int) -> TrainRecipe:
        values = {**self.recipe.settings, **params}
        values["model"] = values.get("model", self.recipe.models[0])
        values["dataset"] = str(self.datasets[values.get("dataset", next(iter(self.datasets)))].folder)
        word = METRICS[self.metric].rule == "word"
        budget = {name: getattr(self.recipe, name) for name in ("epochs", "max_tokens", "max_minutes")}
        if not any(budget.values()):
            budget["epochs"] = 1.0
        return from_mapping(
            TrainRecipe,
            {
                **values,
                **budget,
                "out": "",
                "seed": seed,
                "device": device_seen(self.recipe.device),
                "checkpoints": REPORTS,
                "keep_best": True,
                "eval_set": str(self.halves["select"].folder),
                "eval_words": "all" if word else "none",
                "metric": self.metric,
            },
            "settings",
        )

    def reports(self, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        """A report is an evaluation event of the run; its hits are read from the evaluation it speaks of."""
        for event in events:
            if event["event"] != "evaluation":
                continue
            step = min(REPORTS, max(1, int(REPORTS * event["progress"] + 1e-3)))
            stored = _evaluation_of(job, event["checkpoint"], self.halves["select"])
            yield Report(step, float(event["value"]), encode_hits(stored.scores(), self.metric))

    def cost(self, job: Job) -> dict[str, float]:
        last = {"tokens": 0.0, "seconds": 0.0}
        for event in Follower(job.run / "events.ndjson").rows():
            if event["event"] == "step":
                last = {name: float(event[name]) for name in last}
        return last

    def best_recipe(self, params: Mapping[str, Any], out: Path) -> TrainRecipe:
        recipe = self._train_recipe(params, self.recipe.seed)
        return dataclasses.replace(
            recipe,
            out=str(out),
            eval_set=self.recipe.eval_set or str(bundled_eval_set()),
            eval_words="all",
            checkpoints=None,
            keep_best=False,
            device="auto",
        )

    def weights(self, job: Job) -> Path:
        """The last checkpoint: the one whose score the trial is known by."""
        found = sorted((path.parent for path in job.run.glob("checkpoint-*/training.json")), key=natural_order)
        if not found:
            raise EvaluationError(f"{job.run} has no checkpoint; remove {job.folder} and run the same command again.")
        return found[-1]

    def drop_weights(self, job: Job) -> None:
        for checkpoint in job.run.glob("checkpoint-*/"):
            with suppress(OSError):  # a task that is being stopped elsewhere may still write
                remove_checkpoint(checkpoint)

    def confirmed(self, jobs: list[Job]) -> list[float]:
        return [float(sum(part.mean() for part in values)) for values in self._confirm_values(jobs)]

    def verdict(self, ours: list[Job], theirs: list[Job], seed: int) -> MethodVerdict:
        """Over the pairs of runs of one seed; each task of a composite is resampled by its own documents."""
        clusters = clusters_of(self.halves["confirm"], self.metric)
        mine, other = ([np.stack(task) for task in zip(*self._confirm_values(jobs), strict=True)] for jobs in (ours, theirs))
        return composite_verdicts([[a - b for a, b in zip(mine, other, strict=True)]], clusters, seed=seed)[0]

    def _confirm_values(self, jobs: list[Job]) -> list[tuple[NDArray[np.float64], ...]]:
        half = self.halves["confirm"]
        return [decode_hits(encode_hits(_newest_evaluation(job, half).scores(), self.metric)) for job in jobs]


def open_masked(recipe: TuneRecipe, out: Path, progress: Progress) -> MaskedProblem:
    """Check everything a trial will need, prepare texts where they are given, and settle the space."""
    from coref_automl.models.build import NEW
    from coref_automl.models.load import load_tokenizer, weights_fingerprint

    metric = recipe.metric or PRIMARY
    choose(metric, METRICS, "metric")
    original = EvalSet.open(Path(recipe.eval_set) if recipe.eval_set else bundled_eval_set())
    datasets = open_datasets(recipe, original, out, progress)
    scratch = [model.startswith(NEW) for model in recipe.models]
    if any(scratch) and not all(scratch):
        raise RecipeError("Models with random weights and pretrained ones need different ranges; tune them in two studies.")
    halves = split_set(original, out / "evalsets", metric, limit=recipe.eval_items)
    prints = {f"dataset {name}": dataset.fingerprint for name, dataset in datasets.items()}
    prints["eval_set"] = halves["select"].fingerprint
    for model in recipe.models:
        prints[f"model {model}"] = model if model.startswith(NEW) else weights_fingerprint(model)
        tokenizer = load_tokenizer(str(recipe.settings.get("tokenizer") or model))
        for half in halves.values():
            half.noun_table(tokenizer)
    prints["models"] = models_bytes(recipe)
    space = settle_space(recipe, datasets, scratch=all(scratch))
    fixed = {**to_mapping(TrainRecipe("", "", "")), **recipe.settings, "model": recipe.models[0]}
    budget = {name: getattr(recipe, name) for name in ("epochs", "max_tokens", "max_minutes")}
    binding = {
        "task": "mlm", "metric": metric, "seed": recipe.seed, "space": space.plain(), "settings": recipe.settings,
        "budget": budget, "bytes": prints,
    }  # fmt: skip
    clusters = clusters_of(halves["select"], metric)
    problem = MaskedProblem(recipe, out, metric, space, datasets, halves, prints, fixed=fixed, binding=binding, clusters=clusters)
    _check_ends(problem)
    return problem


def _check_ends(problem: MaskedProblem) -> None:
    """Every end of every dimension is a recipe that training accepts, so that no trial fails by its settings alone."""
    start = problem.recommended()[0]
    for dimension in problem.space:
        for value in dimension.ends():
            job = problem.job({**start, dimension.name: value}, problem.recipe.seed)
            check(from_mapping(TrainRecipe, job.recipe, f"space: {dimension.name}"))


def _evaluation_of(job: Job, checkpoint: str, half: EvalSet) -> StoredEvaluation:
    """The evaluation of a run's checkpoint on the very items of a half, whatever its folder is called."""
    return _on(half, job, find_evaluations(sorted(job.run.glob(f"evaluations/*/{checkpoint}"))))[-1]


def _newest_evaluation(job: Job, half: EvalSet) -> StoredEvaluation:
    found = _on(half, job, find_evaluations([job.run]))
    return max(reversed(found), key=lambda one: natural_order(one.folder.name))


def _on(half: EvalSet, job: Job, stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    found = [one for one in stored if one.evaluation.fingerprints.get("items") == half.fingerprint]
    if not found:
        raise EvaluationError(f"{job.run} has no evaluation on {half.name}; run the same command again.")
    return sorted(found, key=lambda one: one.evaluation.evaluated_at)


_DEFAULTS = {
    name: value
    for name, value in to_mapping(TrainRecipe("", "", "")).items()
    if name in ("layer_decay", "entity_rate", "background", "ratio", "clip", "schedule", "whole_word", "replacement",
                "cross_document", "policy", "gradient_checkpointing", "dropout")
}  # fmt: skip


def open_datasets(recipe: TuneRecipe, evalset: EvalSet, out: Path, progress: Progress) -> dict[str, PackedDataset]:
    """The prepared datasets by name; texts are prepared first, one folder per length."""
    if recipe.datasets:
        return _labelled([PackedDataset.open(Path(folder)) for folder in recipe.datasets])
    from coref_automl.corpus.prepare import prepare
    from coref_automl.corpus.recipe import PrepareRecipe

    texts = recipe.texts
    assert texts is not None  # a TuneRecipe has datasets or texts
    found = []
    for length in texts.seq_lens:
        folder = out / "datasets" / f"blocks-{length}"
        wanted = PrepareRecipe(
            mode="combined",
            sources=texts.sources,
            model=str(recipe.settings.get("tokenizer") or recipe.models[0]),
            seq_len=length,
            eval_sets=(str(evalset.folder),),
            holdout=0.0,
            limit=texts.limit,
            near_duplicates=texts.near_duplicates,
        )
        prepare(wanted, folder, progress=progress)
        found.append(PackedDataset.open(folder))
    return _labelled(found)


def _labelled(datasets: Sequence[PackedDataset]) -> dict[str, PackedDataset]:
    """Datasets by the name of their folder, so that machines with other paths share a study."""
    names = [dataset.folder.resolve().name for dataset in datasets]
    if len(set(names)) == len(names):
        return dict(zip(names, datasets, strict=True))
    return {str(dataset.folder): dataset for dataset in datasets}


def settle_space(recipe: TuneRecipe, datasets: dict[str, PackedDataset], *, scratch: bool) -> Space:
    """The recipe's own space, or the one for its lengths and families; several models or datasets are dimensions of it."""
    from coref_automl.models.build import NEW, SHAPES
    from coref_automl.models.model_files import config_of, folder_of

    given = recipe.space
    families = [
        choose(model.removeprefix(NEW), SHAPES, "shape").family if scratch else config_of(folder_of(model))["model_type"]
        for model in recipe.models
    ]
    if given is not None and "policy" in given and "deberta-v2" not in families:
        raise RecipeError(f"space: policy changes nothing in {families[0]}, only how DeBERTa-v2 is lengthened; leave it out.")
    if given is None:
        given = masked_space(
            lengths=[dataset.seq_len for dataset in datasets.values()],
            rows=min(len(dataset) for dataset in datasets.values()),
            families=families,
            scratch=scratch,
            chains=all(len(dataset.mentions) for dataset in datasets.values()),
            minutes=recipe.max_minutes is not None,
        )
        given = {name: entry for name, entry in given.items() if name not in recipe.settings}
    sides = {"model": recipe.models, "dataset": tuple(datasets)}
    for name in sides:
        if name in given:
            raise RecipeError(f"space: {name} becomes a dimension when --{name} is given several times; leave it out.")
    whole = {**{name: list(values) for name, values in sides.items() if len(values) > 1}, **given}
    if both := sorted(set(whole) & set(recipe.settings)):
        raise RecipeError(f"{both[0]} is in settings and in space; keep it in one of them.")
    return read_space(whole, "mlm")
