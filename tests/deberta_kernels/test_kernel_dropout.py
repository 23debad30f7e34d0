"""Dropout inside kernels: the right share, independent places, one mask forward and backward; and layer norm fused with it.

The kernels run on a CUDA device, or on a CPU through Triton's interpreter: `make kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deberta_kernels.fused_deberta import install
from tests.deberta_kernels.test_fused_deberta import DEVICE, assert_near, model_of, outcome, pytestmark, segments_of
from tests.deberta_kernels.tiny import batch

__all__ = ["pytestmark"]


def kept(first: torch.Tensor, second: torch.Tensor, share: float) -> torch.Tensor:
    """What `tiles.kept_by_dropout` keeps of rows x columns, in whole numbers that do not overflow."""
    from deberta_kernels.operation import dropout_limit

    products = (first.long() | 1)[:, None] * (second.long() | 1)[None, :]
    return (products + 2**31) % 2**32 - 2**31 >= dropout_limit(share)[0]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_places_are_kept_as_if_each_were_drawn_by_itself(share: float) -> None:
    """Rate, pairs of rows, pairs of columns, corners of rectangles, neighbours: all within what 400 x 400 coins give."""
    from deberta_kernels.operation import dropout_draws

    torch.manual_seed(int(100 * share))
    masks = [
        kept(dropout_draws(torch.device("cpu"), 400), dropout_draws(torch.device("cpu"), 400), share).numpy() for _ in range(3)
    ]
    coins = [(mask - (1 - share)) / np.sqrt(share * (1 - share)) for mask in masks]  # of mean 0 and variance 1
    for coin in coins:
        assert abs(coin.mean()) < 5 / 400
        assert abs((coin[:, 1:] * coin[:, :-1]).mean()) < 5 / 400
        assert abs((coin[1:] * coin[:-1]).mean()) < 5 / 400
        for side in (coin, coin.T):
            pairs = (side @ side.T)[np.triu_indices(400, 1)] / 20  # of mean 0 and variance 1 too
            assert abs(pairs.mean()) < 0.02
            assert abs((pairs**2).mean() - 1) < 0.05  # rectangles
        assert np.linalg.svd(coin, compute_uv=False)[0] < 2.2 * 20  # no hidden structure: a random matrix's is 2 x 20
    assert abs((coins[0] * coins[1]).mean()) < 5 / 400  # heads, rows of a batch, layers: drawn apart
    assert abs((coins[1] * coins[2]).mean()) < 5 / 400


def fused(x: torch.Tensor, residual: torch.Tensor, norm: Any, share: float, half: torch.dtype | None) -> tuple[Any, Any]:
    from deberta_kernels.residual import add_norm

    torch.manual_seed(7)
    return add_norm(x, residual, norm, dropout=share, half=half)


@pytest.mark.parametrize(
    ("shape", "share", "half"), [((2, 5, 24), 0.0, None), ((9, 33), 0.3, None), ((3, 4, 32), 0.3, torch.float16)]
)
def test_layer_norm_of_a_residual_sum(shape: tuple[int, ...], share: float, half: torch.dtype | None) -> None:
    """Both outputs and all gradients, against the definition with the same places dropped."""
    from deberta_kernels.operation import dropout_draws

    norm, rows = torch.nn.LayerNorm(shape[-1], 1e-7).to(DEVICE), int(np.prod(shape[:-1]))
    x, residual, factor, small_weight = (torch.randn(shape, device=DEVICE) for _ in range(4))
    with torch.no_grad():
        norm.weight.normal_(1, 0.3)
        norm.bias.normal_()
    leaves = [x.to(half or torch.float32).requires_grad_(), residual.requires_grad_(), norm.weight, norm.bias]
    whole, small = fused(*leaves[:2], norm, share, half)
    torch.manual_seed(7)
    draws = dropout_draws(x.device, rows + shape[-1]) if share else torch.zeros(rows + shape[-1])
    mask = kept(draws[:rows], draws[rows:], share).view(shape) / (1 - share) if share else 1.0
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = torch.nn.functional.layer_norm(exact[0] * mask + exact[1], shape[-1:], *exact[2:], 1e-7)
    assert whole.dtype == torch.float32
    loss, exact_loss = (whole * factor).sum(), (expected * factor).sum()
    if half is not None:
        assert torch.equal(small, whole.to(half))
        loss, exact_loss = (
            loss + (small * small_weight.to(half)).float().sum(),
            exact_loss + (expected * small_weight.to(half)).sum(),
        )
    assert_near([whole], [expected])
    ours, right = torch.autograd.grad(loss, leaves), torch.autograd.grad(exact_loss, exact)
    assert_near(list(ours), list(right), 2e-3 if half else 1e-5)


def test_only_one_of_both_outputs_may_be_used() -> None:
    norm, x = torch.nn.LayerNorm(8).to(DEVICE), torch.randn(3, 8, device=DEVICE, requires_grad=True)
    weight = torch.randn(3, 8, device=DEVICE)
    small = fused(x, x.detach(), norm, 0.0, torch.float16)[1]
    rounded = torch.autograd.grad((small * weight.half()).sum(), x)[0]
    whole = fused(x, x.detach(), norm, 0.0, torch.float16)[0]
    assert_near([rounded], list(torch.autograd.grad((whole * weight.half()).sum(), x)), 1e-5)


def test_a_dropout_of_1_leaves_the_residual_alone() -> None:
    model = model_of("deberta", attention_probs_dropout_prob=1.0, hidden_dropout_prob=1.0).train()
    segments = segments_of([1] * 20)
    expected = outcome(model, batch(1, 20).to(DEVICE), segments)
    install(model)
    ours = outcome(model, batch(1, 20).to(DEVICE), segments)
    assert all(torch.equal(ours[name], value) for name, value in expected.items())


def test_a_layers_weights_are_rounded_together_as_each_is_alone() -> None:
    from deberta_kernels.fused_deberta import _half_weights

    layer = model_of("deberta", hidden_size=32, num_attention_heads=2).base_model.encoder.layer[0]
    assert _half_weights(layer) == [None] * 4
    module = layer.attention.self
    groups = [[module.query_proj, module.key_proj, module.value_proj]]
    groups += [[part] for part in (layer.attention.output.dense, layer.intermediate.dense, layer.output.dense)]
    with torch.autocast(DEVICE, torch.bfloat16):
        joined = [tensor for pair in _half_weights(layer) for tensor in pair or ()]
    alone = [torch.cat([getattr(part, kind).bfloat16() for part in group]) for group in groups for kind in ("weight", "bias")]
    assert all(torch.equal(a, b) for a, b in zip(joined, alone, strict=True))
    gradients, leaves = [torch.randn_like(tensor) for tensor in joined], list(layer.parameters())
    ours, expected = (torch.autograd.grad(whole, leaves, gradients, allow_unused=True) for whole in (joined, alone))
    assert sum(gradient is not None for gradient in expected) == 12
    for a, b in zip(ours, expected, strict=True):
        assert (a is None) == (b is None)
        assert a is None or (a.dtype == torch.float32 and torch.equal(a, b))


def test_layers_in_half_precision_stay_within_its_rounding() -> None:
    """Under autocast: the residual stream in float32, the products in half precision, as the library computes them."""
    model, ids = model_of("deberta", num_hidden_layers=2), batch(1, 24).to(DEVICE)
    segments = segments_of([1] * 14 + [2] * 8 + [0] * 2)
    exact = outcome(model, ids, segments)
    install(model)
    with torch.autocast(DEVICE, torch.float16 if DEVICE == "cpu" else torch.bfloat16):
        ours = outcome(model, ids, segments)
    assert ours["hidden"].dtype == torch.float32
    least = 1e-1 * max(float(value.norm()) for value in exact.values())
    for name, value in exact.items():
        assert (ours[name] - value).norm() <= 5e-2 * max(float(value.norm()), least), name
