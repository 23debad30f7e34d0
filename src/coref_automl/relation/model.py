"""The relation model, and rows as tensors on a device. In: an encoder, marked rows. Out: batches of like length, logits,
probabilities; a model on disk."""

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

from coref_automl.errors import ModelError
from coref_automl.machine import default_batch_tokens
from coref_automl.models.execution import autocast, matmul_precision, move, packed_masks, with_dropout, without_bfloat16_warnings
from coref_automl.models.heads import encode
from coref_automl.models.load import load_encoder, quiet_library
from coref_automl.models.model_files import read_head
from coref_automl.models.vocabulary import word_ids
from coref_automl.progress import Progress, quiet
from coref_automl.relation.markers import ROLE_WORDS, TYPE_WORDS, MarkedRow, Marker, special_tokens
from coref_automl.relation.recipe import HeadKind
from coref_automl.relation.rows import LABELS, LabelMask, RelationRow, gold_indices
from coref_automl.relation.settings import HEAD, SETTINGS, ModelSettings, settings_of
from coref_automl.relation.techniques import masked
from coref_automl.store import obey_umask, write_json

_PARTS = {"cls": slice(0, 1), "starts": slice(1, 3), "both": slice(0, 3)}
_NOISE = 0.1
_DISTANCE = "distance.weight"
_EDGES = (2, 4, 8, 16, 32, 64, 128)
"""Where a distance in tokens counts as longer."""


class RelationModel(nn.Module):  # type: ignore[misc]
    """Reads [CLS], the start marks, or both; one hidden layer; 30 logits.

    With `distance`, what the head reads is first moved by a learned vector for how far the object's mark is from the
    subject's, and on which side. The vectors start at zero: before training, the model is the one without them.
    """

    base_model_prefix = "encoder"

    def __init__(self, encoder: Any, head: HeadKind, dropout: float, *, distance: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.parts = _PARTS[head]
        hidden = encoder.config.hidden_size
        read = (self.parts.stop - self.parts.start) * hidden
        self.head = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(read, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, len(LABELS))
        )
        self.distance = nn.Embedding(2 * (len(_EDGES) + 1), read) if distance else None
        if self.distance is not None:
            nn.init.zeros_(self.distance.weight)
        self.register_buffer("edges", torch.tensor(_EDGES), persistent=False)

    def forward(self, ids: Any, mask: Any, starts: Any) -> Any:
        if self.config.model_type != "deberta-v2":  # given a mask of tokens, the library asks the GPU whether it is all ones
            mask = packed_masks(self.encoder, mask)
        states = encode(self.encoder, ids, mask)
        places = torch.cat([torch.zeros_like(starts[:, :1]), starts], dim=1)[:, self.parts]
        read = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[-1])).flatten(1)
        if self.distance is not None:
            read = read + self.distance(self._bucket(starts[:, 1] - starts[:, 0]))
        return self.head(read).float()

    def _bucket(self, tokens: Any) -> Any:
        """Distances in powers of two; those to the left come after those to the right."""
        return torch.bucketize(tokens.abs(), self.edges, right=True) + (tokens < 0) * (len(_EDGES) + 1)


def build_model(settings: ModelSettings, *, encoder_dropout: float | None = None) -> tuple[RelationModel, Marker]:
    """A model to train, with its marker. New marks start as the mean of words that say what they mean, with a little noise.

    `encoder_dropout` is the encoder's everywhere, attention included; None leaves what its makers chose.
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
    spread = float(table[: min(rows, len(table))].std())
    for token in tokens:
        role, _, kind = token.strip("[/]").partition("-")
        words = [ROLE_WORDS[role], *([TYPE_WORDS[kind]] if kind else [])]
        pieces = [piece for word in words for piece in word_ids(tokenizer, word)]
        table[tokenizer.convert_tokens_to_ids(token)] = table[pieces].mean(0) + _NOISE * spread * torch.randn(table.shape[1])


def save_model(folder: Path, model: RelationModel, marker: Marker, settings: ModelSettings) -> None:
    """The encoder and tokenizer in the library's own layout, the head and the settings beside them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    with quiet_library():
        model.encoder.save_pretrained(folder)
    marker.tokenizer.save_pretrained(folder)
    own = model.head.state_dict() | ({_DISTANCE: model.distance.weight} if model.distance is not None else {})
    save_file({name: value.detach().cpu().contiguous() for name, value in own.items()}, folder / HEAD)
    obey_umask(folder)
    write_json(folder / SETTINGS, settings.to_json())


