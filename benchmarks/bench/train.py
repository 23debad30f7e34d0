"""Our training step beside the two usual ones. In: documents and a shape. Out: real tokens/s, peak memory.

Usual: one row per document, padded to the longest length; and Hugging Face's MLM example, which joins all documents and cuts
them into chunks. Both compute logits at every position. Ours packs documents and applies the head at masked positions only.
`run_relation` does the same for relation rows, which the usual way pads to one length.
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

from bench import BenchResult, RelationBench, TrainBench, recipe_for_texts
from coref_automl.base.errors import DatasetError
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import quiet
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.sources import open_source
from coref_automl.extras.relation.data import RowCache
from coref_automl.extras.relation.markers import Marker
from coref_automl.extras.relation.model import RelationModel, RowTensors, training_order
from coref_automl.extras.relation.rows import gold_indices
from coref_automl.extras.study.probe import Stopwatch, training_step
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.models.execution import use_attention, without_cudnn
from coref_automl.models.load import load_encoder, load_masked_lm, load_tokenizer
from coref_automl.training.batches import Collator, MaskedRows
from coref_automl.training.loss import prepare_model
from coref_automl.training.masking import Masking

_VOCABULARY = 16_000
_MASK_RATE = 0.2
_WARM_UP = 2
Batch = dict[str, torch.Tensor]


@dataclass(slots=True, eq=False)
class TrainingVariant:
    """A way to train: its batches, its step, and the cost of the steps so far."""

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
    """Time the three ways on the same documents."""
    model, seq_len = settings.model, settings.seq_len
    texts = [document.text for document in islice(open_source(settings.source), settings.documents)]
    if not texts:
        raise DatasetError(f"{settings.source} has no documents; pass another --source.")
    tokenizer = load_tokenizer(model) if model else train_tokenizer(texts, vocab_size=_VOCABULARY)

    def fresh() -> Any:
        if model:
            return load_masked_lm(model, seq_len=seq_len).model
        built = build_masked_lm(settings.shape, tokenizer, seq_len=seq_len, seed=0)
        if len(tokenizer) < _VOCABULARY:  # few texts give few entries, but a real model has a large head
            built.resize_token_embeddings(_VOCABULARY, mean_resizing=False)
        return built

    variants = timed_variants(settings, texts, tokenizer, fresh)
    what = f"{model or settings.shape} at {seq_len} tokens, batch {settings.batch}, {settings.steps} steps each in turns"
    where = f"{what}, on {pick_device(settings.device)}; {len(texts)} documents of {settings.source}"
    lines = (*map(str, variants), against(variants), where)
    return BenchResult(variants[0].speed, variants[1].speed, "real tokens/s", lines)


def against(variants: list[TrainingVariant]) -> str:
    ours, padded, chunks = (variant.speed for variant in variants)
    return f"against padded rows {ours / padded:.2f}x, against joined chunks {ours / chunks:.2f}x"


def timed_variants(settings: TrainBench, texts: list[str], tokenizer: Any, fresh: Callable[[], Any]) -> list[TrainingVariant]:
    """Time ours, padded rows and joined chunks, one step each in turns, so that other load affects all of them."""
    device = pick_device(settings.device)
    usual = DataCollatorForLanguageModeling(tokenizer, mlm_probability=_MASK_RATE, seed=0)

    def variant(name: str, rows: Any, collate: Any, model: Any) -> TrainingVariant:
        count = settings.batch * (settings.steps + _WARM_UP)
        sampler = RandomSampler(rows, num_samples=count, generator=torch.Generator().manual_seed(0))
        step = training_step(model, device)

        def run_step(batch: Batch) -> None:
            step(lambda: model(**{key: value.to(device) for key, value in batch.items()})["loss"])

        batches = iter(DataLoader(rows, settings.batch, sampler=sampler, collate_fn=collate))
        return TrainingVariant(name, batches, run_step, Stopwatch(device))

    def placed(implementation: str | None = None) -> Any:
        model = fresh().to(device).train()
        use_attention(model, implementation or ("eager" if model.config.model_type == "deberta-v2" else "sdpa"))
        return model

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
            for way in variants:
                batch = dict(next(way.batches))
                if number < _WARM_UP:  # untimed: compiles code and creates optimizer states
                    way.step(batch)
                    continue
                way.clock.timed(partial(way.step, batch))
                way.tokens += int((batch["segments" if "segments" in batch else "attention_mask"] > 0).sum())
    return variants


def _packed(texts: list[str], tokenizer: Any, seq_len: int, folder: Path, entries: int) -> tuple[MaskedRows, Collator]:
    """Rows as `prepare mlm` packs them and `train` masks them."""
    tokenizer.save_pretrained(folder / "tokenizer")
    prepare(recipe_for_texts(texts, str(folder / "tokenizer"), seq_len, folder, "mlm"), folder / "packed")
    dataset = PackedDataset.open(folder / "packed")
    special = np.zeros(entries, bool)
    special[list(tokenizer.all_special_ids)] = True
    masking = Masking("mlm", int(tokenizer.mask_token_id), special, special, min_prob=_MASK_RATE, max_prob=_MASK_RATE)
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
    """Time relation rows: ours in batches of similar length, the usual way in random order and padded to `padded` tokens, as by
    `padding="max_length"`. Weights, optimizer and batch size are the same; without a model, a tokenizer is trained on the rows.
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
    shuffled = np.array_split(rng.permutation(len(marked)), range(size, len(marked), size))
    model = RelationModel(encoder, "both", 0.1).to(device).train()
    gold, step = torch.from_numpy(gold_indices(read.rows)).to(device), training_step(model, device)

    def train(tensors: Any, batches: list[Any]) -> float:
        """Rows per second, one training step per batch."""

        def loss(chosen: Any) -> Any:
            return cross_entropy(model(*tensors.batch(chosen)), gold[chosen.rows])

        def work() -> None:
            for chosen in tensors.batch_rows(batches):
                with without_cudnn():
                    step(partial(loss, chosen))

        clock = Stopwatch(device)
        clock.timed(work)
        return sum(map(len, batches)) / clock.seconds

    train(usual, shuffled[:2])  # the first steps also allocate memory and compile kernels
    speeds = train(ours, by_length), train(usual, shuffled)
    real = int(ours.lengths.sum())
    computed = [sum(len(batch) * int(ours.lengths[batch].max()) for batch in by_length), len(marked) * padded]
    shares = [f"{tokens:,} tokens, {1 - real / tokens:.1%} padding" for tokens in computed]
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
