"""The model: an encoder and a coreference head. In: tokenized documents. Out: states of tokens; and saved models.

MODEL/coreference.json       the settings of the head, written last
MODEL/head.safetensors       tensors `head.NAME` and, if only a LoRA adapter was trained, `encoder.NAME` in bfloat16
MODEL/config.json, ...       encoder and tokenizer, if the whole encoder was trained; otherwise the settings name the encoder
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from coref_automl.coreference.documents import CorefDocument
from coref_automl.coreference.head import CoreferenceHead
from coref_automl.coreference.lora import adapter_fits, add_lora, has_lora, load_lora, lora_weights, merge_lora
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
_OVERLAP = 4
"""A quarter of a window is shared with the next one."""


class _KeptTokens(NamedTuple):
    """The tokens of some windows whose states are used, end to end: (row, column) in the padded batch, and inputs of the head."""

    rows: Any
    columns: Any
    char_ids: Any
    recurrence: Any
    schemes: Any


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
        """How many tokens of a text fit into a window beside the special tokens."""
        return self.settings.window - max(map(len, self.prefixes)) - len(self.suffix)

    def scheme_index(self, document: CorefDocument) -> int:
        """The position of a document's annotation scheme among those of the head; the first if the head does not know it."""
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
        texts = [self._window_ids(doc, window) for doc, window in parts]
        ids = pad_sequence(texts, batch_first=True, padding_value=self.tokenizer.pad_token_id or 0).to(self.device)
        mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True).to(self.device)
        kept = self._kept_tokens(parts)
        if torch.is_grad_enabled() or has_lora(self.encoder):  # encode_at reads the weights of plain linear layers
            states = encode(self.encoder, ids, mask)[kept.rows, kept.columns]
        else:
            states = encode_at(self.encoder, ids, mask, kept.rows, kept.columns)
        return self.head.token_inputs(states, kept.char_ids, kept.recurrence, kept.schemes)

    def _window_ids(self, doc: TokenizedDocument, window: TokenWindow) -> Any:
        prefix = self.prefixes[self.scheme_index(doc.document)]
        return torch.tensor([*prefix, *doc.pieces.ids[window.low : window.high].tolist(), *self.suffix])

    def _kept_tokens(self, parts: Sequence[tuple[TokenizedDocument, TokenWindow]]) -> _KeptTokens:
        windows_kept = []
        for row, (doc, window) in enumerate(parts):
            scheme, kept = self.scheme_index(doc.document), slice(window.keep_low, window.keep_high)
            columns = len(self.prefixes[scheme]) - window.low + torch.arange(kept.start, kept.stop)
            inputs = torch.from_numpy(doc.char_ids[kept]), torch.from_numpy(doc.recurrence[kept])
            windows_kept.append(_KeptTokens(torch.full_like(columns, row), columns, *inputs, torch.full_like(columns, scheme)))
        return _KeptTokens(*(torch.cat(column).to(self.device) for column in zip(*windows_kept, strict=True)))

    def window_batches(self, doc: TokenizedDocument, tokens: int) -> Iterator[list[TokenWindow]]:
        """Yield a document's overlapping windows, as many at a time as a budget of tokens allows, at least one."""
        every = windows(len(doc), self.capacity, self.capacity // _OVERLAP)
        count = max(1, tokens // self.settings.window)
        for low in range(0, len(every), count):
            yield every[low : low + count]


def _prefixes_and_suffix(tokenizer: Any, schemes: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Return the ids before a text, for each scheme, and after it: special tokens, and a scheme's name if there are several."""
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
    """Save the head, and the whole encoder or its adapter. The folder is incomplete until the caller writes SETTINGS, too."""
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
    """A saved model as read from its folder; `adapter` fits the encoder and is empty if the whole encoder was saved."""

    folder: Path
    settings: HeadSettings
    encoder: Any
    tokenizer: Any
    adapter: dict[str, Any]
    head: dict[str, Any]

    @classmethod
    def read(cls, folder: Path, settings: HeadSettings, base: str | None) -> _StoredModel:
        """Read a folder; refuse an encoder that the adapter was not trained on, and an adapter that is damaged."""
        encoder_path = _encoder_path(folder, settings, base)
        if settings.rank:
            _check_base(folder, settings, encoder_path)
        encoder, tokenizer = load_encoder(encoder_path)
        weights = read_head(folder / HEAD)
        adapter = {key.removeprefix(_ENCODER): value for key, value in weights.items() if key.startswith(_ENCODER)}
        if not adapter_fits(encoder, adapter, settings.rank):
            raise _damaged(folder)
        head = {key.removeprefix(_HEAD): value.float() for key, value in weights.items() if key.startswith(_HEAD)}
        return cls(folder, settings, encoder, tokenizer, adapter, head)

    def assemble(self, settings: HeadSettings) -> CoreferenceModel:
        """Put encoder and head together."""
        try:
            model = CoreferenceModel(self.encoder, self.tokenizer, settings)  # an edited size may exceed memory
            model.head.load_state_dict(self.head)
        except RuntimeError as error:
            raise _damaged(self.folder) from error
        return model


def _damaged(folder: Path) -> ModelError:
    return ModelError(f"{folder / HEAD} is damaged, or {SETTINGS} was edited; train it again.")


def load_model(
    folder: Path, device: str = "cpu", *, base: str | None = None, settings: HeadSettings | None = None
) -> CoreferenceModel:
    """Load a saved model for inference, with an adapter merged into its encoder.

    `base` is where the encoder of an adapter lies now, and is refused for any other model. `settings` are needed only for a
    folder in which they are not written yet.
    """
    stored = _StoredModel.read(folder, settings or read_settings(folder), base)
    model = stored.assemble(stored.settings)
    merge_lora(model.encoder, stored.adapter)
    move(model, device).eval()
    return model


def load_for_training(folder: Path, base: str | None, *, dropout: float, seed: int) -> CoreferenceModel:
    """Load a saved model to train it further; an adapter is not merged, and the new settings name its encoder by `base`."""
    stored = _StoredModel.read(folder, read_settings(folder), base)
    if stored.settings.rank:
        add_lora(stored.encoder, stored.settings.rank)
        load_lora(stored.encoder, stored.adapter)
    settings = replace(stored.settings, base=base or stored.settings.base, dropout=dropout, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return stored.assemble(settings)


def head_identity(folder: Path, settings: HeadSettings, base: str | None = None) -> str:
    """Fingerprint everything that determines a saved model's answers: its files, and the encoder of an adapter."""
    encoder_path = _encoder_path(folder, settings, base)
    return fingerprint(folder_fingerprint(folder), model_fingerprints(encoder_path) if settings.rank else {})


def _encoder_path(folder: Path, settings: HeadSettings, base: str | None) -> str:
    """Where the encoder lies: for an adapter, `base` or where it was trained; otherwise in the folder."""
    if settings.rank:
        return base or settings.base
    if base is not None:
        raise ModelError(f"{folder} holds its whole encoder, and {base} would not be read; leave --base out.")
    return str(folder)


def _check_base(folder: Path, settings: HeadSettings, base: str) -> None:
    """Refuse an encoder whose bytes differ from those that the adapter was trained on; older settings have its weights alone."""
    trained_on, current = settings.base_prints or {"weights": settings.weights}, model_fingerprints(base)
    if changed := [name for name, value in trained_on.items() if current.get(name) != value]:
        raise ModelError(
            f"{folder} is a head for {settings.base}, and {base} has different {changed[0]}; pass that encoder with "
            "--base, or train a head for this one."
        )
