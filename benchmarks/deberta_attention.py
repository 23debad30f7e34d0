"""DeBERTa-v2's attention, ours beside every peer, on one CUDA device. In: nothing. Out: tables; exit 1 if ours is not eager's.

    python benchmarks/deberta_attention.py [--only check,attention,encoder,step] [--shapes 32x512,8x2048]
                                           [--ways fused,eager,flashdeberta,disentangled-flash] [--dropout 0.1]

First the check: outputs and gradients of two base-width layers, fused against eager, in float32 and in bfloat16 (packed
documents, padding, lengths that are no multiple of a tile). Then the time, base shape (12 x 768, 256 buckets) in bfloat16
autocast, rows of one document that fills them (`long`) and rows of eight (`short`) apart: the attention of one layer with its
projections, the encoder's forward pass, and a whole training step with AdamW. In a step every way computes all logits over a
vocabulary of 130,000, except `fused, gathered head`, which is the step that `coref-automl train` takes: the head runs at the
masked fifth of the positions. `limit` is that step with SDPA and no relative terms. Steps are timed with `--dropout`, 0 as in
`coref-automl train` unless told otherwise; whether a peer applies it to its attention is for the peer to say. The peers are
optional: packages `flashdeberta` and `disentangled-flash`; they take rows of one document alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch

from coref_automl.models.execution import packed_masks, use_attention
from coref_automl.models.heads import encode, predict
from deberta_kernels.fused_deberta import attention_of

FLOAT32_LIMIT = 1e-4
BFLOAT16_LIMIT = 3e-2
"""Or twice eager's own distance from float32, where that is more."""
PARTS = ("check", "attention", "encoder", "step")
SHAPES = ((32, 512), (8, 1536), (8, 2048))
WAYS = ("fused", "eager", "flashdeberta", "disentangled-flash")
PACKAGES = {"flashdeberta": "flashdeberta", "disentangled-flash": "disentangled_flash"}


def build(length: int, layers: int = 12, vocabulary: int = 2000, head: bool = False, dropout: float = 0.0) -> Any:
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM, DebertaV2Model

    torch.manual_seed(0)
    config = DebertaV2Config(
        vocab_size=vocabulary, hidden_size=768, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=3072,
        max_position_embeddings=length, relative_attention=True, position_buckets=256, max_relative_positions=512,
        norm_rel_ebd="layer_norm", pos_att_type=["p2c", "c2p"], share_att_key=True, position_biased_input=False,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, type_vocab_size=0,
    )  # fmt: skip
    with torch.device("cuda"):  # a base model with 130,000 entries takes seconds on a CPU
        model = (DebertaV2ForMaskedLM if head else DebertaV2Model)(config).train()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "query_proj.weight" in name or "key_proj.weight" in name:
                weight.mul_(2.5)  # sharper than at initialisation, so that scores matter
    return model


def switch(model: Any, way: str) -> None:
    """Give the model one way's attention."""
    if way == "flashdeberta":
        from flashdeberta.model import FlashDisentangledSelfAttention

        for layer in model.base_model.encoder.layer:
            layer.attention.self.__class__ = FlashDisentangledSelfAttention
    elif way == "disentangled-flash":
        from disentangled_flash import enable_deberta_training

        enable_deberta_training(model.base_model, assume_unpadded=True)
    else:
        use_attention(model, way)


