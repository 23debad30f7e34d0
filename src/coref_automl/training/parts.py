"""The parts of a prepared run. In: a Prepared recipe. Out: the model to train, its masks, the Trainer's arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.models.attention import use_attention
from coref_automl.models.build import build_masked_lm
from coref_automl.models.context import lengthen
from coref_automl.models.inherit import inherit_words
from coref_automl.models.load import LoadedModel, load_masked_lm
from coref_automl.models.vocabulary import word_starts
from coref_automl.training.folder import WRITING
from coref_automl.training.loss import with_dropout
from coref_automl.training.masking import Masking
from coref_automl.training.setup import Prepared, known
from coref_automl.workers import usable_cores


def load_model(work: Prepared, resume: Path | None) -> LoadedModel:
    """The model to train: a checkpoint to go on from, random weights, or the recipe's model made as long as the blocks."""
    recipe, length = work.recipe, work.dataset.seq_len
    notes: list[str] = []
    if resume is not None:
        model = load_masked_lm(str(resume), device=work.device).model
    elif recipe.shape is not None:
        model = build_masked_lm(recipe.shape, work.tokenizer, seq_len=length, seed=recipe.seed)
        if recipe.words_from is not None:
            inherit_words(model, load_masked_lm(recipe.words_from).model)
            notes.append(f"Word vectors and mask head of {recipe.words_from}; the layers between start at random.")
        model = model.to(work.device)
    else:
        loaded = load_masked_lm(recipe.model, device=work.device, new_head=recipe.new_head, attention=recipe.attention)
        model = loaded.model
        notes += [*loaded.notes, *lengthen(model, length, policy=recipe.policy)]
    if recipe.dropout is not None:
        model = with_dropout(model, recipe.dropout)
    notes += [note for note in use_attention(model, recipe.attention) if note not in notes]
    return LoadedModel(model, work.tokenizer, model.config.model_type, length, tuple(notes))


def masking_of(work: Prepared, model: Any) -> Masking:
    recipe = work.recipe
    size = int(model.config.vocab_size)
    special = np.zeros(size, bool)
    special[list(work.tokenizer.all_special_ids)] = True
    special[len(work.tokenizer) :] = True
    starts = np.ones(size, bool)
    begins = word_starts(work.tokenizer)[:size]
    starts[: len(begins)] = begins
    return Masking(
        objective=recipe.objective,
        mask_id=int(work.tokenizer.mask_token_id),
        special=special,
        starts=starts,
        min_prob=known(recipe.min_prob),
        max_prob=known(recipe.max_prob),
        drawn=recipe.rates == "drawn",
        whole_word=recipe.whole_word,
        entity_rate=recipe.entity_rate,
        background=recipe.background,
        ratio=recipe.ratio,
        replace_all=recipe.replacement == "mask",
    )


def arguments_of(work: Prepared, run: Path, micro: int) -> Any:
    from transformers import TrainingArguments

    recipe, cuda = work.recipe, work.device.startswith("cuda")
    bf16 = recipe.dtype == "bfloat16" or (recipe.dtype == "auto" and cuda and torch.cuda.is_bf16_supported())
    workers = (
        recipe.workers if recipe.workers is not None else (min(8, max(1, usable_cores() - 1) // work.processes) if cuda else 0)
    )
    if workers:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else the library warns about every process that is forked
    if "tensorboard" in recipe.report_to:
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run / "tensorboard"))
    arguments = TrainingArguments(
        output_dir=str(run / WRITING),
        max_steps=work.last,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=known(recipe.batch) // (micro * work.processes),
        gradient_checkpointing=recipe.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if recipe.gradient_checkpointing else None,
        learning_rate=known(recipe.learning_rate),
        weight_decay=known(recipe.weight_decay),
        max_grad_norm=recipe.clip,
        seed=recipe.seed,
        bf16=bf16,
        tf32=True if cuda else None,
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
    arguments._n_gpu = min(1, arguments.n_gpu)  # several GPUs go through `accelerate launch`, one process each
    return arguments
