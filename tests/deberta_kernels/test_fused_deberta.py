"""Fused attention is the same function as the library's: outputs and every gradient, for every option, without and with dropout.

The kernels run on a CUDA device, or on a CPU through Triton's interpreter: `make kernels`.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deberta_kernels.fused_deberta import install, installed
from deberta_kernels.layout import Distances, Documents, bounds_of
from tests.deberta_kernels.tiny import batch, build, encode

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed; `make kernels` installs it"),
    pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="no CUDA device; `make kernels` interprets the kernels"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log2:RuntimeWarning"),  # the sum of no probabilities
]

BFLOAT16 = pytest.mark.skipif(INTERPRETED, reason="Triton's interpreter multiplies the bits of bfloat16 as whole numbers")
REPEATED = 0.0 if DEVICE == "cpu" else 1e-6
"""How far two passes of one model may differ: on a GPU, gradients of embeddings are added up in any order."""
Tensors = dict[str, torch.Tensor]
CLAMPED = {"max_relative_positions": 12}
OWN = "deberta-new-head"
"""Position projections of its own; `deberta` shares those of the content."""
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "shared projections": ("deberta", {}),
    "own projections, two heads": (OWN, {"hidden_size": 32, "num_attention_heads": 2}),
    "c2p alone": (OWN, {"pos_att_type": ["c2p"]}),
    "p2c alone": ("deberta", {"pos_att_type": ["p2c"]}),
    "neither": (OWN, {"pos_att_type": []}),
    "no relative positions": (
        OWN,
        {"relative_attention": False, "position_biased_input": True, "pos_att_type": [], "max_position_embeddings": 64},
    ),
    "plain distances": ("deberta-no-buckets", {}),
    "heads of 15": ("deberta", {"hidden_size": 15}),
    "heads of 24": ("deberta", {"hidden_size": 24}),
    "heads of 32": (OWN, {"hidden_size": 32}),
    "convolution": ("deberta-conv", {}),
}
FAR: dict[str, tuple[str, dict[str, Any]]] = {
    "buckets": ("deberta", CLAMPED),
    "c2p alone": (OWN, {**CLAMPED, "pos_att_type": ["c2p"]}),
    "p2c alone": (OWN, {**CLAMPED, "pos_att_type": ["p2c"]}),
    "plain distances": ("deberta-no-buckets", CLAMPED),
}
DOCUMENTS = {
    "one": [1] * 33,
    "packed": [1] * 9 + [2] * 15 + [3] * 9,
    "padding": [1] * 20 + [2] * 4 + [0] * 6,
    "padding alone": [0] * 17,
    "holes": [1] * 7 + [0] * 5 + [1] * 6 + [0] * 3,
    "interleaved": [1] * 4 + [2] * 6 + [1] * 5 + [2] * 3 + [3],
    "one token each": list(range(1, 18)),
    "a single token": [1],
    "a whole tile": [1] * 32,
}


def model_of(name: str, **changes: Any) -> Any:
    """One layer, one head of 16 numbers unless told otherwise."""
    return build(name, **{"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 1, **changes}).to(DEVICE)


@pytest.fixture(autouse=True, scope="module")
def _without_overflow_checks() -> Iterator[None]:
    """The interpreter adds every integer twice to see whether it overflows, which is half its time."""
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            from triton.runtime.interpreter import interpreter_builder as builder

            patch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
        yield


def segments_of(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, device=DEVICE)


def outcome(model: Any, ids: torch.Tensor, segments: torch.Tensor) -> Tensors:
    """Hidden states of real tokens and the gradient of every weight."""
    model.zero_grad()
    hidden = encode(model, ids, Documents(segments))[segments > 0]
    hidden.pow(3).sum().backward()
    return {"hidden": hidden.detach(), **{n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}}


def assert_same(ours: Tensors, expected: Tensors, tolerance: float = 2e-5) -> None:
    """By norm; what is nothing but rounding (a key's bias, all scores of a document of one token) against the others' size."""
    assert ours.keys() == expected.keys()
    least = 1e-2 * max(float(value.norm()) for value in expected.values())
    for name, value in expected.items():
        assert (ours[name] - value).norm() <= tolerance * max(float(value.norm()), least), name


def compare(model: Any, segments: torch.Tensor) -> None:
    ids = batch(*segments.shape).to(DEVICE)
    expected = outcome(model, ids, segments)
    install(model)
    assert installed(model)
    assert_same(outcome(model, ids, segments), expected)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_gives_what_the_library_gives(option: str) -> None:
    name, changes = OPTIONS[option]
    compare(model_of(name, **changes), segments_of([1] * 8 + [2] * 25 + [0] * 2))


@pytest.mark.parametrize("option", FAR)
def test_distances_beyond_the_last_bucket(option: str) -> None:
    name, changes = FAR[option]
    compare(model_of(name, **changes), segments_of([1] * 70))


@pytest.mark.parametrize("documents", DOCUMENTS)
def test_documents_of_every_form(documents: str) -> None:
    compare(model_of("deberta"), segments_of(DOCUMENTS[documents]))


def test_rows_of_a_batch_are_laid_out_each_by_itself() -> None:
    compare(model_of("deberta", **CLAMPED), segments_of([1] * 66, [1] * 30 + [2] * 20 + [0] * 16, [0] * 66))


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any, **options: Any) -> torch.Tensor:
    from deberta_kernels import operation

    return operation.attend(torch.stack([query, key, value], 2), *others, **options)


def reference(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, position_key: torch.Tensor, position_query: torch.Tensor,
    segments: torch.Tensor, distances: Distances, scale: float, factors: torch.Tensor | float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """The definition, pair by pair; `kept` (B, H, L, L) is what dropout multiplies."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    positions = torch.arange(query.shape[2], device=query.device)
    rows = distances.rows(len(positions), query.device)[positions[:, None] - positions[None, :] + len(positions)].long()
    scores = query @ key.transpose(-1, -2)
    scores = scores + (query @ position_key.permute(1, 2, 0)).gather(-1, rows.expand(scores.shape))
    scores = scores + (key @ position_query.permute(1, 2, 0)).gather(-1, rows.T.expand(scores.shape)).transpose(-1, -2)
    allowed = (segments[:, None, :, None] == segments[:, None, None, :]) & (segments > 0)[:, None, :, None]
    probabilities = (scores * scale).masked_fill(~allowed, -1e30).softmax(-1) * allowed
    return (probabilities * factors @ value).transpose(1, 2)


def inputs(rows: int, length: int, heads: int, size: int, distances: Distances, seed: int = 0) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shapes = [(rows, length, heads, size)] * 3 + [(2 * distances.span, heads, size)] * 2
    return [torch.randn(shape, generator=draw).to(DEVICE).requires_grad_() for shape in shapes]


def gradients(out: torch.Tensor, leaves: list[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad((out * weight.to(out.dtype)).sum(), leaves))


def assert_near(ours: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    least = 1e-1 * max(float(x.detach().norm()) for x in expected)
    for number, (actual, exact) in enumerate(zip(ours, expected, strict=True)):
        error, size = ((x.detach().double().norm()) for x in (actual - exact, exact))
        assert error <= tolerance * max(float(size), least), number


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    padding=st.integers(0, 9),
    size=st.sampled_from([8, 16, 20]),
    distances=st.sampled_from([Distances(8, 12), Distances(6, 40), Distances(-1, 9)]),
)
def test_any_shape_agrees_with_the_definition(lengths: list[int], padding: int, size: int, distances: Distances) -> None:
    documents = [number + 1 for number, length in enumerate(lengths) for _ in range(length)]
    segments = segments_of(documents + [0] * padding)
    tensors = inputs(1, segments.shape[1], 1, size, distances)
    scale, weight = 1 / math.sqrt(3 * size), torch.randn(tensors[0].shape).to(DEVICE)
    out = attend(*tensors, bounds_of(segments), distances, scale=scale)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    expected = reference(*exact, segments, distances, scale)
    assert_near([out, *gradients(out, tensors, weight)], [expected, *gradients(expected, exact, weight)])


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=BFLOAT16)])
def test_half_precision_stays_within_its_rounding(dtype: torch.dtype) -> None:
    distances, segments = Distances(8, 12), segments_of([1] * 30 + [2] * 15)
    tensors = [x.detach().to(dtype).requires_grad_() for x in inputs(1, 45, 1, 16, distances)]
    weight = torch.randn(tensors[0].shape).to(DEVICE, dtype)
    out = attend(*tensors, bounds_of(segments), distances, scale=0.14)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    expected = reference(*exact, segments, distances, 0.14)
    assert out.dtype == dtype
    assert_near([out, *gradients(out, tensors, weight)], [expected, *gradients(expected, exact, weight)], 2e-2)


