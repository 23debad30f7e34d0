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
from coref_automl.models.disentangled.layout import Bounds, Distances, bounds_of, geometry
from coref_automl.models.documents import Documents

LARGEST_HEAD = 128
LEAST_CARD = (8, 0)
PLACES_AT_ONCE = 65_536
"""Pairs of a query and a key whose products are alive at once where single places are scored."""
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

        states = hidden_states if torch.is_grad_enabled() else _rounded_once(hidden_states)
        query, key, value = (_heads(self, p(states)) for p in (self.query_proj, self.key_proj, self.value_proj))
        context = attend(
            query, key, value, *_position_tables(self, rel_embeddings), attention_mask,
            _distances(self) if self.relative_attention and self.pos_att_type else Distances(-1, 1),
            scale=_scale(self), dropout=self.dropout.p if self.training else 0.0,
        )  # fmt: skip
        return context.flatten(2), None


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


def scores_places(model: Any, attention_mask: Any) -> bool:
    """May the last layer run at single places? Where nothing is learned, and a convolution does not follow it."""
    on_device = isinstance(attention_mask, Tensor) and attention_mask.dim() == 2 and attention_mask.is_cuda
    learning = torch.is_grad_enabled() or model.training
    return on_device and not learning and installed(model) and len(model.base_model.encoder.layer) > 1


def run_layer_at(layer: Any, hidden: Tensor, real: Tensor, rows: Tensor, columns: Tensor, table: Tensor | None) -> Tensor:
    """One layer's output (N, H) at the places (rows[i], columns[i]); all real tokens of a row are one document."""
    module = layer.attention.self
    states, own = _rounded_once(hidden), hidden[rows, columns]
    query, key, value = _heads(module, module.query_proj(own)), module.key_proj(states), module.value_proj(states)
    key, value = _heads(module, key), _heads(module, value)
    tables = _position_tables(module, table)
    step = max(1, PLACES_AT_ONCE // hidden.shape[1])
    context = torch.cat(
        [
            _attend_at(module, query[part], key, value, tables, real, rows[part], columns[part])
            for part in (slice(low, low + step) for low in range(0, len(rows), step))
        ]
    )
    attended = layer.attention.output(context.to(key.dtype).flatten(1), own)
    found: Tensor = layer.output(layer.intermediate(attended), attended)
    return found


def _attend_at(
    module: Any, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor | None, Tensor | None], real: Tensor,
    rows: Tensor, columns: Tensor,
) -> Tensor:  # fmt: skip
    """Contexts (N, H, D) of single queries, with scores in float32: a query meets the keys of its row, each at its distance."""
    length = key.shape[1]
    position_key, position_query = tables
    left = query.float()[:, None]
    by_distance = columns[:, None] - torch.arange(length, device=key.device)[None, :]
    if position_key is not None or position_query is not None:
        points = geometry(_distances(module), -(-length // 1024) * 1024, key.device)
        index = points.rows[by_distance + points.center]
    if position_query is not None:
        left = left + position_query[index].float()  # both terms of a key in one product
    scores = (left * key[rows].float()).sum(-1).transpose(1, 2)
    if position_key is not None:
        terms = torch.einsum("nhd,rhd->nhr", query.float(), position_key.float())
        scores = scores + terms.gather(2, index[:, None, :].expand(-1, terms.shape[1], -1).long())
    shares = (scores * _scale(module)).masked_fill(~real[rows][:, None, :], -torch.inf).softmax(-1)
    return torch.einsum("nhl,nlhd->nhd", shares.to(value.dtype), value[rows]).float()


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


def _heads(module: Any, states: Tensor) -> Tensor:
    return states.unflatten(-1, (module.num_attention_heads, module.attention_head_size))


def _position_tables(module: Any, table: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The projected position tables (rows, H, D) of c2p and of p2c; None for a term that this model does not have."""
    kinds = module.pos_att_type if module.relative_attention else []
    if not kinds:
        return None, None
    table = module.pos_dropout(table)[: 2 * module.pos_ebd_size]
    own = not module.share_att_key
    key = _heads(module, (module.pos_key_proj if own else module.key_proj)(table)) if "c2p" in kinds else None
    query = _heads(module, (module.pos_query_proj if own else module.query_proj)(table)) if "p2c" in kinds else None
    return key, query


def _scale(module: Any) -> float:
    return 1.0 / math.sqrt(module.attention_head_size * (1 + ("c2p" in module.pos_att_type) + ("p2c" in module.pos_att_type)))


def _rounded_once(states: Tensor) -> Tensor:
    """For several projections of the same states: autocast would round them for each."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states


def _distances(attention: Any) -> Distances:
    return Distances(attention.position_buckets, attention.max_relative_positions)


def _interpreted() -> bool:
    """Does Triton run kernels in Python, which it does on a CPU too?"""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _version(card: tuple[int, int]) -> str:
    return f"{card[0]}.{card[1]}"
