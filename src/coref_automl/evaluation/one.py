"""Score one model on one set. In: a model, a set, a length. Out: its Evaluation and the score of every item."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from coref_automl.config import choose
from coref_automl.evaluation.baselines import chance, copy_scores
from coref_automl.evaluation.metrics import METRICS, single_entry_share, summarise_all
from coref_automl.evaluation.version import SCORER
from coref_automl.evaluation.words import WordMode, wanted
from coref_automl.progress import Progress, quiet
from coref_automl.records import ClozeItem, Estimate, Evaluation, Half, ItemScore, Task
from coref_automl.store import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from coref_automl.evaluation.evalset import EvalSet
    from coref_automl.models.load import LoadedModel

Baselines = dict[str, dict[str, Estimate]]


def pick(device: str = "auto", dtype: str = "auto") -> tuple[str, str]:
    """The device and dtype that `auto` stands for: the GPU where there is one, and bfloat16 there."""
    from coref_automl.evaluation.scorer import DTYPES
    from coref_automl.models.load import pick_device

    device = pick_device(device)
    if dtype != "auto":
        choose(dtype, DTYPES, "dtype")
    return device, ("bfloat16" if device.startswith("cuda") else "float32") if dtype == "auto" else dtype


def evaluate_one(
    model: str | LoadedModel,
    evalset: EvalSet,
    *,
    seq_len: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    words: WordMode = "all",
    tasks: Sequence[Task] | None = None,
    half: Half | None = None,
    budget: int | None = None,
    known: Mapping[str, ItemScore] | None = None,
    on_scores: Callable[[list[ItemScore]], None] | None = None,
    name: str = "",
    new_head: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Evaluation, list[ItemScore]]:
    """Nothing is written. `known` are scores of an earlier, interrupted call; `on_scores` receives new ones batch by batch.

    A model that is loaded already is scored where it is and as it is; it is left in evaluation mode.
    """
    from coref_automl.evaluation.scorer import Scorer
    from coref_automl.models.load import load_masked_lm, tokenizer_fingerprint, weights_fingerprint

    started = time.monotonic()
    progress = progress or quiet()
    weights, path = "", name
    if isinstance(model, str):
        device, dtype = pick(device, dtype)
        weights, path = weights_fingerprint(model), model
        loaded = load_masked_lm(model, seq_len=seq_len, device=device, new_head=new_head)
    else:
        loaded = model
        dtype = pick(next(loaded.model.parameters()).device.type, dtype)[1]
    seq_len = seq_len or loaded.seq_len
    items = items_of(evalset, tasks, half)
    ids = wanted_ids(items, words)
    nouns = evalset.noun_table(loaded.tokenizer)
    scores = dict(known or {})
    todo = pending(items, scores, ids)
    scorer = Scorer(loaded, nouns, seq_len=seq_len, dtype=dtype, budget=budget)
    with progress.stage(f"scoring {name or path}", len(items), "items") as stage:
        stage.skip(len(items) - len(todo))
        for batch in scorer.score(todo, evalset.documents, words=ids):
            scores |= {score.item: score for score in batch}
            if on_scores:
                on_scores(batch)
            stage.advance(len(batch))
    ordered = [scores[item.id] for item in items]
    part = Part(evalset, tuple(tasks) if tasks is not None else None, half, evalset.fingerprint)
    estimates, baselines = summaries(ordered, part, seed=seed)
    evaluation = Evaluation(
        checkpoint=name or path,
        path=path,
        evalset=evalset.name,
        seq_len=seq_len,
        dtype=dtype,
        scorer=SCORER,
        evaluated_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        fingerprints={
            "weights": weights,
            "items": evalset.fingerprint,
            "tokenizer": tokenizer_fingerprint(loaded.tokenizer),
            "nouns": table_fingerprint(nouns),
        },
        estimates=estimates,
        baselines=baselines,
        single_entry_share=single_entry_share(ordered),
        out_of_reach=sum(score.out_of_reach for score in ordered),
        evalset_path=str(evalset.folder.resolve()),
    )
    return evaluation, ordered


def items_of(evalset: EvalSet, tasks: Sequence[Task] | None = None, half: Half | None = None) -> list[ClozeItem]:
    """The items of a set in its order, of some tasks or of one half where asked."""
    chosen = [item for task, items in evalset.items.items() if tasks is None or task in tasks for item in items]
    return [item for item in chosen if half is None or item.half == half]


def wanted_ids(items: Sequence[ClozeItem], words: WordMode) -> frozenset[str]:
    """Ids of the items whose word rank is wanted; a sample is drawn from each task on its own."""
    tasks = {item.task for item in items}
    return frozenset().union(*(wanted([item for item in items if item.task == task], words) for task in tasks))


def pending(items: Sequence[ClozeItem], scores: Mapping[str, ItemScore], words: frozenset[str]) -> list[ClozeItem]:
    """Items without a score, or without the word rank that is now wanted."""
    return [item for item in items if item.id not in scores or (item.id in words and scores[item.id].word_rank is None)]


@dataclass(frozen=True, slots=True)
class Part:
    """Some items of a set. Equal by the set's fingerprint, so that what needs no model is found once in a process."""

    evalset: EvalSet = field(compare=False)
    tasks: tuple[Task, ...] | None
    half: Half | None
    fingerprint: str


def summaries(scores: Sequence[ItemScore], part: Part, *, seed: int = 0) -> tuple[dict[str, Estimate], Baselines]:
    """The estimates of a model, and of what needs no model, on the same items and from the same draws."""
    copies = _copies(part)
    estimates, *copied = summarise_all([scores, *copies.values()], seed=seed)
    blind = {
        metric.name: share
        for metric in METRICS.values()
        if metric.rule == "word"
        and metric.task
        and (share := chance(items_of(part.evalset, [metric.task], part.half), seed=seed))
    }
    shown = {name: blind[name] for name in blind if name in estimates}
    return estimates, {**dict(zip(copies, copied, strict=True)), **({"chance": shown} if shown else {})}


@lru_cache(maxsize=4)
def _copies(part: Part) -> dict[str, list[ItemScore]]:
    return copy_scores(items_of(part.evalset, part.tasks, part.half), part.evalset.documents)


def table_fingerprint(nouns: NDArray[np.bool_]) -> str:
    return fingerprint(nouns.astype(bool).tobytes())
