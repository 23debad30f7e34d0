"""Models from elsewhere. In: texts. Out: a folder as transformers itself writes it, tokenizer and weights; nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAMILIES = ("bert", "roberta", "deberta-v2", "electra")

_SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
_OF_FAMILY: dict[str, dict[str, Any]] = {
    "roberta": {"max_position_embeddings": 130, "type_vocab_size": 1},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 32,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    },
    "electra": {"embedding_size": 32},
}


def write_foreign(family: str, texts: Sequence[str], folder: Path, *, vocabulary: int = 900) -> Path:
    """A tiny masked language model of a family with a tokenizer of that family, trained on nothing but its vocabulary."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForMaskedLM,
        BertTokenizer,
        DebertaV2Tokenizer,
        ElectraTokenizer,
        RobertaTokenizer,
    )

    kinds: dict[str, Any] = {
        "bert": BertTokenizer,
        "roberta": RobertaTokenizer,
        "deberta-v2": DebertaV2Tokenizer,
        "electra": ElectraTokenizer,
    }
    tokenizer = kinds[family]().train_new_from_iterator(list(texts), vocabulary, show_progress=False)
    named = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    size = {**_SMALL, **_OF_FAMILY.get(family, {})}
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **named, **size)
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
