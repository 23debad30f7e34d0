"""How long does one checkpoint of full size take? In: an evaluation set. Out: seconds, and peak memory.

    python benchmarks/evaluate_speed.py --eval-set evalsets/heldout --tokenizer MODEL --real 3200 --lambada 600 --seq-len 2048

The model is a DeBERTa-v2 of base shape (12 layers, hidden 768, vocabulary 130,000, 256 buckets) with new weights, which cost the
same to run as trained ones. Items of long documents, whose windows are full, and of short ones are also timed apart.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from base_models import base_deberta
from coref_automl.base.records import ClozeItem
from coref_automl.evaluation.answers import sample
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.scorer import Scorer, pick
from coref_automl.extras.study.probe import Stopwatch
from coref_automl.models.execution import use_attention
from coref_automl.models.load import LoadedModel, load_tokenizer


def timed(scorer: Scorer, items: list[ClozeItem], evalset: EvalSet, device: str) -> Stopwatch:
    clock = Stopwatch(device)
    done = clock.timed(lambda: sum(len(batch) for batch in scorer.score(items, evalset.documents)))
    assert done == len(items)
    return clock


def by_length(items: list[ClozeItem], evalset: EvalSet, tokenizer: Any, seq_len: int) -> dict[str, list[ClozeItem]]:
    """Items whose document fills a window, and the others."""
    names = list({item.document: None for item in items})
    texts = [evalset.documents[name] for name in names]
    read = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    full = {name for name, ids in zip(names, read, strict=True) if len(ids) + 2 >= seq_len}
    groups: dict[str, list[ClozeItem]] = {"documents that fill a window": [], "shorter documents": []}
    for item in items:
        groups["documents that fill a window" if item.document in full else "shorter documents"].append(item)
    return groups


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eval-set", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True, help="a model or folder whose tokenizer cuts the texts")
    parser.add_argument("--real", type=int, default=3200)
    parser.add_argument("--lambada", type=int, default=600)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--attention", default="auto", help="auto, eager or fused")
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=130_000)
    arguments = parser.parse_args()
    device, dtype = pick(arguments.device, arguments.dtype)
    evalset, tokenizer = EvalSet.open(arguments.eval_set), load_tokenizer(arguments.tokenizer)
    sizes = {"layers": arguments.layers, "hidden": arguments.hidden, "vocabulary": arguments.vocabulary}
    model = base_deberta(arguments.seq_len, **sizes).eval().to(device)
    notes = use_attention(model, arguments.attention)
    loaded = LoadedModel(model, tokenizer, "deberta-v2", arguments.seq_len, tuple(notes))
    nouns = evalset.noun_table(tokenizer)
    scorer = Scorer(loaded, nouns, seq_len=arguments.seq_len, dtype=dtype, budget=arguments.batch_tokens)
    items: list[ClozeItem] = []
    for task, count in (("real", arguments.real), ("lambada", arguments.lambada)):
        of_task = evalset.items.get(task, ())
        chosen = sample(of_task, count)
        items += [item for item in of_task if item.id in chosen]
    print(f"{len(items)} items, windows up to {arguments.seq_len} tokens, {device}, {dtype}; {' '.join(notes)}")
    print(f"warm-up on 64 items (kernels are built): {timed(scorer, items[:64], evalset, device)}")
    clock = timed(scorer, items, evalset, device)
    print(f"all: {clock}, {len(items) / clock.seconds:.1f} items/s")
    for name, group in by_length(items, evalset, tokenizer, arguments.seq_len).items():
        if group:
            clock = timed(scorer, group, evalset, device)
            print(f"  {name}: {len(group)} items, {clock}, {len(group) / clock.seconds:.1f} items/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
