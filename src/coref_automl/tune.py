"""The names that the evaluation guide promises under `coref_automl.tune`, and its command: python -m coref_automl.tune.

python -m coref_automl.tune --model kakaobank/kf-deberta-base --trials 20 --train-limit 2000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from coref_automl.evaluation.guide import (
    build_eval_from_lambada,
    build_real_coref_eval_set,
    detect_seq_len_from_checkpoint,
    eval_lambada_topk,
    eval_real_coref_top1,
    eval_real_coref_top5,
)

__all__ = [
    "build_eval_from_lambada",
    "build_real_coref_eval_set",
    "detect_seq_len_from_checkpoint",
    "eval_lambada_topk",
    "eval_real_coref_top1",
    "eval_real_coref_top5",
    "main",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune as `coref-automl tune` does: texts are prepared here, one dataset a length, and everything else goes on to it.

    A recipe brings its own texts; then nothing is filled in.
    """
    parser = argparse.ArgumentParser(
        prog="python -m coref_automl.tune",
        description="Search settings of continued pretraining on named texts; further options are those of coref-automl tune.",
        allow_abbrev=False,
    )
    parser.add_argument("--recipe", help="a recipe of coref-automl tune, in place of the texts")
    parser.add_argument("--model", action="append", help="hub id, folder or bundled:ko-mini; may be repeated")
    parser.add_argument("--trials", type=int, help="how many trials (20)")
    parser.add_argument("--train-limit", type=int, help="documents of each source to learn from (2000)")
    parser.add_argument("--source", action="append", help="where texts come from (bundled:synthetic)")
    parser.add_argument("--seq-len", action="append", type=int, help="length of a block (512); several are a dimension")
    parser.add_argument("--out", "--output-dir", help="the study's folder (runs/tune)")
    given, further = parser.parse_known_args(arguments)
    from coref_automl.cli.app import run
    from coref_automl.cli.tune import from_texts

    options = [f"--trials={given.trials}"] if given.trials is not None else []
    if given.recipe:
        if given.source or given.seq_len or given.train_limit is not None:
            parser.error("a recipe names its own texts; leave out --source, --seq-len and --train-limit")
        recipe: AbstractContextManager[str | Path] = nullcontext(given.recipe)
    else:
        given.model, given.out = given.model or ["bundled:ko-mini"], given.out or "runs/tune"
        limit = 2_000 if given.train_limit is None else given.train_limit
        recipe = from_texts(given.source or ["bundled:synthetic"], given.seq_len or [512], limit)
    options += [f"--model={model}" for model in given.model or ()] + ([f"--out={given.out}"] if given.out else [])
    with recipe as path:
        return run(["tune", "--recipe", str(path), *options, *further])


if __name__ == "__main__":
    sys.exit(main())
