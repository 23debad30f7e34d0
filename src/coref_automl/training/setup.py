"""The inputs of a run, opened and checked. In: a TrainRecipe. Out: dataset, steps, model, masks, the Trainer's arguments."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from coref_automl.base.config import choose, parse_weights
from coref_automl.base.errors import DatasetError, ModelError, RecipeError
from coref_automl.base.machine import default_batch_tokens, pick_first_gpu, usable_cores
from coref_automl.base.progress import Progress, duration
from coref_automl.base.say import language, say
from coref_automl.comparison.power import check_tasks, usual_metric
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import metric_named
from coref_automl.models.build import SHAPES, build_masked_lm, inherit_words
from coref_automl.models.context import lengthen
from coref_automl.models.execution import (
    ATTENTION_LABEL,
    bfloat16_note,
    compiling_pays,
    dropout_of,
    use_attention,
    with_dropout,
)
from coref_automl.models.load import LoadedModel, load_masked_lm, load_tokenizer, tokenizer_fingerprint
from coref_automl.models.model_files import config_of, folder_of, model_fingerprints, models_fingerprint, weight_shapes
from coref_automl.models.tokenizer_files import has_tokenizer
from coref_automl.models.vocabulary import ids_end, word_starts
from coref_automl.training.batches import BatchPlan, micro_batch
from coref_automl.training.folder import WRITING, checkpoint_of_run
from coref_automl.training.loss import MentionLosses, has_mention_target
from coref_automl.training.masking import OBJECTIVES, Masking
from coref_automl.training.optimizer import OPEN_END, even_steps, save_steps, total_steps
from coref_automl.training.recipe import TrainRecipe, check, settle


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A recipe whose inputs are open: shown by --dry-run, used by `train`. `last` is the final step, `micro` the micro-batch."""

    recipe: TrainRecipe
    dataset: PackedDataset
    tokenizer: Any
    plan: BatchPlan
    last: int
    device: str
    micro: int
    processes: int
    fingerprints: dict[str, str]
    notes: tuple[str, ...]
    own_dropout: dict[str, float]
    """Dropout of the start's config, which checkpoints keep; empty for a new model."""

    def summary(self) -> dict[str, Any]:
        return {
            "rows": self.plan.rows,
            "real_tokens_per_epoch": self.plan.tokens_per_epoch,
            "steps_per_epoch": self.plan.steps_per_epoch,
            "steps": self.last if self.last < OPEN_END else None,
            "minutes": self.recipe.max_minutes,
            "checkpoints": list(self.saves()) or None,
        }

    def saves(self) -> tuple[int, ...]:
        if self.last >= OPEN_END:
            return ()
        if self.recipe.checkpoints:
            return even_steps(self.recipe.checkpoints, self.last)
        return save_steps(self.plan.steps_per_epoch, self.recipe.save_every, self.last)

    def disk(self) -> float:
        """Estimate the gigabytes of all checkpoints and the newest's optimizer state; 0 for a new model, not yet built."""
        if self.recipe.shape is not None:
            return 0.0
        parameters = sum(map(math.prod, weight_shapes(folder_of(self.recipe.model)).values()))
        checkpoints = len(self.saves()) or self.recipe.checkpoints or 1
        return 4e-9 * parameters * (checkpoints + 2)

    def lines(self, micro: int | None = None) -> list[str]:
        recipe, plan, micro = self.recipe, self.plan, micro or self.micro
        ends = [say(f"{self.last:,}스텝", f"{self.last:,} step{'s' * (self.last != 1)}")] if self.last < OPEN_END else []
        ends += [duration(60 * recipe.max_minutes, language())] if recipe.max_minutes else []
        until = say("이나 ", " or ").join(ends)
        saves = self.saves()
        shown = ", ".join(map(str, saves[:6])) + (f" ... {saves[-1]}" if len(saves) > 6 else "")
        where = say(f"스텝 {shown}", f"after steps {shown}")
        if not saves:
            every = say(f"{recipe.save_every:g}에폭마다, 그리고 끝", f"every {recipe.save_every:g} epochs and at the end")
            where = say(f"모두 {recipe.checkpoints}개", f"{recipe.checkpoints} in all") if recipe.checkpoints else every
        rows, length, tokens = f"{plan.rows:,}", f"{self.dataset.seq_len:,}", f"{plan.tokens_per_epoch:,}"
        times = settled(recipe.batch) // (micro * self.processes)
        return [
            say(
                f"{recipe.objective} ({self.device}): {length}토큰 행 {rows}개 (패딩 제외 {tokens}토큰), 에폭당 "
                f"{plan.steps_per_epoch:,}스텝, {until}까지.",
                f"{recipe.objective} on {self.device}: {rows} rows of {length} tokens ({tokens} without padding), "
                f"{plan.steps_per_epoch:,} steps per epoch, until {until}.",
            ),
            say(
                f"배치 {recipe.batch} = 행 {micro}개 x 누적 {times} x 프로세스 {self.processes}; 체크포인트: {where}.",
                f"Batch {recipe.batch} = {micro} rows x {times} accumulated x {self.processes} processes; checkpoints {where}.",
            ),
        ]


