"""Evaluate checkpoints. In: paths and a recipe. Out: one Evaluation per checkpoint and set, on disk and returned.

paths -> targets (which models) -> slot (finished already?) -> scorer (what is not) -> slot (write).

Finished work is recognised by bytes (weights, items, noun table, scorer version, dtype, length), wherever its folder is now.
Items are appended as they are scored, so an interrupted evaluation resumes where it stopped. Several GPUs, or a Ray cluster,
score several checkpoints at a time, each in its own process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from coref_automl.base.binding import BYTES, stored_binding
from coref_automl.base.config import Setting, as_paths, expect, from_mapping, to_mapping, typed
from coref_automl.base.errors import CorefError, EvaluationError, RecipeError, StorageError, first_line
from coref_automl.base.folders import MANIFEST, claim_folder, remove_if_unused
from coref_automl.base.locks import locked
from coref_automl.base.machine import visible_devices
from coref_automl.base.pool import Call, Engine, Returned, run_calls
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Evaluation, ItemScore, Provenance
from coref_automl.base.store import JsonlAppender, os_errors_as_ours
from coref_automl.evaluation.answers import table_fingerprint
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.metrics import counted, counted_names, summarise_with_baselines
from coref_automl.evaluation.results import base_evaluation
from coref_automl.evaluation.slot import SCORER, Slot
from coref_automl.evaluation.targets import BASES, Target, base_targets, find_targets
from coref_automl.evaluation.windows import WINDOW, window_of
from coref_automl.models.families import too_long
from coref_automl.models.load import LoadedModel, load_masked_lm, tokenizer_fingerprint
from coref_automl.models.model_files import PARTS, detect_seq_len, is_local, model_fingerprints

JOB = f"{__name__}:evaluate_job"
"""The function that workers run."""


@dataclass(frozen=True, slots=True)
class EvaluateRecipe:
    """How to evaluate. Default: the bundled set. `base` also evaluates the base model."""

    eval_sets: Annotated[tuple[Path, ...], Setting("Evaluation set; repeatable. Default: bundled.", flags=("--eval-set",))] = ()
    seq_len: Annotated[
        int | None,
        Setting("Tokens per window. Default: 256, longer where the antecedent needs it (512; real-far: the model's).", 1),
    ] = None
    out: Annotated[Path | None, Setting("Folder for results. Default: the run's own folder.")] = None
    device: Annotated[str, Setting("cpu, cuda, cuda:1, or auto (all GPUs, else the CPU).")] = "auto"
    dtype: Annotated[str, Setting("float32, bfloat16, float16, or auto (bfloat16 on a GPU).")] = "auto"
    budget: Annotated[int | None, Setting("Tokens per batch; halved when memory runs out.", 1, flags=("--batch-tokens",))] = None
    base: Annotated[bool, Setting("Also score the model that training started from, if available.")] = True
    new_head: Annotated[bool, Setting("Allow a newly initialised (untrained) mask head.")] = False
    seed: Annotated[int, Setting("Random seed.", 0)] = 0
    engine: Annotated[
        Engine, Setting("local (one process per GPU) or ray (one task per checkpoint on a cluster that sees this folder).")
    ] = "local"

    def __post_init__(self) -> None:
        typed(self)
        if self.seq_len is not None and (why := too_long(self.seq_len)):
            raise RecipeError(f"seq_len {why}.")


def evaluate(
    paths: str | Path | Sequence[str | Path],
    recipe: EvaluateRecipe | None = None,
    *,
    progress: Progress | None = None,
    on_result: Callable[[Evaluation], None] | None = None,
    themselves: bool = False,
) -> list[Evaluation]:
    """Evaluate every model under the paths. One that fails does not stop the others; failures are raised at the end.

    `on_result` is called with each finished evaluation on the first set. `themselves` takes the models at the paths, and not
    checkpoints in their folders.
    """
    from coref_automl.evaluation.scorer import pick
    from coref_automl.models.execution import bfloat16_note

    recipe = expect(recipe or EvaluateRecipe(), EvaluateRecipe, "evaluate")
    progress = progress or quiet()
    sets = [EvalSet.open(folder) for folder in recipe.eval_sets or (bundled_eval_set(),)]
    unread: list[str] = []
    names = as_paths(paths, "paths")
    targets = [*base_targets(names, (), recipe.out).values()] if themselves else find_targets(names, recipe.out, unread)
    for reason in unread:
        progress.note(f"제외: {reason}", f"Left out: {reason}")
    new_folder = recipe.out if recipe.out and not recipe.out.exists() else None
    if recipe.out:
        claim_folder(recipe.out, "evaluations")
    if recipe.engine == "local":
        note = bfloat16_note(*pick(recipe.device, recipe.dtype))  # an impossible device or dtype is reported once
        if note:
            progress.note(note)
    devices = _devices(recipe, len(targets))
    outcomes = _Outcomes(progress, on_result, alone=len(targets) == 1)
    outside_runs = [target for target in targets if not target.in_run]
    _evaluate_all(outside_runs, sets, recipe, devices, outcomes)  # first, so that a base among them is not scored twice
    if recipe.base:
        _evaluate_bases(targets, sets, recipe, devices, progress)
    _evaluate_all([target for target in targets if target.in_run], sets, recipe, devices, outcomes)
    order = {target.model: number for number, target in enumerate(targets)}
    if outcomes.failures:
        if new_folder:
            remove_if_unused(new_folder)
        _raise(outcomes.failures, len(targets))
    return sorted(outcomes.done, key=lambda evaluation: order[evaluation.path])


@dataclass(slots=True)
class _Outcomes:
    """Evaluations and failures so far. A failure is noted at once, unless the target is `alone` and its error is raised."""

    progress: Progress
    on_result: Callable[[Evaluation], None] | None = None
    alone: bool = False
    done: list[Evaluation] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)

    def add(self, evaluations: list[Evaluation]) -> None:
        self.done.extend(evaluations)
        if self.on_result:
            for evaluation in evaluations[:1]:
                self.on_result(evaluation)

    def fail(self, name: str, error: Exception) -> None:
        self.failures[name] = error
        if not self.alone:
            self.progress.note(f"{name}: 채점하지 못했습니다. {error}", f"{name} could not be scored: {error}")


def _evaluate_all(
    targets: Sequence[Target], sets: Sequence[EvalSet], recipe: EvaluateRecipe, devices: Sequence[str], outcomes: _Outcomes
) -> None:
    """Evaluate every target, here or in workers, and add its evaluations or its error to the outcomes."""
    unscored = list(targets) if recipe.engine == "ray" else []  # only the cluster knows which device and dtype `auto` means
    for target in targets if recipe.engine == "local" else ():
        try:
            evaluations = _evaluate_target(target, sets, recipe, outcomes.progress, only_known=len(devices) > 1)
            if evaluations is None:
                unscored.append(target)
            else:
                outcomes.add(evaluations)
        except StorageError:
            raise  # the disk is the same for the next checkpoint
        except Exception as error:
            outcomes.fail(target.name, error)
    if unscored:
        _spread(unscored, recipe, devices, outcomes)


def _raise(failures: dict[str, Exception], count: int) -> None:
    error = next(iter(failures.values()))
    if count == 1:
        raise error if isinstance(error, CorefError) else EvaluationError(f"{next(iter(failures))}: {error}") from error
    listed = "; ".join(f"{name} ({first_line(reason)})" for name, reason in failures.items())
    raise EvaluationError(f"{len(failures)} of {count} checkpoints could not be scored: {listed}") from error


def _evaluate_target(
    target: Target, sets: Sequence[EvalSet], recipe: EvaluateRecipe, progress: Progress, *, only_known: bool = False
) -> list[Evaluation] | None:
    """Evaluate one model on every set; it is loaded once, and only to score. `only_known` returns None rather than load it."""
    from coref_automl.evaluation.scorer import pick

    device, dtype = pick(recipe.device, recipe.dtype)
    seq_len = window_of(target.model, recipe.seq_len)
    longest = detect_seq_len(target.model) if seq_len == WINDOW else seq_len
    load = cache(partial(load_masked_lm, target.model, seq_len=longest, device=device, new_head=recipe.new_head))
    fingerprints = cache(partial(model_fingerprints, target.model))
    done = []
    for number, evalset in enumerate(sets):
        slot = Slot(target, evalset, seq_len, dtype, fingerprints, recipe.out)
        if only_known and slot.find() is None:
            return None
        with locked(target.folder(evalset.name, seq_len), on_wait=progress.note):  # wait if another process scores it
            slot.remove_leftovers()
            known = slot.find()
            evaluation, scored = (known.evaluation, known) if known else _score(slot, load(), recipe, progress)
            done.append(slot.with_current_names(evaluation))
            slot.write(done[-1], scored, summary=number == 0)
    return done


def _score(slot: Slot, loaded: LoadedModel, recipe: EvaluateRecipe, progress: Progress) -> tuple[Evaluation, list[ItemScore]]:
    """Score the missing items, appending them as they are scored: an interrupted call leaves them to the next one."""
    from coref_automl.evaluation.scorer import Scorer
    from coref_automl.models.execution import ATTENTION_LABEL

    target, evalset = slot.target, slot.evalset
    for note in loaded.notes:
        if not note.startswith(tuple(ATTENTION_LABEL.values())):  # the kernel does not change scores
            progress.note(f"{target.name}: {note}")
    items, nouns = evalset.select(), evalset.noun_table(loaded.tokenizer)
    folder, table = slot.folder(), table_fingerprint(nouns)  # of the folder's evaluation the table must be the same
    with os_errors_as_ours(folder):
        folder.mkdir(parents=True, exist_ok=True)
    scores, started = slot.known_scores(table), time.monotonic()
    unscored = [item for item in items if item.id not in scores]
    scorer = Scorer(loaded, nouns, seq_len=slot.seq_len, dtype=slot.dtype, budget=recipe.budget)
    with (
        JsonlAppender(slot.unfinished_items(folder, table)) as rows,
        progress.stage(f"scoring {target.name}", len(items), "items") as stage,
    ):
        stage.skip(len(items) - len(unscored))
        for batch in scorer.score(unscored, evalset.documents, evalset.nouns):
            scores |= {score.item: score for score in batch}
            rows.append(score.to_json() for score in batch)
            stage.advance(len(batch))
    if model_fingerprints(target.model) != slot.read_fingerprints():
        raise EvaluationError(f"{target.model} has changed while it was scored; run the same command again.")
    ordered = [scores[item.id] for item in items]
    shares = counted(ordered)
    _note_uncounted(target.name, shares, progress)
    estimates, baselines = summarise_with_baselines(ordered, evalset, seed=recipe.seed)
    fingerprints = {"items": evalset.fingerprint, "tokenizer": tokenizer_fingerprint(loaded.tokenizer), "nouns": table}
    evaluation = Evaluation(
        checkpoint=target.name,
        path=target.model,
        evalset=evalset.name,
        seq_len=slot.seq_len,
        dtype=slot.dtype,
        scorer=SCORER,
        evaluated_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        fingerprints={**fingerprints, **slot.read_fingerprints()},
        estimates=estimates,
        baselines=baselines,
        counted=shares,
        counted_names=counted_names(ordered),
        out_of_reach=sum(score.out_of_reach for score in ordered),
        half=evalset.half,
    )
    return evaluation, ordered


_FEW = 0.1
"""Under this share of counted items, a note says so."""


def _note_uncounted(name: str, shares: dict[str, float], progress: Progress) -> None:
    """Say which tasks hardly count; a model that counts nothing at all is an error."""
    if not any(shares.values()):
        raise EvaluationError(
            f"{name} counts no item of this set (0% of the answers are one entry of its vocabulary with token edges at the gap); "
            "make a set with: coref-automl prepare eval --task real-choice, or evaluate a model with words in its vocabulary."
        )
    few = {task: share for task, share in shares.items() if share < _FEW}
    if few:
        tasks = ", ".join(f"{task} {share:.1%}" for task, share in few.items())
        progress.note(
            f"{name}: 집계 문항이 적습니다({tasks}). 정답이 어휘 항목 하나이고 토큰 경계가 맞는 문항만 셉니다. "
            "긴 정답은 prepare eval --task real-choice로 세트를 만들어 평가하세요.",
            f"{name} counts few items ({tasks}): answers that are one entry with token edges at the gap. For longer answers, "
            "make a set with prepare eval --task real-choice.",
        )


def _evaluate_bases(
    targets: Sequence[Target], sets: Sequence[EvalSet], recipe: EvaluateRecipe, devices: Sequence[str], progress: Progress
) -> None:
    """Evaluate the base models of the checkpoints that are on this machine, for every table; never a reason to fail.

    A run keeps its base's evaluation. The base is identified by its bytes: another model in its place is named, not scored.
    """
    present: dict[tuple[str, Path, int], None] = {}
    reasons: dict[tuple[str, Path], str] = {}
    absent: dict[str, str] = {}
    for target in targets:
        try:
            provenance = target.provenance()
            if provenance is None or (not provenance.base_bytes and not is_local(provenance.base)):
                continue  # its base is unknown, or had random weights
            run, length = Path(target.model).parent, window_of(target.model, recipe.seq_len)
            key = provenance.base, run
            if key not in reasons:
                reasons[key] = _base_problem(provenance, run)
            accepts = (partial(_is_on, evalset, length) for evalset in sets)
            if not reasons[key]:
                present[*key, length] = None
            elif not all(base_evaluation(provenance, accept, run=run, out=recipe.out) for accept in accepts):
                absent[provenance.base] = reasons[key]
        except CorefError:
            continue  # the target's own evaluation will report it
    bases = base_targets([name for name, _, _ in present], targets, recipe.out)
    for name, run, length in present:
        outcomes, base = _Outcomes(progress, alone=True), bases[name]
        if recipe.out is None and not base.in_run:
            base = replace(base, root=run / BASES / base.root.name)
        _evaluate_all([base], sets, replace(recipe, seq_len=length), devices[:1], outcomes)
        for error in outcomes.failures.values():
            absent[name] = first_line(error)
    for name, reason in absent.items():
        ko = f"베이스 모델 {name}을 표에서 뺐습니다: {reason}"
        progress.note(ko, f"The base model {name} is left out of the tables: {reason}")


def _base_problem(provenance: Provenance, run: Path) -> str:
    """Why the base model of a run cannot be scored here; empty if it can."""
    if not is_local(provenance.base):  # nobody asked for a download
        return "it is not on this machine; evaluate it by its name or path, and compare both."
    binding = stored_binding(run) if (run / MANIFEST).is_file() else {}
    stored = {f"{BYTES}weights": provenance.base_bytes, **binding}
    for name, current in model_fingerprints(provenance.base).items():
        if stored.get(BYTES + name, current) not in ("", current):
            return f"its {PARTS[name][1]} have changed since {provenance.run} began from it; restore them, and evaluate again."
    return ""


def _is_on(evalset: EvalSet, length: int, evaluation: Evaluation) -> bool:
    return evaluation.fingerprints.get("items") == evalset.fingerprint and evaluation.seq_len == length


def _devices(recipe: EvaluateRecipe, targets: int) -> list[str]:
    """All devices of this machine for several targets, else the requested one; a cluster chooses among its own."""
    use_all = recipe.device in ("auto", "cuda") and targets > 1 and recipe.engine != "ray"
    return visible_devices() if use_all else [recipe.device]


def _spread(targets: Sequence[Target], recipe: EvaluateRecipe, devices: Sequence[str], outcomes: _Outcomes) -> None:
    """Evaluate in one worker process per GPU, or one cluster task per checkpoint; a killed one is resumed in another."""
    calls = [Call(target.name, JOB, {"target": to_mapping(target), "recipe": to_mapping(recipe)}) for target in targets]
    with outcomes.progress.stage("scoring", len(calls), "checkpoints") as stage:

        def on_return(returned: Returned) -> None:
            stage.advance()
            if returned.error is not None:
                outcomes.fail(returned.call.name, returned.error)
            else:
                outcomes.add([Evaluation.from_json(row) for row in returned.value])

        run_calls(calls, workers=len(devices), devices=devices, engine=recipe.engine, retries=1, on_return=on_return)


def evaluate_job(target: dict[str, Any], recipe: dict[str, Any]) -> list[dict[str, Any]]:
    """Evaluate one model in a worker, on the only device it sees."""
    settings = from_mapping(EvaluateRecipe, recipe, "evaluate")
    sets = [EvalSet.open(folder) for folder in settings.eval_sets or (bundled_eval_set(),)]
    evaluations = _evaluate_target(from_mapping(Target, target, "target"), sets, settings, quiet())
    return [evaluation.to_json() for evaluation in evaluations or ()]
