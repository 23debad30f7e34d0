"""Evaluate checkpoints. In: paths and a recipe. Out: one Evaluation a checkpoint and set, on disk and returned, in natural order.

Finished work is recognised by bytes (weights, items, noun table, scorer version, dtype, length), wherever its folder now is.
Items are appended as they are scored, so that an interrupted evaluation goes on from the middle. Several GPUs, or a Ray cluster,
score several checkpoints at a time, each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from coref_automl.config import as_paths, expect, from_mapping, to_mapping, typed
from coref_automl.errors import CorefError, EvaluationError, RecipeError, StorageError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.keep import Desk
from coref_automl.evaluation.one import evaluate_one, pick
from coref_automl.evaluation.stored import StoredEvaluation, find_evaluations
from coref_automl.evaluation.targets import Target, base_targets, find_targets, identity
from coref_automl.evaluation.words import WordMode
from coref_automl.locks import locked
from coref_automl.models.families import too_long
from coref_automl.progress import Progress, quiet
from coref_automl.records import Evaluation
from coref_automl.store import claim_folder
from coref_automl.workers import Engine, Outcome

__all__ = ["EvaluateRecipe", "StoredEvaluation", "evaluate", "evaluate_one", "find_evaluations"]

JOB = f"{__name__}:evaluate_job"
"""What a worker is given to run."""


@dataclass(frozen=True, slots=True)
class EvaluateRecipe:
    """How to evaluate. No set: the bundled one. No length: each model's own. `base`: also the model training began from.

    `engine`: processes of this machine, one a GPU, or tasks of a Ray cluster that sees the same folders.
    """

    eval_sets: tuple[Path, ...] = ()
    seq_len: int | None = None
    out: Path | None = None
    device: str = "auto"
    dtype: str = "auto"
    words: WordMode = "all"
    budget: int | None = None
    base: bool = True
    new_head: bool = False
    seed: int = 0
    engine: Engine = "local"

    def __post_init__(self) -> None:
        typed(self)
        least = {"--seq-len": (self.seq_len, 1), "--batch-tokens": (self.budget, 1), "--seed": (self.seed, 0)}
        for option, (value, low) in least.items():
            if value is not None and value < low:
                raise RecipeError(f"{option} should be {low} or more, not {value}.")
        if self.seq_len is not None and (why := too_long(self.seq_len)):
            raise RecipeError(f"seq_len {why}.")


def evaluate(
    paths: str | Path | Sequence[str | Path],
    recipe: EvaluateRecipe | None = None,
    *,
    progress: Progress | None = None,
    on_result: Callable[[Evaluation], None] | None = None,
) -> list[Evaluation]:
    """Evaluate every model behind the paths. One that fails does not stop the others; the failures are raised at the end.

    `on_result` is called with each evaluation of the first set as it is finished.
    """
    from coref_automl.models.precision import rounding_note

    recipe = expect(recipe or EvaluateRecipe(), EvaluateRecipe, "evaluate")
    progress = progress or quiet()
    sets = [EvalSet.open(folder) for folder in recipe.eval_sets or (bundled_eval_set(),)]
    targets = find_targets(as_paths(paths, "paths"), recipe.out)
    if recipe.out:
        claim_folder(recipe.out, "evaluations")
    if recipe.engine == "local":
        slow = rounding_note(*pick(recipe.device, recipe.dtype))  # what no checkpoint can be scored with is said once
        if slow:
            progress.note(slow)
    devices = _devices(recipe, len(targets))
    tally = _Tally(progress, on_result, alone=len(targets) == 1)
    if recipe.base:
        _evaluate_bases(targets, sets, recipe, devices, progress)
    _evaluate_all(targets, sets, recipe, devices, tally)
    order = {target.model: place for place, target in enumerate(targets)}
    if tally.failures:
        _raise(tally.failures, len(targets))
    return sorted(tally.done, key=lambda evaluation: order[evaluation.path])


@dataclass(slots=True)
class _Tally:
    """What came of the targets. A failure is told at once where others go on; `alone`, the error itself tells it."""

    progress: Progress
    on_result: Callable[[Evaluation], None] | None = None
    alone: bool = False
    done: list[Evaluation] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)

    def take(self, found: list[Evaluation]) -> None:
        self.done.extend(found)
        if self.on_result:
            for evaluation in found[:1]:
                self.on_result(evaluation)

    def lose(self, name: str, error: Exception) -> None:
        self.failures[name] = error
        if not self.alone:
            self.progress.note(f"{name} could not be scored: {error}")


def _evaluate_all(
    targets: Sequence[Target], sets: Sequence[EvalSet], recipe: EvaluateRecipe, devices: Sequence[str], tally: _Tally
) -> None:
    """Every target, here or spread over workers; each is taken, or lost with its error."""
    left = list(targets) if recipe.engine == "ray" else []  # only there is known which device and dtype `auto` stands for
    for target in targets if recipe.engine == "local" else ():
        try:
            found = _evaluate_target(target, sets, recipe, tally.progress, only_known=len(devices) > 1)
            if found is None:
                left.append(target)
            else:
                tally.take(found)
        except StorageError:
            raise  # the next checkpoint would meet the same disk
        except Exception as error:
            tally.lose(target.name, error)
    if left:
        _spread(left, recipe, devices, tally)


def _raise(failures: dict[str, Exception], count: int) -> None:
    error = next(iter(failures.values()))
    if count == 1:
        raise error if isinstance(error, CorefError) else EvaluationError(f"{next(iter(failures))}: {error}") from error
    listed = "; ".join(f"{name} ({_first_line(reason)})" for name, reason in failures.items())
    raise EvaluationError(f"{len(failures)} of {count} checkpoints could not be scored: {listed}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _evaluate_target(
    target: Target, sets: Sequence[EvalSet], recipe: EvaluateRecipe, progress: Progress, *, only_known: bool = False
) -> list[Evaluation] | None:
    """One model on every set; loaded once, and not at all when everything is known. `only_known`: None rather than load it."""
    desk = Desk(target, recipe.out, new_head=recipe.new_head)
    device, dtype = pick(recipe.device, recipe.dtype)
    seq_len = recipe.seq_len or desk.seq_len()
    out = []
    for number, evalset in enumerate(sets):
        if only_known and desk.known(evalset, seq_len, dtype, recipe.words) is None:
            return None
        with locked(target.folder(evalset.name, seq_len), on_wait=progress.note):  # what another process scores is waited for
            target.sweep(evalset.name, seq_len)
            evaluation = desk.known(evalset, seq_len, dtype, recipe.words)
            if evaluation is None:
                evaluation = desk.score(
                    evalset, seq_len, device, dtype, recipe.words, budget=recipe.budget, seed=recipe.seed, progress=progress
                )
            evaluation = desk.with_base(evaluation, evalset, seq_len, dtype)
            desk.write(evaluation, evalset, summary=number == 0)
            if recipe.words == "l2r" and not only_known:
                for check in desk.check_left_to_right(evalset, seq_len, device, dtype, recipe.budget, recipe.seed):
                    progress.note(f"{target.name}, {check}")
            out.append(evaluation)
    return out


def _evaluate_bases(
    targets: Sequence[Target], sets: Sequence[EvalSet], recipe: EvaluateRecipe, devices: Sequence[str], progress: Progress
) -> None:
    """The models that the checkpoints started from, where they are at hand: every table shows them. Never a reason to fail."""
    wanted: dict[tuple[str, int], None] = {}
    mine = {identity(target.model) for target in targets}
    for target in targets:
        try:
            provenance = target.provenance()
            if provenance is None or not _at_hand(provenance.base) or identity(provenance.base) in mine:
                continue
            seq_len = recipe.seq_len or Desk(target, recipe.out).seq_len()
            wanted[provenance.base, seq_len] = None
        except CorefError:
            continue  # the target's own evaluation will say what is wrong
    bases = base_targets([name for name, _ in wanted], targets, recipe.out)
    for name, length in wanted:
        tally = _Tally(progress, alone=True)
        _evaluate_all([bases[name]], sets, replace(recipe, seq_len=length), devices[:1], tally)
        for error in tally.failures.values():
            progress.note(f"The un-adapted model {name} is left out of the tables: {_first_line(error)}")


def _at_hand(model: str) -> bool:
    """Bases are only looked for on this machine: nobody asked for a download."""
    return Path(model).is_dir() or model.startswith("bundled:")


def _devices(recipe: EvaluateRecipe, targets: int) -> list[str]:
    """The devices of this machine to spread over; a cluster has its own, and is only told what was asked for."""
    if recipe.device not in ("auto", "cuda") or targets < 2 or recipe.engine == "ray":
        return [recipe.device]
    from coref_automl.workers import devices_here

    return devices_here()


def _spread(targets: Sequence[Target], recipe: EvaluateRecipe, devices: Sequence[str], tally: _Tally) -> None:
    """One worker process a GPU, or a task of the cluster, takes the next checkpoint. One that is killed goes on in another."""
    from coref_automl.workers import Job, run_jobs

    settings = {key: str(value) if isinstance(value, Path) else value for key, value in to_mapping(recipe).items()}
    settings["eval_sets"] = [str(folder) for folder in recipe.eval_sets]
    jobs = [Job(target.name, JOB, {"target": _plain(target), "recipe": settings}) for target in targets]
    with tally.progress.stage("scoring", len(jobs), "checkpoints") as stage:

        def heard(outcome: Outcome) -> None:
            stage.advance()
            if outcome.error is not None:
                tally.lose(outcome.job.name, EvaluationError(outcome.error.strip().splitlines()[-1]))
            else:
                tally.take([Evaluation.from_json(row) for row in outcome.value])

        run_jobs(jobs, workers=len(devices), devices=devices, engine=recipe.engine, retries=1, on_outcome=heard)


def evaluate_job(target: dict[str, Any], recipe: dict[str, Any]) -> list[dict[str, Any]]:
    """What a worker runs: one model, on the one device it can see."""
    settings = from_mapping(EvaluateRecipe, recipe, "evaluate")
    sets = [EvalSet.open(folder) for folder in settings.eval_sets or (bundled_eval_set(),)]
    chosen = Target(**{**target, "base": Path(target["base"])})
    return [evaluation.to_json() for evaluation in _evaluate_target(chosen, sets, settings, quiet()) or ()]


def _plain(target: Target) -> dict[str, Any]:
    return {**asdict(target), "base": str(target.base)}
