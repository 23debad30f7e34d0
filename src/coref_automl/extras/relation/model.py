"""The relation model, and rows as tensors on a device. In: an encoder, marked rows. Out: batches of similar length, logits,
probabilities; a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coref_automl.base.errors import ModelError
from coref_automl.base.machine import default_batch_tokens
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.store import obey_umask, write_json
from coref_automl.extras.relation.markers import ROLE_WORDS, TYPE_WORDS, MarkedRow, Marker, special_tokens
from coref_automl.extras.relation.recipe import HEAD, SETTINGS, HeadKind, ModelSettings, settings_of
from coref_automl.extras.relation.rows import IMPOSSIBLE, LABELS, Ints, LabelMask, RelationRow, gold_indices
from coref_automl.models.execution import autocast, matmul_precision, move, packed_masks, with_dropout, without_bfloat16_warnings
from coref_automl.models.heads import encode
from coref_automl.models.load import load_encoder, quiet_library
from coref_automl.models.model_files import read_head
from coref_automl.models.vocabulary import word_ids

_PARTS = {"cls": slice(0, 1), "starts": slice(1, 3), "both": slice(0, 3)}
_NOISE = 0.1
_DISTANCE = "distance.weight"
_EDGES = (2, 4, 8, 16, 32, 64, 128)
"""Bucket boundaries of distances in tokens."""


class RelationModel(nn.Module):  # type: ignore[misc]
    """Classifies from the states of [CLS], the start marks, or both: one hidden layer, 30 logits.

    With `distance`, the head's input is shifted by a learned vector for how far the object's mark is from the subject's, and on
    which side. The vectors start at zero: before training, the model is the one without them.
    """

    base_model_prefix = "encoder"

    def __init__(self, encoder: Any, head: HeadKind, dropout: float, *, distance: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.parts = _PARTS[head]
        hidden = encoder.config.hidden_size
        inputs = (self.parts.stop - self.parts.start) * hidden
        self.head = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, len(LABELS))
        )
        self.distance = nn.Embedding(2 * (len(_EDGES) + 1), inputs) if distance else None
        if self.distance is not None:
            nn.init.zeros_(self.distance.weight)
        self.register_buffer("edges", torch.tensor(_EDGES), persistent=False)

    def forward(self, ids: Any, mask: Any, starts: Any) -> Any:
        if self.config.model_type != "deberta-v2":  # given a mask of tokens, the library asks the GPU whether it is all ones
            mask = packed_masks(self.encoder, mask)
        states = encode(self.encoder, ids, mask)
        positions = torch.cat([torch.zeros_like(starts[:, :1]), starts], dim=1)[:, self.parts]
        inputs = states.gather(1, positions[:, :, None].expand(-1, -1, states.shape[-1])).flatten(1)
        if self.distance is not None:
            inputs = inputs + self.distance(self._bucket(starts[:, 1] - starts[:, 0]))
        return self.head(inputs).float()

    def _bucket(self, tokens: Any) -> Any:
        """Bucket distances by powers of two; those to the left come after those to the right."""
        return torch.bucketize(tokens.abs(), self.edges, right=True) + (tokens < 0) * (len(_EDGES) + 1)


def build_model(settings: ModelSettings, *, encoder_dropout: float | None = None) -> tuple[RelationModel, Marker]:
    """Build a model to train, and its marker. Embeddings of new marks start as the mean of words with their meaning, plus noise.

    `encoder_dropout` overrides the encoder's dropout everywhere, attention included.
    """
    encoder, tokenizer = load_encoder(settings.base)
    marker = Marker(tokenizer, settings.scheme, settings.max_length)
    if encoder_dropout is not None:
        encoder = with_dropout(encoder, encoder_dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        _add_marks(encoder, tokenizer, settings.scheme)
        return RelationModel(encoder, settings.head, settings.dropout, distance=settings.distance), marker


def _add_marks(encoder: Any, tokenizer: Any, scheme: str) -> None:
    tokens = special_tokens(scheme)
    if not tokens:
        return
    rows = encoder.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    table = encoder.get_input_embeddings().weight.data
    deviation = float(table[: min(rows, len(table))].std())
    for token in tokens:
        role, _, kind = token.strip("[/]").partition("-")
        words = [ROLE_WORDS[role], *([TYPE_WORDS[kind]] if kind else [])]
        pieces = [piece for word in words for piece in word_ids(tokenizer, word)]
        noise = _NOISE * deviation * torch.randn(table.shape[1])
        table[tokenizer.convert_tokens_to_ids(token)] = table[pieces].mean(0) + noise


def save_model(folder: Path, model: RelationModel, marker: Marker, settings: ModelSettings) -> None:
    """Save encoder and tokenizer in the library's own layout, the head and the settings beside them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    with quiet_library():
        model.encoder.save_pretrained(folder)
    marker.tokenizer.save_pretrained(folder)
    weights = model.head.state_dict() | ({_DISTANCE: model.distance.weight} if model.distance is not None else {})
    save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, folder / HEAD)
    obey_umask(folder)
    write_json(folder / SETTINGS, settings.to_json())


def load_model(folder: Path, device: str = "cpu") -> tuple[RelationModel, Marker, ModelSettings]:
    settings = settings_of(folder)
    if settings.labels != LABELS:
        raise ModelError(f"{folder} was trained for other labels; train it again with this version.")
    encoder, tokenizer = load_encoder(str(folder))
    model = RelationModel(encoder, settings.head, settings.dropout, distance=settings.distance)
    weights = read_head(folder / HEAD)
    try:
        if model.distance is not None:
            model.distance.weight.data.copy_(weights.pop(_DISTANCE))
        model.head.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        raise ModelError(f"{folder / HEAD} is damaged, or {SETTINGS} was edited ({error}); train that seed again.") from error
    return move(model, device).eval(), Marker(tokenizer, settings.scheme, settings.max_length), settings


