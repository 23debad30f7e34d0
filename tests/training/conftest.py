"""A tiny tokenizer and packed datasets with chains, built once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.corpus.dataset import PackedDataset, write_dataset
from coref_automl.models.load import tokenizer_fingerprint

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LENGTH = 32


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty word starts and twenty continuations."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import PreTrainedTokenizerFast

    syllables = [chr(0xAC00 + 28 * at) for at in range(80)]
    entries = [*SPECIALS, *syllables[:60], *(f"##{syllable}" for syllable in syllables[60:])]
    tokenizer = Tokenizer(WordPiece({entry: number for number, entry in enumerate(entries)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    folder = tmp_path_factory.mktemp("tokenizer")
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, SPECIALS, strict=True)))
    fast.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def make_dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: Path) -> Callable[..., Path]:
    """A dataset of rows that can be learned: a row repeats one noun, and its other words follow from it."""
    from coref_automl.models.load import load_tokenizer

    print_of_tokenizer = tokenizer_fingerprint(load_tokenizer(str(tokenizer_folder)))

    def make(
        rows: int = 12,
        *,
        chains: bool = True,
        length: int = LENGTH,
        padding: int = 4,
        seed: int = 0,
        tokenizer_print: str | None = None,
    ) -> Path:
        rng = np.random.default_rng(seed)
        blocks = np.zeros((rows, length), np.uint16)
        pieces, mentions = [], []
        for row in range(rows):
            cut = length // 2 if row % 2 else length - padding
            for number, (start, end) in enumerate([(0, cut), (cut, length)] if row % 2 else [(0, cut)]):
                noun = rng.integers(5, 65)
                blocks[row, start:end] = 5 + (noun - 5 + np.arange(end - start)) % 80
                blocks[row, start], blocks[row, end - 1] = 2, 3
                for at in range(start + 2, end - 3, 5):
                    blocks[row, at : at + 2] = noun, 65 + noun % 20
                    mentions.append((row, at, at + 2, number))
                pieces.append((row, start, end - start, row * 2 + number))
        folder = tmp_path_factory.mktemp("dataset")
        manifest: dict[str, Any] = {"mode": "entity", "pad_id": 0, "tokenizer": "tiny"}
        manifest["tokenizer_fingerprint"] = tokenizer_print or print_of_tokenizer
        write_dataset(
            folder,
            [(blocks, np.array(pieces, np.int32), np.array(mentions if chains else [], np.int32).reshape(-1, 4))],
            seq_len=length,
            dtype=np.uint16,
            manifest=lambda _: manifest,
        )
        return folder

    return make


@pytest.fixture(scope="session")
def dataset(make_dataset: Callable[..., Path]) -> Path:
    return make_dataset()


@pytest.fixture(scope="session")
def opened(dataset: Path) -> PackedDataset:
    return PackedDataset.open(dataset)


@pytest.fixture(scope="session")
def chained_dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: Path) -> Path:
    """Rows of two documents with three chains each; the word before a mention says which noun it is."""
    from coref_automl.models.load import load_tokenizer

    rng = np.random.default_rng(3)
    rows, length = 24, 64
    blocks = np.zeros((rows, length), np.uint16)
    pieces, mentions = [], []
    for row in range(rows):
        for number, (start, end) in enumerate([(0, 32), (32, 60)]):
            blocks[row, start:end] = rng.integers(5, 65, end - start)
            blocks[row, start], blocks[row, end - 1] = 2, 3
            nouns = rng.choice(np.arange(5, 15), 3, replace=False)
            for at in range(start + 1, end - 3, 3):
                chain = (at // 3) % 3 if at < start + 12 else int(rng.integers(3))
                blocks[row, at : at + 3] = nouns[chain] + 30, nouns[chain], 65 + nouns[chain] % 20
                mentions.append((row, at + 1, at + 3, 3 * number + chain))
            pieces.append((row, start, end - start, row * 2 + number))
    folder = tmp_path_factory.mktemp("chained")
    made = tokenizer_fingerprint(load_tokenizer(str(tokenizer_folder)))
    write_dataset(
        folder,
        [(blocks, np.array(pieces, np.int32), np.array(mentions, np.int32))],
        seq_len=length,
        dtype=np.uint16,
        manifest=lambda _: {"mode": "entity", "pad_id": 0, "tokenizer": "tiny", "tokenizer_fingerprint": made},
    )
    return folder


@pytest.fixture
def recipe(dataset: Path, tokenizer_folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """A recipe of a tiny model from scratch; every field can be changed."""
    from coref_automl.training.recipe import TrainRecipe

    def make(**changes: Any) -> TrainRecipe:
        values: dict[str, Any] = {
            "model": "new:tiny",
            "tokenizer": str(tokenizer_folder),
            "dataset": str(dataset),
            "out": str(tmp_path / "run"),
            "epochs": 2,
            "batch": 4,
            "micro_batch": 2,
            "learning_rate": 1e-3,
            "device": "cpu",
            "log_every": 1,
        }
        return TrainRecipe(**{**values, **changes})

    return make