def rows(batch: int, length: int, documents: int = 1, padding: int = 0, vocabulary: int = 2000) -> tuple[Any, Any]:
    """Token ids and the segment of each: `documents` of about equal length, then padding in every second row."""
    ids = torch.randint(5, vocabulary, (batch, length), device="cuda", generator=torch.Generator("cuda").manual_seed(length))
    segments = (torch.arange(length, device="cuda") * documents // length + 1).repeat(batch, 1)
    if padding:
        segments[::2, -padding:] = 0
    return ids, segments


def hidden_of(model: Any, way: str, ids: Any, segments: Any) -> Any:
    """Last hidden states. The peers' code takes whole rows of one document alone, through the library's own forward."""
    if way in PACKAGES:
        return model.base_model(input_ids=ids).last_hidden_state
    return encode(model, ids, packed_masks(model, segments))


def one_pass(model: Any, ids: Any, segments: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Hidden states of the real tokens and the gradient of every weight."""
    model.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden = encode(model, ids, packed_masks(model, segments))
    direction = torch.randn(hidden.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    (hidden.float() * direction)[segments > 0].sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    return {"hidden states": hidden.detach().float()[segments > 0], **found}


def worst(ours: dict[str, Any], reference: dict[str, Any]) -> tuple[float, str]:
    """Largest relative error by norm. A key's bias has no gradient but rounding: it is measured against the query's."""
    errors = []
    for name, wanted in reference.items():
        size = reference[name.replace("key_proj.bias", "query_proj.bias")].norm()
        errors.append((float((ours[name] - wanted).norm() / size.clamp_min(1e-20)), name))
    return max(errors)


def check() -> bool:
    model, right = build(2048, layers=2), True
    cases = [("packed", 2048, 4, 0), ("padding", 2048, 1, 600), ("both", 2048, 3, 100), ("many short", 2048, 60, 0)]
    for name, length, documents, padding in [*cases, *((f"length {n}", n, 2, 37) for n in (45, 333, 700, 1001))]:
        ids, segments = rows(3, length, documents, padding)
        use_attention(model, "eager")
        exact, eager = (one_pass(model, ids, segments, dtype) for dtype in (torch.float32, torch.bfloat16))
        use_attention(model, "fused")
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
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end) / repeats)


def time_attention(way: str, batch: int, length: int, documents: int) -> str:
    """One layer's attention with its projections: forward, and forward with backward."""
    model = build(length, layers=1)
    switch(model, way)
    _, segments = rows(batch, length, documents)
    encoder = model.base_model.encoder
    hidden = torch.randn(batch, length, 768, device="cuda", requires_grad=True)
    mask = packed_masks(model, segments)
    if way == "disentangled-flash":
        return "not timed alone (its attention is part of its encoder)"
    mask = torch.ones(batch, 1, 1, length, device="cuda") if way == "flashdeberta" else encoder.get_attention_mask(mask)
    table, distances = encoder.get_rel_embedding(), encoder.get_rel_pos(hidden)

    def forward() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            attention = encoder.layer[0].attention.self
            if way == "fused":
                return attention_of(attention, hidden, mask, table)
            return attention(hidden, mask, relative_pos=distances, rel_embeddings=table)[0]

    def both() -> None:
        forward().float().sum().backward(retain_graph=True)

    with torch.no_grad():
        first = milliseconds(forward)
    return f"{first:6.2f} ms forward, {milliseconds(both):6.2f} ms with backward"


def time_encoder(way: str, batch: int, length: int, documents: int) -> str:
    model = build(length).eval()
    switch(model, way)
    ids, segments = rows(batch, length, documents)

    def forward() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return hidden_of(model, way, ids, segments)

    with torch.no_grad():
        taken = milliseconds(forward)
    return f"{1000 * batch / taken:8,.0f} rows/s"


def time_step(way: str, batch: int, length: int, documents: int, dropout: float, gathered: bool = False) -> str:
    """A whole training step: tokens per second and peak memory."""
    vocabulary = 130_000
    if way == "limit":
        from transformers import BertConfig, BertForMaskedLM

        config = BertConfig(vocab_size=vocabulary, max_position_embeddings=length, hidden_dropout_prob=dropout)
        config.attention_probs_dropout_prob = dropout
        with torch.device("cuda"):
            model = BertForMaskedLM(config).train()
        model.set_attn_implementation("sdpa")
    else:
        model = build(length, vocabulary=vocabulary, head=True, dropout=dropout)
        switch(model, way)
    ids, segments = rows(batch, length, documents, vocabulary=vocabulary)
    asked = torch.arange(0, batch * length, 5, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model.bert(input_ids=ids).last_hidden_state if way == "limit" else hidden_of(model, way, ids, segments)
            flat, labels = hidden.reshape(-1, hidden.shape[-1]), ids.reshape(-1)
            if gathered:
                flat, labels = flat[asked], labels[asked]
            logits = model.cls(flat) if way == "limit" else predict(model, flat)
            loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    torch.cuda.reset_peak_memory_stats()
    speed = 1000 * batch * length / milliseconds(step, 6)
    return f"{speed:9,.0f} tokens/s, {torch.cuda.max_memory_allocated() / 1e9:5.1f} GB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--shapes", default=",".join(f"{b}x{length}" for b, length in SHAPES))
    parser.add_argument("--dropout", type=float, default=0.0, help="of the training steps")
    options = parser.parse_args()
    wanted, ways = options.only.split(","), options.ways.split(",")
    unknown = [*(set(wanted) - set(PARTS)), *(set(ways) - set(WAYS))]
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --only takes {', '.join(PARTS)}; --ways takes {', '.join(WAYS)}")
    if not torch.cuda.is_available():
        print("There is no CUDA device here; run this on a machine with one.", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; steps with dropout {options.dropout:g}")
    right = check() if "check" in wanted else True
    timers: dict[str, Callable[..., str]] = {"attention": time_attention, "encoder": time_encoder, "step": time_step}
    for kind in (kind for kind in timers if kind in wanted):
        for shape in options.shapes.split(","):
            batch, length = map(int, shape.split("x"))
            for documents, name in ((1, "long"), (8, "short")):
                more = {"dropout": options.dropout} if kind == "step" else {}
                cases: list[tuple[str, str, dict[str, Any]]] = [
                    (way, way, more) for way in ways if documents == 1 or way not in PACKAGES
                ]
                if kind == "step":
                    gathered = {**more, "gathered": True}
                    cases += [("fused, gathered head", "fused", gathered)] + [("limit", "limit", gathered)] * (documents == 1)
                for label, way, extra in cases:
                    torch._dynamo.reset()
                    try:
                        text = timers[kind](way, batch, length, documents, **extra)
                    except torch.OutOfMemoryError:
                        text = "out of memory"
                    except ImportError:
                        text = "not installed"
                    print(f"{kind:9s} {shape:>8s} {name:5s} {label:20s} {text}", flush=True)
                    torch.cuda.empty_cache()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
