"""Scores items with one model. In: a loaded model, items, their texts, a noun table. Out: one ItemScore per item, in batches.

The head runs at the masked positions alone; ranks, the top five and the candidates' log-probabilities come from one pass. Nothing
is decoded and no tagger runs here. The encoder may run in half precision, the head always in float32, because rounded logits tie.
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
from coref_automl.evaluation.answers import Candidates, MatchTable, Row, Targets, answerable, masked_rows, read_candidates
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.windows import Ids, Window, maker_for
from coref_automl.machine import default_batch_tokens, free_memory, is_out_of_memory, pick_device
from coref_automl.models.execution import autocast_to, matmul_precision
from coref_automl.models.heads import encode_at, predict
from coref_automl.models.load import LoadedModel
from coref_automl.models.vocabulary import entry_words, word_ids
from coref_automl.records import ClozeItem, ItemScore, Task

TOP = 5
DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
NOT_NUMBERS = "The model's logits are not numbers; its weights are damaged or it diverged in training."
_LENGTH_STEP = 64
"""Lengths of rows on a GPU are multiples of this, because kernels are compiled per shape."""
_HEAD_POSITIONS = 256
"""Positions whose logits are in memory at once: 133 MB with a vocabulary of 130,000."""

T = TypeVar("T")
R = TypeVar("R")


def pick(device: str = "auto", dtype: str = "auto") -> tuple[str, str]:
    """The device and dtype that `auto` means: the GPU where there is one, and bfloat16 there."""
    device = pick_device(device)
    if dtype != "auto":
        choose(dtype, DTYPES, "dtype")
    return device, ("bfloat16" if device.startswith("cuda") else "float32") if dtype == "auto" else dtype


@dataclass(frozen=True, slots=True)
class ScoringItem:
    """An item with its window and its rows. The first row has one mask and is ranked."""

    item: ClozeItem
    window: Window
    rows: tuple[Row, ...]
    candidates: Candidates | None

    @property
    def size(self) -> tuple[int, int]:
        return len(self.rows), self.window.length(max(len(row.gap_ids) for row in self.rows))


@dataclass(frozen=True, slots=True)
class Position:
    """A masked position of a batch: the numbers of its item and row, its column, and what its logits are used for."""

    item: int
    row: int
    column: int
    is_ranked: bool
    targets: Targets


class Scorer:
    """Scores with one model on its device. `nouns` are the entries that may answer; tasks with `any_word` allow all words."""

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
            raise ModelError(f"The tokenizer has {len(words)} entries and the model {width}; pass the model's own tokenizer.")
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
        """The entries that may answer a task; `initial` as in `Window`."""
        any_word = TASKS[task].any_word
        key = any_word, initial
        if key not in self._tables:
            words, nouns = answerable(self._tokenizer, self._nouns, initial=initial)
            allowed = np.zeros(self._width, np.bool_)
            allowed[: len(words)] = [bool(word) for word in words] if any_word else nouns
            self._tables[key] = MatchTable([*words, *[None] * (self._width - len(words))], allowed)
        return self._tables[key]

    def score(
        self, items: Sequence[ClozeItem], texts: Mapping[str, str], *, words: Container[str] = ()
    ) -> Iterator[list[ItemScore]]:
        """Score the items in batches, longest windows first. `words` holds the ids of items whose word rank is wanted."""
        self._maker.prepare((item, texts[item.document]) for item in items)
        by_form: dict[tuple[Task, bool], list[ScoringItem]] = {}
        for item in items:
            prepared = self.prepare(item, texts[item.document], item.id in words)
            by_form.setdefault((item.task, prepared.window.initial), []).append(prepared)
        for (task, initial), group in by_form.items():
            table = self.table(task, initial)
            run = partial(self._score_batch, table=table, allowed=torch.from_numpy(table.allowed).to(self._device))
            for _, scores in in_batches(group, lambda item: item.size, self._budget, run):
                yield scores

    def prepare(self, item: ClozeItem, text: str, words: bool) -> ScoringItem:
        """Cut an item's window and build its rows; `words` adds those of its candidates."""
        window = self._maker.window(item, text)
        pieces = partial(self._pieces, initial=window.initial)
        candidates = read_candidates(item, pieces, self._tokenizer.unk_token_id) if words else None
        rows = masked_rows(candidates, self.mask_id) if candidates else []
        single = [row for row in rows if row.gap_ids == (self.mask_id,)] or [Row((self.mask_id,))]
        return ScoringItem(item, window, (*single, *(row for row in rows if row not in single)), candidates)

    def _score_batch(self, batch: list[ScoringItem], table: MatchTable, allowed: Tensor) -> list[ItemScore]:
        ranks: list[tuple[int, int, tuple[str, ...]]] = []
        sums = [np.zeros(len(item.candidates.words)) if item.candidates else np.zeros(0) for item in batch]
        with torch.inference_mode(), matmul_precision(tf32=False):
            hidden, positions = self._encode(batch)
            for low in range(0, len(positions), _HEAD_POSITIONS):
                part = positions[low : low + _HEAD_POSITIONS]
                logits = predict(self._model, hidden[low : low + _HEAD_POSITIONS].float()).float()
                if not torch.isfinite(logits.sum()):  # any NaN makes the sum NaN
                    raise EvaluationError(NOT_NUMBERS)
                self._add_log_probabilities(logits, part, sums)
                if ranked := [batch[position.item] for position in part if position.is_ranked]:
                    ranks += self._rank(logits[: len(ranked)], ranked, table, allowed)
                del logits
        return [self._finish(item, *rank, total) for item, rank, total in zip(batch, ranks, sums, strict=True)]

    def _encode(self, batch: list[ScoringItem]) -> tuple[Tensor, list[Position]]:
        """Run the encoder; returns the hidden states of all masked positions, the ranked ones first: one per item, in order."""
        rows: list[Ids] = []
        positions: list[Position] = []
        for number, item in enumerate(batch):
            for order, row in enumerate(item.rows):
                for offset, targets in enumerate(row.targets):
                    positions.append(Position(number, len(rows), item.window.gap + offset, order == 0, targets))
                rows.append(item.window.filled(row.gap_ids))
        positions.sort(key=lambda position: not position.is_ranked)
        length = self._padded(max(map(len, rows)))
        ids = np.full((len(rows), length), self._tokenizer.pad_token_id or 0, np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for number, tokens in enumerate(rows):
            ids[number, : len(tokens)] = tokens
            mask[number, : len(tokens)] = 1
        row_numbers, columns = torch.tensor([(position.row, position.column) for position in positions]).to(self._device).T
        with autocast_to(self._device.type, self._autocast):
            inputs = torch.from_numpy(ids).to(self._device), torch.from_numpy(mask).to(self._device)
            return encode_at(self._model, *inputs, row_numbers, columns), positions

    def _padded(self, length: int) -> int:
        """The length to pad to: on a GPU rounded up, within what the model reads."""
        rounded = -(-length // _LENGTH_STEP) * _LENGTH_STEP
        return length if self._device.type == "cpu" else max(length, min(self._seq_len, rounded))

    def _add_log_probabilities(self, logits: Tensor, positions: Sequence[Position], sums: list[NDArray[np.float64]]) -> None:
        """Add the log-probabilities of the targets at these positions to the sums of their items' candidates."""
        targets = [
            (row, piece, position.item, slot) for row, position in enumerate(positions) for piece, slot in position.targets
        ]
        if not targets:
            return
        row, piece, item, slot = np.array(targets).T
        rows = torch.from_numpy(np.ascontiguousarray(row)).to(logits.device)
        columns = torch.from_numpy(np.ascontiguousarray(piece)).to(logits.device)
        values = (logits[rows, columns] - torch.logsumexp(logits, dim=1)[rows]).double().cpu().numpy()
        for value, number, candidate in zip(values, item, slot, strict=True):
            sums[number][candidate] += value

    def _rank(
        self, logits: Tensor, items: Sequence[ScoringItem], table: MatchTable, allowed: Tensor
    ) -> list[tuple[int, int, tuple[str, ...]]]:
        """The strict rank, the lenient rank and the top words of every item, from a row of logits each."""
        logits.masked_fill_(~allowed, -torch.inf)
        matches = [table.of(item.item.answer) for item in items]
        strict = rank_of(logits, [pair[0] for pair in matches])
        lenient = rank_of(logits, [pair[1] for pair in matches])
        top = logits.topk(min(TOP, int(allowed.sum())), dim=1).indices.cpu().numpy()
        return [
            (int(s), int(n), tuple(table.words[entry] or "" for entry in row))
            for s, n, row in zip(strict, lenient, top, strict=True)
        ]

    def _finish(
        self, prepared: ScoringItem, strict: int, lenient: int, top: tuple[str, ...], sums: NDArray[np.float64]
    ) -> ItemScore:
        item, window, candidates = prepared.item, prepared.window, prepared.candidates
        return ItemScore(
            item=item.id, task=item.task, cluster=item.cluster, source=item.source, answer=item.answer, tag=item.tag,
            distance=item.distance, strict_rank=strict, lenient_rank=lenient, top=top,
            pieces=len(self._pieces(item.answer, initial=window.initial)),
            own_distance=window.own_distance, out_of_reach=window.out_of_reach,
            word_rank=candidates.rank(sums) if candidates else None, pronoun_between=item.pronoun_between,
            before=item.before, copyable=item.copyable,
        )  # fmt: skip


def rank_of(logits: Tensor, matches: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rank of each row's best match among the entries with finite logits; 0 without a match; ties go against the match."""
    most = max((len(ids) for ids in matches), default=0)
    if most == 0:
        return np.zeros(len(matches), np.int64)
    padded = np.zeros((len(matches), most), np.int64)
    real = np.zeros((len(matches), most), np.bool_)
    for row, ids in enumerate(matches):
        padded[row, : len(ids)] = ids
        real[row, : len(ids)] = True
    values = logits.gather(1, torch.from_numpy(padded).to(logits.device))
    values.masked_fill_(~torch.from_numpy(real).to(logits.device), -torch.inf)
    best = values.amax(dim=1, keepdim=True)
    ahead = (logits >= best).sum(dim=1) - (values >= best).sum(dim=1)
    ranks: NDArray[np.int64] = (ahead + 1).cpu().numpy()
    ranks[~real.any(axis=1)] = 0
    return ranks


@dataclass(slots=True)
class Budget:
    """Tokens per batch, padding included; lowered for good when memory runs out."""

    tokens: int


def in_batches(
    work: Iterable[T], size: Callable[[T], tuple[int, int]], budget: Budget, run: Callable[[list[T]], R]
) -> Iterator[tuple[list[T], R]]:
    """Call `run` with batches of the work, longest first, within the budget; yields each batch with its result.

    `size` returns the number of rows of an item and the length of the longest. When memory runs out, the budget is halved and the
    batch is split; a single item that does not fit is an error.
    """
    queue = deque(sorted(work, key=lambda item: size(item)[1], reverse=True))
    while queue:
        batch = _take(queue, size, budget.tokens)
        longest = size(batch[0])[1]
        try:
            result = run(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise EvaluationError(f"A single window of {longest} tokens does not fit in memory; lower --seq-len.") from error
        else:
            yield batch, result
            continue
        queue.extendleft(reversed(batch))
        budget.tokens = max(1, sum(size(item)[0] for item in batch) * longest // 2)
        free_memory()  # after the except block, because the error's stack holds the tensors of the batch


def _take(queue: deque[T], size: Callable[[T], tuple[int, int]], budget: int) -> list[T]:
    """Remove and return the next batch: at least one item, then as many as fit into the budget."""
    batch = [queue.popleft()]
    rows, longest = size(batch[0])
    while queue and (rows + size(queue[0])[0]) * longest <= budget:
        rows += size(queue[0])[0]
        batch.append(queue.popleft())
    return batch
