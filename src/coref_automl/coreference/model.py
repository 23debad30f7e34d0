"""The model: an encoder and a coreference head. In: tokenized documents. Out: states of tokens; and folders that hold it.

A folder holds the whole encoder, or, where it was trained at a low rank (LoRA), that change alone and the name of the encoder it
is for. A low-rank change is two thin matrices beside each linear layer; added to its weights they leave an ordinary encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from coref_automl.config import choose
from coref_automl.coreference.conventions import Edges
from coref_automl.coreference.documents import GENERAL, CorefDocument
from coref_automl.coreference.head import CoreferenceHead
from coref_automl.coreference.results import AGAIN
from coref_automl.coreference.tokens import TokenizedDocument, TokenWindow, windows
from coref_automl.decoder import read_stored
from coref_automl.errors import ModelError
from coref_automl.evaluation.windows import special_edges
from coref_automl.fingerprints import fingerprint
from coref_automl.models.execution import move
from coref_automl.models.heads import encode, encode_at
from coref_automl.models.load import load_encoder, quiet_library
from coref_automl.models.model_files import detect_seq_len, folder_fingerprint, full_name, model_fingerprints, read_head
from coref_automl.records import Record
from coref_automl.store import obey_umask

SETTINGS = "coreference.json"
HEAD = "head.safetensors"
VERSION = 2
_ENCODER = "encoder."


@dataclass(frozen=True, slots=True)
class AnnotationScheme(Record):
    """The rules that some training data were marked under: their name, whether they mark entities that are mentioned once, the
    score from which a span counts as a mention, and the convention of mentions' edges."""

    name: str
    singletons: bool = True
    threshold: float = 0.0
    convention: Edges = "bare"


@dataclass(frozen=True, slots=True)
class HeadSettings(Record):
    """What a folder says of its model. `base` is the encoder it began from, `base_prints` its identity, `weights` that of its
    weights; `note` what the model knows, in a sentence. Of the schemes the first is meant where nobody says."""

    base: str
    weights: str
    window: int
    size: int
    dropout: float
    rank: int = 0
    schemes: tuple[AnnotationScheme, ...] = (AnnotationScheme(GENERAL),)
    seed: int = 0
    note: str = ""
    base_prints: dict[str, str] = field(default_factory=dict)
    version: int = VERSION


def scheme_for(schemes: Sequence[AnnotationScheme], name: str | None) -> AnnotationScheme:
    return choose(name, {scheme.name: scheme for scheme in schemes}, "scheme") if name is not None else schemes[0]