def prepare_run(recipe: TrainRecipe) -> Prepared:
    """Open the dataset and the tokenizer, fill the recipe, and count the steps; nothing is written, no model is loaded."""
    check(recipe)
    if recipe.shape is not None:
        choose(recipe.shape, SHAPES, "shape")
    recipe, resolved = _checkpoints_of_runs(recipe)
    dataset = PackedDataset.open(Path(recipe.dataset))
    if recipe.seq_len is not None:
        dataset = dataset.cut_to(recipe.seq_len)
    tokenizer = load_tokenizer(recipe.tokenizer or recipe.model)
    tokenizer_id = tokenizer_fingerprint(tokenizer)
    dataset.check_tokenizer(tokenizer_id)
    _check_tokenizer(recipe, tokenizer_id)
    _check_mentions(recipe, dataset)
    if recipe.eval_set is not None:
        evalset = EvalSet.open(Path(recipe.eval_set))
        metric = metric_named(recipe.metric or usual_metric(evalset)).name
        recipe = replace(recipe, metric=metric)
        check_tasks(evalset, metric)  # fails now rather than after half an epoch
        evalset.noun_table(tokenizer)
    recipe, filled = settle(recipe, dataset.seq_len)
    own_dropout = {} if recipe.shape else dropout_of(AutoConfig.from_pretrained(folder_of(recipe.model)).to_dict())
    recipe, dropped = _without_dropout(recipe, max(own_dropout.values(), default=0.0))
    for name in recipe.report_to:
        if not name.isidentifier():
            raise RecipeError(f"--report-to takes the name of a package, such as tensorboard, not {name!r}.")
        if importlib.util.find_spec(name) is None:
            raise RecipeError(f"--report-to {name} needs a package that is not installed. Run: pip install {name}")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    batch = settled(recipe.batch)
    if batch % processes:
        raise RecipeError(f"A batch of {batch} rows cannot be shared by {processes} processes; choose a multiple of {processes}.")
    plan = BatchPlan.of(dataset, batch=batch, seed=recipe.seed, mix=parse_weights(recipe.mix, "--mix"))
    last = total_steps(plan.steps_per_epoch, recipe.epochs, recipe.max_tokens, plan.tokens_per_epoch)
    if recipe.curriculum:
        sorted_rows = min(plan.rows, round(recipe.curriculum * min(last, plan.steps_per_epoch) * batch))
        plan = dataclasses.replace(plan, contexts=dataset.contexts(), sorted_rows=sorted_rows)
    if last >= OPEN_END and recipe.max_minutes is None:
        raise RecipeError(f"That is a budget of over {OPEN_END:,} steps. Lower --epochs or --max-tokens.")
    device = pick_first_gpu(recipe.device)
    fits = recipe.micro_batch or max(1, default_batch_tokens(device) // dataset.seq_len)
    micro = micro_batch(batch, min(fits, max(1, -(-plan.rows // processes))), processes)
    fingerprints = {"dataset": dataset.fingerprint, "tokenizer": tokenizer_id}
    if recipe.words_from is not None:
        _check_words(recipe, recipe.words_from, tokenizer_id)
        fingerprints["words"] = model_fingerprints(recipe.words_from)["weights"]
    fingerprints |= {"models": models_fingerprint([recipe.tokenizer])} if recipe.tokenizer else {}
    fingerprints |= model_fingerprints(recipe.model) if recipe.shape is None else {}
    notes = (*resolved, *filled, *dropped, *filter(None, [bfloat16_note(device, recipe.dtype)]))
    return Prepared(recipe, dataset, tokenizer, plan, last, device, micro, processes, fingerprints, notes, own_dropout)


def verify_dataset(work: Prepared, progress: Progress) -> None:
    """Check that the arrays are unchanged since `prepare`, and that some row has a target for every loss."""
    objective, dataset = work.recipe.objective, work.dataset
    dataset.verify(progress)
    if OBJECTIVES[objective].losses and not any(has_mention_target(dataset.row(number)) for number in range(len(dataset))):
        raise DatasetError(
            f"No row of {work.recipe.dataset} has a document with two chains, so {objective} has nothing to tell apart; "
            f"train with --objective entity, or prepare longer documents."
        )


def _check_mentions(recipe: TrainRecipe, dataset: PackedDataset) -> None:
    objective = OBJECTIVES[recipe.objective]
    if objective.share(recipe.ratio) and not len(dataset.mentions):
        mode = "entity" if objective.needs_chains else "combined"
        raise DatasetError(
            f"{recipe.dataset} has no mentions, which --objective {recipe.objective} hides; prepare it with: "
            f"coref-automl prepare {mode}"
        )


def _check_tokenizer(recipe: TrainRecipe, tokenizer_id: str) -> None:
    """Refuse another tokenizer for a trained model: its embeddings belong to its own token ids."""
    if recipe.tokenizer is None or recipe.shape is not None or not has_tokenizer(folder_of(recipe.model)):
        return
    if tokenizer_fingerprint(load_tokenizer(recipe.model)) != tokenizer_id:
        raise ModelError(f"{recipe.model} was trained with its own tokenizer, not {recipe.tokenizer}; leave --tokenizer out.")


def _check_words(recipe: TrainRecipe, source: str, tokenizer_id: str) -> None:
    if tokenizer_fingerprint(load_tokenizer(source)) != tokenizer_id:
        raise ModelError(f"{source} and {recipe.tokenizer} have different vocabularies; pass a model with the same tokenizer.")
    config, needed = config_of(folder_of(source)), SHAPES[settled(recipe.shape)].hidden
    width = next((config[name] for name in ("embedding_size", "hidden_size", "dim") if name in config), None)
    if width != needed:
        raise ModelError(f"The embeddings of {source} have width {width} and {recipe.model} needs {needed}; pass another shape.")


def _checkpoints_of_runs(recipe: TrainRecipe) -> tuple[TrainRecipe, list[str]]:
    """Replace runs by their checkpoints in --model and --words-from; the notes name them."""
    notes = []
    for field, option in (("model", "--model"), ("words_from", "--words-from")):
        model = getattr(recipe, field)
        if model and (checkpoint := checkpoint_of_run(model, option)):
            change: dict[str, Any] = {field: checkpoint}
            recipe = dataclasses.replace(recipe, **change)
            notes.append(f"{option}: {checkpoint}")
    return recipe, notes


def _without_dropout(recipe: TrainRecipe, own: float) -> tuple[TrainRecipe, list[str]]:
    """Set dropout to 0 unless the recipe has a value; `own` is the model's."""
    if recipe.dropout is not None or not own:
        return recipe, []
    note = say(
        f"드롭아웃: 모델 설정값 {own:g} 대신 0으로 학습합니다. 추가 사전학습에서 성능 저하가 확인되지 않았고 더 빠릅니다. "
        f"--dropout {own:g}로 유지할 수 있으며, 체크포인트의 설정은 원래 값을 유지합니다.",
        f"Training with dropout 0, not the model's {own:g}: continued pretraining was not shown to lose by it, and it is faster. "
        f"--dropout {own:g} keeps it; checkpoints keep the model's own value in their config.",
    )
    return dataclasses.replace(recipe, dropout=0.0), [note]


def settled(value: Any) -> Any:
    """Return a setting that `settle` has filled; for the type checker."""
    assert value is not None
    return value


def load_model(work: Prepared, resume: Path | None) -> LoadedModel:
    """Load the model to train: the checkpoint to resume from, random weights, or the recipe's model lengthened to the blocks."""
    recipe, length = work.recipe, work.dataset.seq_len
    notes: list[str] = []
    if resume is not None:
        model = load_masked_lm(str(resume), device=work.device).model
    elif recipe.shape is not None:
        model = build_masked_lm(recipe.shape, work.tokenizer, seq_len=length, seed=recipe.seed)
        if recipe.words_from is not None:
            inherit_words(model, load_masked_lm(recipe.words_from).model)
            notes.append(
                say(
                    f"단어 벡터와 마스크 헤드는 {recipe.words_from}의 것이고 나머지 층은 무작위 값에서 시작합니다.",
                    f"Word vectors and mask head of {recipe.words_from}; the layers between start from random weights.",
                )
            )
        model = model.to(work.device)
    else:
        loaded = load_masked_lm(recipe.model, device=work.device, new_head=recipe.new_head, attention=recipe.attention)
        model = loaded.model
        notes += [note for note in loaded.notes if not note.startswith(tuple(ATTENTION_LABEL.values()))]
        notes += lengthen(model, length, policy=recipe.policy)
    if recipe.dropout is not None:
        model = with_dropout(model, recipe.dropout)
    notes += use_attention(model, recipe.attention, half=in_bfloat16(work))
    return LoadedModel(model, work.tokenizer, model.config.model_type, length, tuple(notes))


def in_bfloat16(work: Prepared) -> bool:
    """Tell whether the steps compute in bfloat16."""
    if work.recipe.dtype != "auto":
        return work.recipe.dtype == "bfloat16"
    return work.device.startswith("cuda") and torch.cuda.is_bf16_supported()


COMPILED_FROM = 1e15
"""Parameters times tokens of the shortest run that gains from compiling: a minute of an H200, on which it takes ten seconds."""
COMPILED_MINUTES = 1.5


def compiles(work: Prepared, model: Any) -> tuple[bool, list[str]]:
    """Decide whether to compile the layers, from the recipe alone, so that a resumed run decides the same; the note says so."""
    recipe = work.recipe
    if recipe.compile is not None:
        if recipe.compile and not compiling_pays(model):
            note = say(
                "--compile은 무시됩니다: 융합 커널에는 이득이 없습니다.", "--compile is ignored: fused kernels gain nothing."
            )
            return False, [note]
        return recipe.compile, []
    built = importlib.util.find_spec("triton") and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    if not built or not work.device.startswith("cuda") or not compiling_pays(model):
        return False, []
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = work.last / work.plan.steps_per_epoch * work.plan.tokens_per_epoch
    minutes = math.inf if recipe.max_minutes is None else recipe.max_minutes
    if parameters * tokens < COMPILED_FROM or minutes < COMPILED_MINUTES:
        return False, []
    return True, [
        say(
            "레이어를 컴파일합니다: 처음에 약 10초가 더 걸리고 이후 스텝이 빨라집니다. --no-compile로 끕니다.",
            "Compiling the layers: about ten seconds at the start, faster steps after that. --no-compile turns it off.",
        )
    ]


def masking_of(work: Prepared, model: Any) -> Masking:
    recipe = work.recipe
    size = int(model.config.vocab_size)
    special, starts, begins = np.zeros(size, bool), np.ones(size, bool), word_starts(work.tokenizer)[:size]
    special[list(work.tokenizer.all_special_ids)] = True
    special[ids_end(work.tokenizer) :] = True
    starts[: len(begins)] = begins
    copied = ("objective", "min_prob", "max_prob", "whole_word", "entity_rate", "background", "ratio")
    return Masking(
        **{name: getattr(recipe, name) for name in copied}, mask_id=int(work.tokenizer.mask_token_id), special=special,
        starts=starts, drawn=recipe.rates == "drawn", falling=recipe.rates == "falling",
        replace_all=recipe.replacement == "mask", far_weight=1.0 if recipe.far_weight is None else recipe.far_weight,
    )  # fmt: skip


def mention_losses_of(work: Prepared, model: Any) -> MentionLosses | None:
    """Build the projections of the objective's mention losses; None if it has none."""
    recipe = work.recipe
    losses = OBJECTIVES[recipe.objective].losses
    weights = {loss: settled(getattr(recipe, f"{loss}_weight")) for loss in losses}
    return MentionLosses(model.config.hidden_size, weights, recipe.temperature or 1.0) if losses else None


def spare_workers(processes: int) -> int:
    """Return how many data-loading processes each training process may have; it keeps one core for itself."""
    return min(8, max(0, usable_cores() // processes - 1))


def arguments_of(work: Prepared, run: Path, micro: int) -> Any:
    from transformers import TrainingArguments

    recipe, cuda = work.recipe, work.device.startswith("cuda")
    bf16 = in_bfloat16(work)
    workers = recipe.workers if recipe.workers is not None else spare_workers(work.processes) if cuda else 0
    if workers:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else the library warns at every fork
    arguments = TrainingArguments(
        output_dir=str(run / WRITING),
        max_steps=work.last,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settled(recipe.batch) // (micro * work.processes),
        gradient_checkpointing=recipe.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if recipe.gradient_checkpointing else None,
        learning_rate=settled(recipe.learning_rate),  # not used by our optimizer: recorded by --report-to and training_args.bin
        weight_decay=settled(recipe.weight_decay),  # the same
        max_grad_norm=recipe.clip,
        seed=recipe.seed % (1 << 32),  # the most that numpy takes
        bf16=bf16,
        use_cpu=not cuda,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="steps",
        logging_steps=recipe.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=list(recipe.report_to) or "none",
        run_name=run.name,
        remove_unused_columns=False,
        dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
        dataloader_prefetch_factor=4 if workers else None,
        dataloader_pin_memory=cuda,
        accelerator_config={"non_blocking": cuda},
        ddp_find_unused_parameters=False if work.processes > 1 else None,
        label_names=["labels"],
    )
    arguments.mixed_precision = "bf16" if bf16 else "no"  # without this, what `accelerate config` chose would count
    arguments._n_gpu = min(1, arguments.n_gpu)  # several GPUs need `accelerate launch`, one process each
    return arguments
