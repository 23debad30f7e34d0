"""Scores items with one model. In: a loaded model, items, their texts, a noun table. Out: one ItemScore per item, in batches.

Hidden states are gathered at the masked positions and only they reach the head; ranks and the top five come from that one pass,
and so do the candidates' pieces. Nothing is decoded and no tagger runs here. The encoder may run in half precision; the head
never does, because rounded logits tie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coref_automl.config import choose
from coref_automl.errors import EvaluationError, ModelError
from coref_automl.evaluation.answers import MatchTable, answerable
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.windows import Asks, Candidates, Ids, Row, Window, maker_for, masked_rows, read_candidates
from coref_automl.machine import default_batch_tokens, free_memory, is_out_of_memory, pick_device
from coref_automl.models.execution import autocast_to, matmul_precision
from coref_automl.models.heads import encode_at, predict
from coref_automl.models.load import LoadedModel
from coref_automl.models.vocabulary import entry_words, word_ids
from coref_automl.records import ClozeItem, ItemScore, Task

TOP = 5
DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
_STEP = 64
_HEAD_POSITIONS = 256
"""Positions whose logits are in memory at once: 133 MB of them with a vocabulary of 130,000."""

T = TypeVar("T")
R = TypeVar("R")


def pick(device: str = "auto", dtype: str = "auto") -> tuple[str, str]:
    """The device and dtype that `auto` means: the GPU where there is one, and bfloat16 there."""
    device = pick_device(device)
    if dtype != "auto":
        choose(dtype, DTYPES, "dtype")
    return device, ("bfloat16" if device.startswith("cuda") else "float32") if dtype == "auto" else dtype


@dataclass(frozen=True, slots=True)
class Unit:
    """An item ready to run: its window and its rows. The first row has one mask and gives the ranks."""

    item: ClozeItem
    window: Window
    rows: tuple[Row, ...]
    candidates: Candidates | None

    @property
    def size(self) -> tuple[int, int]:
        return len(self.rows), self.window.length(max(len(row.middle) for row in self.rows))


class Scorer:
    """One model on its device. `nouns` says which vocabulary entries may answer; tasks with `any_word` allow all words."""

    def __init__(
        self, loaded: LoadedModel, nouns: NDArray[np.bool_], *, seq_len: int, dtype: str = "float32", budget: int | None = None
    ) -> None:
        self._model = loaded.model.eval()
        self._tokenizer = loaded.tokenizer
        self._device = next(self._model.parameters()).device
        self._autocast = choose(dtype, DTYPES, "dtype")
        self._budget = Budget(budget or default_batch_tokens(self._device.type))
        self._seq_len = seq_len
        self._maker = maker_for(loaded.tokenizer, seq_len)
        words = entry_words(loaded.tokenizer)
        width = int(self._model.config.vocab_size)
        if len(words) > width:
            raise ModelError(
                f"The tokenizer has {len(words)} entries and the model {width}; pass the tokenizer the model was trained with."
            )
        if len(nouns) > len(words):
            raise ModelError(
                f"The noun table has {len(nouns)} entries and the tokenizer {len(words)}; they belong to different tokenizers."
            )
        self._width, self._nouns = width, nouns
        self._tables: dict[tuple[bool, bool], MatchTable] = {}
        self._pieces = lru_cache(maxsize=None)(lambda word, initial: tuple(word_ids(loaded.tokenizer, word, initial=initial)))

    @property
    def mask_id(self) -> int:
        return self._maker.mask_id

    def table(self, task: Task, initial: bool = True) -> MatchTable:
        """The entries that may answer a task, in the form of a gap that starts a word or runs on from a sign."""
        key = TASKS[task].any_word, initial
        if key not in self._tables:
            words, nouns = answerable(self._tokenizer, self._nouns, initial=initial)
            allowed = np.zeros(self._width, np.bool_)
            allowed[: len(words)] = [bool(word) for word in words] if key[0] else nouns
            self._tables[key] = MatchTable([*words, *[None] * (self._width - len(words))], allowed)
        return self._tables[key]

    def score(
        self, items: Sequence[ClozeItem], texts: Mapping[str, str], *, words: Container[str] = ()
    ) -> Iterator[list[ItemScore]]:
        """Score the items, the longest windows first. `words` holds the ids of items whose word rank is wanted."""
        self._maker.prepare((item, texts[item.document]) for item in items)
        by_form: dict[tuple[Task, bool], list[Unit]] = {}
        for item in items:
            unit = self.unit(item, texts[item.document], item.id in words)
            by_form.setdefault((item.task, unit.window.initial), []).append(unit)
        for (task, initial), units in by_form.items():
            table = self.table(task, initial)
            run = partial(self._run, table=table, allowed=torch.from_numpy(table.allowed).to(self._device))
            for _, scores in in_batches(units, lambda unit: unit.size, self._budget, run):
                yield scores

    def unit(self, item: ClozeItem, text: str, words: bool) -> Unit:
        window = self._maker.window(item, text)
        pieces = partial(self._pieces, initial=window.initial)
        candidates = read_candidates(item, pieces, self._tokenizer.unk_token_id) if words else None
        rows = masked_rows(candidates, self.mask_id) if candidates else []
        single = [row for row in rows if row.middle == (self.mask_id,)] or [Row((self.mask_id,))]
        return Unit(item, window, (*single, *(row for row in rows if row not in single)), candidates)

    def _run(self, units: list[Unit], table: MatchTable, allowed: Tensor) -> list[ItemScore]:
        with torch.inference_mode(), matmul_precision(tf32=False):
            return self._answers(units, table, allowed)

    def _answers(self, units: list[Unit], table: MatchTable, allowed: Tensor) -> list[ItemScore]:
        hidden, places = self._hidden(units)
        ranks: list[tuple[int, int, tuple[str, ...]]] = []
        sums = [np.zeros(len(unit.candidates.words)) if unit.candidates else np.zeros(0) for unit in units]
        for low in range(0, len(places), _HEAD_POSITIONS):
            part = places[low : low + _HEAD_POSITIONS]
            logits = predict(self._model, hidden[low : low + _HEAD_POSITIONS].float()).float()
            if not torch.isfinite(logits.sum()):  # any NaN makes the sum NaN
                raise EvaluationError("The model's logits are not numbers; its weights are damaged or it diverged in training.")
            self._add_candidates(logits, part, sums)
            ranked = [units[place.unit] for place in part if place.ranked]
            if ranked:
                ranks += self._rank(logits[: len(ranked)], ranked, table, allowed)
            del logits
        return [self._finish(unit, *rank, total) for unit, rank, total in zip(units, ranks, sums, strict=True)]

    def _hidden(self, units: list[Unit]) -> tuple[Tensor, list[Place]]:
        """Hidden states at every position where the head runs; the single masks, which are ranked, come first."""
        rows: list[Ids] = []
        places: list[Place] = []
        for number, unit in enumerate(units):
            for order, row in enumerate(unit.rows):
                for offset, asked in enumerate(row.asks):
                    places.append(Place(number, len(rows), unit.window.gap + offset, order == 0, asked))
                rows.append(unit.window.filled(row.middle))
        places.sort(key=lambda place: not place.ranked)
        longest = self._padded(max(map(len, rows)))
        ids = np.full((len(rows), longest), self._tokenizer.pad_token_id or 0, np.int64)
        real = np.zeros((len(rows), longest), np.int64)
        for at, tokens in enumerate(rows):
            ids[at, : len(tokens)] = tokens
            real[at, : len(tokens)] = 1
        at = torch.tensor([(place.row, place.column) for place in places]).to(self._device)
        with autocast_to(self._device.type, self._autocast):
            batch = torch.from_numpy(ids).to(self._device), torch.from_numpy(real).to(self._device)
            return encode_at(self._model, *batch, at[:, 0], at[:, 1]), places

    def _padded(self, length: int) -> int:
        """Few different lengths on a GPU, where kernels are compiled per shape; never more than the model reads."""
        return length if self._device.type == "cpu" else max(length, min(self._seq_len, -(-length // _STEP) * _STEP))

    def _add_candidates(self, logits: Tensor, places: Sequence[Place], sums: list[NDArray[np.float64]]) -> None:
        asked = [(at, piece, place.unit, slot) for at, place in enumerate(places) for piece, slot in place.asks]
        if not asked:
            return
        at, piece, unit, slot = np.array(asked).T
        rows = torch.from_numpy(np.ascontiguousarray(at)).to(logits.device)
        columns = torch.from_numpy(np.ascontiguousarray(piece)).to(logits.device)
        found = (logits[rows, columns] - torch.logsumexp(logits, dim=1)[rows]).double().cpu().numpy()
        for value, number, place in zip(found, unit, slot, strict=True):
            sums[number][place] += value

    def _rank(
        self, logits: Tensor, units: Sequence[Unit], table: MatchTable, allowed: Tensor
    ) -> list[tuple[int, int, tuple[str, ...]]]:
        logits.masked_fill_(~allowed, -torch.inf)
        matches = [table.of(unit.item.answer) for unit in units]
        strict = rank_of(logits, [pair[0] for pair in matches])
        lenient = rank_of(logits, [pair[1] for pair in matches])
        top = logits.topk(min(TOP, int(allowed.sum())), dim=1).indices.cpu().numpy()
        return [
            (int(s), int(n), tuple(table.words[entry] or "" for entry in row))
            for s, n, row in zip(strict, lenient, top, strict=True)
        ]

    def _finish(self, unit: Unit, strict: int, lenient: int, top: tuple[str, ...], sums: NDArray[np.float64]) -> ItemScore:
        item, window = unit.item, unit.window
        return ItemScore(
            item=item.id, task=item.task, cluster=item.cluster, source=item.source, answer=item.answer, tag=item.tag,
            distance=item.distance, strict_rank=strict, lenient_rank=lenient, top=top,
            pieces=len(self._pieces(item.answer, initial=window.initial)),
            own_distance=window.own_distance, out_of_reach=window.out_of_reach,
            word_rank=unit.candidates.rank(sums) if unit.candidates else None, pronoun_between=item.pronoun_between,
            before=item.before, copyable=item.copyable,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A position at which the head runs, and what is asked of it."""

    unit: int
    row: int
    column: int
    ranked: bool
    asks: Asks


