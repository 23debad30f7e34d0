"""DeBERTa-v2 under flex and under eager attention on a CUDA device. In: nothing. Out: a table; exit 1 if the two disagree.

    python benchmarks/deberta_attention.py [--lengths 512 1536 2048] [--batch 8]

First the check: outputs and gradients of two base-width layers in float32 (packed documents, padding, lengths that change from
batch to batch) and in bfloat16 against float32. Then the time: twelve layers of base shape under bfloat16 autocast, forward, and
forward with backward, and the peak memory of the latter; "packed" is flex on rows of four documents.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from coref_automl.models import flex_deberta
from coref_automl.models.attention import packed_masks, use_attention
from coref_automl.models.heads import encode

FLOAT32_LIMIT = 1e-3
BFLOAT16_LIMIT = 3e-2
"""Or twice eager's own distance from float32, where that is more."""


def build(layers: int, length: int) -> Any:
    from transformers import DebertaV2Config, DebertaV2Model

    torch.manual_seed(0)
    config = DebertaV2Config(
        vocab_size=2000, hidden_size=768, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=3072,
        max_position_embeddings=length, relative_attention=True, position_buckets=256, max_relative_positions=512,
        norm_rel_ebd="layer_norm", pos_att_type=["p2c", "c2p"], share_att_key=True, position_biased_input=False,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = DebertaV2Model(config).cuda().train()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "query_proj.weight" in name or "key_proj.weight" in name:
                weight.mul_(2.5)  # sharper than at initialisation, so that scores matter
    return model


def rows(batch: int, length: int, documents: int = 1, padding: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and the segment of each: `documents` of about equal length, then padding in every second row."""
    ids = torch.randint(5, 2000, (batch, length), device="cuda", generator=torch.Generator("cuda").manual_seed(length))
    segments = (torch.arange(length, device="cuda") * documents // length + 1).repeat(batch, 1)
    if padding:
        segments[::2, -padding:] = 0
    return ids, segments


def one_pass(model: Any, ids: torch.Tensor, segments: torch.Tensor, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Hidden states of the real tokens and the gradient of every weight."""
    model.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden = encode(model, ids, packed_masks(model, segments))
    direction = torch.randn(hidden.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    (hidden.float() * direction)[segments > 0].sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    return {"hidden states": hidden.detach().float()[segments > 0], **found}


def worst(ours: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> tuple[float, str]:
    """Largest relative error, by norm. A key's bias has no slope but rounding, and is measured against its layer's query bias."""
    errors = []
    for name, wanted in reference.items():
        size = reference[name.replace("key_proj.bias", "query_proj.bias")].norm()
        errors.append((float((ours[name] - wanted).norm() / size.clamp_min(1e-20)), name))
    return max(errors)


def check(lengths: list[int]) -> bool:
    longest, right = max(lengths), True
    model = build(2, longest)
    cases = [("packed", longest, 4, 0), ("padding", longest, 1, longest // 3), ("both", longest, 3, 100)]
    cases += [(f"length {length}", length, 2, 37) for length in (333, 700, 1001)]
    for name, length, documents, padding in cases:
        ids, segments = rows(3, length, documents, padding)
        use_attention(model, "eager")
        exact = one_pass(model, ids, segments, torch.float32)
        eager = one_pass(model, ids, segments, torch.bfloat16)
        use_attention(model, "flex")
        error, where = worst(one_pass(model, ids, segments, torch.float32), exact)
        half, half_where = worst(one_pass(model, ids, segments, torch.bfloat16), exact)
        allowed = max(BFLOAT16_LIMIT, 2 * worst(eager, exact)[0])
        good = error < FLOAT32_LIMIT and half < allowed
        right &= good
        print(
            f"{'agrees' if good else 'DIFFERS'}  {name:12s} float32 {error:.1e} ({where}), "
            f"bfloat16 {half:.1e} ({half_where}; allowed {allowed:.1e})",
            flush=True,
        )
    return right


def milliseconds(work: Callable[[], Any], repeats: int = 10) -> float:
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / repeats


def measure(way: str, batch: int, length: int, documents: int = 1) -> tuple[float, float, float]:
    """Forward, forward with backward (milliseconds), peak memory of the latter (GB)."""
    torch._dynamo.reset()  # a kernel for this length alone, as a training run builds it
    flex_deberta._compiled.cache_clear()
    model = build(12, length)
    use_attention(model, way)
    ids, segments = rows(batch, length, documents)

    def forward() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return encode(model, ids, packed_masks(model, segments))

    def both() -> None:
        model.zero_grad()
        forward().float().pow(2).mean().backward()

    with torch.no_grad():
        first = milliseconds(forward)
    torch.cuda.reset_peak_memory_stats()
    second = milliseconds(both)
    return first, second, torch.cuda.max_memory_allocated() / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1536, 2048])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--no-check", action="store_true", help="times alone; the check builds dozens of kernels, 90 s")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no CUDA device here; run this on a machine with one.", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {options.batch}")
    right = options.no_check or check(options.lengths)
    print(f"\n{'length':>6} {'way':>7} {'forward':>10} {'+ backward':>11} {'tokens/s':>10} {'peak':>9} {'speed-up':>9}")
    for length in options.lengths:
        usual = 0.0
        for name, way, documents in (("eager", "eager", 1), ("flex", "flex", 1), ("packed", "flex", 4)):
            forward, both, memory = measure(way, options.batch, length, documents)
            usual = usual or both
            speed = 1000 * options.batch * length / both
            print(
                f"{length:6d} {name:>7} {forward:7.1f} ms {both:8.1f} ms {speed:10,.0f} {memory:6.1f} GB {usual / both:8.2f}x",
                flush=True,
            )
            torch.cuda.empty_cache()
    if not options.no_check:
        print("\nflex and eager agree" if right else "\nflex and eager DISAGREE")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
