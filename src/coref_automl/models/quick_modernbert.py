"""ModernBERT for scoring on a CPU. In: padded rows and the places that are asked for. Out: the hidden states there.

The library's forward runs every layer over a whole padded batch, and threads that share every operation wait for each other.
Here a text passes through all layers alone, without padding and within the caches: one thread per text. And nothing is computed
that no asked place depends on: a local layer needs only the neighbourhood of what the layer above needs.
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
"""Queries of a local layer that are taken together: with the window on both sides they meet few keys that they may not see."""

Span = tuple[int, int]
Rotation = tuple[Tensor, Tensor]


def suits(base: Any, attention_mask: Any) -> bool:
    """Only where nothing is learned, nothing is dropped, and float32 means float32; padding must follow the text."""
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2 or attention_mask.device.type != "cpu":
        return False
    if torch.is_grad_enabled() or base.training or torch.is_autocast_enabled("cpu") or base.dtype != torch.float32:
        return False
    return bool((attention_mask[:, 1:] <= attention_mask[:, :-1]).all())


def encode_at(base: Any, input_ids: Tensor, attention_mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Hidden states (N, H) of the last layer at the places (rows[i], columns[i])."""
    lengths = attention_mask.sum(1).tolist()
    asked: dict[int, list[int]] = {}
    for place, row in enumerate(rows.tolist()):
        asked.setdefault(row, []).append(place)
    out = torch.empty(len(rows), base.config.hidden_size)

    def one(row: int) -> None:
        with torch.inference_mode():
            at = columns[asked[row]]
            span = int(at.min()), int(at.max()) + 1
            out[asked[row]] = _text(base, input_ids[row, : lengths[row]], span, rotations)[at - span[0]]

    with _a_thread_a_text() as threads:
        rotations = _rotations(base, input_ids)
        list(threads.map(one, asked))
    return out


@contextmanager
def _a_thread_a_text() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch would use inside one operation; meanwhile every operation runs on the thread that asked for it."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as threads:
            yield threads
    finally:
        torch.set_num_threads(count)


def _rotations(base: Any, input_ids: Tensor) -> dict[str, Rotation]:
    """Cosines and sines (L, 1, d/2) of every kind of layer; the library writes both halves of them, which are equal."""
    places = torch.arange(input_ids.shape[1])[None]
    out = {}
    for kind in set(base.config.layer_types):
        cosines, sines = base.rotary_emb(base.embeddings.tok_embeddings.weight, places, kind)
        half = cosines.shape[-1] // 2
        out[kind] = (cosines[0, :, None, :half].contiguous(), sines[0, :, None, :half].contiguous())
    return out


def _text(base: Any, ids: Tensor, asked: Span, rotations: dict[str, Rotation]) -> Tensor:
    """The hidden states of one text at the places of `asked`."""
    hidden: Tensor = base.embeddings(input_ids=ids)
    have = (0, len(ids))
    for layer, needed in zip(base.layers, spans(base.layers, asked, len(ids)), strict=True):
        hidden = _layer(layer, hidden, _Reach(have, needed, layer.attn.sliding_window), rotations[layer.attention_type])
        have = needed
    states: Tensor = base.final_norm(hidden)
    return states


def spans(layers: Sequence[Any], asked: Span, length: int) -> list[Span]:
    """For every layer, the stretch of its output that the asked places depend on."""
    out = [asked]
    for layer in reversed(layers[1:]):
        low, high = out[-1]
        window = layer.attn.sliding_window
        out.append((0, length) if window is None else (max(0, low - window + 1), min(length, high + window - 1)))
    return out[::-1]


@dataclass(frozen=True, slots=True)
class _Reach:
    """A layer is given the states of the places `have` and gives those of `needed`; `window` is the library's: one more."""

    have: Span
    needed: Span
    window: int | None

    @property
    def inner(self) -> slice:
        return slice(self.needed[0] - self.have[0], self.needed[1] - self.have[0])


def _layer(layer: Any, hidden: Tensor, reach: _Reach, rotation: Rotation) -> Tensor:
    hidden_there = hidden[reach.inner]
    hidden_there = hidden_there + _attend(layer.attn, layer.attn_norm(hidden), reach, rotation)
    result: Tensor = hidden_there + layer.mlp(layer.mlp_norm(hidden_there))
    return result


def _attend(module: Any, states: Tensor, reach: _Reach, rotation: Rotation) -> Tensor:
    """`module` is the library's attention, whose weights are used."""
    width, size = module.Wo.weight.shape[1], module.head_dim
    weight, bias = module.Wqkv.weight, module.Wqkv.bias
    cosines, sines = rotation
    everywhere, there = slice(*reach.have), slice(*reach.needed)
    query = functional.linear(states[reach.inner], weight[:width], None if bias is None else bias[:width])
    rest = functional.linear(states, weight[width:], None if bias is None else bias[width:])
    query = _rotated(query.view(len(query), -1, size), cosines[there], sines[there]).transpose(0, 1)
    key, value = rest.view(len(rest), 2, -1, size).unbind(1)
    key = _rotated(key, cosines[everywhere], sines[everywhere]).transpose(0, 1)
    context = _context(query, key, value.transpose(0, 1), reach).transpose(0, 1).reshape(-1, width)
    result: Tensor = module.Wo(context)
    return result


def _rotated(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = states.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def _context(query: Tensor, key: Tensor, value: Tensor, reach: _Reach) -> Tensor:
    """Scaled dot-product attention (heads, places, d); a local layer goes chunk by chunk, each with the keys near it."""
    if reach.window is None:
        return functional.scaled_dot_product_attention(query[None], key[None], value[None])[0]
    near, out = reach.window - 1, torch.empty_like(query)
    for start in range(*reach.needed, _CHUNK):
        end = min(start + _CHUNK, reach.needed[1])
        low, high = max(reach.have[0], start - near), min(reach.have[1], end + near)
        mine = slice(start - reach.needed[0], end - reach.needed[0])
        keys = slice(low - reach.have[0], high - reach.have[0])
        apart = torch.arange(start, end)[:, None] - torch.arange(low, high)
        seen = None if end - low <= near + 1 and high - start <= near + 1 else apart.abs() <= near
        out[:, mine] = functional.scaled_dot_product_attention(
            query[None, :, mine], key[None, :, keys], value[None, :, keys], seen
        )[0]
    return out
