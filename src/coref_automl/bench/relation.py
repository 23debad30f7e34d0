"""Relation training, timed. In: rows and an encoder. Out: rows per second, ours against every row padded to one length.

Both ways train on the same rows with the same weights, optimizer and batch size, one after the other. The usual way
takes rows in a random order and pads each to `padded` tokens, as `padding="max_length"` does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from coref_automl.bench import BenchResult, RelationBench
from coref_automl.machine import pick_device
from coref_automl.models.attention import without_cudnn
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.models.load import load_encoder
from coref_automl.progress import quiet
from coref_automl.relation.data import RowCache
from coref_automl.relation.markers import Marker
from coref_automl.relation.model import RelationModel, RowTensors, training_order
from coref_automl.relation.rows import gold_indices
from coref_automl.tuning.probe import Stopwatch, training_step


def run(settings: RelationBench) -> BenchResult:
    """Both ways on the same rows; without a model, with a tokenizer learned from the rows."""
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
            for chosen in tensors.place(batches):
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