def load_model(folder: Path, device: str = "cpu") -> tuple[RelationModel, Marker, ModelSettings]:
    settings = settings_of(folder)
    if settings.labels != LABELS:
        raise ModelError(f"{folder} was trained for other labels; train it again with this version.")
    encoder, tokenizer = load_encoder(str(folder))
    model = RelationModel(encoder, settings.head, settings.dropout, distance=settings.distance)
    own = read_head(folder / HEAD)
    try:
        if model.distance is not None:
            model.distance.weight.data.copy_(own.pop(_DISTANCE))
        model.head.load_state_dict(own)
    except (KeyError, RuntimeError) as error:
        raise ModelError(f"{folder / HEAD} is damaged, or {SETTINGS} was edited ({error}); train that seed again.") from error
    return move(model, device).eval(), Marker(tokenizer, settings.scheme, settings.max_length), settings


_POOL = 40
"""Batches' worth of shuffled rows that are sorted by length together: little padding, and still a random order."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Row numbers on the device, and how wide their batch is."""

    rows: Any
    width: int


@dataclass(frozen=True, slots=True)
class Batch:
    ids: Any
    mask: Any
    starts: Any


class RowTensors:
    """Marked rows on a device. `fixed` pads every row to one length, as the usual way does; only the benchmark asks for it."""

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

    def place(self, order: Sequence[NDArray[np.int64]]) -> list[Chosen]:
        """All batches of an order, on the device at once: a copy for every batch would hold up what launches the kernels."""
        widths = [self._fixed or self._width(int(self.lengths[chosen].max())) for chosen in order]
        parts = torch.from_numpy(np.concatenate(order)).to(self.device).split([len(chosen) for chosen in order])
        return [Chosen(rows, width) for rows, width in zip(parts, widths, strict=True)]

    def batch(self, chosen: Chosen, copies: int = 1) -> Batch:
        """The tokens of the chosen rows, all of them `copies` times."""
        index = chosen.rows.repeat(copies) if copies > 1 else chosen.rows
        columns = torch.arange(chosen.width, device=self.device)
        mask = columns < self._sizes[index, None]
        places = torch.where(mask, self._offsets[index, None] + columns, 0)
        ids = torch.where(mask, self._flat[places], self._pad)
        return Batch(ids, mask.long(), self._starts[index])

    def _width(self, longest: int) -> int:
        """On a GPU, multiples of eight: its matrix units work in such tiles."""
        return min(-(-longest // 8) * 8, int(self.lengths.max())) if self.device.startswith("cuda") else longest


def training_order(
    lengths: NDArray[np.int64], chosen: NDArray[np.int64], size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Batches of row numbers: every chosen row once, in a random order, neighbours of like length."""
    shuffled = rng.permutation(chosen)
    batches = []
    for low in range(0, len(shuffled), size * _POOL):
        pool = shuffled[low : low + size * _POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[at : at + size] for at in range(0, len(pool), size)]
    return [batches[number] for number in rng.permutation(len(batches))]


def scoring_order(lengths: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Batches for a forward pass: sorted by length, about `tokens` tokens each."""
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
    """One side of the data on the device: tokens, gold labels, and each row's label mask (None when it is off)."""

    tensors: RowTensors
    gold: NDArray[np.int64]
    bias: Any | None = None

    @classmethod
    def of(
        cls, rows: Sequence[RelationRow], marked: Sequence[MarkedRow], marker: Marker, mask: LabelMask | None, device: str
    ) -> LabelledRows:
        tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
        return cls(tensors, gold_indices(rows), torch.from_numpy(mask.for_rows(rows)).to(device) if mask else None)


def probabilities(
    model: RelationModel, side: LabelledRows, precision: str, *, tokens: int | None = None, progress: Progress | None = None
) -> NDArray[np.float32]:
    """The distribution over labels for every row, in row order."""
    device = side.tensors.device
    model.eval()
    found = torch.empty((len(side.tensors), model.head[-1].out_features), device=device)
    rows = (progress or quiet()).stage("scoring", len(side.tensors), "rows")
    with torch.inference_mode(), matmuls(precision), rows as stage:
        for chosen in side.tensors.place(scoring_order(side.tensors.lengths, tokens or default_batch_tokens(device))):
            logits = logits_of(model, side, chosen, precision)
            found[chosen.rows] = torch.softmax(logits if side.bias is None else masked(logits, side.bias[chosen.rows]), -1)
            stage.advance(len(chosen.rows))
    return found.cpu().numpy().astype(np.float32)  # type: ignore[no-any-return]


def logits_of(model: RelationModel, side: LabelledRows, chosen: Chosen, precision: str, copies: int = 1) -> Any:
    batch = side.tensors.batch(chosen, copies)
    with autocast(side.tensors.device, precision):
        return model(batch.ids, batch.mask, batch.starts)


def matmuls(precision: str) -> AbstractContextManager[None]:
    if precision == "float32":
        return matmul_precision(tf32=False)
    return without_bfloat16_warnings() if precision == "bfloat16" else nullcontext()