def test_dropout_drops_its_share_and_its_gradients_know_which() -> None:
    """With one-hot values the contexts are the probabilities themselves, dropped ones included."""
    distances, share, scale = Distances(8, 12), 0.25, 0.14
    segments = segments_of([1] * 32, [1] * 20 + [2] * 12)
    bounds, tensors = bounds_of(segments), inputs(2, 32, 2, 32, distances)
    ones = torch.eye(32, device=DEVICE)[None, :, None, :].expand(2, 32, 2, 32).contiguous()

    def attended(value: torch.Tensor, dropout: float = share) -> torch.Tensor:
        torch.manual_seed(3)
        return attend(*tensors[:2], value, *tensors[3:], bounds, distances, scale=scale, dropout=dropout)

    with torch.no_grad():
        whole, dropped = (attended(ones, dropout).transpose(1, 2) for dropout in (0.0, share))
    seen, kept = whole > 0, dropped > 0
    assert not bool((kept & ~seen).any())
    torch.testing.assert_close(dropped[kept], whole[kept] / (1 - share), rtol=1e-5, atol=0)
    count = int(seen.sum())
    assert abs(1 - int(kept.sum()) / count - share) < 4 * math.sqrt(share * (1 - share) / count)
    assert not torch.equal(kept[0, 0], kept[0, 1])  # heads and rows draw apart
    assert not torch.equal(kept[0, 0, :20, :20], kept[1, 0, :20, :20])
    out, weight = attended(tensors[2]), torch.randn(tensors[0].shape).to(DEVICE)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    expected = reference(*exact, segments, distances, scale, kept.double() / (1 - share))
    assert_near([out, *gradients(out, tensors, weight)], [expected, *gradients(expected, exact, weight)])
    with torch.no_grad():
        again = attend(*tensors[:2], ones, *tensors[3:], bounds, distances, scale=scale, dropout=share)
    assert not torch.equal(again.transpose(1, 2) > 0, kept)  # the next call draws anew


