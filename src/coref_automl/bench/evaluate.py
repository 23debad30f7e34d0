"""Our evaluation beside the usual one. In: a model and Real items. Out: items per second for both, and whether their hits agree.

The usual way: the fill-mask pipeline, its top 50 decoded, Kiwi on each candidate, once for @1 and once more for @5. It is given
our windows as token ids, cut before the clock starts, so that both read the same and only the way of scoring differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coref_automl.bench.measurement import BenchResult, PeakMemory
from coref_automl.bench.recipes import EvaluateBench
from coref_automl.errors import EvalSetError, ModelError
from coref_automl.evaluation.answers import matches
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.scorer import DTYPES, pick
from coref_automl.evaluation.words import sample
from coref_automl.records import ClozeItem, ItemScore

if TYPE_CHECKING:
    from coref_automl.models.load import LoadedModel

T = TypeVar("T")

TOP = 50
_WARM_UP = 4
_TURNS = 4
_VOCABULARY = 16_000


@dataclass(frozen=True, slots=True)
class Hit:
    """What the usual way says of one item; `nouns` counts the nouns among its candidates."""

    at1: bool
    at5: bool
    nouns: int


def run(settings: EvaluateBench) -> BenchResult:
    """Both ways on the same items."""
    from coref_automl.evaluation.scorer import Scorer

    seq_len, batch_size = settings.seq_len, settings.batch_size
    device, dtype = pick(settings.device, settings.dtype)
    evalset = EvalSet.open(Path(settings.eval_set) if settings.eval_set else bundled_eval_set())
    real = evalset.items.get("real", ())
    if not real:
        raise EvalSetError(f"{evalset.folder} has no Real items; pass --eval-set with a set that has them.")
    ids = sample(real, settings.items)
    chosen = [item for item in real if item.id in ids]
    loaded = _load(settings, evalset, device)
    scorer = Scorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=seq_len, dtype=dtype)

    def ours(some: Sequence[ClozeItem]) -> dict[str, ItemScore]:
        return {score.item: score for batch in scorer.score(some, evalset.documents) for score in batch}

    usual = _UsualWay(loaded, scorer, evalset, device, dtype, batch_size)
    for item in chosen:
        scorer.unit(item, evalset.documents[item.document], words=False)  # windows are kept once they are cut
    ours(chosen[:_WARM_UP])
    usual.hits(chosen[:_WARM_UP])
    ours_, usual_, plain_ = _Clock(device), _Clock(device), _Clock(device)
    scores: dict[str, ItemScore] = {}
    hits: dict[str, Hit] = {}
    for part in filter(None, (chosen[at::_TURNS] for at in range(_TURNS))):  # by turns: other work here touches all alike
        scores |= ours_.timed(partial(ours, part))
        hits |= usual_.timed(partial(usual.hits, part))
        plain_.timed(partial(usual.candidates, part))
    speed = len(chosen) / ours_.seconds
    plain = len(chosen) / plain_.seconds
    lines = (
        f"{loaded.family}, vocabulary {loaded.model.config.vocab_size:,}, {len(chosen)} Real items, windows up to {seq_len}",
        f"{device}, {dtype}, pipeline batch {batch_size}",
        f"ours: {ours_}",
        f"usual way: {usual_}",
        f"one plain pipeline pass without Kiwi: {plain_}, ratio {speed / plain:.1f}",
        *_agreement(chosen, scores, hits),
    )
    return BenchResult(speed, len(chosen) / usual_.seconds, "items/s", lines)


def _load(settings: EvaluateBench, evalset: EvalSet, device: str) -> LoadedModel:
    from coref_automl.models.attention import use_attention
    from coref_automl.models.build import build_masked_lm, train_tokenizer
    from coref_automl.models.load import LoadedModel, load_masked_lm, load_tokenizer

    seq_len = settings.seq_len
    if settings.model is not None:
        return load_masked_lm(settings.model, seq_len=seq_len, device=device)
    try:
        tokenizer = load_tokenizer("bundled:ko-mini")
    except ModelError:
        tokenizer = train_tokenizer(evalset.documents.values(), vocab_size=_VOCABULARY)
    built: Any = build_masked_lm(settings.shape, tokenizer, seq_len=seq_len, seed=0)
    built = built.to(device).eval()
    return LoadedModel(built, tokenizer, built.config.model_type, seq_len, tuple(use_attention(built)))


class _UsualWay:
    """The fill-mask pipeline over our windows, and Kiwi over its candidates."""

    def __init__(self, loaded: LoadedModel, scorer: Any, evalset: EvalSet, device: str, dtype: str, batch_size: int) -> None:
        import torch
        from transformers import FillMaskPipeline

        from coref_automl.korean import Tagger
        from coref_automl.models.vocabulary import entry_words

        class OverIds(FillMaskPipeline):  # type: ignore[misc]
            def preprocess(self, inputs: Any, **_: Any) -> dict[str, Any]:
                ids = torch.tensor([inputs["ids"]])
                return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

        self._pipeline = OverIds(model=loaded.model, tokenizer=loaded.tokenizer, device=device, top_k=TOP)
        self._scorer, self._evalset, self._batch = scorer, evalset, batch_size
        self._words = entry_words(loaded.tokenizer)
        self._tagger = Tagger()
        self._place = device, DTYPES[dtype]

    def candidates(self, items: Sequence[ClozeItem]) -> list[list[dict[str, Any]]]:
        rows = []
        for item in items:
            window = self._scorer.unit(item, self._evalset.documents[item.document], False).window
            rows.append({"ids": window.filled([self._scorer.mask_id]).tolist()})
        from coref_automl.models.precision import rounded

        with rounded(*self._place):
            found = self._pipeline(rows, batch_size=self._batch)
        return found if len(rows) > 1 else [found]

    def hits(self, items: Sequence[ClozeItem]) -> dict[str, Hit]:
        """Twice through everything, as the two metrics were computed before."""
        first, five = ([self._nouns(row) for row in self.candidates(items)] for _ in range(2))
        return {
            item.id: Hit(_any(a[:1], item.answer), _any(b[:5], item.answer), len(b))
            for item, a, b in zip(items, first, five, strict=True)
        }

    def _nouns(self, row: list[dict[str, Any]]) -> list[str]:
        """Kiwi reads each candidate on its own, as was usual; a continuation piece is not a word."""
        words = [self._words[candidate["token"]] for candidate in row]
        return [word for word in words if word and self._tagger.are_nouns([word])[0]]


def _any(words: Sequence[str], answer: str) -> bool:
    return any(matches(word, answer) for word in words)


def _agreement(items: Sequence[ClozeItem], scores: dict[str, ItemScore], hits: dict[str, Hit]) -> list[str]:
    full = [item for item in items if hits[item.id].nouns >= 5]
    unlike1 = sum((scores[item.id].lenient_rank == 1) != hits[item.id].at1 for item in full)
    unlike5 = sum((0 < scores[item.id].lenient_rank <= 5) != hits[item.id].at5 for item in full)
    short = len(items) - len(full)
    return [
        f"lenient hits on {len(full)} items: {unlike1} differ at @1, {unlike5} differ at @5; "
        f"{short} items whose top {TOP} hold fewer than five nouns are counted apart"
    ]


class _Clock:
    """Seconds over all turns, and the most memory of any."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds = 0.0
        self.peak: int | None = None

    def timed(self, work: Callable[[], T]) -> T:
        with PeakMemory(self._device) as memory:
            started = time.perf_counter()
            result = work()
            self.seconds += time.perf_counter() - started
        if memory.peak is not None:
            self.peak = max(self.peak or 0, memory.peak)
        return result

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s" + (f", {self.peak / 1e6:,.0f} MB peak" if self.peak is not None else "")
