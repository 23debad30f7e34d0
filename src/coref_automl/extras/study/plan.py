"""The steps of an experiment and what they read. In: an ExperimentRecipe. Out: a step per command, with what decides its numbers.

OUT/steps/<kind>/<name>/{job.json, log.txt, outcome.json}     outcome.json marks the end of a step
OUT/runs/<method>-<length>-s<seed>                            train
OUT/evaluations, OUT/<check>                                  evaluate; outside checks: re train, coref train
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.base.binding import BYTES
from coref_automl.base.config import from_mapping, to_mapping
from coref_automl.base.errors import FolderError, RecipeError
from coref_automl.base.folders import short_names
from coref_automl.base.job import JOB, Job
from coref_automl.base.machine import device_seen, pick_device
from coref_automl.base.progress import Progress
from coref_automl.base.store import read_json
from coref_automl.comparison.arms import is_equal_training
from coref_automl.comparison.claims import BASE
from coref_automl.comparison.names import arm_name, run_name, seed_of
from coref_automl.comparison.outside_checks import CHECKS, CHOSEN, TaskData
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare_texts
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set, half_set
from coref_automl.evaluation.prepare import prepare_eval
from coref_automl.evaluation.recipe import EvalRecipe
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.evaluation.slot import SCORER
from coref_automl.evaluation.targets import target_of
from coref_automl.extras.study.recipe import BUNDLED, EvaluateStage, ExperimentRecipe, HeldOutTexts
from coref_automl.extras.study.step import RUNS, Step, start_bytes
from coref_automl.models.load import load_masked_lm
from coref_automl.training.folder import binding_of, checkpoint_of_run
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.recipe import check as check_training

if TYPE_CHECKING:
    from coref_automl.training.setup import Prepared

EVALUATIONS = "evaluations"
FEWEST_STEPS = 20
"""A run of fewer steps barely leaves warm-up."""
SEED_STRIDE = 1_000
"""Between the first fine-tuning seeds of successive runs, so that seeds a later call adds belong to no other run."""
_UNBOUND = ("out", "device", "model", "seeds")
"""Where fine-tuning is done and with how many seeds does not bind a step; what it starts from is bound by its bytes."""


def _binding_of_check(recipe: Any, data: TaskData) -> dict[str, Any]:
    return {key: value for key, value in to_mapping(recipe).items() if key not in (*_UNBOUND, *data.files)} | data.fingerprints


@dataclass(frozen=True, slots=True)
class PlannedArm:
    method: str
    length: int

    @property
    def name(self) -> str:
        return arm_name(self.method, self.length)

    def run(self, seed: int) -> str:
        return run_name(self.name, seed)

    def __str__(self) -> str:
        return f"{self.method} {self.length:,}"


@dataclass(frozen=True)
class Plan:
    """A recipe, opened: evaluation `sets` (the first one judges), `datasets` by length, `data` of outside checks by kind."""

    recipe: ExperimentRecipe
    out: Path
    sets: tuple[EvalSet, ...]
    datasets: Mapping[int, Path]
    data: Mapping[str, TaskData] = field(default_factory=dict)

    @property
    def arms(self) -> list[PlannedArm]:
        return [PlannedArm(method, length) for length in self.recipe.lengths for method in self.recipe.methods]

    @property
    def seeds(self) -> range:
        return range(self.recipe.first_seed, self.recipe.first_seed + self.recipe.seeds)

    @property
    def device(self) -> str:
        """The device as its steps see it; launcher and preflight take the recipe's."""
        return device_seen(self.recipe.device)

    @property
    def items_fingerprint(self) -> str:
        """Fingerprint of the items that verdicts are on."""
        return self.sets[0].fingerprint

    @cached_property
    def steps(self) -> list[Step]:
        """The base's steps, then seed by seed each run with all that judges it: a study cut short has complete seeds."""
        of_seeds = (step for number, seed in enumerate(self.seeds) for step in self._steps_of_seed(number, seed))
        return [*self._base_steps(), *of_seeds]

    def _base_steps(self) -> Iterator[Step]:
        for length in self.recipe.lengths:
            yield self._evaluation(arm_name(BASE, length), run=None, seq_len=length)
        yield from (step for step in self._checks_starting(CHOSEN, BASE) if CHECKS[step.kind].with_base)

    def _steps_of_seed(self, number: int, seed: int) -> Iterator[Step]:
        """The steps of every arm's run of this number, with this seed; the base is fine-tuned as often, for pairs."""
        first_seed = number * SEED_STRIDE
        yield from self._checks_starting("every", run_name(BASE, seed), first_seed=first_seed)
        for arm, prepared in self.prepared.items():
            name, binding = arm.run(seed), binding_of(prepared.recipe, prepared.fingerprints) | {"seed": seed}
            yield Step("train", name, name, self.train_recipe(arm, seed), binding)
            yield self._evaluation(name, run=name, seq_len=None)
            yield from self._checks_starting("every", name, run=name, first_seed=first_seed)

    def steps_from_recommended(self, model: str | None = None) -> list[Step]:
        """Steps that start from the model which the evaluations recommend, in folders named after it, so that another choice
        overwrites nothing. Without `model`, which is not known before they are done, under a placeholder, to be counted."""
        if not any(self.recipe.checks[kind].start == CHOSEN for kind in self.data):
            return []
        if model is None:
            return list(self._checks_starting(CHOSEN, CHOSEN))
        path, model_bytes = Path(model), start_bytes(model)
        name = path.name if path.parent.name in ("", ".") else f"{path.resolve().parent.name}-{path.name}"
        return [
            replace(step, start=model, binding={**step.binding, **model_bytes})
            for step in self._checks_starting(CHOSEN, re.sub(r"[^\w.+-]", "-", name))
            if not (model_bytes == self._base_bytes and CHECKS[step.kind].with_base)  # the base was fine-tuned already
        ]

    def _checks_starting(self, start: str, name: str, run: str | None = None, first_seed: int | None = None) -> Iterator[Step]:
        """The steps of the checks whose section has this `start`, one per variant of a check. The k-th run of every method and
        the k-th fine-tuning of the base share their seeds, which no other k has; by default they begin with the study's."""
        first_seed = self.recipe.first_seed if first_seed is None else first_seed
        for kind in (kind for kind in self.data if self.recipe.checks[kind].start == start):
            check, stage, data = CHECKS[kind], self.recipe.checks[kind], self.data[kind]
            for prefix, settings in check.variants(stage, data):
                step_name = prefix + name
                decided = {"out": str(self.out / kind / step_name), "first_seed": first_seed, "device": self.device, **settings}
                recipe = check.recipe_for(stage, data, f"{kind}: settings", model=self.recipe.model, **decided)
                yield Step(kind, step_name, run, recipe, _binding_of_check(recipe, data) | ({} if run else self._base_bytes))

    def _evaluation(self, name: str, *, run: str | None, seq_len: int | None) -> Step:
        recipe = EvaluateRecipe(
            eval_sets=tuple(evalset.folder for evalset in self.sets), seq_len=seq_len, out=self.out / EVALUATIONS,
            device=self.device, base=False,
        )  # fmt: skip
        binding = {"eval_sets": [evalset.fingerprint for evalset in self.sets]}
        return Step("evaluate", name, run, recipe, binding | {f"{BYTES}scorer": SCORER} | ({} if run else self._base_bytes))

    @cached_property
    def _base_bytes(self) -> dict[str, str]:
        """What steps from the base are bound to; a run's own bytes are bound by its training."""
        return start_bytes(self.recipe.model)

    def train_recipe(self, arm: PlannedArm, seed: int) -> TrainRecipe:
        decided = {
            "dataset": str(self.datasets[arm.length]), "seq_len": arm.length, "method": arm.method, "device": self.device,
            "out": str(self.out / RUNS / arm.run(seed)), "seed": seed,
        }  # fmt: skip
        return _train_recipe(self.recipe, arm.method, decided)

    @cached_property
    def prepared(self) -> dict[PlannedArm, Prepared]:
        """What a run of each arm needs, opened."""
        from coref_automl.training.setup import prepare_run

        return {arm: prepare_run(self.train_recipe(arm, self.recipe.first_seed)) for arm in self.arms}

    @property
    def first_run(self) -> Prepared:
        """Any run, for what depends on token counts alone: `check_runs` requires those to be equal."""
        return self.prepared[self.arms[0]]

    def run_of(self, step: Step) -> Prepared:
        """What the run that a step makes or needs was prepared with."""
        return next(prepared for arm, prepared in self.prepared.items() if step.run and step.run == arm.run(seed_of(step.run)))

    def check_runs(self) -> None:
        """Refuse arms that would see different numbers of tokens, and a base that tables would confuse with a run."""
        tokens = {arm: prepared.plan.tokens_after(prepared.last) for arm, prepared in self.prepared.items()}
        least, most = (extreme(tokens, key=lambda arm: tokens[arm]) for extreme in (min, max))
        if not is_equal_training(tokens[least], tokens[most]):
            raise RecipeError(
                f"The methods are not trained alike: {least} would see {tokens[least]:,} tokens and {most} {tokens[most]:,}, so "
                "a difference could come from the training alone; give all of them the same max_tokens or epochs, under train."
            )
        self._refuse_namesake()

    def _refuse_namesake(self) -> None:
        """Refuse a base that is a checkpoint with the run name and step of one that the study will make."""
        provenance = target_of(self.recipe.model).provenance()
        if provenance is None:
            return
        names = {Path(provenance.run).name, Path(self.recipe.model).resolve().parent.name}
        for (arm, prepared), seed in product(self.prepared.items(), self.seeds):
            if arm.run(seed) in names and provenance.step in prepared.saves():
                raise RecipeError(
                    f"The base {self.recipe.model} is step {provenance.step} of a run named {arm.run(seed)}, and this study "
                    "would have one, too; pass another --first-seed, or name the method otherwise."
                )


