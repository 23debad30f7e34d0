"""The steps of an experiment and what they read. In: an ExperimentRecipe. Out: a step per command, with what decides its numbers.

OUT/steps/<kind>/<name>/{job.json, log.txt, outcome.json}     outcome.json marks the end of a step
OUT/runs/<method>-<length>-s<seed>                            train
OUT/evaluations, OUT/<check>                                  evaluate; outside checks: re train, coref train
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.comparison.arms import is_equal_training
from coref_automl.comparison.claims import BASE
from coref_automl.comparison.names import arm_name, run_name, seed_of
from coref_automl.comparison.outside_checks import CHECKS, CHOSEN, TaskData
from coref_automl.config import from_mapping, to_mapping
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare_texts
from coref_automl.engine.binding import BYTES
from coref_automl.engine.job import JOB, Job
from coref_automl.errors import FolderError, RecipeError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set, half_set
from coref_automl.evaluation.prepare import prepare_eval
from coref_automl.evaluation.recipe import EvalRecipe
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.evaluation.slot import SCORER
from coref_automl.evaluation.targets import target_of
from coref_automl.experiment.recipe import BUNDLED, EvaluateStage, ExperimentRecipe, HeldOutTexts
from coref_automl.experiment.step import RUNS, Step, start_bytes
from coref_automl.folders import short_names
from coref_automl.machine import device_seen, pick_device
from coref_automl.models.load import load_masked_lm
from coref_automl.progress import Progress
from coref_automl.store import read_json
from coref_automl.training.folder import binding_of, checkpoint_of_run
from coref_automl.training.recipe import TrainRecipe, check

if TYPE_CHECKING:
    from coref_automl.training.setup import Prepared

EVALUATIONS = "evaluations"
FEWEST_STEPS, LEAST_BATCH, MOST_EPOCHS = 20, 4, 10
"""A run of fewer steps changes next to nothing: its learning rate has hardly risen when it falls again. Where texts are few, the
batch shrinks towards that, down to four rows (fewer say little about the texts), and epochs rise, up to ten (more of them learn
the same few texts by heart)."""
SEEDS_APART = 1_000
"""Between the fine-tuning seeds of one run and the next: seeds that a later call adds are still no other run's."""


