"""Tiny models of every family, with weights large enough that positions and neighbours matter, saved as real checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIZE = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
LENGTH = 32
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BUCKETS = {
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    **QUIET,
}
OLD_HEAD, NEW_HEAD = {"legacy": True}, {"legacy": False, "tie_word_embeddings": False}

TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta": ("deberta-v2", {**SIZE, **BUCKETS, **OLD_HEAD, "share_att_key": True, "norm_rel_ebd": "layer_norm"}),
    "deberta-new-head": ("deberta-v2", {**SIZE, **BUCKETS, **NEW_HEAD}),
    "deberta-no-buckets": ("deberta-v2", {**SIZE, **BUCKETS, "position_buckets": -1}),
    "deberta-conv": ("deberta-v2", {**SIZE, **BUCKETS, "conv_kernel_size": 3, "conv_act": "gelu"}),
    "bert": ("bert", {**SIZE, **QUIET}),
    "electra": ("electra", {**SIZE, **QUIET, "embedding_size": 16}),
    "distilbert": ("distilbert", {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "dropout": 0.0}),
    "roberta": ("roberta", {**SIZE, **QUIET, "pad_token_id": 1, "max_position_embeddings": LENGTH + 2}),
    "modernbert": ("modernbert", {**SIZE, "local_attention": 8, "global_attn_every_n_layers": 2}),
}
FAMILIES = [name for name in TINY if name != "deberta-conv"]


def tokenizer(*, pad: int = 0, words: int = 95, mask: bool = True) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if pad == 0 else ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate(specials + [f"말{number}" for number in range(words)])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **named, **({"mask_token": "[MASK]"} if mask else {}))


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A model in evaluation mode, the same for the same seed."""
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    kind, settings = TINY[name]
    common = {"max_position_embeddings": LENGTH, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    more = {"cls_token_id": 2, "sep_token_id": 3} if kind == "modernbert" else {}
    config = AutoConfig.for_model(kind, **{**common, **more, **settings, **changes})
    model = AutoModelForMaskedLM.from_config(config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3, generator=draw)
    return model.eval()


def write(model: Any, folder: Path, *, pad: int | None = None) -> str:
    model.save_pretrained(folder)
    tokenizer(pad=model.config.pad_token_id if pad is None else pad).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a tiny checkpoint, written once; tests that change files copy it first."""
    written: dict[str, str] = {}

    def folder(name: str) -> str:
        if name not in written:
            written[name] = write(build(name), tmp_path_factory.mktemp(name))
        return written[name]

    return folder


@pytest.fixture
def copied(checkpoint: Callable[[str], str], tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint of one's own, to damage."""
    import shutil

    return lambda name: Path(shutil.copytree(checkpoint(name), tmp_path / name))


def batch(rows: int = 2, length: int = 20, seed: int = 1) -> Any:
    """Token ids without specials."""
    import torch

    return torch.randint(5, 100, (rows, length), generator=torch.Generator().manual_seed(seed))
