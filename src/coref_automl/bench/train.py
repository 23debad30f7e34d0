"""Our training step beside the two usual ones. In: documents and a shape. Out: real tokens/s, peak memory.

Usual: one row per document, padded to the longest length; and Hugging Face's MLM example, which joins all documents and cuts
the string into chunks. Both compute logits at every position. Ours packs documents and asks the head at masked positions alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.bench.measurement import BenchResult, PeakMemory, synchronize
from coref_automl.bench.recipes import TrainBench
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import open_source
from coref_automl.errors import DatasetError
from coref_automl.machine import pick_device
from coref_automl.models.attention import use_attention
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.models.families import family
from coref_automl.models.load import load_masked_lm, load_tokenizer
from coref_automl.store import write_jsonl
from coref_automl.training.batches import Collator, MaskedRows
from coref_automl.training.loss import prepare_model
from coref_automl.training.masking import Masking
from coref_automl.training.optimizer import adamw, groups_of

_VOCABULARY = 16_000
_RATE = 0.2
Batch = dict[str, torch.Tensor]


@dataclass(slots=True, eq=False)
class TrainingWay:
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
        return f"{self.name}: {self.speed:,.0f} real tokens/s{self.memory}"


def run(settings: TrainBench) -> BenchResult:
    """The three ways on the same documents."""
    model, seq_len, device = settings.model, settings.seq_len, pick_device(settings.device)
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

    ways = race(
        texts,
        tokenizer,
        fresh,
        seq_len=seq_len,
        batch=settings.batch,
        steps=settings.steps,
        device=device,
        compiled=settings.compile,
        attention=settings.attention,
    )
    first, padded, chunks = ways
    lines = [str(way) for way in ways]
    lines.append(
        f"against padded rows {first.speed / padded.speed:.2f}x, against joined chunks {first.speed / chunks.speed:.2f}x"
    )
    what = f"{model or settings.shape} at {seq_len} tokens, batch {settings.batch}, {settings.steps} steps each in turns"
    lines.append(f"{what}, on {device}; {len(texts)} documents of {settings.source}")
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
) -> list[TrainingWay]:
    """Ours, padded rows, joined chunks: a step each in turns, so that what else the machine does falls on all alike."""

    def placed(implementation: str | None) -> Any:
        made = fresh().to(device).train()
        usual = "sdpa" if family(made.config.model_type).sdpa else "eager"
        use_attention(made, implementation or usual)
        return made

    with tempfile.TemporaryDirectory() as folder:
        ours = placed(attention)
        dataset = pack_documents(texts, tokenizer, seq_len, Path(folder) / "ours")
        prepare_model(ours, compiled=compiled)
        packed = packed_batches(dataset, tokenizer, ours, batch, seed)
        padded = padded_batches(texts, tokenizer, seq_len, batch, seed)
        chunks = chunk_batches(texts, tokenizer, seq_len, batch, seed)
        ways = [
            TrainingWay("packed, head at masked positions", packed, _stepper(ours, device)),
            TrainingWay("padded rows, full logits", padded, _stepper(placed(None), device)),
            TrainingWay("joined chunks, full logits", chunks, _stepper(placed(None), device)),
        ]
        for way in ways:
            way.step(next(way.batches)[0])  # what is made once (compiled code, optimizer states) is not counted
            with PeakMemory(device) as memory:
                way.step(next(way.batches)[0])
            way.memory = str(memory)
        for _ in range(steps):
            for way in ways:
                made, real = next(way.batches)
                synchronize(device)
                started = time.perf_counter()
                way.step(made)
                synchronize(device)
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


def pack_documents(texts: list[str], tokenizer: Any, seq_len: int, folder: Path) -> PackedDataset:
    """As `prepare mlm` packs them; nothing but exact copies is dropped."""
    folder.mkdir()
    write_jsonl(folder / "texts.jsonl", ({"id": str(number), "text": text} for number, text in enumerate(texts)))
    tokenizer.save_pretrained(folder / "tokenizer")
    every: dict[str, Any] = {"holdout": 0.0, "min_characters": 1, "min_hangul": 0.0, "near_duplicates": False}
    source, model = f"local:{folder / 'texts.jsonl'}", str(folder / "tokenizer")
    prepare(PrepareRecipe(mode="mlm", sources=(source,), model=model, seq_len=seq_len, **every), folder / "packed")
    return PackedDataset.open(folder / "packed")


def packed_batches(dataset: PackedDataset, tokenizer: Any, model: Any, batch: int, seed: int) -> Iterator[tuple[Batch, int]]:
    special = np.zeros(model.config.vocab_size, bool)
    special[list(tokenizer.all_special_ids)] = True
    masking = Masking("mlm", int(tokenizer.mask_token_id), special, special, min_prob=_RATE, max_prob=_RATE)
    rows, collate = MaskedRows(dataset, masking, seed), Collator.of(dataset, masking)
    for numbers in _groups(len(dataset), batch, seed):
        made = collate([rows[number] for number in numbers])
        yield made, int((made["segments"] > 0).sum())


def padded_batches(texts: list[str], tokenizer: Any, seq_len: int, batch: int, seed: int) -> Iterator[tuple[Batch, int]]:
    read = tokenizer(texts, truncation=True, max_length=seq_len, padding="max_length", return_special_tokens_mask=True)
    rows = [{key: read[key][row] for key in ("input_ids", "attention_mask", "special_tokens_mask")} for row in range(len(texts))]
    yield from _collated(rows, tokenizer, batch, seed)


def chunk_batches(texts: list[str], tokenizer: Any, seq_len: int, batch: int, seed: int) -> Iterator[tuple[Batch, int]]:
    read = tokenizer(texts, return_special_tokens_mask=True, verbose=False)
    keys = ("input_ids", "attention_mask", "special_tokens_mask")
    joined = {key: [value for row in read[key] for value in row] for key in keys}
    whole = len(joined["input_ids"]) // seq_len
    if not whole:
        raise DatasetError(f"The documents together are shorter than one row of {seq_len} tokens; pass more with --documents.")
    rows = [{key: joined[key][at * seq_len : (at + 1) * seq_len] for key in keys} for at in range(whole)]
    yield from _collated(rows, tokenizer, batch, seed)


def _collated(rows: list[dict[str, Any]], tokenizer: Any, batch: int, seed: int) -> Iterator[tuple[Batch, int]]:
    from transformers import DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=_RATE, seed=seed)
    for numbers in _groups(len(rows), batch, seed):
        made = collate([rows[number] for number in numbers])
        yield dict(made), int(made["attention_mask"].sum())


def _groups(count: int, batch: int, seed: int) -> Iterator[list[int]]:
    order = np.random.default_rng(seed).permutation(count).tolist()
    endless = cycle(order)
    while True:
        yield list(islice(endless, batch))
