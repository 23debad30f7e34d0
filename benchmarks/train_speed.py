"""Training speed at full size on a GPU: DeBERTa-v2 and ModernBERT of base shape, ours and Hugging Face's, at three lengths.

python benchmarks/train_speed.py [--only deberta-2048,modernbert-512] [--steps 10] [--attention flex]

Random weights (they cost the same), bundled passages cut into documents of 50 to 500 words, bfloat16 autocast, fused AdamW.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

BATCHES = {512: 32, 1536: 16, 2048: 8}
CASES = [f"{family}-{length}" for length in (2048, 512, 1536) for family in ("deberta", "modernbert")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--attention", default="auto", help="of our way: auto, sdpa, eager or flex")
    arguments = parser.parse_args()
    import torch

    from coref_automl.bench.measurement import base_deberta, base_modernbert
    from coref_automl.bench.train import race
    from coref_automl.models.build import train_tokenizer

    shapes = {"deberta": base_deberta, "modernbert": base_modernbert}
    texts = documents()
    tokenizer = train_tokenizer(texts, vocab_size=16_000)
    for case in arguments.only.split(","):
        family, length = case.split("-")
        started = time.monotonic()
        try:
            ways = race(
                texts,
                tokenizer,
                lambda build=shapes[family], length=length: build(int(length)),
                seq_len=int(length),
                batch=BATCHES[int(length)],
                steps=arguments.steps,
                device=arguments.device,
                compiled=family == "modernbert",
                attention=arguments.attention,
            )
        except torch.OutOfMemoryError:
            print(f"{case}: out of memory", flush=True)
            continue
        ours, padded, chunks = ways
        print(f"{case}, batch {BATCHES[int(length)]} ({time.monotonic() - started:.0f} s)", *ways, sep="\n  ")
        print(
            f"  against padded rows {ours.speed / padded.speed:.2f}x, against joined chunks {ours.speed / chunks.speed:.2f}x",
            flush=True,
        )
        del ways, ours, padded, chunks
        torch.cuda.empty_cache()


def documents(count: int = 600, seed: int = 0) -> list[str]:
    from coref_automl.corpus.bundled import passages

    words = " ".join(passage.text for passage in passages()).split()
    rng = np.random.default_rng(seed)
    starts, sizes = rng.integers(0, len(words), count), rng.integers(50, 500, count)
    return [" ".join((words[start : start + size] + words)[:size]) for start, size in zip(starts, sizes, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