def _train_recipe(recipe: ExperimentRecipe, method: str, decided: Mapping[str, Any]) -> TrainRecipe:
    return from_mapping(TrainRecipe, {**recipe.settings(method), "model": recipe.model, **decided}, f"methods: {method}")


def open_plan(recipe: ExperimentRecipe, out: Path, progress: Progress) -> Plan:
    """Open what the recipe names, or prepare it; nothing is trained. A run's folder as the base means one checkpoint of it.

    Whatever does not depend on the texts is checked before they are prepared.
    """
    pick_device(recipe.device)  # refuses a device that is not there
    recipe = replace(recipe, model=checkpoint_of_run(recipe.model, "--model") or recipe.model)
    new_head = any(recipe.settings(method).get("new_head") for method in recipe.methods) or None
    load_masked_lm(recipe.model, new_head=new_head)  # refuses one without a mask head, which its files alone do not show
    for method in recipe.methods:
        check_training(_train_recipe(recipe, method, {"dataset": "", "out": ""}))
    _refuse_other_first_seed(recipe.first_seed, [kind for kind, stage in recipe.checks.items() if stage.start != CHOSEN], out)
    data = {kind: CHECKS[kind].open(stage, out) for kind, stage in recipe.checks.items()}
    sets = _open_sets(recipe, out, progress)
    plan = Plan(recipe, out, sets, _open_datasets(recipe, out, sets, progress), data)
    plan.check_runs()
    return plan


