"""Relation training, timed. In: rows and an encoder. Out: rows per second, ours against every row padded to one length.

Both ways train on the same rows with the same weights, optimizer and batch size, one after the other. The usual way
takes rows in a random order and pads each to `padded` tokens, as `padding="max_length"` does.
"""

from __future__ import annotations

import time
from typing import Any

from coref_automl.bench.measurement import BenchResult, synchronize
from coref_automl.bench.recipes import RelationBench


def run(settings: RelationBench) -> BenchResult:
    """Both ways on the same rows; without a model, with a tokenizer learned from the rows."""
    import numpy as np

    from coref_automl.machine import pick_device
    from coref_automl.progress import quiet
    from coref_automl.relation.data import RowCache
    from coref_automl.relation.labels import gold_indices
    from coref_automl.relation.markers import Marker
    from coref_automl.relation.tensors import RowTensors, training_order

    device, cache = pick_device(settings.device), RowCache()
    padded, batch_size = settings.padded, settings.batch_size
    read = cache.read(settings.data, skip_bad=False, max_rows=settings.rows)
    encoder, tokenizer = _encoder(settings.model, settings.shape, [row.sentence for row in read.rows], padded)
    marker = Marker(tokenizer, "punct", padded)
    _, marked, _ = cache.mark(read.rows, marker, progress=quiet())
    gold = gold_indices(read.rows)
    pad = tokenizer.pad_token_id or 0
    ours, usual = RowTensors(marked, pad, device), RowTensors(marked, pad, device, fixed=padded)
    rng = np.random.default_rng(0)
    by_length = training_order(ours.lengths, np.arange(len(marked)), batch_size, rng)
    shuffled = rng.permutation(len(marked))
    as_they_come = [shuffled[low : low + batch_size] for low in range(0, len(shuffled), batch_size)]
    trainer = _Trainer(encoder, gold, device)
    trainer.steps(usual, as_they_come[:2])  # the first steps of either way pay for allocations and kernels
    seconds = [trainer.steps(ours, by_length), trainer.steps(usual, as_they_come)]
    real = int(ours.lengths.sum())
    spent = [sum(len(batch) * int(ours.lengths[batch].max()) for batch in by_length), len(marked) * padded]
    lines = (
        f"{len(marked):,} rows of {read.split}, batch {batch_size}, {device}, {trainer.parameters / 1e6:.1f}M parameters",
        f"ours: {spent[0]:,} tokens, {100 * (1 - real / spent[0]):.1f}% padding; usual way: {spent[1]:,} tokens, "
        f"{100 * (1 - real / spent[1]):.1f}% padding",
    )
    return BenchResult(len(marked) / seconds[0], len(marked) / seconds[1], "rows/s", lines)


def _encoder(model: str | None, shape: str, texts: list[str], seq_len: int) -> tuple[Any, Any]:
    if model is not None:
        from coref_automl.models.load import load_encoder

        return load_encoder(model)
    from coref_automl.models.build import build_masked_lm, train_tokenizer

    tokenizer = train_tokenizer([*texts, "@ # * ^ & % $ + = |"], vocab_size=8000)
    return build_masked_lm(shape, tokenizer, seq_len=seq_len).base_model, tokenizer


class _Trainer:
    def __init__(self, encoder: Any, gold: Any, device: str) -> None:
        import torch

        from coref_automl.relation.model import RelationModel
        from coref_automl.training.optimizer import adamw, groups_of

        self.model = RelationModel(encoder, "both", 0.1).to(device).train()
        self.gold = torch.from_numpy(gold).to(device)
        self.optimizer = adamw(groups_of(self.model, rate=1e-5, weight_decay=0.01), fused=device.startswith("cuda"))
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())

    def steps(self, tensors: Any, batches: list[Any]) -> float:
        """Seconds for one training step per batch."""
        from coref_automl.models.attention import without_cudnn
        from coref_automl.models.precision import autocast
        from coref_automl.relation.techniques import cross_entropy

        synchronize(tensors.device)
        began = time.perf_counter()
        for chosen in tensors.place(batches):
            batch = tensors.batch(chosen)
            with without_cudnn():
                with autocast(tensors.device, "auto"):
                    logits = self.model(batch.ids, batch.mask, batch.starts)
                cross_entropy(logits, self.gold[chosen.rows]).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        synchronize(tensors.device)
        return time.perf_counter() - began
