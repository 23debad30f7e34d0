"""ModernBERT's quick way to a few places gives what the library gives there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from coref_automl.models import quick_modernbert
from coref_automl.models.heads import encode, encode_at
from tests.close import assert_same
from tests.models.conftest import build

LENGTH = 300


def modernbert(**changes: Any) -> Any:
    return build("modernbert", **{"num_hidden_layers": 5, "max_position_embeddings": 512, "local_attention": 16, **changes})


def rows(model: Any, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    ids = torch.randint(5, model.config.vocab_size, (len(lengths), LENGTH), generator=torch.Generator().manual_seed(3))
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    ids[mask == 0] = model.config.pad_token_id
    return ids, mask


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("local", [8, 16, 600])
@pytest.mark.parametrize("threads", [1, 2])
def test_hidden_states_at_a_few_places_are_those_of_the_whole_forward(every: int, local: int, threads: int) -> None:
    kinds = ["full_attention" if number % every == 0 else "sliding_attention" for number in range(5)]
    model = modernbert(local_attention=local, layer_types=kinds)
    ids, mask = rows(model, (LENGTH, 41, 200, 5))
    positions = torch.tensor([(0, 150), (1, 0), (0, 151), (2, 199), (3, 4), (1, 40), (2, 2), (0, 299)])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            assert quick_modernbert.supports(model.base_model, mask)
            ours = encode_at(model, ids, mask, positions[:, 0], positions[:, 1])
            whole = encode(model, ids, mask)[positions[:, 0], positions[:, 1]]
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert_same(ours, whole)


def test_upper_layers_are_as_short_as_their_windows_allow() -> None:
    model = modernbert(
        layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    )
    spans = quick_modernbert.needed_spans(model.base_model.layers, (100, 102), LENGTH)
    assert spans == [(0, LENGTH), (0, LENGTH), (84, 118), (92, 110), (100, 102)]


def test_where_it_does_not_suit_the_library_runs() -> None:
    model = modernbert()
    ids, mask = rows(model, (LENGTH, 41))
    positions = torch.tensor([(0, 150), (1, 40)])
    assert not quick_modernbert.supports(model.base_model, mask)  # gradients are wanted here
    with torch.inference_mode():
        assert not quick_modernbert.supports(model.base_model, mask.flip(1))
        with torch.autocast("cpu", torch.bfloat16):
            assert not quick_modernbert.supports(model.base_model, mask)
        left = encode_at(model, ids.flip(1), mask.flip(1), positions[:, 0], LENGTH - 1 - positions[:, 1])
        whole = encode(model, ids.flip(1), mask.flip(1))[positions[:, 0], LENGTH - 1 - positions[:, 1]]
    assert_same(left, whole)
