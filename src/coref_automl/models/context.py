"""Lengthen a model, or recognize one that was lengthened wrongly. In: a model in memory. Out: the same, reading more; notes.

The config is changed so that a plain `from_pretrained` of the saved model gives the same logits.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from coref_automl.base.errors import ModelError
from coref_automl.base.say import say
from coref_automl.models.families import family, first_row, length_of

Policy = Literal["clamp", "rescale"]
_USUAL_LENGTH = 512


def lengthen(model: Any, seq_len: int, *, policy: Policy = "clamp") -> list[str]:
    """Let a model read `seq_len` tokens. `policy` only matters for DeBERTa-v2 with buckets.

    clamp: every trained distance keeps its row, larger ones share the last; texts within the old length keep their logits.
    rescale: the buckets are spread over the new length; rows mean other distances and must be trained.
    """
    if policy not in ("clamp", "rescale"):
        raise ModelError(f"Unknown lengthening policy {policy!r}; choose clamp or rescale.")
    config = model.config
    old = length_of(config)
    if seq_len <= old:
        return []
    positions = family(config.model_type).positions
    if positions == "rotary":
        change = "회전 위치 임베딩(RoPE)이라 새 행이 필요 없습니다", "rotary positions need no new rows"
    elif positions == "relative" and model.base_model.encoder.relative_attention:
        change = _lengthen_relative(model, old, seq_len, policy)
    else:
        change = "위치 임베딩을 순서대로 반복했고 학습이 필요합니다", "position rows repeated in order; they need training"
    if positions in ("absolute", "offset") or (model.config.model_type == "deberta-v2" and _position_table(model) is not None):
        _tile_positions(model, old, seq_len)
    config.max_position_embeddings = seq_len + first_row(config)
    _renew_buffers(model, config.max_position_embeddings)
    ko, en = change
    return [
        say(
            f"길이를 {old:,}토큰에서 {seq_len:,}토큰으로 늘렸습니다: {ko}.",
            f"Lengthened from {old:,} to {seq_len:,} tokens: {en}.",
        )
    ]


def bucket_fault(config: Any) -> list[str]:
    """Warn of a DeBERTa-v2 that was lengthened without storing its old range: its buckets span the new length instead."""
    buckets = getattr(config, "position_buckets", -1)
    if config.model_type != "deberta-v2" or config.max_relative_positions >= 1:
        return []
    if not 0 < 2 * buckets < config.max_position_embeddings > _USUAL_LENGTH:
        return []
    return [
        say(
            f"config.json의 max_relative_positions가 {config.max_relative_positions}이라 거리 구간이 "
            f"{config.max_position_embeddings:,}토큰에 걸칩니다. {2 * buckets}로 학습한 가중치라면 {2 * buckets}을 적으세요.",
            f"config.json leaves max_relative_positions at {config.max_relative_positions}, so distances are bucketed over "
            f"{config.max_position_embeddings:,} tokens; if the weights were trained at {2 * buckets}, write {2 * buckets}.",
        )
    ]


def _lengthen_relative(model: Any, old: int, seq_len: int, policy: Policy) -> tuple[str, str]:
    """Extend the range of distances; returns what changed, in Korean and English."""
    config, encoder = model.config, model.base_model.encoder
    reach = encoder.max_relative_positions
    if policy == "rescale":
        if encoder.position_buckets < 1:
            raise ModelError("Only DeBERTa-v2 with position buckets can be rescaled; lengthen this model with clamp.")
        config.max_relative_positions = encoder.max_relative_positions = seq_len
        for layer in encoder.layer:
            layer.attention.self.max_relative_positions = seq_len
        en = "distances are bucketed over the new length, which needs training"
        return "거리 구간을 새 길이로 다시 나누었고 학습이 필요합니다", en
    config.max_relative_positions = reach
    span = encoder.position_buckets if encoder.position_buckets > 0 else reach
    last = _bucket(encoder, old - 1)
    if last < span:
        # rows beyond the largest distance of the old length were never trained: they become copies of the last trained row
        with torch.no_grad():
            rows = encoder.rel_embeddings.weight
            rows[: span - last] = rows[span - last].clone()
            rows[span + last + 1 :] = rows[span + last].clone()
    farthest = f"{min(reach, old):,}"
    en = f"distances of {farthest} and more share the last trained row"
    return f"{farthest} 이상의 거리는 학습된 마지막 행을 공유합니다", en


def _bucket(encoder: Any, distance: int) -> int:
    if encoder.position_buckets < 1:
        return distance
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    return int(make_log_bucket_position(torch.tensor([distance]), encoder.position_buckets, encoder.max_relative_positions))


def _tile_positions(model: Any, old: int, seq_len: int) -> None:
    table = _position_table(model)
    if table is None:
        raise ModelError(f"A {model.config.model_type} model without a position table cannot be lengthened.")
    first = first_row(model.config)
    unused, trained = table.weight.data[:first], table.weight.data[first : first + old]
    tiled = trained.repeat(-(-seq_len // old), 1)[:seq_len]
    table.weight = nn.Parameter(torch.cat([unused, tiled]))
    table.num_embeddings = len(table.weight)


def _renew_buffers(model: Any, rows: int) -> None:
    embeddings = model.base_model.embeddings
    for name in ("position_ids", "token_type_ids"):
        buffer = getattr(embeddings, name, None)
        if isinstance(buffer, Tensor):
            values = torch.arange(rows) if name == "position_ids" else torch.zeros(rows, dtype=torch.long)
            setattr(embeddings, name, nn.Buffer(values.unsqueeze(0).to(buffer.device), persistent=False))


def _position_table(model: Any) -> Any:
    return getattr(model.base_model.embeddings, "position_embeddings", None)
