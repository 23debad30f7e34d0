"""The names that the evaluation guide promises under `coref_automl.tune`, and its command: python -m coref_automl.tune.

A model is a path or name, a loaded model, or a `fill-mask` pipeline; a set is an evaluation set or its folder (default: the
bundled one). The numbers are those of `coref-automl evaluate`.

python -m coref_automl.tune --model kakaobank/kf-deberta-base --trials 20 --train-limit 2000
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coref_automl.base.errors import ModelError
from coref_automl.base.records import Task
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.metrics import Metric, hits_of
from coref_automl.evaluation.windows import WINDOW
from coref_automl.models.families import length_of
from coref_automl.models.load import LoadedModel, load_masked_lm

Set = EvalSet | Path | str | None
Size = int | None


def eval_real_coref_top1(model: Any, eval_set: Set = None, batch_size: Size = None, seq_len: Size = None) -> float | None:
    """Real@1: the share of hidden nouns that the model ranks first among nouns, of those it counts."""
    return _share(model, eval_set, "real", 1, batch_size, seq_len)


def eval_real_coref_top5(model: Any, eval_set: Set = None, batch_size: Size = None, seq_len: Size = None) -> float | None:
    """Real@5: the share of hidden nouns among the model's first five nouns, of those it counts."""
    return _share(model, eval_set, "real", 5, batch_size, seq_len)


def eval_lambada_topk(
    model: Any, eval_set: Set = None, k: int = 1, batch_size: Size = None, seq_len: Size = None
) -> float | None:
    """LAMBADA@k: the share of hidden words among the model's first k words; None if it counts none."""
    return _share(model, eval_set, "lambada", k, batch_size, seq_len)


def _share(model: Any, eval_set: Set, task: Task, k: int, batch_size: Size, seq_len: Size) -> float | None:
    from coref_automl.evaluation.scorer import Scorer, pick

    evalset = eval_set if isinstance(eval_set, EvalSet) else EvalSet.open(eval_set or bundled_eval_set())
    items = evalset.items.get(task, ())
    loaded = _loaded(model, seq_len)
    length = seq_len or min(WINDOW, loaded.seq_len)
    dtype = pick(next(loaded.model.parameters()).device.type)[1]
    budget = batch_size * length if batch_size else None
    scorer = Scorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=length, dtype=dtype, budget=budget)
    scores = [score for batch in scorer.score(items, evalset.documents) for score in batch]
    hits = hits_of(scores, Metric("", "", task, k))[1]
    return float(hits.mean()) if len(hits) else None


def _loaded(model: Any, seq_len: Size) -> LoadedModel:
    """Load a path or name; wrap the model of a pipeline, which stays on its device and cannot be lengthened."""
    from coref_automl.evaluation.scorer import pick

    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, str | Path):
        return load_masked_lm(str(model), seq_len=seq_len, device=pick()[0])
    if not hasattr(model, "model") or not hasattr(model, "tokenizer"):
        raise ModelError(f"A {type(model).__name__} is not a model; pass a checkpoint's path or a fill-mask pipeline.")
    longest = length_of(model.model.config)
    if seq_len is not None and seq_len > longest:
        raise ModelError(
            f"The pipeline's model reads {longest} tokens, not {seq_len}; pass the checkpoint's path, and it is lengthened."
        )
    return LoadedModel(model.model, model.tokenizer, model.model.config.model_type, seq_len or longest, ())


_DEFAULTS = {"--model": "bundled:ko-mini", "--out": "runs/tune", "--source": "bundled:synthetic", "--train-limit": "2000"}
"""Options of the guide's command that neither the command line nor a recipe sets."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune as `coref-automl tune` does, by default on bundled texts."""
    from coref_automl.cli.app import run

    words = list(sys.argv[1:] if arguments is None else arguments)
    passed = {word.partition("=")[0] for word in words}
    decided = passed | ({"--out"} if "--output-dir" in passed else set())
    decided |= {"--source", "--train-limit"} if passed & {"--dataset", "--train"} else set()
    defaults = {} if "--recipe" in passed else {flag: value for flag, value in _DEFAULTS.items() if flag not in decided}
    return run(["tune", *words, *(f"{flag}={value}" for flag, value in defaults.items())])


if __name__ == "__main__":
    sys.exit(main())
