"""Documents packed into one block do not see each other."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coref_automl.base.errors import ModelError
from coref_automl.models import heads, packed
from coref_automl.models.execution import packed_masks, use_attention, without_bfloat16_warnings, without_cudnn
from coref_automl.models.heads import encode, predict
from deberta_kernels import fused_deberta
from deberta_kernels.layout import Documents
from tests.close import assert_same, assert_same_slopes
from tests.models.conftest import FAMILIES, TINY, batch, build

SEGMENTS = torch.tensor([[1] * 7 + [2] * 11 + [3] * 4 + [0] * 2])
RELATIVE = [name for name in TINY if name.startswith(("deberta", "modernbert")) and name != "deberta-conv"]
WAYS = [(name, way) for name in FAMILIES for way in (("eager",) if name.startswith("deberta") else ("packed", "sdpa", "eager"))]
OTHER_ROWS = torch.tensor([[1] * 3 + [2] * 20 + [0], [1] * 24, [1] * 2 + [2] * 2 + [3] * 2 + [4] * 18])
"""Documents shorter and longer than ModernBERT's window, in several rows."""


def packed_model(name: str, way: str = "auto") -> tuple[Any, torch.Tensor]:
    model = build(name)
    use_attention(model, way)
    ids = batch(1, 24)
    ids[SEGMENTS == 0] = model.config.pad_token_id
    return model, ids


def logits(model: Any, ids: torch.Tensor, mask: Any) -> torch.Tensor:
    return predict(model, encode(model, ids, mask)[0])


def alone(model: Any, ids: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
    """Logits of one document of a row (1, L) without the others: at its own positions if the family counts them in the row."""
    relative = model.config.model_type in ("deberta-v2", "modernbert")
    positions = None if relative else mine.nonzero().T
    mask = torch.ones(1, int(mine.sum()), dtype=torch.long)
    return predict(model, encode(model, ids[:, mine], mask, positions)[0])


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_logits_of_a_packed_document_equal_its_logits_alone(name: str, way: str) -> None:
    model, ids = packed_model(name, way)
    with torch.no_grad():
        together = logits(model, ids, packed_masks(model, SEGMENTS))
        for number in (1, 2, 3):
            mine = SEGMENTS[0] == number
            assert_same(together[mine], alone(model, ids, mine))


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_gradients_of_a_packed_document_equal_those_alone(name: str, way: str) -> None:
    model, ids = packed_model(name, way)
    mine = (SEGMENTS == 2)[0]
    weights = [weight for weight in model.base_model.parameters() if weight.requires_grad]
    together = torch.autograd.grad(
        logits(model, ids, packed_masks(model, SEGMENTS))[mine].logsumexp(-1).sum(), weights, allow_unused=True
    )
    gradients = torch.autograd.grad(alone(model, ids, mine).logsumexp(-1).sum(), weights, allow_unused=True)
    assert all(torch.isfinite(gradient).all() for gradient in together if gradient is not None)
    assert_same_slopes(dict(enumerate(together)), dict(enumerate(gradients)))


@pytest.mark.parametrize("name", [name for name, way in WAYS if way == "packed"])
def test_bounds_and_a_mask_give_the_same_states_and_gradients(name: str) -> None:
    """Several rows, also with empty documents at the end of the list, as batches of one size have."""
    model, real, found = build(name), OTHER_ROWS > 0, []
    ids = batch(3, 24)
    starts, kept = packed.layout(OTHER_ROWS.numpy(), 72)
    assert starts.tolist() == [0, 3, 23, 47, 49, 51, 53, 71, 72]
    assert kept.tolist() == [*range(23), *range(24, 72), 23]
    roomy = [torch.from_numpy(array) for array in (np.pad(starts, (0, 5), mode="edge"), kept)]
    for way, given in (("packed", roomy), ("packed", []), ("sdpa", [])):
        use_attention(model, way)
        mask = packed_masks(model, OTHER_ROWS, *given)
        assert isinstance(mask, packed.Extents) is (way == "packed")
        states = encode(model, ids, mask)[real]
        slopes = torch.autograd.grad(states.pow(3).mean(), [model.get_input_embeddings().weight])
        found.append((states, slopes[0]))
    for states, slope in found[:2]:
        assert_same(states, found[2][0])
        assert_same(slope, found[2][1])


def test_padding_beyond_a_row_is_cut_to_rows() -> None:
    """Kernels are told that no document is longer than a row."""
    segments = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]], np.int32)
    starts, kept = packed.layout(segments, 12)
    assert starts.tolist() == [0, 1, 3, 7, 11, 12]
    assert kept.tolist() == [0, 4, 5, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert packed.layout(np.zeros((1, 3), np.int32))[0].tolist() == [0, 1]


@pytest.mark.parametrize("name", [name for name, way in WAYS if way == "packed"])
def test_long_rows_are_scored_by_their_bounds_with_the_same_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = build(name), batch(2, 24)
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    ids[mask == 0] = model.config.pad_token_id
    places = torch.tensor([0, 0, 1]), torch.tensor([3, 23, 8])
    found, masks = [], []
    kept = heads.encode
    monkeypatch.setattr(heads, "encode", lambda model, ids, mask: masks.append(type(mask)) or kept(model, ids, mask))
    monkeypatch.setattr(heads.quick_modernbert, "supports", lambda *_: False)
    for way, least in (("sdpa", 8), ("packed", 25), ("packed", 24)):
        use_attention(model, way)
        monkeypatch.setattr(heads, "BOUNDS_FROM", least)
        with torch.no_grad():
            found.append(heads.encode_at(model, ids, mask, *places))
    assert masks == [torch.Tensor, torch.Tensor, packed.Extents]
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])


