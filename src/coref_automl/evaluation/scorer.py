"""Scores items with one model. In: a loaded model, items, their texts, a noun table. Out: one ItemScore per item, in batches.

One row with one mask per item, and only for items that the model counts; the head runs at the
mask alone. Ranks, words and the copy bonuses come from the same logits. The encoder may run in
half precision, the head always in float32, because rounded logits tie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coref_automl.base.config import choose
from coref_automl.base.errors import EvaluationError, ModelError
from coref_automl.base.machine import default_batch_tokens, free_memory, is_out_of_memory, pick_device
from coref_automl.base.records import ClozeItem, ItemScore, Task
from coref_automl.evaluation.answers import answerable
from coref_automl.evaluation.choice import Row, WordChoice, choice_of
from coref_automl.evaluation.metrics import COPY_BONUSES
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.windows import Ids, Lengths, Window, maker_for
from coref_automl.models.execution import autocast_to, matmul_precision
from coref_automl.models.heads import encode_at, predict
from coref_automl.models.load import LoadedModel
from coref_automl.models.vocabulary import entry_words

TOP = 5
AHEAD = 256
"""The most nouns ahead of the answer that are kept."""
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
    """An item with its window, and its choice if its task has one."""

    item: ClozeItem
    window: Window
    choice: WordChoice | None = None
    rows: tuple[Row, ...] = ()

    @property
    def is_counted(self) -> bool:
        return self.choice is not None or (self.window.entry is not None and not TASKS[self.item.task].is_choice)

    @property
    def size(self) -> tuple[int, int]:
        masks = len(self.rows[0].gap_ids) if self.rows else 1
        return max(1, len(self.rows)), self.window.length(masks)


@dataclass(frozen=True, slots=True)
class Form:
    """The entries that compete for a kind of item, the word of each, and the place of every id among them (-1: none)."""

    ids: Tensor
    words: Sequence[str]
    places: Tensor

    @classmethod
    def of(cls, words: Sequence[str | None], allowed: NDArray[np.bool_], width: int, device: torch.device) -> Form:
        ids = np.flatnonzero(allowed)
        places = np.full(width, -1)
        places[ids] = np.arange(len(ids))
        named = [words[entry] or "" for entry in ids.tolist()]
        return cls(torch.from_numpy(ids).to(device), named, torch.from_numpy(places).to(device))


class Scorer:
    """Scores with one model on its device. `nouns` are the entries that compete; tasks with `any_word` allow all words."""

    bonus_tasks: Collection[Task] = ("real", "new")
    """Tasks whose scores have `bonus_hits`."""

    def __init__(
        self, loaded: LoadedModel, nouns: NDArray[np.bool_], *, seq_len: int, dtype: str = "float32", budget: int | None = None
    ) -> None:
        self._model = loaded.model.eval()
        self._tokenizer = loaded.tokenizer
        self._device = next(self._model.parameters()).device
        self._autocast = choose(dtype, DTYPES, "dtype")
        self._budget = Budget(budget or default_batch_tokens(self._device.type))
        self._lengths = Lengths.of(seq_len, loaded.seq_len)
        self._maker = maker_for(loaded.tokenizer, self._lengths)
        words = entry_words(loaded.tokenizer)
        width = int(self._model.config.vocab_size)
        if len(words) > width:
            raise ModelError(f"The tokenizer has {len(words)} entries and the model {width}; pass the model's own tokenizer.")
        if len(nouns) > len(words):
            raise ModelError(
                f"The noun table has {len(nouns)} entries and the tokenizer {len(words)}; they belong to different tokenizers."
            )
        self._width, self._nouns = width, nouns
        self._forms: dict[tuple[bool, bool], Form] = {}

    @property
    def mask_id(self) -> int:
        return self._maker.mask_id

    def form(self, *, any_word: bool, initial: bool = True) -> Form:
        """The entries that may answer; `initial` as in `Window`."""
        key = any_word, initial
        if key not in self._forms:
            words, nouns = answerable(self._tokenizer, self._nouns, initial=initial)
            allowed = np.array([bool(word) for word in words], np.bool_) if any_word else nouns
            self._forms[key] = Form.of(words, allowed, self._width, self._device)
        return self._forms[key]

    def score(
        self, items: Sequence[ClozeItem], texts: Mapping[str, str], nouns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[list[ItemScore]]:
        """Score the items in batches, longest windows first. `nouns` has the nouns of each document, for choices."""
        self._maker.prepare((item, texts[item.document]) for item in items)
        groups: dict[tuple[bool, bool, bool], list[ScoringItem]] = {}
        uncounted = []
        for item in items:
            prepared = self.prepare(item, texts[item.document], (nouns or {}).get(item.document, ()))
            if prepared.is_counted:
                task = TASKS[item.task]
                groups.setdefault((task.is_choice, task.any_word, prepared.window.initial), []).append(prepared)
            else:
                uncounted.append(_scored(prepared, 0))
        if uncounted:
            yield uncounted
        for (is_choice, any_word, initial), group in groups.items():
            form = self.form(any_word=any_word, initial=initial)
            run = self._choose_batch if is_choice else partial(self._score_batch, form=form)
            for _, scores in in_batches(group, lambda item: item.size, self._budget, run):
                yield scores

    def prepare(self, item: ClozeItem, text: str, nouns: Sequence[str] = ()) -> ScoringItem:
        """Cut an item's window, and build the rows of its choice."""
        window = self._maker.window(item, text)
        choice = choice_of(item, window, nouns, self._tokenizer) if TASKS[item.task].is_choice else None
        return ScoringItem(item, window, choice, tuple(choice.rows(self.mask_id)) if choice else ())

    def _score_batch(self, batch: list[ScoringItem], form: Form) -> list[ItemScore]:
        """The scores of items with one mask each."""
        scores: list[ItemScore] = []
        with torch.inference_mode(), matmul_precision(tf32=False):
            rows = [item.window.filled([self.mask_id]) for item in batch]
            hidden, ids = self._encode(rows, [item.window.gap for item in batch])
            for low in range(0, len(batch), _HEAD_POSITIONS):
                part = slice(low, low + _HEAD_POSITIONS)
                logits = self._predict(hidden[part])
                scores += self.rank(batch[part], logits, ids[part], form)
        return scores

    def _choose_batch(self, batch: list[ScoringItem]) -> list[ItemScore]:
        """The scores of items that are a choice among words of several pieces."""
        owned = [(number, row) for number, item in enumerate(batch) for row in item.rows]
        sums = [np.zeros(len(item.choice.words)) if item.choice else np.zeros(0) for item in batch]
        with torch.inference_mode(), matmul_precision(tf32=False):
            rows = [batch[number].window.filled(row.gap_ids) for number, row in owned]
            hidden, _ = self._encode(rows, [batch[number].window.gap + row.place for number, row in owned])
            for low in range(0, len(owned), _HEAD_POSITIONS):
                part = slice(low, low + _HEAD_POSITIONS)
                log_probabilities = self._predict(hidden[part]).log_softmax(-1)
                for (number, row), values in zip(owned[part], log_probabilities, strict=True):
                    pieces, words = (list(column) for column in zip(*row.targets, strict=True))
                    sums[number][words] += values[torch.tensor(pieces, device=values.device)].double().cpu().numpy()
        chosen = zip(batch, sums, strict=True)
        return [self.choose(item, item.choice, total) for item, total in chosen if item.choice is not None]

    def choose(self, item: ScoringItem, choice: WordChoice, sums: NDArray[np.float64]) -> ItemScore:
        """The score of a choice from the log-probabilities of its words."""
        return _scored(item, choice.rank(sums), choice.best(sums, TOP))

    def _encode(self, rows: Sequence[Ids], columns: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Run the encoder; returns the hidden states at one column of each row, and the ids."""
        length = self._padded(max(map(len, rows)))
        ids = np.full((len(rows), length), self._tokenizer.pad_token_id or 0, np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for number, tokens in enumerate(rows):
            ids[number, : len(tokens)] = tokens
            mask[number, : len(tokens)] = 1
        inputs = torch.from_numpy(ids).to(self._device), torch.from_numpy(mask).to(self._device)
        places = torch.arange(len(rows), device=self._device), torch.tensor(columns, device=self._device)
        with autocast_to(self._device.type, self._autocast):
            return encode_at(self._model, *inputs, *places), inputs[0]

    def _predict(self, hidden: Tensor) -> Tensor:
        logits = predict(self._model, hidden.float()).float()
        if not torch.isfinite(logits.sum()):  # any NaN makes the sum NaN
            raise EvaluationError(NOT_NUMBERS)
        return logits

    def _padded(self, length: int) -> int:
        """The length to pad to: on a GPU rounded up, within what the model reads."""
        rounded = -(-length // _LENGTH_STEP) * _LENGTH_STEP
        return length if self._device.type == "cpu" else max(length, min(self._lengths.far, rounded))

    def rank(self, batch: Sequence[ScoringItem], logits: Tensor, ids: Tensor, form: Form) -> list[ItemScore]:
        """The scores of a batch from its logits at the gaps; ties go against the answer."""
        answers = torch.tensor([item.window.entry for item in batch], device=logits.device)[:, None]
        own = logits.gather(1, answers)
        rivals = logits.index_select(1, form.ids)
        rivals.masked_fill_(torch.arange(len(form.ids), device=logits.device) == form.places[answers], -torch.inf)
        ranks = ((rivals >= own).sum(1) + 1).tolist()
        in_window = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, ids, value=True)
        visible = in_window.index_select(1, form.ids)
        bonus = torch.tensor(COPY_BONUSES, device=logits.device)
        best_hidden = rivals.masked_fill(visible, -torch.inf).amax(1, keepdim=True)
        best_visible = rivals.masked_fill(~visible, -torch.inf).amax(1, keepdim=True)
        with_bonus = own + bonus * in_window.gather(1, answers)
        hits = ((with_bonus > best_hidden) & (with_bonus > best_visible + bonus)).tolist()
        kept = min(AHEAD, max(TOP, *ranks), max(1, len(form.ids) - 1))
        order = rivals.topk(kept, dim=1).indices.tolist()
        scores = []
        for item, rank, hit, row in zip(batch, ranks, hits, order, strict=True):
            ahead = tuple(form.words[place] for place in row[: min(rank - 1, AHEAD)])
            later = [form.words[place] for place in row[rank - 1 : TOP]]
            top = (*ahead[:TOP], *([item.item.answer, *later] if rank <= TOP else []))[:TOP]
            bonus_hits = tuple(hit) if item.item.task in self.bonus_tasks else ()
            scores.append(_scored(item, rank, top, bonus_hits=bonus_hits, ahead=ahead))
        return scores


def _scored(
    prepared: ScoringItem,
    rank: int,
    top: tuple[str, ...] = (),
    *,
    bonus_hits: tuple[bool, ...] = (),
    ahead: tuple[str, ...] = (),
) -> ItemScore:
    item, window = prepared.item, prepared.window
    return ItemScore(
        item=item.id,
        task=item.task,
        cluster=item.cluster,
        source=item.source,
        answer=item.answer,
        tag=item.tag,
        distance=item.distance,
        rank=rank,
        top=top,
        pieces=len(window.pieces),
        own_distance=window.own_distance,
        out_of_reach=window.out_of_reach,
        bonus_hits=bonus_hits,
        ahead=ahead,
    )


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
