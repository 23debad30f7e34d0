"""A masked language model in two parts. In: token ids, or hidden states at some positions. Out: hidden states, or logits.

The head is the widest layer of a small encoder; running it at the target positions alone is most of this package's speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from coref_automl.models import quick_modernbert
from coref_automl.models.execution import kernel_errors
from coref_automl.models.families import first_row
from coref_automl.models.packed import Extents, applies, rows_of
from deberta_kernels.layout import Documents

BOUNDS_FROM = 1024
"""Length of rows from which bounds are faster than a mask when single positions are scored; shorter rows are level."""


def encode(model: Any, input_ids: Tensor, attention_mask: Any, position_ids: Tensor | None = None) -> Tensor:
    """Return the hidden states (B, L, H) of the last layer, without the mask head.

    `attention_mask` is a (B, L) mask of unpadded tokens or a mask of `execution.packed_masks`. `position_ids` count from 0 in
    every family; without them, positions are those in the row.
    """
    if isinstance(attention_mask, Extents):
        return _encode_documents(model, input_ids, attention_mask, position_ids)
    if position_ids is not None:
        position_ids = position_ids + first_row(model.config)
    if model.config.model_type == "deberta-v2":
        with kernel_errors():
            return _encode_deberta(model.base_model, input_ids, attention_mask, position_ids)
    output = model.base_model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids)
    hidden: Tensor = output.last_hidden_state
    return hidden


def _encode_documents(model: Any, input_ids: Tensor, bounds: Extents, position_ids: Tensor | None) -> Tensor:
    """Run the encoder over documents laid end to end; the hidden states of padding that was left out are 0."""
    rows, length = input_ids.shape
    kept = torch.arange(rows * length, device=input_ids.device) if bounds.kept is None else bounds.kept
    positions = kept % length if position_ids is None else position_ids.expand(rows, -1).reshape(-1)[kept]
    no_mask = dict.fromkeys(("full_attention", "sliding_attention")) if model.config.model_type == "modernbert" else None
    output = model.base_model(
        input_ids=input_ids.reshape(-1)[kept][None],
        attention_mask=no_mask,
        position_ids=positions[None] + first_row(model.config),
        starts=bounds.starts,
        longest=bounds.longest,
    )
    states: Tensor = output.last_hidden_state[0]
    padded = states.new_zeros(rows * length, states.shape[-1]).index_copy(0, kept, states)
    return padded.view(rows, length, -1)


def encode_at(model: Any, input_ids: Tensor, attention_mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the hidden states (N, H) at the positions (rows[i], columns[i]); in some families without computing all others."""
    if model.config.model_type == "modernbert" and quick_modernbert.supports(model.base_model, attention_mask):
        return quick_modernbert.encode_at(model.base_model, input_ids, attention_mask, rows, columns)
    if model.config.model_type == "deberta-v2":
        from deberta_kernels.fused_deberta import can_encode_at

        if can_encode_at(model, attention_mask):
            return _encode_deberta(model.base_model, input_ids, attention_mask, None, (rows, columns))
    elif input_ids.shape[1] >= BOUNDS_FROM and attention_mask.dim() == 2 and applies(model):
        return encode(model, input_ids, rows_of(attention_mask))[rows, columns]
    return encode(model, input_ids, attention_mask)[rows, columns]


def predict(model: Any, hidden: Tensor) -> Tensor:
    """Return the logits (N, V) of the model's own mask head for hidden states (N, H)."""
    return _HEADS[model.config.model_type](model, hidden)


def _encode_deberta(
    base: Any, input_ids: Tensor, attention_mask: Any, position_ids: Tensor | None, positions: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Run the encoder like the library's forward, but accept a pairwise mask also with the convolution, and free the hidden
    states of each layer. With `positions` (rows, columns) the last layer runs there alone."""
    encoder = base.encoder
    real = _real_tokens(attention_mask)
    first: Tensor = base.embeddings(input_ids=input_ids, position_ids=position_ids, mask=real)
    table = encoder.get_rel_embedding()
    pairs, distances = encoder.get_attention_mask(attention_mask), encoder.get_rel_pos(first)
    hidden = first
    for number, layer in enumerate(encoder.layer if positions is None else encoder.layer[:-1]):
        hidden = layer(hidden, pairs, relative_pos=distances, rel_embeddings=table)[0]
        if number == 0 and encoder.conv is not None:
            hidden = encoder.conv(first, hidden, real)
    if positions is None:
        return hidden
    from deberta_kernels.fused_deberta import run_layer_at

    return run_layer_at(encoder.layer[-1], hidden, real.bool(), *positions, table)


def _real_tokens(attention_mask: Any) -> Tensor:
    """Return the (B, L) mask of unpadded tokens. In a pairwise mask a padding token does not attend even to itself."""
    documents = Documents.of(attention_mask)
    if documents is not None:
        return documents.real()
    pairs: Tensor = attention_mask
    return pairs.diagonal(dim1=-2, dim2=-1).squeeze(1).to(torch.long)


def _deberta(model: Any, hidden: Tensor) -> Any:
    if model.legacy:
        return model.cls(hidden)
    return model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)


def _distilbert(model: Any, hidden: Tensor) -> Any:
    return model.vocab_projector(model.vocab_layer_norm(model.activation(model.vocab_transform(hidden))))


_HEADS: dict[str, Callable[[Any, Tensor], Any]] = {
    "bert": lambda model, hidden: model.cls(hidden),
    "electra": lambda model, hidden: model.generator_lm_head(model.generator_predictions(hidden)),
    "distilbert": _distilbert,
    "roberta": lambda model, hidden: model.lm_head(hidden),
    "xlm-roberta": lambda model, hidden: model.lm_head(hidden),
    "camembert": lambda model, hidden: model.lm_head(hidden),
    "deberta-v2": _deberta,
    "modernbert": lambda model, hidden: model.decoder(model.head(hidden)),
}
