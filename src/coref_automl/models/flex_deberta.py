"""DeBERTa-v2's disentangled attention through FlexAttention. In: a loaded model. Out: the same weights under another kernel.

The library's own attention writes several (B, H, L, L) tensors a layer. Here a score is the product of query and key plus two
numbers looked up while the kernel runs: content-to-position of the query and position-to-content of the key, both at the bucket
of their distance. Only (B, H, L, 2 x span) tables are kept. Documents and padding become a block mask, and whole blocks are
skipped.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Encoder,
    DisentangledSelfAttention,
    make_log_bucket_position,
)

from coref_automl.errors import ModelError
from coref_automl.models.documents import Documents

LEAST_LENGTH = 256
"""Shorter batches stay with the library's attention: their (L, L) tensors are small, and no kernel has to be built for them."""
_LEAST_HEAD = 16


class FlexSelfAttention(DisentangledSelfAttention):  # type: ignore[misc]
    """Takes over where the mask is a block mask; any other mask goes to the library's own code."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        if not isinstance(attention_mask, BlockMask):
            if relative_pos is not None and relative_pos.dim() == 1:  # our table; the library makes its own
                relative_pos = None
            return super().forward(  # type: ignore[no-any-return]
                hidden_states, attention_mask, output_attentions, query_states, relative_pos, rel_embeddings
            )
        if output_attentions or query_states is not None:
            raise ModelError("Flex attention does not keep attention weights; load the model with attention 'eager'.")
        query, key, value = (self._heads(p(hidden_states)) for p in (self.query_proj, self.key_proj, self.value_proj))
        c2p = p2c = None
        factor = 1 + ("c2p" in self.pos_att_type) + ("p2c" in self.pos_att_type)
        scale = 1.0 / math.sqrt(self.attention_head_size * factor)
        if self.relative_attention:
            table = self.pos_dropout(rel_embeddings)[: 2 * self.pos_ebd_size]
            if "c2p" in self.pos_att_type:
                c2p = query @ self._rows((self.key_proj if self.share_att_key else self.pos_key_proj)(table)) * scale
            if "p2c" in self.pos_att_type:
                p2c = key @ self._rows((self.query_proj if self.share_att_key else self.pos_query_proj)(table)) * scale
        context = _apart(query, key, value, c2p, p2c, relative_pos, attention_mask, scale)
        return context.transpose(1, 2).flatten(2), None

    def _heads(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.num_attention_heads, self.attention_head_size)).transpose(1, 2)

    def _rows(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.num_attention_heads, self.attention_head_size)).permute(1, 2, 0)


class FlexEncoder(DebertaV2Encoder):  # type: ignore[misc]
    """Makes the block mask and the table of buckets once a forward pass."""

    def get_attention_mask(self, attention_mask: Any) -> Any:
        documents = Documents.of(attention_mask)
        if documents is None:
            return super().get_attention_mask(attention_mask)
        if documents.segments.shape[1] < LEAST_LENGTH:
            return documents.pairs()
        return _block_mask(documents.segments)

    def get_rel_pos(self, hidden_states: Tensor, query_states: Tensor | None = None, relative_pos: Tensor | None = None) -> Any:
        if not self.relative_attention or hidden_states.shape[1] < LEAST_LENGTH:
            return super().get_rel_pos(hidden_states, query_states, relative_pos)
        return self.rows_of_distances(hidden_states.shape[1], hidden_states.device)

    def rows_of_distances(self, length: int, device: torch.device) -> Tensor:
        """Row of the relative table for the distances 0, -1, 1, -2, 2, ...: in this order a distance's place does not depend on
        the length, so that one kernel serves every length."""
        far = torch.arange(length, device=device)
        distances = torch.stack([far, -far - 1], dim=1).flatten()
        span = self.max_relative_positions
        if self.position_buckets > 0:
            span = self.position_buckets
            distances = make_log_bucket_position(distances, self.position_buckets, self.max_relative_positions)
        return torch.clamp(distances.long() + span, 0, 2 * span - 1).to(torch.int32)


def suits(model: Any) -> bool:
    return bool(model.base_model.encoder.layer[0].attention.self.attention_head_size >= _LEAST_HEAD)


def install(model: Any) -> None:
    """Switch a DeBERTa-v2 in place: the classes change, parameters and their names stay."""
    encoder = model.base_model.encoder
    if not suits(model):
        raise ModelError(f"Flex attention needs heads of {_LEAST_HEAD} numbers or more; load this model with attention 'eager'.")
    encoder.__class__ = FlexEncoder
    for layer in encoder.layer:
        layer.attention.self.__class__ = FlexSelfAttention


def uninstall(model: Any) -> None:
    """Back to the library's classes, from other kernels too."""
    encoder = model.base_model.encoder
    encoder.__class__ = DebertaV2Encoder
    for layer in encoder.layer:
        layer.attention.self.__class__ = DisentangledSelfAttention


def installed(model: Any) -> bool:
    return isinstance(model.base_model.encoder, FlexEncoder)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _block_mask(segments: Tensor) -> BlockMask:
    """Padding sees padding, so that no row of scores is empty."""
    segments = segments.to(torch.int32)
    rows, length = segments.shape

    def same_document(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return segments[row, query] == segments[row, key]

    return create_block_mask(same_document, rows, None, length, length, device=segments.device)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, c2p: Tensor | None, p2c: Tensor | None, rows: Any, mask: BlockMask, scale: float
) -> Tensor:
    def with_distance(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        distance = q - k
        row = rows[torch.where(distance >= 0, 2 * distance, -2 * distance - 1)]
        if c2p is not None:
            score = score + c2p[b, h, q, row]
        if p2c is not None:
            score = score + p2c[b, h, k, row]
        return score

    relative = c2p is not None or p2c is not None
    out: Tensor = flex_attention(query, key, value, score_mod=with_distance if relative else None, block_mask=mask, scale=scale)
    return out


@torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator]
def _apart(query: Tensor, *others: Any) -> Tensor:
    """Compiled by itself, also inside a compiled training step: as part of a larger graph it has no way backward."""
    out: Tensor = (_compiled() if query.is_cuda else _attend)(query, *others)
    return out


@cache
def _compiled() -> Any:
    return torch.compile(_attend)