class CoreferenceModel(nn.Module):  # type: ignore[misc]
    """An encoder and a head, with the tokenizer and the settings that they answer by."""

    def __init__(self, encoder: Any, tokenizer: Any, settings: HeadSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.tokenizer = tokenizer
        self.settings = settings
        self.head = CoreferenceHead(encoder.config.hidden_size, settings.size, settings.dropout, len(settings.schemes))
        self.openings, self.closing = _frames(tokenizer, [scheme.name for scheme in settings.schemes])

    @property
    def room(self) -> int:
        """Tokens of the text in a window."""
        return self.settings.window - max(map(len, self.openings)) - len(self.closing)

    def scheme_number(self, document: CorefDocument) -> int:
        names = [scheme.name for scheme in self.settings.schemes]
        return names.index(document.scheme) if document.scheme in names else 0

    def scheme(self, document: CorefDocument) -> AnnotationScheme:
        return self.settings.schemes[self.scheme_number(document)]

    @property
    def device(self) -> Any:
        return self.head.width.device

    def states_of(self, parts: Sequence[tuple[TokenizedDocument, TokenWindow]]) -> list[Any]:
        """Hidden states of each window's kept tokens.

        Scoring computes only those places, with one thread per window; training needs gradients, and so the whole pass.
        """
        tokens, real, kept = self._padded(parts)
        if torch.is_grad_enabled() or any(isinstance(layer, LowRank) for layer in self.encoder.modules()):
            states = encode(self.encoder, tokens, real)
            return [states[row, places] for row, places in enumerate(kept)]
        sizes = [places.stop - places.start for places in kept]
        rows = torch.from_numpy(np.repeat(np.arange(len(kept)), sizes)).to(self.device)
        columns = torch.from_numpy(np.concatenate([np.arange(places.start, places.stop) for places in kept])).to(self.device)
        return list(encode_at(self.encoder, tokens, real, rows, columns).split(sizes))

    def _padded(self, parts: Sequence[tuple[TokenizedDocument, TokenWindow]]) -> tuple[Any, Any, list[slice]]:
        """Windows as rows of ids between their frames, the mask of real tokens, and the places of each one's kept tokens."""
        openings = [self.openings[self.scheme_number(doc.document)] for doc, _ in parts]
        rows = [
            [*opening, *doc.pieces.ids[part.low : part.high].tolist(), *self.closing]
            for opening, (doc, part) in zip(openings, parts, strict=True)
        ]
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self.tokenizer.pad_token_id or 0, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        kept = [
            slice(len(opening) + part.keep_low - part.low, len(opening) + part.keep_high - part.low)
            for opening, (_, part) in zip(openings, parts, strict=True)
        ]
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device), kept

    def batches(self, doc: TokenizedDocument, tokens: int) -> Iterator[list[TokenWindow]]:
        """A document's overlapping windows, as many at a time as a budget of tokens allows."""
        overlap = self.room // 4
        every = windows(len(doc), self.room, overlap)
        count = max(1, tokens // self.settings.window)
        for low in range(0, len(every), count):
            yield every[low : low + count]


def _frames(tokenizer: Any, schemes: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """What stands before a text, by scheme, and behind it: special tokens, and the scheme's name where there are several."""
    opening, closing = (edge.tolist() for edge in special_edges(tokenizer))
    names = [tokenizer(name, add_special_tokens=False)["input_ids"] if len(schemes) > 1 else [] for name in schemes]
    return [[*opening, *name] for name in names], closing


def build_model(
    base: str, *, window: int, size: int, dropout: float, rank: int, seed: int, schemes: tuple[AnnotationScheme, ...]
) -> CoreferenceModel:
    """A model to train. Where `rank` is 0 all of the encoder is trained, else a change of that rank."""
    encoder, tokenizer = load_encoder(base)
    window, fingerprints = min(window, detect_seq_len(base)), model_fingerprints(base)
    settings = HeadSettings(
        full_name(base), fingerprints["weights"], window, size, dropout, rank, schemes, seed=seed, base_prints=fingerprints
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if rank:
            add_low_rank(encoder, rank)
        return CoreferenceModel(encoder, tokenizer, settings)


def save_weights(folder: Path, model: CoreferenceModel) -> None:
    """The head, and the whole encoder or its low-rank change. Until SETTINGS lie there too, the folder is incomplete."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    own = {f"head.{name}": value for name, value in model.head.state_dict().items()}
    if model.settings.rank:
        own |= {_ENCODER + name: value for name, value in low_rank_weights(model.encoder).items()}
        own = {name: value.to(torch.bfloat16) for name, value in own.items()}  # half the bytes of what is sent around
    else:
        with quiet_library():
            model.encoder.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
    save_file({name: value.detach().cpu().contiguous() for name, value in own.items()}, folder / HEAD)
    obey_umask(folder)


def load_model(
    folder: Path, device: str = "cpu", *, base: str | None = None, settings: HeadSettings | None = None
) -> CoreferenceModel:
    """A saved model, ready to resolve. `base` is where the encoder of a low-rank change lies now, and counts for no other model;
    `settings` are those of a folder that has none yet."""
    settings = settings or read_settings(folder)
    encoder, tokenizer, change, head = _opened(folder, settings, base)
    model = _assembled(folder, encoder, tokenizer, settings, head)
    merge_low_rank(encoder, change)
    move(model, device).eval()
    return model


def _assembled(folder: Path, encoder: Any, tokenizer: Any, settings: HeadSettings, head: dict[str, Any]) -> CoreferenceModel:
    try:
        model = CoreferenceModel(encoder, tokenizer, settings)
        model.head.load_state_dict(head)
    except RuntimeError as error:
        raise ModelError(f"{folder / HEAD} is damaged, or {SETTINGS} was edited; train it again.") from error
    return model


def build_from(folder: Path, base: str | None, *, dropout: float, seed: int) -> CoreferenceModel:
    """A saved model, ready to be trained further: a low-rank change stays apart from its encoder, which lies at `base`."""
    settings = read_settings(folder)
    encoder, tokenizer, change, head = _opened(folder, settings, base)
    settings = replace(settings, base=base or settings.base)  # where it lies now: what is trained further names it
    if settings.rank:
        add_low_rank(encoder, settings.rank)
        for name, value in change.items():
            encoder.get_parameter(name).data.copy_(value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _assembled(folder, encoder, tokenizer, replace(settings, dropout=dropout, seed=seed), head)


def head_identity(folder: Path, settings: HeadSettings, base: str | None = None) -> str:
    """All that decides a saved model's answers: its files, and the encoder that a low-rank change is added to."""
    place = _encoder_place(folder, settings, base)
    return fingerprint(folder_fingerprint(folder), model_fingerprints(place) if settings.rank else {})


def _encoder_place(folder: Path, settings: HeadSettings, base: str | None) -> str:
    if settings.rank:
        return base or settings.base
    if base is not None:
        raise ModelError(f"{folder} holds its whole encoder, and {base} would not be read; leave --base out.")
    return str(folder)


def _check_base(folder: Path, settings: HeadSettings, base: str) -> None:
    trained_on, now = settings.base_prints or {"weights": settings.weights}, model_fingerprints(base)
    if changed := [name for name, value in trained_on.items() if now.get(name) != value]:
        raise ModelError(
            f"{folder} is a head for {settings.base}, and {base} has different {changed[0]}; pass that encoder with "
            "--base, or train a head for this one."
        )


def read_settings(folder: Path) -> HeadSettings:
    if not (folder / SETTINGS).is_file():
        raise ModelError(f"{folder} is not a coreference model; pass the RUN folder of `coref-automl coref train`.")
    settings = read_stored(folder / SETTINGS, HeadSettings, error=ModelError, remedy=AGAIN)
    if settings.version != VERSION or not settings.schemes:
        raise ModelError(f"{folder} was written by another version, or edited; train it again with this one.")
    return settings


def _opened(folder: Path, settings: HeadSettings, base: str | None) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """Encoder and tokenizer of a folder, its low-rank change and its head; the encoder that the change needs is checked."""
    place = _encoder_place(folder, settings, base)
    if settings.rank:
        _check_base(folder, settings, place)
    encoder, tokenizer = load_encoder(place)
    own = read_head(folder / HEAD)
    change = {key.removeprefix(_ENCODER): value for key, value in own.items() if key.startswith(_ENCODER)}
    head = {key.removeprefix("head."): value.float() for key, value in own.items() if key.startswith("head.")}
    return encoder, tokenizer, change, head


_LORA_SCALE = 2.0
"""LoRA's scale (alpha / rank), the usual one: with it, the learning rate does not depend on the rank."""


class LowRank(nn.Module):  # type: ignore[misc]
    """A linear layer and its change; the change starts at zero."""

    def __init__(self, base: Any, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + _LORA_SCALE * nn.functional.linear(nn.functional.linear(inputs, self.down), self.up)


def add_low_rank(encoder: Any, rank: int) -> None:
    """Freeze the encoder and put a change beside each of its linear layers."""
    encoder.requires_grad_(False)
    for name, layer in list(encoder.named_modules()):
        if isinstance(layer, nn.Linear):
            parent, _, own = name.rpartition(".")
            setattr(encoder.get_submodule(parent), own, LowRank(layer, rank))


def low_rank_weights(encoder: Any) -> dict[str, Any]:
    found = {}
    for name, layer in encoder.named_modules():
        if isinstance(layer, LowRank):
            found[f"{name}.down"], found[f"{name}.up"] = layer.down.detach(), layer.up.detach()
    return found


def merge_low_rank(encoder: Any, change: dict[str, Any]) -> None:
    """Add a stored change to the weights of a plain encoder."""
    for name in sorted({name.rpartition(".")[0] for name in change}):
        layer = encoder.get_submodule(name)
        layer.weight.data += _LORA_SCALE * (change[f"{name}.up"].float() @ change[f"{name}.down"].float()).to(layer.weight)