def _open_sets(recipe: ExperimentRecipe, out: Path, progress: Progress) -> tuple[EvalSet, ...]:
    """Open the sets that the recipe names, else build one from its texts, else take the bundled one; or one half of each."""
    stage = recipe.evaluate
    if recipe.texts and not stage.sets:
        sets = [_build_set(stage, recipe.texts, recipe.model, out / "evalset", progress)]
    else:
        sets = [EvalSet.open(bundled_eval_set() if name == BUNDLED else name) for name in stage.sets or (BUNDLED,)]
    if stage.half is None:
        return tuple(sets)
    names = short_names([evalset.folder.resolve() for evalset in sets])
    folders = [out / "evalsets" / f"{names[evalset.folder.resolve()]}-{stage.half}" for evalset in sets]
    return tuple(half_set(evalset, folder, stage.half) for evalset, folder in zip(sets, folders, strict=True))


def _build_set(stage: EvaluateStage, texts: HeldOutTexts, model: str, folder: Path, progress: Progress) -> EvalSet:
    """Build an evaluation set from the texts' held-out documents, with the bundled cloze passages if LAMBADA is a task."""
    settings = {name: getattr(stage, name) for name in ("tasks", "per_source", "per_document", "single_entry")}
    settings |= {"sources": texts.sources, "holdout": texts.holdout, "limit": texts.limit}
    lambada = ("bundled:cloze",) if "lambada" in stage.tasks else ()
    recipe = EvalRecipe(models=(model,), lambada=lambada, **settings)
    return prepare_eval(recipe, folder, progress=progress)


def _open_datasets(recipe: ExperimentRecipe, out: Path, sets: Sequence[EvalSet], progress: Progress) -> dict[int, Path]:
    """Return a dataset folder per length: prepared from the texts, or the given one with the shortest blocks it divides."""
    if recipe.datasets or recipe.texts is None:  # a recipe has one or the other
        return _given_datasets(recipe)
    texts, excluded = recipe.texts, [evalset.folder for evalset in sets]
    return {
        length: prepare_texts(texts, out / "datasets" / str(length), length, recipe.model, excluded, progress, texts.holdout)
        for length in recipe.lengths
    }


def _given_datasets(recipe: ExperimentRecipe) -> dict[int, Path]:
    block_lengths, datasets = {folder: PackedDataset.open(Path(folder)).seq_len for folder in recipe.datasets}, {}
    for length in recipe.lengths:
        divisible = [folder for folder, block in block_lengths.items() if block % length == 0]
        if not divisible:
            known = ", ".join(f"{folder} ({block:,})" for folder, block in block_lengths.items())
            raise RecipeError(f"No dataset has blocks that {length:,} tokens divide: {known}; make one with --seq-len {length}.")
        datasets[length] = Path(min(divisible, key=lambda folder: block_lengths[folder]))
    return datasets


def _refuse_other_first_seed(first_seed: int, kinds: Iterable[str], out: Path) -> None:
    """Refuse a first seed other than that of the checks already in the folder: two runs would share fine-tuning seeds.

    The run with seed `first_seed + k` is fine-tuned with seeds from `k * SEED_STRIDE` on; both are in the job of its step.
    """
    first_seeds = set()
    for kind in kinds:
        for path in (out / "steps" / kind).glob(f"*/{JOB}"):
            job = Job.from_json(read_json(path))
            if job.key.rpartition("-s")[2].isdecimal():  # else of `start: chosen`, named after its checkpoint
                first_seeds.add(seed_of(job.key) - job.recipe["settings"]["first_seed"] // SEED_STRIDE)
    if first_seeds and first_seed not in first_seeds:
        raise FolderError(
            f"{out} was begun with first_seed {min(first_seeds)}, and this command has first_seed {first_seed}; "
            "pass the same first seed with more seeds, or choose another --out."
        )
