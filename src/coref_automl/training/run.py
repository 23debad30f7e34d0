"""One training run. In: a TrainRecipe. Out: a folder of checkpoints, each a complete model with its provenance.

After an interruption at any moment, the same command resumes from the newest complete checkpoint. On a CPU the result is bit for
bit that of an uninterrupted run. Works unchanged under `accelerate launch`.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from coref_automl.base.config import expect
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import DatasetError, ModelError, OutOfMemory
from coref_automl.base.folders import AVERAGE, EVENTS, is_done, mark_done
from coref_automl.base.locks import claimed
from coref_automl.base.machine import free_memory
from coref_automl.base.progress import Progress, duration, quiet
from coref_automl.base.records import Provenance, Record, Tabular
from coref_automl.base.say import language, say
from coref_automl.base.store import read_json, write_json
from coref_automl.models.execution import matmul_precision, without_bfloat16_warnings, without_cudnn
from coref_automl.models.load import quiet_library
from coref_automl.models.model_files import full_name
from coref_automl.training import folder as files
from coref_automl.training import setup
from coref_automl.training.batches import Collator, MaskedRows, micro_batch
from coref_automl.training.judge import Judge, ProcessGroup, score_average
from coref_automl.training.loss import prepare_model
from coref_automl.training.optimizer import OPEN_END, Clock, parameter_groups
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.setup import Prepared, settled
from coref_automl.training.state import MENTION_LOSSES, check_trainer_state, stored_state
from coref_automl.training.trainer import Loop, MaskedTrainer, RunCallback


@dataclass(frozen=True, slots=True)
class TrainResult(Record, Tabular):
    """The outcome of a run. `stopped` is the reason if it ended before its budget was spent."""

    run: Path
    checkpoints: tuple[Path, ...]
    steps: int
    epochs: float
    tokens: int
    seconds: float
    loss: float | None
    best: Path | None = None
    stopped: str | None = None
    average: Path | None = None

    def __repr__(self) -> str:
        return f"{self.run}: {self.tokens:,} tokens, {self.steps:,} steps, {len(self.checkpoints)} checkpoints"

    def to_rows(self) -> list[dict[str, Any]]:
        return [{"checkpoint": path.name, "path": str(path), "best": path == self.best} for path in self.checkpoints]

    def lines(self) -> list[str]:
        took, count, newest = duration(self.seconds, language()), len(self.checkpoints), next(reversed(self.checkpoints), "")
        loss = say(f", 손실 {self.loss:.4f}", f", loss {self.loss:.4f}") if self.loss is not None else ""
        steps, epochs = (f"{text}{'s' * (number != 1)}" for text, number in (
            (f"{self.steps:,} step", self.steps), (f"{self.epochs:.3g} epoch", self.epochs)
        ))  # fmt: skip
        lines = [
            say(
                f"{self.run}: {self.steps:,}스텝, {self.epochs:.3g}에폭, {self.tokens:,}토큰, {took}{loss}",
                f"{self.run}: {steps}, {epochs}, {self.tokens:,} tokens in {took}{loss}",
            ),
            say(f"체크포인트 {count}개, 마지막 {newest}", f"{count} checkpoint{'s' * (count != 1)}, the newest {newest}")
            if count
            else say("체크포인트 없음", "no checkpoint"),
        ]
        if self.best:
            lines.append(say(f"평가 세트로 고른 체크포인트: {self.best}", f"Chosen by the evaluation set: {self.best}"))
        if self.average:
            lines.append(say(f"마지막 체크포인트들의 평균: {self.average}", f"Average of the last ones: {self.average}"))
        return [*lines, *([self.stopped] if self.stopped else [])]


def train(recipe: TrainRecipe, *, progress: Progress | None = None) -> TrainResult:
    """Train, or resume training, until the budget is spent; a finished run is returned as it is."""
    recipe = expect(recipe, TrainRecipe, "train")
    started = time.monotonic()
    main = int(os.environ.get("RANK", "0")) == 0
    progress = progress if progress is not None and main else quiet()
    work = setup.prepare_run(recipe)
    group = ProcessGroup(work.processes, work.device)
    run = Path(work.recipe.out)
    files.check_disk_space(run, 0.0 if is_done(run) else work.disk())
    with claimed(run, files.KIND) if main else nullcontext():  # the first process holds the lock for all
        try:
            result = _train(work, run, main, group, progress, started)
        except (DatasetError, ModelError):
            if main:
                files.release_untrained(run)
            raise
        if main and work.recipe.average is not None:
            result = replace(result, average=_averaged(work, run, progress))
        return result


def _averaged(work: Prepared, run: Path, progress: Progress) -> Path | None:
    """Average the last checkpoints and score the average; None if there are too few."""
    last = min(settled(work.recipe.average), len(files.checkpoints_of(run)))
    if last < 2:
        progress.note("평균할 체크포인트가 둘보다 적습니다.", "Fewer than two checkpoints: there is nothing to average.")
        return None
    average = files.average_of(run, last)
    if work.recipe.eval_set is not None:
        value = score_average(work.recipe, average, work.device)
        progress.into(run / EVENTS).event(AVERAGE, checkpoint=average.name, metric=work.recipe.metric, value=value)
        progress.note(f"{AVERAGE}: {work.recipe.metric} {100 * value:.2f}%")
    return average


def _train(work: Prepared, run: Path, main: bool, group: ProcessGroup, progress: Progress, started: float) -> TrainResult:
    if main:
        files.claim_run(work.recipe, work.fingerprints, work.summary())
        if not is_done(run):
            setup.verify_dataset(work, progress)
    group.wait()
    if main:
        progress = progress.into(run / EVENTS)
    if is_done(run):
        progress.note(files.describe_state(run))
        return _result(run, None, None)
    for note in work.notes:
        progress.note(note)
    newest = files.resumable(run)
    earlier = files.read_clock(newest).get("seconds", 0.0) if newest else 0.0
    micro, origin = work.micro, started - earlier  # the start of the run as if it had never stopped
    while True:
        try:
            return _attempt(work, group, run, micro, progress, origin)
        except torch.OutOfMemoryError as error:
            if work.processes > 1:  # the other processes wait inside the step and cannot restart with this one
                raise OutOfMemory(
                    f"Out of memory with {micro} rows per process; pass --micro-batch {max(1, micro // 2)}."
                ) from error
            if micro == 1:
                raise OutOfMemory(
                    f"One row of {work.dataset.seq_len:,} tokens does not fit in memory; "
                    f"pass --gradient-checkpointing, or prepare shorter blocks."
                ) from error
        micro = micro_batch(settled(work.recipe.batch), micro // 2, work.processes)
        batch = work.recipe.batch
        progress.note(
            f"메모리가 부족해 한 번에 행 {micro}개씩 계속합니다. 유효 배치는 {batch} 그대로입니다.",
            f"Out of memory: continuing with {micro} rows at a time; the effective batch stays {batch}.",
        )
        free_memory()


def _attempt(work: Prepared, group: ProcessGroup, run: Path, micro: int, progress: Progress, origin: float) -> TrainResult:
    """Train with one micro-batch size from the newest checkpoint, or from the beginning."""
    recipe, plan = work.recipe, work.plan
    resume = files.resumable(run)
    loaded = setup.load_model(work, resume)
    for note in loaded.notes if resume is None else ():
        progress.note(note)
    model = loaded.model
    mention_losses = setup.mention_losses_of(work, model)
    if mention_losses is not None and resume is not None:
        with stored_state(resume / MENTION_LOSSES) as projections:
            mention_losses.load_state_dict(projections)
    compiled, said = setup.compiles(work, model)
    for note in said if resume is None else ():
        progress.note(note)
    prepare_model(model, cross_document=recipe.cross_document, compiled=compiled, mention_losses=mention_losses)
    groups = parameter_groups(
        model,
        learning_rate=settled(recipe.learning_rate),
        weight_decay=settled(recipe.weight_decay),
        layer_decay=recipe.layer_decay,
    )
    masking = setup.masking_of(work, model)
    stored = files.read_clock(resume) if resume else {}
    clock = Clock(
        work.last,
        recipe.max_minutes,
        earlier=stored.get("seconds", 0.0),
        lost=stored.get("lost", 0.0),
        reserve=1.0 + 12.0 * sum(parameter.numel() for parameter in model.parameters()) / 300e6,  # estimate of the last save
        first=int(resume.name.rpartition("-")[2]) if resume else 0,
        started=origin + stored.get("seconds", 0.0),
    )
    finish = partial(_complete, work, run, clock)
    trainer = MaskedTrainer(
        model=model,
        args=setup.arguments_of(work, run, micro),
        rows=MaskedRows(work.dataset, masking, recipe.seed, plan, work.last),
        collator=Collator.of(work.dataset, masking),
        tokenizer=work.tokenizer,
        loop=Loop(plan, groups, clock, recipe.schedule, settled(recipe.warmup), finish, group.wait, recipe.keep_states),
    )
    if work.processes > 1:
        clock.shared = group.share_from_first
    if resume:
        check_trainer_state(resume)
        progress.note(files.describe_state(run))
    for line in work.lines(micro):
        progress.note(line)
    total, unit = (work.last, "steps") if work.last < OPEN_END else (60 * settled(recipe.max_minutes), "s")
    judge = Judge(recipe, run, progress, trainer.accelerator, group)
    with (
        quiet_library(errors=True),
        without_bfloat16_warnings(),
        matmul_precision(tf32=recipe.dtype != "float32"),
        without_cudnn(work.dataset.seq_len),
        progress.stage("train", total, unit) as stage,
    ):
        callback = RunCallback(
            trainer,
            save_every=recipe.save_every,
            checkpoints=recipe.checkpoints,
            stage=stage,
            progress=progress,
            judge=judge.after_checkpoint,
        )
        trainer.add_callback(callback)
        # a process that was killed while scoring left its newest checkpoint unscored, and perhaps no step to train
        callback.stopped = judge.after_checkpoint() if resume else None
        if callback.stopped is None and not clock.finished(clock.first):
            try:
                trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            finally:
                trainer.close_workers()
    if trainer.is_world_process_zero():
        mark_done(run)
    group.wait()
    return _result(run, callback.last_loss, callback.stopped)


def _base(work: Prepared) -> str:
    """Name the start of the run, the same for all runs of a method; it includes the words that a new model inherits."""
    model, words = work.recipe.model, work.recipe.words_from
    return f"{model}+{Path(words).name}-{work.fingerprints['words'][:6]}" if words else full_name(model)


def _complete(work: Prepared, run: Path, clock: Clock, folder: Path, step: int) -> None:
    """Add to a checkpoint, before it is renamed, what the Trainer does not write: time, original dropout, provenance."""
    recipe, plan = work.recipe, work.plan
    records = [path / "training.json" for path in files.checkpoints_of(run)]
    name = read_json(records[0]).get("run", run.name) if records else run.name  # a run whose folder was renamed keeps its name
    provenance = Provenance(
        run=name, step=step, epoch=round(step / plan.steps_per_epoch, 6), tokens=plan.tokens_after(step),
        objective=recipe.objective, base=_base(work), seq_len=work.dataset.seq_len, seed=recipe.seed, dataset=recipe.dataset,
        dataset_bytes=work.dataset.fingerprint, planned_end=step == work.last and recipe.eval_set is None,
        base_bytes=work.fingerprints.get("weights", ""), method=recipe.method,
    )  # fmt: skip
    write_json(folder / "config.json", read_json(folder / "config.json") | work.own_dropout)
    progress = round(clock.progress(step), 4)
    write_json(folder / "clock.json", {"seconds": round(clock.elapsed(), 3), "lost": round(clock.lost, 3), "progress": progress})
    write_json(folder / "training.json", provenance.to_json())


def _result(run: Path, loss: float | None, stopped: str | None) -> TrainResult:
    checkpoints = files.checkpoints_of(run)
    newest = read_stored(checkpoints[-1] / "training.json", Provenance) if checkpoints else None
    seconds = files.read_clock(checkpoints[-1]).get("seconds", 0.0) if checkpoints else 0.0
    return TrainResult(
        run=run, checkpoints=tuple(checkpoints), steps=newest.step if newest else 0, epochs=newest.epoch if newest else 0.0,
        tokens=newest.tokens if newest else 0, seconds=seconds, loss=loss, best=files.best_of(run), stopped=stopped,
    )  # fmt: skip
