"""Our training step beside the two usual ones. In: documents and a shape. Out: real tokens/s, peak memory.

Usual: one row per document, padded to the longest length; and Hugging Face's MLM example, which joins all documents and cuts
the string into chunks. Both compute logits at every position. Ours packs documents and asks the head at masked positions alone.
`run_relation` does the same for relation rows, of which the usual way pads each to one length.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, RandomSampler
from transformers import DataCollatorForLanguageModeling

from coref_automl.bench import BenchResult, RelationBench, TrainBench, recipe_for_texts
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.sources import open_source
from coref_automl.errors import DatasetError
from coref_automl.machine import pick_device
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.models.execution import use_attention, without_cudnn
from coref_automl.models.load import load_encoder, load_masked_lm, load_tokenizer
from coref_automl.progress import quiet
from coref_automl.relation.data import RowCache
from coref_automl.relation.markers import Marker
from coref_automl.relation.model import RelationModel, RowTensors, training_order
from coref_automl.relation.rows import gold_indices
from coref_automl.training.batches import Collator, MaskedRows
from coref_automl.training.loss import prepare_model
from coref_automl.training.masking import Masking
from coref_automl.tuning.probe import Stopwatch, training_step

_VOCABULARY = 16_000
_RATE = 0.2
_WARM_UP = 2
Batch = dict[str, torch.Tensor]


@dataclass(slots=True, eq=False)
class TrainingVariant:
    """One way to train: its batches, its step, and what the steps have cost so far."""

    name: str
    batches: Iterator[Batch]
    step: Callable[[Batch], None]
    clock: Stopwatch
    tokens: int = 0

    @property
    def speed(self) -> float:
        return self.tokens / self.clock.seconds

    def __str__(self) -> str:
        return f"{self.name}: {self.speed:,.0f} real tokens/s ({self.clock})"


def run(settings: TrainBench) -> BenchResult:
    """The three ways on the same documents."""
    model, seq_len = settings.model, settings.seq_len
    texts = [document.text for document in islice(open_source(settings.source), settings.documents)]
    if not texts:
        raise DatasetError(f"{settings.source} has no documents; pass another --source.")
    tokenizer = load_tokenizer(model) if model else train_tokenizer(texts, vocab_size=_VOCABULARY)

    def fresh() -> Any:
        if model:
            return load_masked_lm(model, seq_len=seq_len).model
        made = build_masked_lm(settings.shape, tokenizer, seq_len=seq_len, seed=0)
        if len(tokenizer) < _VOCABULARY:  # few texts give few entries, and the head of a real model is wide
            made.resize_token_embeddings(_VOCABULARY, mean_resizing=False)
        return made

    variants = race(settings, texts, tokenizer, fresh)
    what = f"{model or settings.shape} at {seq_len} tokens, batch {settings.batch}, {settings.steps} steps each in turns"
    where = f"{what}, on {pick_device(settings.device)}; {len(texts)} documents of {settings.source}"
    lines = (*map(str, variants), against(variants), where)
    return BenchResult(variants[0].speed, variants[1].speed, "real tokens/s", lines)


def against(variants: list[TrainingVariant]) -> str:
    ours, padded, chunks = (variant.speed for variant in variants)
    return f"against padded rows {ours / padded:.2f}x, against joined chunks {ours / chunks:.2f}x"


def race(settings: TrainBench, texts: list[str], tokenizer: Any, fresh: Callable[[], Any]) -> list[TrainingVariant]:
    """Ours, padded rows, joined chunks: one step each in turns, so that other load on the machine falls on all of them."""
    device = pick_device(settings.device)
    usual = DataCollatorForLanguageModeling(tokenizer, mlm_probability=_RATE, seed=0)

    def variant(name: str, rows: Any, collate: Any, model: Any) -> TrainingVariant:
        count = settings.batch * (settings.steps + _WARM_UP)
        sampler = RandomSampler(rows, num_samples=count, generator=torch.Generator().manual_seed(0))
        step = training_step(model, device)

        def run_step(batch: Batch) -> None:
            step(lambda: model(**{key: value.to(device) for key, value in batch.items()})["loss"])

        batches = iter(DataLoader(rows, settings.batch, sampler=sampler, collate_fn=collate))
        return TrainingVariant(name, batches, run_step, Stopwatch(device))

    def placed(implementation: str | None = None) -> Any:
        made = fresh().to(device).train()
        use_attention(made, implementation or ("eager" if made.config.model_type == "deberta-v2" else "sdpa"))
        return made

    with tempfile.TemporaryDirectory() as folder:
        ours = placed(settings.attention)
        rows, collate = _packed(texts, tokenizer, settings.seq_len, Path(folder), ours.config.vocab_size)
        prepare_model(ours, compiled=settings.compile)
        padded, chunks = _padded(texts, tokenizer, settings.seq_len), _chunks(texts, tokenizer, settings.seq_len)
        variants = [
            variant("packed, head at masked positions", rows, collate, ours),
            variant("padded rows, full logits", padded, usual, placed()),
            variant("joined chunks, full logits", chunks, usual, placed()),
        ]
        for number in range(_WARM_UP + settings.steps):
            for each in variants:
                batch = dict(next(each.batches))
                if number < _WARM_UP:  # what is made once (compiled code, optimizer states) is not counted
                    each.step(batch)
                    continue
                each.clock.timed(partial(each.step, batch))
                each.tokens += int((batch["segments" if "segments" in batch else "attention_mask"] > 0).sum())
    return variants


def _packed(texts: list[str], tokenizer: Any, seq_len: int, folder: Path, entries: int) -> tuple[MaskedRows, Collator]:
    """Rows as `prepare mlm` packs them and `train` masks them."""
    tokenizer.save_pretrained(folder / "tokenizer")
    prepare(recipe_for_texts(texts, str(folder / "tokenizer"), seq_len, folder, "mlm"), folder / "packed")
    dataset = PackedDataset.open(folder / "packed")
    special = np.zeros(entries, bool)
    special[list(tokenizer.all_special_ids)] = True
    masking = Masking("mlm", int(tokenizer.mask_token_id), special, special, min_prob=_RATE, max_prob=_RATE)
    return MaskedRows(dataset, masking, 0), Collator.of(dataset, masking)


def _padded(texts: list[str], tokenizer: Any, seq_len: int) -> list[dict[str, Any]]:
    read = tokenizer(texts, truncation=True, max_length=seq_len, padding="max_length", return_special_tokens_mask=True)
    return [dict(zip(read.keys(), row, strict=True)) for row in zip(*read.values(), strict=True)]


def _chunks(texts: list[str], tokenizer: Any, seq_len: int) -> list[dict[str, Any]]:
    read = tokenizer(texts, return_special_tokens_mask=True, verbose=False)
    joined = {key: [value for row in rows for value in row] for key, rows in read.items()}
    starts = range(0, len(joined["input_ids"]) - seq_len + 1, seq_len)
    if not starts:
        raise DatasetError(f"The documents together are shorter than one row of {seq_len} tokens; pass more with --documents.")
    return [{key: values[start : start + seq_len] for key, values in joined.items()} for start in starts]


def run_relation(settings: RelationBench) -> BenchResult:
    """Relation rows, ours in batches of similar length against a random order padded to `padded` tokens, as
    `padding="max_length"` does: the same weights, optimizer and batch size; without a model, a tokenizer learned from the rows.
    """
    device, cache = pick_device(settings.device), RowCache()
    padded, size = settings.padded, settings.batch_size
    read = cache.read(settings.data, skip_bad=False, max_rows=settings.rows)
    encoder, tokenizer = _encoder(settings, [row.sentence for row in read.rows])
    _, marked, _ = cache.mark(read.rows, Marker(tokenizer, "punct", padded), progress=quiet())
    pad = tokenizer.pad_token_id or 0
    ours, usual = RowTensors(marked, pad, device), RowTensors(marked, pad, device, fixed=padded)
    rng = np.random.default_rng(0)
    by_length = training_order(ours.lengths, np.arange(len(marked)), size, rng)
    as_they_come = np.array_split(rng.permutation(len(marked)), range(size, len(marked), size))
    model = RelationModel(encoder, "both", 0.1).to(device).train()
    gold, step = torch.from_numpy(gold_indices(read.rows)).to(device), training_step(model, device)

    def train(tensors: Any, batches: list[Any]) -> float:
        """Rows per second, one training step per batch."""

        def loss(chosen: Any) -> Any:
            batch = tensors.batch(chosen)
            return cross_entropy(model(batch.ids, batch.mask, batch.starts), gold[chosen.rows])

        def work() -> None:
            for chosen in tensors.batch_rows(batches):
                with without_cudnn():
                    step(partial(loss, chosen))

        clock = Stopwatch(device)
        clock.timed(work)
        return sum(map(len, batches)) / clock.seconds

    train(usual, as_they_come[:2])  # the first steps of either way pay for allocations and kernels
    speeds = train(ours, by_length), train(usual, as_they_come)
    real = int(ours.lengths.sum())
    spent = [sum(len(batch) * int(ours.lengths[batch].max()) for batch in by_length), len(marked) * padded]
    shares = [f"{tokens:,} tokens, {1 - real / tokens:.1%} padding" for tokens in spent]
    parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    lines = (
        f"{len(marked):,} rows of {read.split}, batch {size}, {device}, {parameters:.1f}M parameters",
        f"ours: {shares[0]}; usual way: {shares[1]}",
    )
    return BenchResult(*speeds, "rows/s", lines)


def _encoder(settings: RelationBench, texts: list[str]) -> tuple[Any, Any]:
    if settings.model is not None:
        return load_encoder(settings.model)
    tokenizer = train_tokenizer([*texts, "@ # * ^ & % $ + = |"], vocab_size=8000)
    return build_masked_lm(settings.shape, tokenizer, seq_len=settings.padded).base_model, tokenizer
