"""The functions that the evaluation guide names. In: a model in any form, and items. Out: one number, or None if nothing ran.

A model is a path or name, a loaded model, or a `fill-mask` pipeline; items are what `build_...` gives, an evaluation set, or its
folder. All of it runs through the scorer, so that these numbers are those of `coref-automl evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.errors import EvalSetError, ModelError
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.metrics import Metric, hits_of
from coref_automl.evaluation.words import sample
from coref_automl.records import ClozeItem, Task

if TYPE_CHECKING:
    from coref_automl.models.load import LoadedModel


@dataclass(frozen=True, slots=True)
class Items:
    """Some items of one set and task, ready to be scored."""

    evalset: EvalSet
    task: Task
    items: tuple[ClozeItem, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[ClozeItem]:
        return iter(self.items)


def build_real_coref_eval_set(
    limit: int | None = None, max_seq_len: int | None = None, *, eval_set: EvalSet | Path | str | None = None
) -> Items:
    """Real items of a set (the bundled one if none is named): at most `limit`, chosen by hash, the same for every model.

    `max_seq_len` keeps items whose first mention is nearer than that many reference tokens.
    """
    found = _items(eval_set, "real")
    kept = [item for item in found if max_seq_len is None or item.distance < max_seq_len]
    return _limited(Items(found.evalset, "real", tuple(kept)), limit)


def build_eval_from_lambada(limit: int | None = None, *, eval_set: EvalSet | Path | str | None = None) -> Items:
    """LAMBADA items of a set. Ko-LAMBADA from the hub or from a file: coref-automl prepare eval --task lambada."""
    return _limited(_items(eval_set, "lambada"), limit)


def eval_real_coref_top1(
    model: Any, eval_set: Any = None, batch_size: int | None = None, seq_len: int | None = None, *, strict: bool = False
) -> float | None:
    """Real@1: the share of hidden nouns that the model ranks first among nouns; lenient unless `strict`."""
    return _share(model, _items(eval_set, "real"), 1, batch_size, seq_len, strict)


def eval_real_coref_top5(
    model: Any, eval_set: Any = None, batch_size: int | None = None, seq_len: int | None = None, *, strict: bool = False
) -> float | None:
    """Real@5: the share of hidden nouns among the model's first five nouns; lenient unless `strict`."""
    return _share(model, _items(eval_set, "real"), 5, batch_size, seq_len, strict)


def eval_lambada_topk(
    model: Any,
    eval_set: Any = None,
    k: int = 1,
    batch_size: int | None = None,
    seq_len: int | None = None,
    *,
    strict: bool = False,
) -> float | None:
    """LAMBADA@k: the share of hidden words among the model's first k words; None where the set has no such items."""
    return _share(model, _items(eval_set, "lambada"), k, batch_size, seq_len, strict)


def detect_seq_len_from_checkpoint(checkpoint: str | Path) -> int:
    """The length a checkpoint reads: what it was trained at where it says so, else what its config holds."""
    from coref_automl.models.load import detect_seq_len

    return detect_seq_len(str(checkpoint))


def _share(model: Any, items: Items, k: int, batch_size: int | None, seq_len: int | None, strict: bool) -> float | None:
    from coref_automl.evaluation.scorer import Scorer, pick

    if not len(items):
        return None
    loaded = as_loaded(model, seq_len)
    length = seq_len or loaded.seq_len
    dtype = pick(next(loaded.model.parameters()).device.type)[1]
    budget = batch_size * length if batch_size else None
    scorer = Scorer(loaded, items.evalset.noun_table(loaded.tokenizer), seq_len=length, dtype=dtype, budget=budget)
    scores = [score for batch in scorer.score(items.items, items.evalset.documents) for score in batch]
    hit = hits_of(scores, Metric("", "", items.task, "strict" if strict else "lenient", k))[1]
    return float(hit.mean())


def as_loaded(model: Any, seq_len: int | None = None) -> LoadedModel:
    """A loaded model from any form of one. A pipeline's model is used on its device, at no more than its own length."""
    from coref_automl.evaluation.scorer import pick
    from coref_automl.models.families import length_of
    from coref_automl.models.load import LoadedModel, load_masked_lm

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


def _items(given: Any, task: Task) -> Items:
    if isinstance(given, Items):
        if given.task != task:
            raise EvalSetError(f"These are {given.task} items, and {task} items are needed; build them with the other function.")
        return given
    evalset = given if isinstance(given, EvalSet) else EvalSet.open(Path(given) if given else bundled_eval_set())
    return Items(evalset, task, evalset.items.get(task, ()))


def _limited(items: Items, limit: int | None) -> Items:
    chosen = sample(items, limit) if limit is not None else None
    return Items(items.evalset, items.task, tuple(item for item in items if chosen is None or item.id in chosen))
