"""Batches of three ways of training. In: documents and a tokenizer. Out: packed, padded or joined rows, and their real tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.corpus.dataset import PackedDataset, smallest_type, write_dataset
from coref_automl.corpus.pack import pack
from coref_automl.errors import DatasetError
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.training.batches import Collator, MaskedRows, expected_share
from coref_automl.training.masking import Masking

_RATE = 0.2
Batch = dict[str, torch.Tensor]


def pack_documents(texts: list[str], tokenizer: Any, seq_len: int, folder: Path, vocabulary: int) -> PackedDataset:
    """Documents cut into pieces with their own [CLS] and [SEP], packed into blocks."""
    pieces: list[list[int]] = []
    for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
        parts = max(1, math.ceil(len(ids) / (seq_len - 2)))
        size = math.ceil(len(ids) / parts)
        pieces += (
            [[tokenizer.cls_token_id, *ids[at : at + size], tokenizer.sep_token_id] for at in range(0, len(ids), size)]
            if ids
            else []
        )
    placed = pack(np.array([len(piece) for piece in pieces], np.int64), seq_len)
    blocks = np.full((placed.blocks, seq_len), tokenizer.pad_token_id, smallest_type(vocabulary))
    table = []
    for number in placed.order.tolist():
        block, start, ids = int(placed.block[number]), int(placed.start[number]), pieces[number]
        blocks[block, start : start + len(ids)] = ids
        table.append((block, start, len(ids), number))
    manifest = {"pad_id": tokenizer.pad_token_id, "tokenizer": "bench", "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer)}
    write_dataset(
        folder,
        blocks=blocks,
        count=placed.blocks,
        seq_len=seq_len,
        dtype=blocks.dtype,
        pieces=np.array(table, np.int32),
        mentions=np.zeros((0, 4), np.int32),
        manifest=manifest,
    )
    return PackedDataset.open(folder)


def packed_batches(dataset: PackedDataset, tokenizer: Any, model: Any, batch: int, seed: int) -> Iterator[tuple[Batch, int]]:
    special = np.zeros(model.config.vocab_size, bool)
    special[list(tokenizer.all_special_ids)] = True
    masking = Masking("mlm", int(tokenizer.mask_token_id), special, special, min_prob=_RATE, max_prob=_RATE)
    rows, collate = MaskedRows(dataset, masking, seed), Collator(expected_share(dataset, masking))
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