def test_packed_attention_is_refused_where_its_kernels_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of a test has no CUDA device: the facts about one are put in its place."""
    model = build("bert")
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: (7, 5))
    with pytest.raises(ModelError, match=r"7\.5; choose sdpa"):
        use_attention(model, "packed")
    assert use_attention(model) == [
        "Attention: sdpa (packed needs compute capability 8.0 (Ampere) or later, and this card has 7.5)."
    ]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: (9, 0))
    assert use_attention(model) == ["Attention: packed."]
    assert "float32" in use_attention(model, half=False)[0]
    assert model.config._attn_implementation == "sdpa"


def test_a_checkpoint_does_not_name_the_attention(tmp_path: Path) -> None:
    model, _ = packed_model("modernbert", "packed")
    model.save_pretrained(tmp_path)
    assert "packed" not in (tmp_path / "config.json").read_text("utf-8")


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_another_document_changes_nothing(name: str, way: str) -> None:
    model, ids = packed_model(name, way)
    changed = ids.clone()
    changed[SEGMENTS == 1] = 7
    changed[SEGMENTS == 3] = 8
    mine = (SEGMENTS == 2)[0]
    with torch.no_grad():
        mask = packed_masks(model, SEGMENTS)
        before, after = logits(model, ids, mask), logits(model, changed, mask)
        seen = logits(model, changed, (SEGMENTS > 0).long())
    assert torch.isfinite(before).all()
    assert_same(before[mine], after[mine])
    assert (seen[mine] - before[mine]).abs().max() > 1e-2  # without the mask the neighbours do matter


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_no_gradient_flows_into_another_document(name: str, way: str) -> None:
    model, ids = packed_model(name, way)
    outputs: list[torch.Tensor] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    hidden = encode(model, ids, packed_masks(model, SEGMENTS))
    hook.remove()
    (gradient,) = torch.autograd.grad(hidden[SEGMENTS == 2].pow(2).sum() + hidden[SEGMENTS == 2].sum(), outputs)
    read = SEGMENTS[SEGMENTS > 0][None] if way == "packed" else SEGMENTS  # without padding
    assert torch.isfinite(gradient).all()
    assert gradient[read == 2].abs().max() > 0
    assert gradient[read != 2].abs().max() == 0


@pytest.mark.parametrize("way", ["sdpa", "eager"])
def test_modernbert_keeps_its_sliding_window(way: str) -> None:
    model, ids = packed_model("modernbert", way)
    one_document = torch.ones_like(ids)
    with torch.no_grad():
        as_shipped = logits(model, ids, one_document)
        ours = logits(model, ids, packed_masks(model, one_document))
        without_window = packed_masks(model, one_document)["full_attention"]
        wide = logits(model, ids, without_window)
    assert_same(ours, as_shipped)
    assert (wide - as_shipped).abs().max() > 1e-2


def test_deberta_with_a_convolution_takes_packed_blocks() -> None:
    model, ids = packed_model("deberta-conv")
    with torch.no_grad():
        assert torch.isfinite(logits(model, ids, packed_masks(model, SEGMENTS))).all()


def test_bfloat16_packs_too() -> None:
    for name in ("modernbert", "deberta"):
        model, ids = packed_model(name)
        with torch.no_grad():
            exact = encode(model, ids, packed_masks(model, SEGMENTS))[SEGMENTS > 0]
            model.to(torch.bfloat16)
            with without_bfloat16_warnings():
                coarse = encode(model, ids, packed_masks(model, SEGMENTS))[SEGMENTS > 0]
        assert torch.nn.functional.cosine_similarity(exact, coarse.float(), dim=-1).min() > 0.98


def test_the_choice_on_a_cpu_depends_on_the_family() -> None:
    assert use_attention(build("modernbert")) == ["Attention: packed."]
    assert use_attention(build("bert")) == ["Attention: packed."]
    model = build("deberta")
    assert use_attention(model) == ["Attention: eager."]
    assert not fused_deberta.installed(model)


@pytest.fixture
def on_a_card(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A DeBERTa-v2 that says it is on a CUDA device of some capability, with or without Triton: nothing is computed there."""

    def make(*, card: tuple[int, int] = (9, 0), triton: bool = True, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
        model = build("deberta", **changes)
        monkeypatch.setattr(type(model), "device", torch.device("cuda"))
        monkeypatch.setattr(type(model), "dtype", dtype)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: card)
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: (triton or None) if name == "triton" else find(name))
        return model

    return make