def test_the_same_call_gives_the_same_bits() -> None:
    distances, segments = Distances(8, 12), segments_of([1] * 40 + [2] * 8)
    tensors, weight = inputs(1, 48, 1, 16, distances), torch.ones(1, 48, 1, 16, device=DEVICE)

    def once() -> list[torch.Tensor]:
        torch.manual_seed(5)
        out = attend(*tensors, bounds_of(segments), distances, scale=0.14, dropout=0.1)
        return [out.detach(), *gradients(out, tensors, weight)]

    assert all(torch.equal(first, second) for first, second in zip(once(), once(), strict=True))


def test_tensors_may_lie_in_any_order() -> None:
    """Numbers of a head that are not side by side, and the gradient of a sum, which is one number expanded."""
    distances, segments = Distances(8, 12), segments_of([1] * 20)
    tensors = inputs(1, 20, 1, 16, distances)
    apart = [x.detach().transpose(1, -1).contiguous().transpose(1, -1).requires_grad_() for x in tensors]
    assert apart[0].stride(-1) != 1
    ours, expected = (attend(*x, bounds_of(segments), distances, scale=0.14) for x in (apart, tensors))
    assert torch.equal(ours, expected)
    weight = torch.ones_like(expected)
    assert_near(list(torch.autograd.grad(ours.sum(), apart)), gradients(expected, tensors, weight), 0)


def test_loss_and_gradients_of_a_whole_masked_language_model() -> None:
    model, ids = build("deberta", **CLAMPED).to(DEVICE), batch(2, 30).to(DEVICE)
    mask = segments_of([1] * 30, [1] * 22 + [0] * 8)
    labels = ids.masked_fill(mask == 0, -100)

    def learned() -> Tensors:
        model.zero_grad()
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        return {"loss": loss.detach(), **{n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}}

    expected = learned()
    install(model)
    assert_same(learned(), expected)
    install(model, fused=False)
    assert_same(learned(), expected, REPEATED)


def test_gradient_checkpointing_draws_the_same_dropout_again() -> None:
    model = model_of("deberta", attention_probs_dropout_prob=0.2, hidden_dropout_prob=0.1).train()
    install(model)
    ids, segments = batch(1, 30).to(DEVICE), segments_of([1] * 12 + [2] * 18)
    torch.manual_seed(0)
    expected = outcome(model, ids, segments)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.manual_seed(0)
    assert_same(outcome(model, ids, segments), expected, 0)
    torch.manual_seed(1)
    assert not torch.equal(outcome(model, ids, segments)["hidden"], expected["hidden"])