@dataclass(frozen=True, slots=True)
class MethodAtLength:
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
    """A recipe with what it names opened. `sets` are evaluation sets, of which the first judges, `datasets` folders by length,
    `data` those of tasks."""

    recipe: ExperimentRecipe
    out: Path
    sets: tuple[EvalSet, ...]
    datasets: Mapping[int, Path]
    data: Mapping[str, TaskData] = field(default_factory=dict)

    @property
    def arms(self) -> list[MethodAtLength]:
        return [MethodAtLength(method, length) for length in self.recipe.lengths for method in self.recipe.methods]

    @property
    def seeds(self) -> range:
        return range(self.recipe.first_seed, self.recipe.first_seed + self.recipe.seeds)

    @property
    def device(self) -> str:
        """The device as its steps see it; launcher and preflight take the recipe's."""
        return device_seen(self.recipe.device)

    @cached_property
    def steps(self) -> list[Step]:
        """Seed by seed, the base first, all that belongs to a run together: a study that is cut short has whole seeds."""
        of_seeds = (step for number, seed in enumerate(self.seeds) for step in self._steps_of_seed(number, seed))
        return [*self._base_steps(), *of_seeds]

    def _base_steps(self) -> Iterator[Step]:
        for length in self.recipe.lengths:
            yield self._evaluation(arm_name(BASE, length), None, seq_len=length)
        for kind in self.data:
            if CHECKS[kind].with_base and self.recipe.checks[kind].start == CHOSEN:
                yield from self._fine_tuning(kind, BASE, None, self.recipe.first_seed)

    def _steps_of_seed(self, number: int, seed: int) -> Iterator[Step]:
        yield from self._tasks("every", run_name(BASE, seed), None, number * SEEDS_APART)  # as often as an arm has runs
        for arm, work in self.prepared.items():
            name, binding = arm.run(seed), binding_of(work.recipe, work.fingerprints) | {"seed": seed}
            yield Step("train", name, name, self.training(arm, seed), binding)
            yield self._evaluation(name, name, seq_len=None)
            yield from self._tasks("every", name, name, number * SEEDS_APART)

    def _tasks(self, start: str, name: str, run: str | None, first_seed: int) -> Iterator[Step]:
        """Outside checks, as far as their sections start there."""
        for kind in self.data:
            if self.recipe.checks[kind].start == start:
                yield from self._fine_tuning(kind, name, run, first_seed)

    def after_choice(self, model: str) -> list[Step]:
        """What starts from the model that the evaluations recommend, in folders named by it: another choice lies beside it."""
        at = Path(model)
        name = re.sub(r"[^\w.+-]", "-", at.name if at.parent.name in ("", ".") else f"{at.resolve().parent.name}-{at.name}")
        tasks, fingerprints = self.of_chosen(name), start_bytes(model)
        is_base = model == self.recipe.model
        return [
            replace(step, start=model, binding={**step.binding, **fingerprints})
            for step in tasks
            if not (is_base and CHECKS[step.kind].with_base)  # which was fine-tuned already
        ]

    def of_chosen(self, name: str = CHOSEN) -> Iterator[Step]:
        """Outside checks of the model that the evaluations will recommend."""
        return self._tasks(CHOSEN, name, None, self.recipe.first_seed)

    def training(self, arm: MethodAtLength, seed: int) -> TrainRecipe:
        decided = {
            "dataset": str(self.datasets[arm.length]), "seq_len": arm.length, "method": arm.method, "device": self.device,
            "out": str(self.out / RUNS / arm.run(seed)), "seed": seed,
        }  # fmt: skip
        return training_of(self.recipe, arm.method, decided)

    @cached_property
    def prepared(self) -> dict[MethodAtLength, Prepared]:
        """What a run of each arm needs, opened; arms that would see different numbers of tokens are refused."""
        from coref_automl.training.setup import prepare_run

        prepared = {arm: prepare_run(self.training(arm, self.recipe.first_seed)) for arm in self.arms}
        tokens = {arm: work.plan.tokens_after(work.last) for arm, work in prepared.items()}
        least, most = (chosen(tokens, key=lambda arm: tokens[arm]) for chosen in (min, max))
        if not is_equal_training(tokens[least], tokens[most]):
            raise RecipeError(
                f"The methods are not trained alike: {least} would see {tokens[least]:,} tokens and {most} {tokens[most]:,}, so "
                "a difference could come from the training alone; give all of them the same max_tokens or epochs, under train."
            )
        self._refuse_namesake(prepared)
        return prepared

    @property
    def first(self) -> Prepared:
        """The first run: all see as many tokens."""
        return self.prepared[self.arms[0]]

    def fitted(self) -> Plan:
        """With a batch and epochs that make enough steps of the rows at hand; what was asked for stays as it is."""
        given = self.recipe.train
        if "max_tokens" in given or ("batch" in given and "epochs" in given):
            return self
        work = self.first
        rows, batch, epochs = work.plan.rows, work.plan.batch, float(given.get("epochs", 1.0))
        if "batch" not in given:
            while batch > LEAST_BATCH and epochs * rows / batch < FEWEST_STEPS:
                batch //= 2
        if "epochs" not in given and rows:
            epochs = float(min(MOST_EPOCHS, max(1, math.ceil(FEWEST_STEPS * batch / rows))))
        fit = {**given, "epochs": epochs, **({"batch": batch} if batch != work.plan.batch else {})}
        return replace(self, recipe=replace(self.recipe, train=fit))

    def _refuse_namesake(self, prepared: Mapping[MethodAtLength, Prepared]) -> None:
        """Tables know a checkpoint by run and step: a base with those of a run of the study would take its place."""
        made = target_of(self.recipe.model).provenance()
        names = {Path(made.run).name, Path(self.recipe.model).resolve().parent.name} if made else set()
        for arm, seed in product(prepared, self.seeds):
            if made and arm.run(seed) in names and made.step in prepared[arm].saves():
                raise RecipeError(
                    f"The base {self.recipe.model} is step {made.step} of a run named {arm.run(seed)}, and this study "
                    "would have one, too; pass another --first-seed, or name the method otherwise."
                )

    def _evaluation(self, name: str, run: str | None, *, seq_len: int | None) -> Step:
        stage = self.recipe.evaluate
        recipe = EvaluateRecipe(
            eval_sets=tuple(opened.folder for opened in self.sets), seq_len=seq_len, out=self.out / EVALUATIONS,
            device=self.device, words=stage.words, base=False,
        )  # fmt: skip
        binding = {"eval_sets": [opened.fingerprint for opened in self.sets], "words": stage.words}
        return Step("evaluate", name, run, recipe, binding | {f"{BYTES}scorer": SCORER} | ({} if run else self._base_bytes))

    @cached_property
    def _base_bytes(self) -> dict[str, str]:
        """What steps from the base are bound to; a run's own bytes are bound by its training."""
        return start_bytes(self.recipe.model)

    def _fine_tuning(self, kind: str, name: str, run: str | None, first_seed: int) -> Iterator[Step]:
        """A check from one start, once for each of its variants. The k-th run of every method and the k-th tuning of the base
        have the same seeds, which no other k has."""
        outside, stage, data = CHECKS[kind], self.recipe.checks[kind], self.data[kind]
        for prefix, differing in outside.variants(stage, data):
            step_name = prefix + name
            decided = {"out": str(self.out / kind / step_name), "first_seed": first_seed, "device": self.device, **differing}
            recipe = outside.recipe_for(stage, data, f"{kind}: settings", model=self.recipe.model, **decided)
            free = ("out", "device", "model", "seeds", *data.files)
            bound = {key: value for key, value in to_mapping(recipe).items() if key not in free}
            yield Step(kind, step_name, run, recipe, bound | data.fingerprints | ({} if run else self._base_bytes))


