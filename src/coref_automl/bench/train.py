"""Our training step beside the two usual ones. In: documents and a shape. Out: real tokens a second, peak memory.

Usual: a row a document, padded to the longest length; and Hugging Face's MLM example, which joins all documents and cuts
the string into chunks. Both compute logits at every position. Ours packs documents and asks the head at masked positions alone.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from coref_automl.bench.batches import Batch, chunk_batches, pack_documents, packed_batches, padded_batches
from coref_automl.bench.memory import PeakMemory
from coref_automl.bench.result import BenchResult
from coref_automl.corpus.sources import open_source
from coref_automl.errors import DatasetError
from coref_automl.models.attention import use_attention
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.models.families import family
from coref_automl.models.load import load_masked_lm, load_tokenizer, pick_device
from coref_automl.training.loss import prepare_model
from coref_automl.training.optimizer import adamw, groups_of

_VOCABULARY = 16_000


@dataclass(slots=True, eq=False)
class Way:
    """One way of training: where its batches come from, and what its steps have cost so far."""

    name: str
    batches: Iterator[tuple[Batch, int]]
    step: Callable[[Batch], None]
    tokens: int = 0
    seconds: float = 0.0
    memory: str = ""

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    def __str__(self) -> str:
        return f"{self.name}: {self.speed:,.0f} real tokens/s, {self.memory}"


def run(
    *,
    model: str | None = None,
    shape: str = "ko-mini",
    source: str = "bundled:passages",
    documents: int = 400,
    seq_len: int = 512,
    batch: int = 8,
    steps: int = 5,
    device: str = "auto",
    compiled: bool = False,
    attention: str = "auto",
    seed: int = 0,
) -> BenchResult:
    """The three ways on the same documents. Without a model: new weights of a named shape, which cost the same to train."""
    device = pick_device(device)
    texts = [document.text for document in islice(open_source(source), documents)]
    if not texts:
        raise DatasetError(f"{source} has no documents; pass another --source.")
    tokenizer = load_tokenizer(model) if model else train_tokenizer(texts, vocab_size=_VOCABULARY)

    def fresh() -> Any:
        if model:
            return load_masked_lm(model, seq_len=seq_len).model
        made = build_masked_lm(shape, tokenizer, seq_len=seq_len, seed=seed)
        if len(tokenizer) < _VOCABULARY:  # few texts give few entries, and the head of a real model is wide
            made.resize_token_embeddings(_VOCABULARY, mean_resizing=False)
        return made

    ways = race(
        texts,
        tokenizer,
        fresh,
        seq_len=seq_len,
        batch=batch,
        steps=steps,
        device=device,
        compiled=compiled,
        attention=attention,
        seed=seed,
    )
    first, padded, chunks = ways
    lines = [str(way) for way in ways]
    lines.append(
        f"against padded rows {first.speed / padded.speed:.2f}x, against joined chunks {first.speed / chunks.speed:.2f}x"
    )
    what = f"{model or shape} at {seq_len} tokens, batch {batch}, {steps} steps each in turns, on {device}"
    lines.append(f"{what}; {len(texts)} documents of {source}")
    return BenchResult(first.speed, padded.speed, "real tokens/s", tuple(lines))


def race(
    texts: list[str],
    tokenizer: Any,
    fresh: Callable[[], Any],
    *,
    seq_len: int,
    batch: int,
    steps: int,
    device: str,
    compiled: bool = False,
    attention: str = "auto",
    seed: int = 0,
) -> list[Way]:
    """Ours, padded rows, joined chunks: a step each in turns, so that what else the machine does falls on all alike."""

    def placed(implementation: str | None) -> Any:
        made = fresh().to(device).train()
        usual = "sdpa" if family(made.config.model_type).sdpa else "eager"
        use_attention(made, implementation or usual)
        return made

    with tempfile.TemporaryDirectory() as folder:
        ours = placed(attention)
        dataset = pack_documents(texts, tokenizer, seq_len, Path(folder) / "packed", ours.config.vocab_size)
        prepare_model(ours, compiled=compiled)
        packed = packed_batches(dataset, tokenizer, ours, batch, seed)
        padded = padded_batches(texts, tokenizer, seq_len, batch, seed)
        chunks = chunk_batches(texts, tokenizer, seq_len, batch, seed)
        ways = [
            Way("packed, head at masked positions", packed, _stepper(ours, device)),
            Way("padded rows, full logits", padded, _stepper(placed(None), device)),
            Way("joined chunks, full logits", chunks, _stepper(placed(None), device)),
        ]
        for way in ways:
            way.step(next(way.batches)[0])  # what is made once (compiled code, optimizer states) is not counted
            _trim()
            with PeakMemory(device) as memory:
                way.step(next(way.batches)[0])
            way.memory = str(memory)
        for _ in range(steps):
            for way in ways:
                made, real = next(way.batches)
                _finish(device)
                started = time.perf_counter()
                way.step(made)
                _finish(device)
                way.seconds += time.perf_counter() - started
                way.tokens += real
    return ways


def _stepper(model: Any, device: str) -> Callable[[Batch], None]:
    """A whole training step: forward, backward, clip, AdamW; bfloat16 autocast on CUDA."""
    optimizer = adamw(groups_of(model, rate=1e-4, weight_decay=0.01), fused=device.startswith("cuda"))
    kind = device.split(":")[0]

    def step(batch: Batch) -> None:
        placed = {name: value.to(device) for name, value in batch.items()}
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            output = model(**placed)
        output["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _finish(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _trim() -> None:
    """Give freed memory back, so that the next way's peak is its own."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
