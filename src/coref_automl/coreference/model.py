"""The model: an encoder and a coreference head. In: tokenized documents. Out: states of tokens; and saved models.

A saved model is a folder with the whole encoder or, if it was trained with LoRA, with the adapter alone and the name of the
encoder it belongs to. An adapter is two thin matrices per linear layer; merged into the weights, it leaves an ordinary encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from coref_automl.coreference.documents import CorefDocument
from coref_automl.coreference.head import CoreferenceHead
from coref_automl.coreference.recipe import HEAD, SETTINGS, AnnotationScheme, HeadSettings, read_settings
from coref_automl.coreference.tokens import TokenizedDocument, TokenWindow, windows
from coref_automl.errors import ModelError
from coref_automl.evaluation.windows import special_edges
from coref_automl.fingerprints import fingerprint
from coref_automl.models.execution import move
from coref_automl.models.heads import encode, encode_at
from coref_automl.models.load import load_encoder, quiet_library
from coref_automl.models.model_files import detect_seq_len, folder_fingerprint, full_name, model_fingerprints, read_head
from coref_automl.store import obey_umask

_ENCODER, _HEAD = "encoder.", "head."


class CoreferenceModel(nn.Module):  # type: ignore[misc]
    """An encoder and a head, with their tokenizer and settings."""

    def __init__(self, encoder: Any, tokenizer: Any, settings: HeadSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.tokenizer = tokenizer
        self.settings = settings
        self.head = CoreferenceHead(encoder.config.hidden_size, settings.size, settings.dropout, len(settings.schemes))
        self.prefixes, self.suffix = _prefixes_and_suffix(tokenizer, [scheme.name for scheme in settings.schemes])

    @property
    def capacity(self) -> int:
        """Tokens of the text that fit into a window."""
        return self.settings.window - max(map(len, self.prefixes)) - len(self.suffix)

    def scheme_index(self, document: CorefDocument) -> int:
        names = [scheme.name for scheme in self.settings.schemes]
        return names.index(document.scheme) if document.scheme in names else 0

    def scheme(self, document: CorefDocument) -> AnnotationScheme:
        return self.settings.schemes[self.scheme_index(document)]

    @property
    def device(self) -> Any:
        return self.head.width.device

    def encode_windows(self, parts: Sequence[tuple[TokenizedDocument, TokenWindow]]) -> Any:
        """Encode windows; return the head inputs of their kept tokens, end to end.

        Inference computes the last layer only at kept positions; training runs the full forward pass.
        """
        texts, kept = list[Any](), list[tuple[Any, ...]]()
        for row, (doc, window) in enumerate(parts):
            scheme, slot = self.scheme_index(doc.document), slice(window.keep_low, window.keep_high)
            prefix = self.prefixes[scheme]
            texts.append(torch.tensor([*prefix, *doc.pieces.ids[window.low : window.high].tolist(), *self.suffix]))
            columns = len(prefix) - window.low + torch.arange(slot.start, slot.stop)
            inputs = torch.from_numpy(doc.char_ids[slot]), torch.from_numpy(doc.recurrence[slot])
            kept.append((torch.full_like(columns, row), columns, *inputs, torch.full_like(columns, scheme)))
        ids = pad_sequence(texts, batch_first=True, padding_value=self.tokenizer.pad_token_id or 0).to(self.device)
        mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True).to(self.device)
        rows, columns, char_ids, recurrence, schemes = (torch.cat(part).to(self.device) for part in zip(*kept, strict=True))
        if torch.is_grad_enabled() or any(isinstance(layer, LoRALinear) for layer in self.encoder.modules()):
            states = encode(self.encoder, ids, mask)[rows, columns]
        else:
            states = encode_at(self.encoder, ids, mask, rows, columns)
        return self.head.token_inputs(states, char_ids, recurrence, schemes)

    def window_batches(self, doc: TokenizedDocument, tokens: int) -> Iterator[list[TokenWindow]]:
        """A document's overlapping windows, as many at a time as a budget of tokens allows."""
        every = windows(len(doc), self.capacity, self.capacity // 4)
        count = max(1, tokens // self.settings.window)
        for low in range(0, len(every), count):
            yield every[low : low + count]


def _prefixes_and_suffix(tokenizer: Any, schemes: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Ids before a text, by scheme, and behind it: special tokens, and the scheme's name if there are several."""
    prefix, suffix = (edge.tolist() for edge in special_edges(tokenizer))
    names = [tokenizer(name, add_special_tokens=False)["input_ids"] if len(schemes) > 1 else [] for name in schemes]
    return [[*prefix, *name] for name in names], suffix


def build_model(
    base: str, *, window: int, size: int, dropout: float, rank: int, seed: int, schemes: tuple[AnnotationScheme, ...]
) -> CoreferenceModel:
    """Build a model to train: the whole encoder if `rank` is 0, else a LoRA adapter of that rank."""
    encoder, tokenizer = load_encoder(base)
    window, identity = min(window, detect_seq_len(base)), model_fingerprints(base)
    settings = HeadSettings(
        full_name(base), identity["weights"], window, size, dropout, rank, schemes, seed, base_prints=identity
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if rank:
            add_lora(encoder, rank)
        return CoreferenceModel(encoder, tokenizer, settings)


def save_weights(folder: Path, model: CoreferenceModel) -> None:
    """Save the head, and the whole encoder or its adapter. The folder is incomplete until SETTINGS are written too."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {_HEAD + name: value for name, value in model.head.state_dict().items()}
    if model.settings.rank:
        weights |= {_ENCODER + name: value for name, value in lora_weights(model.encoder).items()}
        weights = {name: value.to(torch.bfloat16) for name, value in weights.items()}  # bfloat16 halves the download
    else:
        with quiet_library():
            model.encoder.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
    save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, folder / HEAD)
    obey_umask(folder)


@dataclass(frozen=True, slots=True, eq=False)
class _StoredModel:
    """A saved model as read from its folder; `adapter` is empty if the whole encoder was saved."""

    folder: Path
    settings: HeadSettings
    encoder: Any
    tokenizer: Any
    adapter: dict[str, Any]
    head: dict[str, Any]

    @classmethod
    def read(cls, folder: Path, settings: HeadSettings, base: str | None) -> _StoredModel:
        """Read a folder, and check the encoder that its adapter needs."""
        encoder_path = _encoder_path(folder, settings, base)
        if settings.rank:
            _check_base(folder, settings, encoder_path)
        encoder, tokenizer = load_encoder(encoder_path)
        weights = read_head(folder / HEAD)
        adapter = {key.removeprefix(_ENCODER): value for key, value in weights.items() if key.startswith(_ENCODER)}
        head = {key.removeprefix(_HEAD): value.float() for key, value in weights.items() if key.startswith(_HEAD)}
        return cls(folder, settings, encoder, tokenizer, adapter, head)

    def assemble(self, settings: HeadSettings) -> CoreferenceModel:
        try:
            model = CoreferenceModel(self.encoder, self.tokenizer, settings)
            model.head.load_state_dict(self.head)
        except RuntimeError as error:
            raise ModelError(f"{self.folder / HEAD} is damaged, or {SETTINGS} was edited; train it again.") from error
        return model


def load_model(
    folder: Path, device: str = "cpu", *, base: str | None = None, settings: HeadSettings | None = None
) -> CoreferenceModel:
    """Load a saved model for inference. `base` is where the encoder of an adapter lies now, and is refused for any other model;
    `settings` are those of a folder that has none yet."""
    stored = _StoredModel.read(folder, settings or read_settings(folder), base)
    model = stored.assemble(stored.settings)
    merge_lora(model.encoder, stored.adapter)
    move(model, device).eval()
    return model


def load_for_training(folder: Path, base: str | None, *, dropout: float, seed: int) -> CoreferenceModel:
    """Load a saved model to train it further. An adapter stays apart from its encoder, which the new model names by `base`."""
    stored = _StoredModel.read(folder, read_settings(folder), base)
    if stored.settings.rank:
        add_lora(stored.encoder, stored.settings.rank)
        for name, value in stored.adapter.items():
            stored.encoder.get_parameter(name).data.copy_(value)
    settings = replace(stored.settings, base=base or stored.settings.base, dropout=dropout, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return stored.assemble(settings)


def head_identity(folder: Path, settings: HeadSettings, base: str | None = None) -> str:
    """Fingerprint all that decides a saved model's answers: its files, and the encoder of an adapter."""
    encoder_path = _encoder_path(folder, settings, base)
    return fingerprint(folder_fingerprint(folder), model_fingerprints(encoder_path) if settings.rank else {})


def _encoder_path(folder: Path, settings: HeadSettings, base: str | None) -> str:
    if settings.rank:
        return base or settings.base
    if base is not None:
        raise ModelError(f"{folder} holds its whole encoder, and {base} would not be read; leave --base out.")
    return str(folder)


def _check_base(folder: Path, settings: HeadSettings, base: str) -> None:
    trained_on, current = settings.base_prints or {"weights": settings.weights}, model_fingerprints(base)
    if changed := [name for name, value in trained_on.items() if current.get(name) != value]:
        raise ModelError(
            f"{folder} is a head for {settings.base}, and {base} has different {changed[0]}; pass that encoder with "
            "--base, or train a head for this one."
        )


_LORA_SCALE = 2.0
"""LoRA's scale (alpha / rank), the usual one: with it, the learning rate does not depend on the rank."""


class LoRALinear(nn.Module):  # type: ignore[misc]
    """LoRA: a frozen linear layer plus a low-rank update that starts at zero."""

    def __init__(self, base: Any, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + _LORA_SCALE * nn.functional.linear(nn.functional.linear(inputs, self.down), self.up)


def add_lora(encoder: Any, rank: int) -> None:
    """Freeze the encoder and wrap each of its linear layers in a LoRALinear."""
    encoder.requires_grad_(False)
    for name, layer in list(encoder.named_modules()):
        if isinstance(layer, nn.Linear):
            parent, _, attribute = name.rpartition(".")
            setattr(encoder.get_submodule(parent), attribute, LoRALinear(layer, rank))


def lora_weights(encoder: Any) -> dict[str, Any]:
    layers = {name: layer for name, layer in encoder.named_modules() if isinstance(layer, LoRALinear)}
    return {f"{name}.{part}": getattr(layer, part).detach() for name, layer in layers.items() for part in ("down", "up")}


def merge_lora(encoder: Any, adapter: dict[str, Any]) -> None:
    """Add a saved adapter to the weights of a plain encoder."""
    for name in sorted({name.rpartition(".")[0] for name in adapter}):
        layer = encoder.get_submodule(name)
        layer.weight.data += _LORA_SCALE * (adapter[f"{name}.up"].float() @ adapter[f"{name}.down"].float()).to(layer.weight)
