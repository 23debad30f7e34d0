"""Tuning continued pretraining. In: models, datasets or texts, an evaluation set. Out: a Problem; a trial is a training run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.base.config import from_mapping, to_mapping
from coref_automl.base.errors import EvaluationError, RecipeError
from coref_automl.base.folders import AVERAGE, is_done, natural_order
from coref_automl.base.job import Job
from coref_automl.base.machine import device_seen
from coref_automl.base.progress import Progress
from coref_automl.base.records import Estimate, Half, ItemScore
from coref_automl.comparison.claims import QuestionId
from coref_automl.comparison.outside_checks import CHECKS, CheckStage, TaskData
from coref_automl.comparison.power import Evidence
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare_texts
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.results import StoredEvaluation, find_evaluations
from coref_automl.evaluation.slot import SCORER
from coref_automl.extras.tune.portfolio import known_entries, settle_space
from coref_automl.extras.tune.problem import (
    Problem,
    Report,
    RunJobs,
    Start,
    events_of,
    job_of,
    models_bytes,
    run_folder,
    shape_of,
)
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.score import (
    Score,
    open_checks,
    outside_difference,
    power_of,
    prepare_vocabularies,
    score_of,
    split_set,
)
from coref_automl.extras.tune.space import TUNABLE, Space, check_ends, check_settings, read_space, refuse_idle
from coref_automl.models.build import NEW
from coref_automl.models.load import load_masked_lm, load_tokenizer, tokenizer_fingerprint
from coref_automl.models.model_files import weights_fingerprint
from coref_automl.statistics.planning import Paired
from coref_automl.training.batches import BatchPlan
from coref_automl.training.folder import checkpoints_of, remove_checkpoint
from coref_automl.training.recipe import LOSS_SETTINGS, TrainRecipe, check, recommended
from coref_automl.training.state import drop_states

AVERAGED = 2
"""Last checkpoints whose average is a second candidate of every trial."""
PLAIN = to_mapping(TrainRecipe("", "", ""))
DEFAULTS = {
    **{name: PLAIN[name] for name in TUNABLE["mlm"] if PLAIN[name] is not None},
    **{name: value for name, (_, value) in LOSS_SETTINGS.items()},
    "far_weight": 1.0,
    "dropout": 0.0,
}
"""Defaults of `train` that do not depend on length and family; `recommended` has the others."""


@dataclass(eq=False, kw_only=True)
class MaskedProblem(Problem):
    """A masked-language-model study, opened and checked, so that no trial fails for want of something."""

    recipe: TuneRecipe
    out: Path
    datasets: dict[str, PackedDataset]
    halves: dict[Half, EvalSet]
    fingerprints: dict[str, str]
    score: Score
    checks: dict[QuestionId, tuple[CheckStage, TaskData]]

    def starts(self) -> list[Start]:
        """Return per model and dataset: `train`'s own default, the recommended settings of every objective, the portfolio."""
        starts: list[Start] = []
        objectives = self.space.get("objective")
        for model in self.recipe.models:
            entries = known_entries(*shape_of(model)) if self.recipe.portfolio and not model.startswith(NEW) else []
            for name, dataset in self.datasets.items():
                defaults = {**self.train_defaults(model, dataset), "dataset": name}
                for objective in objectives.choices if objectives else (self.fixed["objective"],):
                    point = self.space.point({**defaults, "objective": objective}, self.fixed)
                    starts.append(Start("default" if objective == "mlm" else "recommended", objective, point))
                for entry in entries:
                    if all(self._offers(key, value) for key, value in entry.settings.items()):
                        point = self.space.point({**defaults, **self._at_study_batch(entry.settings)}, self.fixed)
                        starts.append(Start("portfolio", entry.name, point))
        return [start for n, start in enumerate(starts) if start.params not in [earlier.params for earlier in starts[:n]]]

    def train_defaults(self, model: str, dataset: PackedDataset) -> dict[str, Any]:
        """Return what `train` would take for these rows, with the batch of the study."""
        advice = recommended(dataset.seq_len, model, words=bool(self.recipe.settings.get("words_from")))
        batches = self.space.get("batch")
        batch = self.recipe.settings.get("batch") or (batches.nearest(advice.batch) if batches else advice.batch)
        return _with_batch({**DEFAULTS, **asdict(advice), "model": model}, batch)

    def _at_study_batch(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a portfolio entry, with the batch that the study fixes."""
        batch = self.recipe.settings.get("batch")
        return _with_batch(settings, batch) if batch and {"batch", "learning_rate"} <= set(settings) else settings

    def _offers(self, name: str, value: Any) -> bool:
        """Can a trial of this study have this setting? A fixed batch rules none out."""
        if name == "batch" and "batch" in self.recipe.settings:
            return True
        dimension = self.space.get(name)
        return dimension.offers(value) if dimension else bool(self.fixed.get(name) == value)

    def power(self) -> Evidence:
        return power_of(self.halves["confirm"], self.score, self.recipe)

    def accepts(self, params: dict[str, Any]) -> bool:
        try:
            check(self.training(params, self.recipe.seed))
        except RecipeError:
            return False
        return True

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        recipe = self.training(params, seed)
        names = (f"model {recipe.model}", f"dataset {self._dataset_name(params)}", "eval_set")
        more = {"confirm": str(self.halves["confirm"].folder)} if confirm else {}
        return job_of(train_masked, self.task, recipe, {name: self.fingerprints[name] for name in names}, self.out, **more)

    def _dataset_name(self, params: Mapping[str, Any]) -> str:
        """Return the trial's dataset; it is a dimension only if there are several."""
        return str(params.get("dataset", next(iter(self.datasets))))

    def training(self, params: Mapping[str, Any], seed: int) -> TrainRecipe:
        values = {**self.recipe.settings, "average": self.averaged, **params}
        values["average"] = values["average"] or None  # a training recipe says None where nothing is averaged
        values["model"] = values.get("model", self.recipe.models[0])
        values["dataset"] = str(self.datasets[self._dataset_name(params)].folder)
        budget = _budget(self.recipe)
        if not any(budget.values()):
            budget["epochs"] = 1.0
        decided = {
            "out": "", "seed": seed, "device": device_seen(self.recipe.device), "checkpoints": REPORTS, "metric": self.score.main,
            "eval_set": str(self.halves["select"].folder),
        }  # fmt: skip
        return from_mapping(TrainRecipe, {**values, **budget, **decided}, "settings")

    def reports(self, job: Job, events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        """Report every evaluation event of the run, with the scores of the evaluation that it names."""
        for event in events:
            averaged = event["event"] == AVERAGE
            if averaged or event["event"] == "evaluation":
                in_quarters = REPORTS * event["progress"] + 1e-3  # the progress is rounded
                quarter = REPORTS if averaged else min(REPORTS, max(1, int(in_quarters)))
                folder = run_folder(job) / AVERAGE if averaged else run_folder(job)
                stored = _evaluations_on(self.halves["select"], job, folder.glob(f"evaluations/*/{event['checkpoint']}"))
                scores = stored[-1].scores()
                yield Report(quarter, self.score.value(scores), self.score.mrr(scores), averaged)

    def cost(self, job: Job) -> dict[str, float]:
        steps = [event for event in events_of(job).rows() if event["event"] == "step"]
        return {name: float(steps[-1][name]) if steps else 0.0 for name in ("tokens", "seconds")}

    def best_recipe(self, params: Mapping[str, Any], out: Path) -> TrainRecipe:
        recipe = self.training(params, self.recipe.seed)
        eval_set, checkpoints = self.recipe.eval_set or str(bundled_eval_set()), recipe.checkpoints if recipe.average else None
        return replace(recipe, out=str(out), eval_set=eval_set, checkpoints=checkpoints, device="auto")

    def weights(self, job: Job) -> Path:
        checkpoints = checkpoints_of(_judged_folder(job))
        if not checkpoints:
            raise EvaluationError(f"{run_folder(job)} has no checkpoint; remove {job.folder} and run the same command again.")
        return checkpoints[-1]

    def drop_weights(self, job: Job, *, keep_last: bool = False) -> None:
        last = checkpoints_of(_judged_folder(job))[-1:] if keep_last else []
        for folder in (run_folder(job), run_folder(job) / AVERAGE):
            for checkpoint in folder.glob("checkpoint-*/"):
                with suppress(OSError):  # a task that is being stopped elsewhere may still write
                    drop_states(checkpoint) if checkpoint in last else remove_checkpoint(checkpoint)

    def confirmed(self, jobs: list[Job]) -> list[float]:
        return [self.score.value(scores) for scores in self._scored(jobs, "confirm")]

    def paired(self, ours: list[Job], theirs: list[Job], half: Half) -> Paired:
        return self.score.paired(self._scored(ours, half), self._scored(theirs, half))

    def guarded(self, ours: list[Job], theirs: list[Job], half: Half) -> dict[str, Estimate]:
        return self.score.guarded(self._scored(ours, half), self._scored(theirs, half)) if self.score.guards else {}

    def checked(self, ours: list[Job], theirs: list[Job], run_jobs: RunJobs) -> dict[str, Estimate]:
        differences = {}
        for question in self.checks:
            from_ours, from_theirs = ([self._fine_tuning(question, job) for job in jobs] for jobs in (ours, theirs))
            failed = run_jobs([*from_ours, *from_theirs], question)
            complete = [pair for pair in zip(from_ours, from_theirs, strict=True) if not failed & {job.key for job in pair}]
            difference = outside_difference(question, complete, self.recipe.seed) if complete else None
            if difference is not None:
                differences[CHECKS[question].outcome] = difference
        return differences

    def _fine_tuning(self, question: QuestionId, job: Job) -> Job:
        """Return the job that fine-tunes a check from a job's weights, with seeds that only runs of the same seed share."""
        check, (stage, data) = CHECKS[question], self.checks[question]
        decided = {"model": str(self.weights(job)), "out": "", "device": job.recipe["device"]}
        where, first = f"checks: {question}: settings", 1_000 * job.recipe["seed"]
        recipe = check.recipe_for(stage, data, where, first_seed=first, **decided)
        return job_of(fine_tune, question, recipe, {**data.fingerprints, "start": job.key}, self.out, check=question)

    def _scored(self, jobs: list[Job], half: Half) -> list[list[ItemScore]]:
        """Return the items of the checkpoint that each job is judged by: its last one, or its average."""
        scored = []
        for job in jobs:
            stored = _evaluations_on(self.halves[half], job, _judged_folder(job).glob("evaluations/*/checkpoint-*"))
            newest_first = reversed(stored)
            scored.append(max(newest_first, key=lambda evaluation: natural_order(evaluation.folder.name)).scores())
        return scored


def _judged_folder(job: Job) -> Path:
    """Return the folder of the checkpoint that a job is judged by: its run, or the average of its last checkpoints."""
    return run_folder(job) / AVERAGE if job.recipe["average"] else run_folder(job)


def open_masked(recipe: TuneRecipe, out: Path, progress: Progress) -> MaskedProblem:
    """Check everything that a trial will need, prepare texts if the recipe has some, and settle the space."""
    _check_recipe(recipe)
    scratch = recipe.models[0].startswith(NEW)  # all or none
    original = EvalSet.open(Path(recipe.eval_set) if recipe.eval_set else bundled_eval_set())
    score, checks = score_of(recipe, original), open_checks(recipe, out)
    for model in recipe.models if not scratch else ():  # refuses one without a mask head before texts are prepared for it
        load_masked_lm(model, new_head=recipe.settings.get("new_head"))
    own = () if scratch or recipe.settings.get("tokenizer") else recipe.models
    if len({tokenizer_fingerprint(load_tokenizer(model)) for model in own}) > 1:
        raise RecipeError(f"{' and '.join(own)} have different tokenizers; tune each in a study of its own.")
    halves = split_set(original, out / "evalsets", score.tasks, limit=recipe.eval_items)
    prepare_vocabularies(recipe, halves)

    datasets = open_datasets(recipe, original, out, progress)
    space = settle_space(recipe, datasets, scratch=scratch)
    fingerprints = {f"dataset {name}": dataset.fingerprint for name, dataset in datasets.items()}
    fingerprints |= {f"model {model}": model if scratch else weights_fingerprint(model) for model in recipe.models}
    fingerprints |= {"eval_set": halves["select"].fingerprint, "models": models_bytes(recipe), "scorer": SCORER}
    metric = recipe.score or score.main
    problem = MaskedProblem(
        recipe=recipe, out=out, metric=metric, label=score.label, space=space, shape=shape_of(recipe.models[0]),
        datasets=datasets, halves=halves, fingerprints=fingerprints, score=score, checks=checks,
        averaged=recipe.settings.get("average", AVERAGED) or 0, fixed={**PLAIN, **recipe.settings, "model": recipe.models[0]},
        binding={
            "task": "mlm", "metric": metric, "guards": list(recipe.guards), "seed": recipe.seed, "space": space.plain(),
            "settings": recipe.settings, "budget": _budget(recipe), "bytes": fingerprints,
            **{f"check {name}": [recipe.checks.get(name, {}), data.fingerprints] for name, (_, data) in checks.items()},
        },
    )  # fmt: skip
    for name, dataset in datasets.items():
        _refuse_short(problem, name, dataset)
    _check_ends_of(space, problem.train_defaults(recipe.models[0], next(iter(datasets.values()))), problem.fixed, recipe)
    return problem


def _check_recipe(recipe: TuneRecipe) -> None:
    """Refuse what can be refused before models are loaded and texts are prepared."""
    if len({model.startswith(NEW) for model in recipe.models}) > 1:
        raise RecipeError("Models with random weights and pretrained ones need different ranges; tune them in two studies.")
    if recipe.portfolio:
        known_entries("", 0)  # refuses a broken portfolio
    check_settings({**recipe.settings, **_budget(recipe)})
    if recipe.space is not None:
        space = read_space(recipe.space, recipe.task)
        refuse_idle(space, {"objective": "mlm", **recipe.settings}, recipe)
        _check_ends_of(space, DEFAULTS, {**DEFAULTS, **recipe.settings}, recipe)


def _check_ends_of(space: Space, wanted: Mapping[str, Any], fixed: Mapping[str, Any], recipe: TuneRecipe) -> None:
    check_ends(space, wanted, fixed, lambda params: check_settings({**recipe.settings, **_budget(recipe), **params}))


def _budget(recipe: TuneRecipe) -> dict[str, float | None]:
    return {name: getattr(recipe, name) for name in ("epochs", "max_tokens", "max_minutes")}


def _with_batch(settings: dict[str, Any], batch: int) -> dict[str, Any]:
    """Change the batch of some settings; the learning rate scales with its square root."""
    return {**settings, "batch": batch, "learning_rate": settings["learning_rate"] * math.sqrt(batch / settings["batch"])}


def _refuse_short(problem: MaskedProblem, name: str, dataset: PackedDataset) -> None:
    """Refuse a budget whose smallest rung, a quarter of it, holds no step."""
    recipe = problem.recipe
    if recipe.max_minutes is not None and not (recipe.epochs or recipe.max_tokens):
        return
    plan = BatchPlan.of(dataset, batch=problem.train_defaults(recipe.models[0], dataset)["batch"], seed=0)
    epochs = [recipe.epochs] if recipe.epochs else []
    epochs += [recipe.max_tokens / max(1, plan.tokens_per_epoch)] if recipe.max_tokens else []
    steps = int(min(epochs, default=1.0) * plan.steps_per_epoch)
    if steps < REPORTS:
        raise RecipeError(
            f"{name} makes {steps} steps of a trial's budget, and the smallest rung is a quarter of it; add texts, pass a larger "
            "budget, or a smaller batch under settings."
        )


def _evaluations_on(half: EvalSet, job: Job, folders: Iterable[Path]) -> list[StoredEvaluation]:
    """Return the evaluations among these folders on exactly the items of a half, oldest first."""
    stored = find_evaluations(sorted(folders))
    stored = [entry for entry in stored if entry.evaluation.fingerprints.get("items") == half.fingerprint]
    if not stored:
        raise EvaluationError(
            f"{run_folder(job)} has no evaluation on {half.name}; remove {job.folder} and run the same command again."
        )
    return sorted(stored, key=lambda entry: entry.evaluation.evaluated_at)


def open_datasets(recipe: TuneRecipe, evalset: EvalSet, out: Path, progress: Progress) -> dict[str, PackedDataset]:
    """Return the datasets by name, prepared from the texts if there are some, one per length.

    The names are those of their folders, so that machines with other paths share a study.
    """
    folders, model = [Path(folder) for folder in recipe.datasets], str(recipe.settings.get("tokenizer") or recipe.models[0])
    if not folders and (texts := recipe.texts):
        parent = out / "datasets"
        folders = [prepare_texts(texts, parent / f"blocks-{n}", n, model, [evalset.folder], progress) for n in texts.seq_lens]
    datasets = [PackedDataset.open(folder) for folder in folders]
    names = [dataset.folder.resolve().name for dataset in datasets]
    if len(set(names)) < len(names):
        names = [str(dataset.folder) for dataset in datasets]
    return dict(zip(names, datasets, strict=True))


def train_masked(job: Job) -> None:
    """Do the work of a trial, in a process of its own: train, and score the end on `confirm` if the job names it."""
    from coref_automl.evaluation.run import EvaluateRecipe, evaluate
    from coref_automl.training.judge import reported_values
    from coref_automl.training.run import train

    run, settings = run_folder(job), dict(job.recipe)
    confirm = settings.pop("confirm", None)
    if is_done(run) and not checkpoints_of(run):
        return  # finished and scored by an earlier call, which deleted its weights
    recipe = from_mapping(TrainRecipe, settings, "trial")
    result = train(recipe, progress=Progress())
    reported = list(reported_values(run, str(recipe.metric)))
    if result.checkpoints and reported[-1:] != [result.checkpoints[-1].name]:
        raise EvaluationError(f"The last checkpoint of {run} could not be scored; its log says why.")
    if confirm is not None:
        judging = EvaluateRecipe(eval_sets=(Path(confirm),), device=recipe.device, base=False, seed=recipe.seed)
        evaluate([result.average or result.checkpoints[-1]], judging)


def fine_tune(job: Job) -> None:
    """Fine-tune a guard's outside check, in a process of its own."""
    settings = dict(job.recipe)
    check = CHECKS[settings.pop("check")]
    check.train(from_mapping(check.recipe, settings, "guard"), Progress())
