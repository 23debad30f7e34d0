"""DeBERTa-v2 on the fused kernels. In: a loaded model on a CUDA device. Out: the same weights, with another attention.

The library's attention writes several (B, H, L, L) tensors per layer. Here queries, keys and values go straight into
`disentangled.operation.attend`, and the documents of a batch are laid out once for all layers.
"""

from __future__ import annotations

import importlib.util
import math
import os
from typing import Any

import torch
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder, DisentangledSelfAttention

from coref_automl.errors import ModelError
from coref_automl.models.disentangled.layout import Bounds, Distances, bounds_of
from coref_automl.models.documents import Documents

LARGEST_HEAD = 128
LEAST_CARD = (8, 0)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class FusedSelfAttention(DisentangledSelfAttention):  # type: ignore[misc]
    """Takes over where the mask is the bounds of documents; a mask of pairs goes to the library's own code."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        if not isinstance(attention_mask, Bounds):
            return super().forward(  # type: ignore[no-any-return]
                hidden_states, attention_mask, output_attentions, query_states, relative_pos, rel_embeddings
            )
        if output_attentions or query_states is not None:
            raise ModelError("Fused attention does not keep attention weights; load the model with attention 'eager'.")
        from coref_automl.models.disentangled.operation import attend

        query, key, value = (self._heads(p(hidden_states)) for p in (self.query_proj, self.key_proj, self.value_proj))
        kinds = self.pos_att_type if self.relative_attention else []
        position_key = position_query = None
        if kinds:
            table = self.pos_dropout(rel_embeddings)[: 2 * self.pos_ebd_size]
            if "c2p" in kinds:
                position_key = self._heads((self.key_proj if self.share_att_key else self.pos_key_proj)(table))
            if "p2c" in kinds:
                position_query = self._heads((self.query_proj if self.share_att_key else self.pos_query_proj)(table))
        distances = _distances(self) if kinds else Distances(-1, 1)
        factor = 1 + ("c2p" in self.pos_att_type) + ("p2c" in self.pos_att_type)
        context = attend(
            query, key, value, position_key, position_query, attention_mask, distances,
            scale=1.0 / math.sqrt(self.attention_head_size * factor), dropout=self.dropout.p if self.training else 0.0,
        )  # fmt: skip
        return context.flatten(2), None

    def _heads(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.num_attention_heads, self.attention_head_size))


class FusedEncoder(DebertaV2Encoder):  # type: ignore[misc]
    """Lays the documents out once per forward pass. A model moved to the CPU goes on with the library's code."""

    def get_attention_mask(self, attention_mask: Any) -> Any:
        documents = Documents.of(attention_mask)
        if documents is None:
            return super().get_attention_mask(attention_mask)
        return bounds_of(documents.segments) if documents.segments.is_cuda or _interpreted() else documents.pairs()

    def get_rel_pos(self, _states: Tensor, _query_states: Tensor | None = None, relative_pos: Tensor | None = None) -> Any:
        """Kernels know distances by themselves; the library's code makes its own table where it is given none."""
        return relative_pos


def why_not(model: Any) -> str | None:
    """What keeps this model from the fused kernels, as the end of a sentence; None if nothing does."""
    if model.device.type != "cuda":
        return "needs a CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "needs Triton, which is not installed"
    card = torch.cuda.get_device_capability(model.device)
    if card < LEAST_CARD:
        return f"needs compute capability {_version(LEAST_CARD)} (Ampere) or later, and this card has {_version(card)}"
    if model.dtype not in DTYPES:
        return f"does not compute in {str(model.dtype).removeprefix('torch.')}"
    attention = model.base_model.encoder.layer[0].attention.self
    if attention.attention_head_size > LARGEST_HEAD:
        return f"takes heads of at most {LARGEST_HEAD} numbers, and this model's have {attention.attention_head_size}"
    if attention.relative_attention and not _distances(attention).ordered:
        return f"needs fewer position buckets than {attention.position_buckets} over {attention.max_relative_positions} positions"
    return None


def install(model: Any) -> None:
    """Switch a DeBERTa-v2 in place: the classes change, parameters and their names stay."""
    encoder = model.base_model.encoder
    encoder.__class__ = FusedEncoder
    for layer in encoder.layer:
        layer.attention.self.__class__ = FusedSelfAttention


def installed(model: Any) -> bool:
    return isinstance(model.base_model.encoder, FusedEncoder)


def _distances(attention: Any) -> Distances:
    return Distances(attention.position_buckets, attention.max_relative_positions)


def _interpreted() -> bool:
    """Does Triton run kernels in Python, which it does on a CPU too?"""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _version(card: tuple[int, int]) -> str:
    return f"{card[0]}.{card[1]}"
