"""Tiny models of transformers' DeBERTa-v2, with weights large enough that positions and neighbours matter."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForMaskedLM, DebertaV2Config

from deberta_kernels.layout import Documents

COMMON = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "relative_attention": True, "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
SHARED, OWN = (
    {"legacy": True, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    {"legacy": False, "tie_word_embeddings": False},
)
TINY: dict[str, dict[str, Any]] = {
    "deberta": SHARED,
    "deberta-new-head": OWN,
    "deberta-no-buckets": {"position_buckets": -1},
    "deberta-conv": {"conv_kernel_size": 3, "conv_act": "gelu"},
}


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A model in evaluation mode, the same for the same seed."""
    model = AutoModelForMaskedLM.from_config(DebertaV2Config(**{**COMMON, **TINY[name], **changes}))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3, generator=draw)
    return model.eval()


def batch(rows: int = 2, length: int = 20, seed: int = 1) -> torch.Tensor:
    """Token ids without specials."""
    return torch.randint(5, 100, (rows, length), generator=torch.Generator().manual_seed(seed))


def encode(model: Any, ids: torch.Tensor, documents: Documents) -> torch.Tensor:
    """Hidden states of packed documents, whichever layers the model has. The library's forward takes no documents."""
    encoder = model.base_model.encoder
    first = hidden = model.base_model.embeddings(input_ids=ids, mask=documents.real())
    table, fused = encoder.get_rel_embedding(), type(encoder).__name__ == "FusedEncoder"
    mask = encoder.get_attention_mask(documents if fused else documents.pairs())
    distances = encoder.get_rel_pos(first)
    for number, layer in enumerate(encoder.layer):
        hidden = layer(hidden, mask, relative_pos=distances, rel_embeddings=table)[0]
        if number == 0 and encoder.conv is not None:
            hidden = encoder.conv(first, hidden, documents.real())
    return hidden
