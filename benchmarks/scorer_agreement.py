"""Do two machines, two dtypes or two attentions give the same hits?

In: a model and a set. Out: a file of logit gaps; two such files compared.

    python benchmarks/scorer_agreement.py gaps --model M --eval-set S --device cpu --dtype float32 --out cpu.npz
    python benchmarks/scorer_agreement.py gaps --model M --eval-set S --device cuda --dtype float32 --out gpu.npz
    python benchmarks/scorer_agreement.py compare cpu.npz gpu.npz --most 1e-3

A gap is the logit of the answer minus that of the competitor that decides a hit: above 0 is a hit. Two runs disagree
where the signs differ; the sizes of those gaps say whether rounding explains it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.evaluation.answers import sample
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.scorer import Scorer
from coref_automl.models.load import load_masked_lm

AT = (1, 5)


class WatchedScorer(Scorer):
    """The scorer, with the gaps of every item kept while its ranks are found."""

    gaps: dict[str, list[float]]

    def rank(self, batch: Any, logits: Any, ids: Any, form: Any) -> Any:
        for row, unit in zip(logits, batch, strict=True):
            entry = unit.window.entry
            others = row[form.ids[form.ids != entry]]
            self.gaps[unit.item.id] = [float(row[entry] - others.topk(at).values[-1]) for at in AT]
        return super().rank(batch, logits, ids, form)


def gaps(arguments: argparse.Namespace) -> int:
    loaded = load_masked_lm(arguments.model, seq_len=arguments.seq_len, device=arguments.device, attention=arguments.attention)
    evalset = EvalSet.open(arguments.eval_set)
    seq_len = arguments.seq_len or loaded.seq_len
    scorer = WatchedScorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=seq_len, dtype=arguments.dtype)
    scorer.gaps = {}
    chosen = {name for items in evalset.items.values() for name in sample(items, arguments.items)}
    items = [item for group in evalset.items.values() for item in group if item.id in chosen]
    scored = (score for batch in scorer.score(items, evalset.documents) for score in batch)
    scores = {score.item: score for score in scored if score.item in scorer.gaps}
    ids = sorted(scores)
    ranks = [scores[name].rank for name in ids]
    np.savez_compressed(
        arguments.out, ids=np.array(ids), gaps=np.array([scorer.gaps[name] for name in ids]), ranks=np.array(ranks)
    )
    where = f"{arguments.device}, {arguments.dtype}, attention {arguments.attention}, torch {torch.__version__}"
    print(f"{len(ids)} items, windows up to {seq_len}, {where}: {arguments.out}")
    return 0


def compare(arguments: argparse.Namespace) -> int:
    first, second = (np.load(path) for path in (arguments.first, arguments.second))
    if not np.array_equal(first["ids"], second["ids"]):
        print("The files hold different items; make both with the same set and --items.", file=sys.stderr)
        return 2
    largest = 0.0
    for column, at in enumerate(AT):
        a, b = first["gaps"][:, column], second["gaps"][:, column]
        known = np.isfinite(a) & np.isfinite(b)
        flips = known & ((a > 0) != (b > 0))
        worst = float(np.maximum(np.abs(a[flips]), np.abs(b[flips])).max()) if flips.any() else 0.0
        moved = float(np.abs(a[known] - b[known]).max()) if known.any() else 0.0
        largest = max(largest, worst)
        count = f"{int(flips.sum())} of {int(known.sum())} items flip"
        print(f"@{at}: {count}, largest gap there {worst:.1e}; gaps moved by {moved:.1e}")
    print(f"equal ranks on {int((first['ranks'] == second['ranks']).sum())} of {len(first['ids'])} items")
    if arguments.most is not None and largest >= arguments.most:
        print(f"A flip has a gap of {largest:.1e}, not under {arguments.most:.0e}.", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("gaps", help="score items and keep their gaps")
    one.add_argument("--model", required=True)
    one.add_argument("--eval-set", type=Path, required=True)
    one.add_argument("--seq-len", type=int)
    one.add_argument("--device", default="cpu")
    one.add_argument("--dtype", default="float32")
    one.add_argument("--attention", default="auto", help="auto, eager or fused")
    one.add_argument("--items", type=int, default=500, help="items a task")
    one.add_argument("--out", type=Path, required=True)
    two = verbs.add_parser("compare", help="compare two files of gaps")
    two.add_argument("first", type=Path)
    two.add_argument("second", type=Path)
    two.add_argument("--most", type=float, help="fail when a flip has a gap of this size")
    arguments = parser.parse_args()
    return gaps(arguments) if arguments.verb == "gaps" else compare(arguments)


if __name__ == "__main__":
    sys.exit(main())
