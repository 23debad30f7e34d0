"""Our evaluation beside the usual one. In: a model and the Real items that it counts. Out: items per second for both, and whether
their hits agree.

The usual way: the fill-mask pipeline, its top 50 decoded, Kiwi on each candidate, once for @1 and once more for @5. It gets our
windows as token ids, cut before timing, so that both ways read the same input and differ only in scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import FillMaskPipeline

from bench import BenchResult, EvaluateBench
from coref_automl.base.errors import EvalSetError
from coref_automl.base.korean import Tagger
from coref_automl.base.records import ClozeItem, ItemScore
from coref_automl.evaluation.answers import sample
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.scorer import DTYPES, Scorer, pick
from coref_automl.extras.study.probe import Stopwatch
from coref_automl.models.build import build_masked_lm
from coref_automl.models.execution import autocast_to, use_attention
from coref_automl.models.load import LoadedModel, load_masked_lm, load_tokenizer
from coref_automl.models.vocabulary import entry_words

TOP = 50
_WARM_UP = 4
_TURNS = 4
Hits = dict[str, tuple[bool, bool, int]]
"""By item, for the usual way: a hit at 1, a hit at 5, and the number of candidates that are nouns."""


def run(settings: EvaluateBench) -> BenchResult:
    """Time both ways on the same items."""
    device, dtype = pick(settings.device, settings.dtype)
    evalset = EvalSet.open(Path(settings.eval_set) if settings.eval_set else bundled_eval_set())
    real = evalset.items.get("real", ())
    if not real:
        raise EvalSetError(f"{evalset.folder} has no Real items; pass --eval-set with a set that has them.")
    loaded = _load(settings, device)
    scorer = Scorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=settings.seq_len, dtype=dtype)
    counted = [item for item in real if scorer.prepare(item, evalset.documents[item.document]).is_counted]  # caches windows
    ids = sample(counted, settings.items)
    items = [item for item in counted if item.id in ids]
    if not items:
        raise EvalSetError(f"No answer of {evalset.folder} is one entry of this vocabulary; pass another --eval-set.")

    def ours(part: Sequence[ClozeItem]) -> dict[str, ItemScore]:
        return {score.item: score for batch in scorer.score(part, evalset.documents) for score in batch}

    usual = _UsualWay(loaded, scorer, evalset, device, dtype, settings.batch_size)
    ours(items[:_WARM_UP])
    usual.hits(items[:_WARM_UP])
    clocks = [Stopwatch(device) for _ in range(3)]
    scores: dict[str, ItemScore] = {}
    hits: Hits = {}
    for part in filter(None, (items[turn::_TURNS] for turn in range(_TURNS))):  # in turns, so that other load affects all
        scores |= clocks[0].timed(partial(ours, part))
        hits |= clocks[1].timed(partial(usual.hits, part))
        clocks[2].timed(partial(usual.candidates, part))
    speed, usual_speed, plain = (len(items) / clock.seconds for clock in clocks)
    lines = (
        f"{loaded.family}, vocabulary {loaded.model.config.vocab_size:,}, {len(items)} Real items, "
        f"windows up to {settings.seq_len}",
        f"{device}, {dtype}, pipeline batch {settings.batch_size}",
        f"ours: {clocks[0]}",
        f"usual way: {clocks[1]}",
        f"one plain pipeline pass without Kiwi: {clocks[2]}, ratio {speed / plain:.1f}",
        _agreement(scores, hits),
    )
    return BenchResult(speed, usual_speed, "items/s", lines)


def _load(settings: EvaluateBench, device: str) -> LoadedModel:
    if settings.model is not None:
        return load_masked_lm(settings.model, seq_len=settings.seq_len, device=device)
    tokenizer = load_tokenizer("bundled:ko-mini")
    model: Any = build_masked_lm(settings.shape, tokenizer, seq_len=settings.seq_len).to(device).eval()
    return LoadedModel(model, tokenizer, model.config.model_type, settings.seq_len, tuple(use_attention(model)))


class _OverIds(FillMaskPipeline):  # type: ignore[misc]
    """The pipeline on token ids instead of text."""

    def preprocess(self, inputs: Any, **_: Any) -> dict[str, Any]:
        ids = torch.tensor([inputs["ids"]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class _UsualWay:
    """The fill-mask pipeline on our windows, and Kiwi on its candidates."""

    def __init__(self, loaded: LoadedModel, scorer: Scorer, evalset: EvalSet, device: str, dtype: str, batch_size: int) -> None:
        self._pipeline = _OverIds(model=loaded.model, tokenizer=loaded.tokenizer, device=device, top_k=TOP)
        self._scorer, self._evalset, self._batch = scorer, evalset, batch_size
        self._words, self._tagger = entry_words(loaded.tokenizer), Tagger()
        self._rounded = partial(autocast_to, device, DTYPES[dtype])

    def candidates(self, items: Sequence[ClozeItem]) -> list[list[dict[str, Any]]]:
        units = (self._scorer.prepare(item, self._evalset.documents[item.document]) for item in items)
        rows = [{"ids": unit.window.filled([self._scorer.mask_id]).tolist()} for unit in units]
        with self._rounded():
            candidates = self._pipeline(rows, batch_size=self._batch)
        return candidates if len(rows) > 1 else [candidates]

    def hits(self, items: Sequence[ClozeItem]) -> Hits:
        """Score all items twice, since the usual way computes the two metrics one after the other."""
        first, second = ([self._nouns(row) for row in self.candidates(items)] for _ in range(2))
        return {
            item.id: (item.answer in at_1[:1], item.answer in at_5[:5], len(at_5))
            for item, at_1, at_5 in zip(items, first, second, strict=True)
        }

    def _nouns(self, row: list[dict[str, Any]]) -> list[str]:
        """The nouns among candidates, tagged one by one as usual; a continuation piece is not a word."""
        words = [self._words[candidate["token"]] for candidate in row]
        return [word for word in words if word and self._tagger.are_nouns([word])[0]]


def _agreement(scores: dict[str, ItemScore], hits: Hits) -> str:
    full = {item: hit for item, hit in hits.items() if hit[2] >= 5}
    at_1 = sum((scores[item].rank == 1) != hit for item, (hit, _, _) in full.items())
    at_5 = sum((scores[item].rank <= 5) != hit for item, (_, hit, _) in full.items())
    return (
        f"hits on {len(full)} items: {at_1} differ at @1, {at_5} differ at @5; "
        f"{len(hits) - len(full)} items whose top {TOP} hold fewer than five nouns are counted apart"
    )