def test_fused_where_it_runs(on_a_card: Callable[..., Any]) -> None:
    model = on_a_card(attention_probs_dropout_prob=0.1)
    assert use_attention(model) == ["Attention: fused."]
    assert fused_deberta.installed(model)
    assert isinstance(packed_masks(model, SEGMENTS), Documents)
    assert use_attention(model, "eager") == ["Attention: eager."]
    assert not fused_deberta.installed(model)


@pytest.mark.parametrize(
    ("where", "note"),
    [
        ({"triton": False}, "eager (fused needs Triton, which is not installed)"),
        ({"card": (7, 5)}, "eager (fused needs compute capability 8.0 (Ampere) or later, and this card has 7.5)"),
        ({"dtype": torch.float64}, "eager (fused does not compute in float64)"),
        ({"hidden_size": 512}, "eager (fused takes heads of at most 128 numbers, and this model's have 256)"),
        (
            {"position_buckets": 64, "max_relative_positions": 32},
            "eager (fused needs fewer position buckets than 64 over 32 positions)",
        ),
    ],
)
def test_where_fused_does_not_run_one_line_says_why(on_a_card: Callable[..., Any], where: dict[str, Any], note: str) -> None:
    model = on_a_card(**where)
    assert use_attention(model) == [f"Attention: {note}."]
    assert not fused_deberta.installed(model)
    chosen, why = note.rstrip(")").split(" (fused ")
    with pytest.raises(ModelError, match=re.escape(f"Fused attention {why}; choose {chosen} here.")):
        use_attention(model, "fused")


def test_a_fused_model_on_a_cpu_goes_on_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    model, ids = packed_model("deberta")
    expected = encode(model, ids, packed_masks(model, SEGMENTS))
    fused_deberta.install(model)
    mask = packed_masks(model, SEGMENTS)
    assert isinstance(mask, Documents)
    assert torch.equal(encode(model, ids, mask), expected)
    assert torch.equal(encode(model, ids, mask.pairs()), expected)


@pytest.mark.parametrize("kernel", [None, fused_deberta])
@pytest.mark.parametrize("mask", [{"full_attention": SEGMENTS}, SEGMENTS[0], "causal"], ids=["dict", "one row", "name"])
def test_deberta_refuses_a_mask_of_unknown_form(kernel: Any, mask: Any) -> None:
    model, ids = packed_model("deberta")
    if kernel is not None:
        kernel.install(model)
    with pytest.raises(ModelError, match="no mask of this form"):
        encode(model, ids, mask)


def test_impossible_choices_are_explained() -> None:
    with pytest.raises(ModelError, match="Fused attention needs a CUDA device; choose eager here"):
        use_attention(build("deberta"), "fused")
    with pytest.raises(ModelError, match="Fused attention is for DeBERTa-v2; a bert model runs with packed, sdpa or eager"):
        use_attention(build("bert"), "fused")
    with pytest.raises(ModelError, match="no sdpa attention; choose fused"):
        use_attention(build("deberta"), "sdpa")
    with pytest.raises(ModelError, match="sdpa, eager, fused"):
        use_attention(build("bert"), "flash")


@pytest.mark.parametrize(("length", "allowed"), [(None, False), (64, False), (192, False), (128, True), (2048, True), (40, True)])
def test_cudnn_is_left_out_where_its_gradients_may_be_no_numbers(length: int | None, allowed: bool) -> None:
    for before in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(before)
        try:
            with without_cudnn(length):
                assert torch.backends.cuda.cudnn_sdp_enabled() is (allowed and before)
            assert torch.backends.cuda.cudnn_sdp_enabled() is before
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)