_POOL = 40
"""Batches per pool of shuffled rows that is sorted by length: little padding, and still a random order."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Row numbers on the device, and the width of their batch."""

    rows: Any
    width: int


class RowTensors:
    """Marked rows on a device. `fixed` pads every row to one length, as is usual; only the benchmark does so."""

    def __init__(self, rows: Sequence[MarkedRow], pad: int, device: str, *, fixed: int | None = None) -> None:
        self.lengths = np.array([len(row.ids) for row in rows], np.int64)
        self._fixed = fixed
        self._pad = pad
        offsets = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self._flat = torch.from_numpy(np.concatenate([row.ids for row in rows]).astype(np.int64)).to(device)
        self._offsets = torch.from_numpy(offsets).to(device)
        self._sizes = torch.from_numpy(self.lengths).to(device)
        self._starts = torch.tensor([[row.subject_at, row.object_at] for row in rows], dtype=torch.int64, device=device)
        self.device = device

    def __len__(self) -> int:
        return len(self.lengths)

    def batch_rows(self, order: Sequence[Ints]) -> list[BatchRows]:
        """Copy all row numbers of an order to the device at once: one copy per batch would delay kernel launches."""
        widths = [self._fixed or self._width(int(self.lengths[rows].max())) for rows in order]
        parts = torch.from_numpy(np.concatenate(order)).to(self.device).split([len(rows) for rows in order])
        return [BatchRows(rows, width) for rows, width in zip(parts, widths, strict=True)]

    def batch(self, chosen: BatchRows) -> tuple[Any, Any, Any]:
        """Ids, mask and starts of the rows, padded to their width."""
        index = chosen.rows
        columns = torch.arange(chosen.width, device=self.device)
        mask = columns < self._sizes[index, None]
        tokens = torch.where(mask, self._offsets[index, None] + columns, 0)
        ids = torch.where(mask, self._flat[tokens], self._pad)
        return ids, mask.long(), self._starts[index]

    def _width(self, longest: int) -> int:
        """Round up to a multiple of eight on a GPU, whose matrix units work in such tiles."""
        return min(-(-longest // 8) * 8, int(self.lengths.max())) if self.device.startswith("cuda") else longest


def training_order(lengths: Ints, rows: Ints, size: int, rng: np.random.Generator) -> list[Ints]:
    """Shuffle rows into batches of similar length, in random order."""
    shuffled = rng.permutation(rows)
    batches = []
    for low in range(0, len(shuffled), size * _POOL):
        pool = shuffled[low : low + size * _POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[start : start + size] for start in range(0, len(pool), size)]
    return [batches[number] for number in rng.permutation(len(batches))]


def scoring_order(lengths: Ints, tokens: int) -> list[Ints]:
    """Sort rows by length into batches of about `tokens` tokens."""
    order = np.argsort(lengths, kind="stable")
    batches, low = [], 0
    while low < len(order):
        high = low + 1
        while high < len(order) and (high - low + 1) * lengths[order[high]] <= tokens:
            high += 1
        batches.append(order[low:high])
        low = high
    return batches


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Rows on the device: tokens, gold labels, and each row's label mask (None if it is off)."""

    tensors: RowTensors
    gold: Ints
    bias: Any | None = None

    @classmethod
    def of(
        cls, rows: Sequence[RelationRow], marked: Sequence[MarkedRow], marker: Marker, mask: LabelMask | None, device: str
    ) -> LabelledRows:
        tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
        return cls(tensors, gold_indices(rows), torch.from_numpy(mask.for_rows(rows)).to(device) if mask else None)


def probabilities(
    model: RelationModel, rows: LabelledRows, precision: str, *, tokens: int | None = None, progress: Progress | None = None
) -> NDArray[np.float32]:
    """Compute the distribution over labels for every row, in row order."""
    tensors, device = rows.tensors, rows.tensors.device
    model.eval()
    distribution = torch.empty((len(tensors), model.head[-1].out_features), device=device)
    scoring = (progress or quiet()).stage("scoring", len(tensors), "rows")
    with torch.inference_mode(), matmuls(precision), scoring as stage:
        for batch in tensors.batch_rows(scoring_order(tensors.lengths, tokens or default_batch_tokens(device))):
            distribution[batch.rows] = torch.softmax(logits_of(model, rows, batch, precision), -1)
            stage.advance(len(batch.rows))
    return distribution.cpu().numpy().astype(np.float32)  # type: ignore[no-any-return]


def logits_of(
    model: RelationModel,
    rows: LabelledRows,
    chosen: BatchRows,
    precision: str,
    gold: Any | None = None,
) -> Any:
    """Compute the logits of a batch under the label mask; `gold` labels stay possible."""
    batch = rows.tensors.batch(chosen)
    with autocast(rows.tensors.device, precision):
        logits = model(*batch)
    return logits if rows.bias is None else apply_label_mask(logits, rows.bias[chosen.rows], gold)


def apply_label_mask(logits: Any, bias: Any, gold: Any | None = None) -> Any:
    """Add the label mask of each row's type pair; with `gold`, as in training, gold labels stay possible."""
    if gold is None:
        return logits + bias
    is_gold = torch.zeros_like(bias).scatter_(1, gold[:, None], 1.0).bool()
    return logits + torch.where(is_gold & (bias <= IMPOSSIBLE), torch.zeros_like(bias), bias)


def matmuls(precision: str) -> AbstractContextManager[None]:
    if precision == "float32":
        return matmul_precision(tf32=False)
    return without_bfloat16_warnings() if precision == "bfloat16" else nullcontext()
