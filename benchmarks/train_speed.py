"""Training speed at full size on a GPU: DeBERTa-v2 and ModernBERT of base shape, ours and Hugging Face's, at three lengths.

python benchmarks/train_speed.py [--only deberta-2048,modernbert-512] [--documents short,long] [--steps 10] [--attention fused]
                                 [--dropout 0.1]

Random weights (they cost the same), bfloat16 autocast, fused AdamW, dropout 0 as in `coref-automl train` unless told otherwise;
vocabularies of 130,000 and 50,368. Bundled passages cut into documents: `short` ones of 50 to
500 words, many to a packed row, and `long` ones that fill their row. They are timed apart: attention that keeps packed documents
apart skips most of a row of short ones, and nothing of a long one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

BATCHES = {512: 32, 1536: 16, 2048: 8}
DOCUMENTS = ("short", "long")
CASES = [f"{family}-{length}" for length in (2048, 512, 1536) for family in ("deberta", "modernbert")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--documents", default=",".join(DOCUMENTS), help="short, long or both")
    parser.add_argument("--attention", default="auto", help="of our way: auto, sdpa, eager or fused")
    parser.add_argument("--dropout", type=float, default=0.0, help="of every way, everywhere in the model")
    arguments = parser.parse_args()
    unknown = [*(set(arguments.only.split(",")) - set(CASES)), *(set(arguments.documents.split(",")) - set(DOCUMENTS))]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; --only takes {', '.join(CASES)}; --documents takes {', '.join(DOCUMENTS)}")
    import torch

    from base_models import base_deberta, base_modernbert
    from bench import TrainBench
    from bench.train import against, timed_variants
    from coref_automl.models.build import train_tokenizer

    shapes = {"deberta": base_deberta, "modernbert": base_modernbert}
    tokenizer = train_tokenizer(documents("short", 0), vocab_size=16_000)
    for case, kind in product(arguments.only.split(","), arguments.documents.split(",")):
        family, length = case.split("-")
        name, texts = f"{case}, {kind} documents, dropout {arguments.dropout:g}", documents(kind, int(length))
        started = time.monotonic()
        try:
            settings = TrainBench(
                seq_len=int(length),
                batch=BATCHES[int(length)],
                steps=arguments.steps,
                device=arguments.device,
                compile=family == "modernbert",
                attention=arguments.attention,
            )
            variants = timed_variants(settings, texts, tokenizer, partial(fresh, shapes[family], int(length), arguments.dropout))
        except torch.OutOfMemoryError:
            print(f"{name}: out of memory", flush=True)
            continue
        print(
            f"{name}, batch {BATCHES[int(length)]} ({time.monotonic() - started:.0f} s)", *variants, against(variants), sep="\n  "
        )
        del variants
        torch.cuda.empty_cache()


def fresh(shape: Callable[[int], Any], length: int, dropout: float) -> Any:
    from coref_automl.models.execution import with_dropout

    return with_dropout(shape(length), dropout)


def documents(kind: str, length: int, seed: int = 0) -> list[str]:
    """600 `short` ones of 50 to 500 words, or 64 `long` ones, each enough for many rows: they are cut into rows all but full."""
    from coref_automl.corpus.sources import passages

    words = " ".join(passage.text for passage in passages()).split()
    rng = np.random.default_rng(seed)
    count = 600 if kind == "short" else 64
    starts = rng.integers(0, len(words), count)
    sizes = rng.integers(50, 500, count) if kind == "short" else np.full(count, 8 * length)
    endless = words * (2 + int(sizes.max()) // len(words))
    return [" ".join(endless[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


if __name__ == "__main__":
    main()
