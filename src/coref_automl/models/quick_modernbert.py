"""ModernBERT for scoring on a CPU. In: padded rows and target positions. Out: the hidden states there.

The library's forward runs each layer over a whole padded batch, and threads that share every operation wait for each other. Here
one thread runs one text through all layers, without padding and within the caches. And only what the targets depend on is
computed: a local layer needs no more than the neighborhood of the positions that the layer above needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK = 128
"""Queries of a local layer per product: together with the window on both sides, few of its keys are masked."""

Span = tuple[int, int]
Rotation = tuple[Tensor, Tensor]


def supports(base: Any, attention_mask: Any) -> bool:
    """Tell whether `encode_at` may run: inference on a CPU in float32 without dropout, padding after the text."""
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2 or attention_mask.device.type != "cpu":
        return False
    if torch.is_grad_enabled() or base.training or torch.is_autocast_enabled("cpu") or base.dtype != torch.float32:
        return False
    return bool((attention_mask[:, 1:] <= attention_mask[:, :-1]).all())


def encode_at(base: Any, input_ids: Tensor, attention_mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the hidden states (N, H) of the last layer at the positions (rows[i], columns[i])."""
    lengths = attention_mask.sum(1).tolist()
    targets_of: dict[int, list[int]] = {}
    for target, row in enumerate(rows.tolist()):
        targets_of.setdefault(row, []).append(target)
    states = torch.empty(len(rows), base.config.hidden_size)

    def encode_row(row: int) -> None:
        with torch.inference_mode():
            positions = columns[targets_of[row]]
            span = int(positions.min()), int(positions.max()) + 1
            states[targets_of[row]] = _encode_text(base, input_ids[row, : lengths[row]], span, rotations)[positions - span[0]]

    with _thread_per_text() as threads:
        rotations = _rotations(base, input_ids)
        list(threads.map(encode_row, targets_of))
    return states


@contextmanager
def _thread_per_text() -> Iterator[ThreadPoolExecutor]:
    """Start as many threads as torch would use inside an operation, and let each operation run on its caller's thread alone."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as threads:
            yield threads
    finally:
        torch.set_num_threads(count)


def _rotations(base: Any, input_ids: Tensor) -> dict[str, Rotation]:
    """Return cosines and sines (L, 1, d/2) of every kind of layer; the library repeats them for both halves of a head."""
    positions = torch.arange(input_ids.shape[1])[None]
    rotations = {}
    for kind in set(base.config.layer_types):
        cosines, sines = base.rotary_emb(base.embeddings.tok_embeddings.weight, positions, kind)
        half = cosines.shape[-1] // 2
        rotations[kind] = (cosines[0, :, None, :half].contiguous(), sines[0, :, None, :half].contiguous())
    return rotations


def _encode_text(base: Any, ids: Tensor, targets: Span, rotations: dict[str, Rotation]) -> Tensor:
    """Return the hidden states of one text at the positions of `targets`."""
    hidden: Tensor = base.embeddings(input_ids=ids)
    inputs = (0, len(ids))
    for layer, outputs in zip(base.layers, needed_spans(base.layers, targets, len(ids)), strict=True):
        hidden = _layer(layer, hidden, _Range(inputs, outputs, layer.attn.sliding_window), rotations[layer.attention_type])
        inputs = outputs
    states: Tensor = base.final_norm(hidden)
    return states


def needed_spans(layers: Sequence[Any], targets: Span, length: int) -> list[Span]:
    """Return, for every layer, the span of its output that the targets depend on."""
    spans = [targets]
    for layer in reversed(layers[1:]):
        low, high = spans[-1]
        window = layer.attn.sliding_window
        spans.append((0, length) if window is None else (max(0, low - window + 1), min(length, high + window - 1)))
    return spans[::-1]


@dataclass(frozen=True, slots=True)
class _Range:
    """The positions that a layer reads and writes. `window` is the library's: one more than the largest distance attended to."""

    inputs: Span
    outputs: Span
    window: int | None

    @property
    def outputs_in_inputs(self) -> slice:
        return slice(self.outputs[0] - self.inputs[0], self.outputs[1] - self.inputs[0])


def _layer(layer: Any, hidden: Tensor, span: _Range, rotation: Rotation) -> Tensor:
    attended = hidden[span.outputs_in_inputs] + _attend(layer.attn, layer.attn_norm(hidden), span, rotation)
    result: Tensor = attended + layer.mlp(layer.mlp_norm(attended))
    return result


def _attend(module: Any, states: Tensor, span: _Range, rotation: Rotation) -> Tensor:
    """Run the library's attention `module` for the outputs alone."""
    width, size = module.Wo.weight.shape[1], module.head_dim
    weight, bias = module.Wqkv.weight, module.Wqkv.bias
    cosines, sines = rotation
    inputs, outputs = slice(*span.inputs), slice(*span.outputs)
    query = functional.linear(states[span.outputs_in_inputs], weight[:width], None if bias is None else bias[:width])
    key_value = functional.linear(states, weight[width:], None if bias is None else bias[width:])
    query = _rotate(query.view(len(query), -1, size), cosines[outputs], sines[outputs]).transpose(0, 1)
    key, value = key_value.view(len(key_value), 2, -1, size).unbind(1)
    key = _rotate(key, cosines[inputs], sines[inputs]).transpose(0, 1)
    context = _context(query, key, value.transpose(0, 1), span).transpose(0, 1).reshape(-1, width)
    result: Tensor = module.Wo(context)
    return result


def _rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = states.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def _context(query: Tensor, key: Tensor, value: Tensor, span: _Range) -> Tensor:
    """Scaled dot-product attention (heads, positions, d); a local layer works in chunks of queries, each with its near keys."""
    if span.window is None:
        return functional.scaled_dot_product_attention(query[None], key[None], value[None])[0]
    reach, context = span.window - 1, torch.empty_like(query)
    for start in range(*span.outputs, _CHUNK):
        end = min(start + _CHUNK, span.outputs[1])
        low, high = max(span.inputs[0], start - reach), min(span.inputs[1], end + reach)
        queries = slice(start - span.outputs[0], end - span.outputs[0])
        keys = slice(low - span.inputs[0], high - span.inputs[0])
        distance = torch.arange(start, end)[:, None] - torch.arange(low, high)
        mask = None if end - low <= reach + 1 and high - start <= reach + 1 else distance.abs() <= reach
        context[:, queries] = functional.scaled_dot_product_attention(
            query[None, :, queries], key[None, :, keys], value[None, :, keys], mask
        )[0]
    return context