def rank_of(logits: Tensor, matches: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Rank of each row's best match among the entries above minus infinity; 0 without a match; ties go against the match."""
    most = max((len(ids) for ids in matches), default=0)
    if most == 0:
        return np.zeros(len(matches), np.int64)
    padded = np.zeros((len(matches), most), np.int64)
    real = np.zeros((len(matches), most), np.bool_)
    for at, ids in enumerate(matches):
        padded[at, : len(ids)] = ids
        real[at, : len(ids)] = True
    values = logits.gather(1, torch.from_numpy(padded).to(logits.device))
    values.masked_fill_(~torch.from_numpy(real).to(logits.device), -torch.inf)
    best = values.amax(dim=1, keepdim=True)
    ahead = (logits >= best).sum(dim=1) - (values >= best).sum(dim=1)
    ranks: NDArray[np.int64] = (ahead + 1).cpu().numpy()
    ranks[~real.any(axis=1)] = 0
    return ranks


@dataclass(slots=True)
class Budget:
    """The tokens of a batch, padding included: fewer once memory ran out, also for the work that follows."""

    tokens: int


def in_batches(
    work: Iterable[T], size: Callable[[T], tuple[int, int]], budget: Budget, run: Callable[[list[T]], R]
) -> Iterator[tuple[list[T], R]]:
    """Run `run` over the work, longest first, each batch padded to the budget at most; yields each batch with its result.

    `size` gives a unit's rows and the length of its longest row. If memory runs out, the budget is halved and the units run in
    smaller batches; a single unit that does not fit is an error.
    """
    queue = deque(sorted(work, key=lambda unit: size(unit)[1], reverse=True))
    while queue:
        batch = _take(queue, size, budget.tokens)
        longest = size(batch[0])[1]
        try:
            result = run(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise EvaluationError(
                    f"A single window of {longest} tokens does not fit in memory; pass a smaller --seq-len."
                ) from error
        else:
            yield batch, result
            continue
        queue.extendleft(reversed(batch))
        budget.tokens = max(1, sum(size(unit)[0] for unit in batch) * longest // 2)
        free_memory()  # not while the error is handled: its stack holds the tensors of the batch


def _take(queue: deque[T], size: Callable[[T], tuple[int, int]], budget: int) -> list[T]:
    batch = [queue.popleft()]
    rows, longest = size(batch[0])
    while queue and (rows + size(queue[0])[0]) * longest <= budget:
        rows += size(queue[0])[0]
        batch.append(queue.popleft())
    return batch