def training_of(recipe: ExperimentRecipe, method: str, decided: Mapping[str, Any]) -> TrainRecipe:
    settings = {**recipe.settings(method), "model": recipe.model, **decided}
    return from_mapping(TrainRecipe, settings, f"methods: {method}")


def open_plan(recipe: ExperimentRecipe, out: Path, progress: Progress) -> Plan:
    """Open what the recipe names, or prepare it; nothing is trained. A run's folder as the base means one checkpoint of it. What
    can be refused before texts are prepared is."""
    pick_device(recipe.device)
    recipe = replace(recipe, model=checkpoint_of_run(recipe.model, "--model") or recipe.model)
    new_head = any(recipe.settings(method).get("new_head") for method in recipe.methods) or None
    load_masked_lm(recipe.model, new_head=new_head)  # has it a mask head?
    for method in recipe.methods:
        asked = training_of(recipe, method, {"dataset": "", "out": ""})
        check(asked)
    refuse_other_first_seed(recipe.first_seed, [kind for kind, stage in recipe.checks.items() if stage.start != CHOSEN], out)
    data = {kind: CHECKS[kind].open(stage, out) for kind, stage in recipe.checks.items()}
    sets = open_sets(recipe.evaluate, recipe.texts, recipe.model, out, progress)
    return Plan(recipe, out, sets, open_datasets(recipe, out, sets, progress), data)


def open_sets(stage: EvaluateStage, texts: HeldOutTexts | None, model: str, out: Path, progress: Progress) -> tuple[EvalSet, ...]:
    """The sets that a recipe names, or one built of its texts, or the bundled one; their halves where it asks for one."""
    sets = [EvalSet.open(bundled_eval_set() if name == BUNDLED else name) for name in stage.sets]
    if not sets:
        sets = [_built_set(stage, texts, model, out / "evalset", progress) if texts else EvalSet.open(bundled_eval_set())]
    if stage.half is None:
        return tuple(sets)
    names = short_names([opened.folder.resolve() for opened in sets])
    places = [out / "evalsets" / f"{names[opened.folder.resolve()]}-{stage.half}" for opened in sets]
    return tuple(half_set(opened, place, stage.half) for opened, place in zip(sets, places, strict=True))


def _built_set(stage: EvaluateStage, texts: HeldOutTexts, model: str, folder: Path, progress: Progress) -> EvalSet:
    """An evaluation set of the texts' held-out documents, and of the bundled cloze passages where LAMBADA is among the tasks."""
    kept = {name: getattr(stage, name) for name in ("tasks", "per_source", "per_document", "min_syllables", "single_entry")}
    lambada = ("bundled:cloze",) if "lambada" in stage.tasks else ()
    wanted = EvalRecipe(models=(model,), sources=texts.sources, lambada=lambada, holdout=texts.holdout, limit=texts.limit, **kept)
    return prepare_eval(wanted, folder, progress=progress)


def open_datasets(recipe: ExperimentRecipe, out: Path, sets: Sequence[EvalSet], progress: Progress) -> dict[int, Path]:
    """A dataset for each length: the one prepared for it, or one whose blocks it divides."""
    if texts := None if recipe.datasets else recipe.texts:
        excluded = [opened.folder for opened in sets]
        return {
            n: prepare_texts(texts, Path(out, "datasets", str(n)), n, recipe.model, excluded, progress, texts.holdout)
            for n in recipe.lengths
        }
    block_lengths = {folder: PackedDataset.open(Path(folder)).seq_len for folder in recipe.datasets}
    datasets = {}
    for length in recipe.lengths:
        divisible = [folder for folder, block in block_lengths.items() if block % length == 0]
        if not divisible:
            known = ", ".join(f"{folder} ({block:,})" for folder, block in block_lengths.items())
            raise RecipeError(
                f"No dataset has blocks that {length:,} tokens divide: {known}; prepare one with --seq-len {length}."
            )
        datasets[length] = Path(min(divisible, key=lambda folder: block_lengths[folder]))
    return datasets


def refuse_other_first_seed(first_seed: int, kinds: Iterable[str], out: Path) -> None:
    """Fine-tuning seeds count from the first seed: counted from another one, two runs would share theirs.

    The run with seed `first_seed + k` is fine-tuned with seeds from `k * SEEDS_APART` on: both are in the job of its step.
    """
    begun_with = set()
    for path in (path for kind in kinds for path in (out / "steps" / kind).glob(f"*/{JOB}")):
        job = Job.from_json(read_json(path))
        if not job.key.rpartition("-s")[2].isdecimal():  # of `start: chosen`, named by its checkpoint
            continue
        begun_with.add(seed_of(job.key) - job.recipe["settings"]["first_seed"] // SEEDS_APART)
    if begun_with and first_seed not in begun_with:
        raise FolderError(
            f"{out} was begun with first_seed {min(begun_with)}, and this command has first_seed {first_seed}; "
            "pass the same first seed with more seeds, or choose another --out."
        )
