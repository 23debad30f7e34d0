"""Lengthen a model, and recognise two old faults. In: a model in memory. Out: the same model reading more tokens, and notes.

What is written into the config is all that a plain `from_pretrained` needs: saved and loaded, the model gives the same logits.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from coref_automl.errors import ModelError
from coref_automl.models.families import family, first_row, length_of, off_by_two
from coref_automl.models.model_files import position_rows

Policy = Literal["clamp", "rescale"]
_USUAL = 512
_COPIES = 8
"""So many equal rows at the end of a table do not come from training."""


def lengthen(model: Any, seq_len: int, *, policy: Policy = "clamp") -> list[str]:
    """Let a model read `seq_len` tokens. `policy` matters for DeBERTa-v2 with buckets only.

    clamp: every trained distance keeps its row, farther ones share the last; texts within the old length keep their logits.
    rescale: the buckets are spread over the new length, which is another map, to be trained.
    """
    if policy not in ("clamp", "rescale"):
        raise ModelError(f"Unknown lengthening policy {policy!r}; choose clamp or rescale.")
    config = model.config
    old = length_of(config)
    if seq_len <= old:
        return []
    positions = family(config.model_type).positions
    if positions == "rotary":
        notes = [f"Lengthened from {old:,} to {seq_len:,} tokens: rotary positions need no new rows."]
    elif positions == "relative":
        notes = _lengthen_relative(model, old, seq_len, policy)
    else:
        notes = [f"Lengthened from {old:,} to {seq_len:,} tokens: position rows repeated in order; they need training."]
    if positions in ("absolute", "offset") or _biased(model):
        _tile_positions(model, old, seq_len)
    config.max_position_embeddings = seq_len + first_row(config)
    _renew_buffers(model, config.max_position_embeddings)
    return notes


def repair_config(config: Any, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    """RoBERTa off by two: a table of L + 2 rows beside a config that says L. Loaded as written, all positions would be random."""
    rows, said = position_rows(shapes), config.max_position_embeddings
    if not off_by_two(config, rows):
        return []
    config.max_position_embeddings = rows
    return [
        f"config.json says {said:,} positions and the table has {rows:,} rows: the RoBERTa off-by-two fault. "
        f"Read as {rows:,} rows, {length_of(config):,} tokens; correct max_position_embeddings in config.json."
    ]


def position_faults(model: Any) -> list[str]:
    """What an earlier lengthening did wrong and the weights still show."""
    config = model.config
    notes = []
    table = _position_table(model)
    if table is not None:
        rows = table.weight.detach()
        copies = _equal_tail(rows)
        if copies >= _COPIES:
            start = len(rows) - copies - first_row(config)
            notes.append(
                f"The last {copies:,} position rows are copies of one row (the table was lengthened by repeating its last row), "
                f"so tokens from {start:,} on share one position: lengthen the base model again, or train at full length."
            )
    buckets = getattr(config, "position_buckets", -1)
    if (
        config.model_type == "deberta-v2"
        and config.max_relative_positions < 1
        and 0 < 2 * buckets < config.max_position_embeddings > _USUAL
    ):
        notes.append(
            f"config.json leaves max_relative_positions at {config.max_relative_positions}, so distances are bucketed over "
            f"{config.max_position_embeddings:,} tokens; if the weights were trained at {2 * buckets}, write {2 * buckets} there."
        )
    return notes


def _lengthen_relative(model: Any, old: int, seq_len: int, policy: Policy) -> list[str]:
    config, encoder = model.config, model.base_model.encoder
    if not encoder.relative_attention:
        return [f"Lengthened from {old:,} to {seq_len:,} tokens: position rows repeated in order; they need training."]
    reach = encoder.max_relative_positions
    if policy == "rescale":
        if encoder.position_buckets < 1:
            raise ModelError("Only DeBERTa-v2 with position buckets can be rescaled; lengthen this model with clamp.")
        config.max_relative_positions = encoder.max_relative_positions = seq_len
        for layer in encoder.layer:
            layer.attention.self.max_relative_positions = seq_len
        return [
            f"Lengthened from {old:,} to {seq_len:,} tokens: distances are bucketed over the new length, which needs training."
        ]
    config.max_relative_positions = reach
    span = encoder.position_buckets if encoder.position_buckets > 0 else reach
    last = _bucket(encoder, old - 1)
    if last < span:
        # rows beyond the farthest distance of the old length never saw a gradient: they take the farthest trained one
        with torch.no_grad():
            rows = encoder.rel_embeddings.weight
            rows[: span - last] = rows[span - last].clone()
            rows[span + last + 1 :] = rows[span + last].clone()
    farthest = min(reach, old)
    return [f"Lengthened from {old:,} to {seq_len:,} tokens: distances of {farthest:,} and more share the last trained row."]


def _bucket(encoder: Any, distance: int) -> int:
    if encoder.position_buckets < 1:
        return distance
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    return int(make_log_bucket_position(torch.tensor([distance]), encoder.position_buckets, encoder.max_relative_positions))


def _tile_positions(model: Any, old: int, seq_len: int) -> None:
    table = _position_table(model)
    if table is None:
        raise ModelError(f"A {model.config.model_type} model without a position table cannot be lengthened.")
    before = first_row(model.config)
    head, trained = table.weight.data[:before], table.weight.data[before : before + old]
    body = trained.repeat(-(-seq_len // old), 1)[:seq_len]
    table.weight = nn.Parameter(torch.cat([head, body]))
    table.num_embeddings = len(table.weight)


def _renew_buffers(model: Any, rows: int) -> None:
    embeddings = model.base_model.embeddings
    for name in ("position_ids", "token_type_ids"):
        held = getattr(embeddings, name, None)
        if isinstance(held, Tensor):
            fresh = torch.arange(rows) if name == "position_ids" else torch.zeros(rows, dtype=torch.long)
            setattr(embeddings, name, nn.Buffer(fresh.unsqueeze(0).to(held.device), persistent=False))


def _position_table(model: Any) -> Any:
    return getattr(model.base_model.embeddings, "position_embeddings", None)


def _biased(model: Any) -> bool:
    return model.config.model_type == "deberta-v2" and _position_table(model) is not None


def _equal_tail(rows: Tensor) -> int:
    """How many rows at the end equal the last one."""
    same = (rows == rows[-1]).all(dim=1)
    different = (~same).nonzero()
    return len(rows) - (int(different[-1]) + 1 if len(different) else 0)
