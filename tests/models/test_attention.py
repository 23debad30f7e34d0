"""Documents packed into one block do not see each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coref_automl.errors import ModelError
from coref_automl.models.attention import choose_attention, packed_masks, use_attention, without_cudnn
from coref_automl.models.heads import encode, predict
from coref_automl.models.precision import software_rounding
from tests.close import assert_same, assert_same_slopes
from tests.models.conftest import FAMILIES, TINY, batch, build

SEGMENTS = torch.tensor([[1] * 7 + [2] * 11 + [3] * 4 + [0] * 2])
RELATIVE = [name for name in TINY if name.startswith(("deberta", "modernbert")) and name != "deberta-conv"]
WAYS = [(name, way) for name in FAMILIES for way in (("eager",) if name.startswith("deberta") else ("sdpa", "eager"))]


def packed(name: str, way: str = "auto") -> tuple[Any, torch.Tensor]:
    model = build(name)
    use_attention(model, way)
    ids = batch(1, 24)
    ids[SEGMENTS == 0] = model.config.pad_token_id
    return model, ids


def logits(model: Any, ids: torch.Tensor, mask: Any) -> torch.Tensor:
    return predict(model, encode(model, ids, mask)[0])


@pytest.mark.parametrize(("name", "way"), [pair for pair in WAYS if pair[0] in RELATIVE])
def test_logits_of_a_packed_document_equal_its_logits_alone(name: str, way: str) -> None:
    model, ids = packed(name, way)
    with torch.no_grad():
        together = logits(model, ids, packed_masks(model, SEGMENTS))
        for number in (1, 2, 3):
            mine = SEGMENTS[0] == number
            alone = logits(model, ids[:, mine], torch.ones(1, int(mine.sum()), dtype=torch.long))
            assert_same(together[mine], alone)


@pytest.mark.parametrize(("name", "way"), [pair for pair in WAYS if pair[0] in RELATIVE])
def test_gradients_of_a_packed_document_equal_those_alone(name: str, way: str) -> None:
    model, ids = packed(name, way)
    mine = (SEGMENTS == 2)[0]
    weights = [weight for weight in model.base_model.parameters() if weight.requires_grad]
    together = torch.autograd.grad(
        logits(model, ids, packed_masks(model, SEGMENTS))[mine].logsumexp(-1).sum(), weights, allow_unused=True
    )
    alone = logits(model, ids[:, mine], torch.ones(1, 11, dtype=torch.long)).logsumexp(-1).sum()
    slopes = torch.autograd.grad(alone, weights, allow_unused=True)
    assert all(torch.isfinite(slope).all() for slope in together if slope is not None)
    assert_same_slopes(dict(enumerate(together)), dict(enumerate(slopes)))


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_another_document_changes_nothing(name: str, way: str) -> None:
    model, ids = packed(name, way)
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
    model, ids = packed(name, way)
    held: list[torch.Tensor] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _module, _inputs, output: held.append(output))
    hidden = encode(model, ids, packed_masks(model, SEGMENTS))
    hook.remove()
    (gradient,) = torch.autograd.grad(hidden[SEGMENTS == 2].pow(2).sum() + hidden[SEGMENTS == 2].sum(), held)
    assert torch.isfinite(gradient).all()
    assert gradient[SEGMENTS == 2].abs().max() > 0
    assert gradient[SEGMENTS != 2].abs().max() == 0


@pytest.mark.parametrize("way", ["sdpa", "eager"])
def test_modernbert_keeps_its_sliding_window(way: str) -> None:
    model, ids = packed("modernbert", way)
    one = torch.ones_like(ids)
    with torch.no_grad():
        as_shipped = logits(model, ids, one)
        ours = logits(model, ids, packed_masks(model, one))
        without_window = packed_masks(model, one)["full_attention"]
        wide = logits(model, ids, without_window)
    assert_same(ours, as_shipped)
    assert (wide - as_shipped).abs().max() > 1e-2


def test_deberta_with_a_convolution_takes_packed_blocks() -> None:
    model, ids = packed("deberta-conv")
    with torch.no_grad():
        assert torch.isfinite(logits(model, ids, packed_masks(model, SEGMENTS))).all()


def test_bfloat16_packs_too() -> None:
    for name in ("modernbert", "deberta"):
        model, ids = packed(name)
        with torch.no_grad():
            exact = encode(model, ids, packed_masks(model, SEGMENTS))[SEGMENTS > 0]
            model.to(torch.bfloat16)
            with software_rounding():
                coarse = encode(model, ids, packed_masks(model, SEGMENTS))[SEGMENTS > 0]
        assert torch.nn.functional.cosine_similarity(exact, coarse.float(), dim=-1).min() > 0.98


def test_the_choice_depends_on_family_and_device() -> None:
    assert choose_attention("modernbert", "cuda:1") == "sdpa"
    assert choose_attention("bert", "cpu") == "sdpa"
    assert choose_attention("deberta-v2", "cpu") == "eager"
    assert choose_attention("deberta-v2", "cuda") == "flex"


def test_impossible_choices_are_explained() -> None:
    with pytest.raises(ModelError, match="no sdpa"):
        use_attention(build("deberta"), "sdpa")
    with pytest.raises(ModelError, match="CUDA"):
        use_attention(build("deberta"), "flex")
    with pytest.raises(ModelError, match="CUDA"):
        use_attention(build("modernbert"), "flex")
    with pytest.raises(ModelError, match="DeBERTa-v2 and ModernBERT"):
        use_attention(build("bert"), "flex")
    with pytest.raises(ModelError, match="sdpa, eager, flex"):
        use_attention(build("bert"), "flash")


@pytest.mark.parametrize(("length", "kept"), [(None, False), (64, False), (192, False), (128, True), (2048, True), (40, True)])
def test_cudnn_is_left_out_where_its_gradients_may_be_no_numbers(length: int | None, kept: bool) -> None:
    for before in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(before)
        try:
            with without_cudnn(length):
                assert torch.backends.cuda.cudnn_sdp_enabled() is (kept and before)
            assert torch.backends.cuda.cudnn_sdp_enabled() is before
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)
