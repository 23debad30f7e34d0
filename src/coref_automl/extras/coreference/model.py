"""The model: an encoder and a coreference head. In: tokenized documents. Out: states of tokens; and saved models.

A saved model is a folder: coreference.json (the settings, written last), head.safetensors, and the encoder if it was trained
whole. If it was trained with LoRA, head.safetensors has the adapter too, and the settings name the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from coref_automl.base.errors import ModelError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.store import obey_umask
from coref_automl.evaluation.windows import special_edges
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.extras.coreference.head import CoreferenceHead
from coref_automl.extras.coreference.lora import LoRALinear, add_lora, check_adapter, lora_weights, merge_lora
from coref_automl.extras.coreference.recipe import HEAD, SETTINGS, AnnotationScheme, HeadSettings, encoder_path, read_settings
from coref_automl.extras.coreference.tokens import TokenizedDocument, TokenWindow, windows
from coref_automl.models.execution import move
from coref_automl.models.families import length_of
from coref_automl.models.heads import encode, encode_at
from coref_automl.models.load import load_encoder, quiet_library
from coref_automl.models.model_files import detect_seq_len, folder_fingerprint, full_name, model_fingerprints, read_head

_ENCODER, _HEAD = "encoder.", "head."


class CoreferenceModel(nn.Module):  # type: ignore[misc]
    """An encoder and a head, with their tokenizer and settings. `prefixes` are the ids before a text, by scheme, `suffix` those
    after it: special tokens, and the scheme's name if there are several."""

    def __init__(self, encoder: Any, tokenizer: Any, settings: HeadSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.tokenizer = tokenizer
        self.settings = settings
        self.head = CoreferenceHead(encoder.config.hidden_size, settings.size, settings.dropout, len(settings.schemes))
        prefix, self.suffix = (edge.tolist() for edge in special_edges(tokenizer))
        names = [tokenizer(scheme.name, add_special_tokens=False)["input_ids"] for scheme in settings.schemes]
        self.prefixes = [[*prefix, *name] for name in names] if len(names) > 1 else [prefix]

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
        schemes = torch.tensor([self.scheme_index(doc.document) for doc, _ in parts])
        texts, columns, char_ids, recurrence = list[Any](), list[Any](), list[Any](), list[Any]()
        for (doc, window), scheme in zip(parts, schemes.tolist(), strict=True):
            prefix, kept = self.prefixes[scheme], slice(window.keep_low, window.keep_high)
            texts.append(torch.tensor([*prefix, *doc.pieces.ids[window.low : window.high].tolist(), *self.suffix]))
            columns.append(len(prefix) - window.low + torch.arange(kept.start, kept.stop))
            char_ids.append(torch.from_numpy(doc.char_ids[kept]))
            recurrence.append(torch.from_numpy(doc.recurrence[kept]))
        ids = pad_sequence(texts, batch_first=True, padding_value=self.tokenizer.pad_token_id or 0).to(self.device)
        mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True).to(self.device)
        rows = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(kept) for kept in columns]))
        positions = rows.to(self.device), torch.cat(columns).to(self.device)
        has_lora = any(isinstance(layer, LoRALinear) for layer in self.encoder.modules())
        if torch.is_grad_enabled() or has_lora:  # encode_at reads the weights of plain linear layers
            states = encode(self.encoder, ids, mask)[positions]
        else:
            states = encode_at(self.encoder, ids, mask, *positions)
        inputs = (torch.cat(char_ids), torch.cat(recurrence), schemes[rows])
        return self.head.token_inputs(states, *(tensor.to(self.device) for tensor in inputs))

    def window_batches(self, doc: TokenizedDocument, tokens: int) -> Iterator[list[TokenWindow]]:
        """Yield a document's overlapping windows, as many at a time as a budget of tokens allows, at least one."""
        every = windows(len(doc), self.capacity, self.capacity // 4)  # a quarter of a window is shared with the next
        count = max(1, tokens // self.settings.window)
        for low in range(0, len(every), count):
            yield every[low : low + count]


def build_model(
    base: str, *, window: int, size: int, dropout: float, rank: int, seed: int, schemes: tuple[AnnotationScheme, ...]
) -> CoreferenceModel:
    """Build a model to train: the whole encoder if `rank` is 0, else a LoRA adapter of that rank."""
    encoder, tokenizer = load_encoder(base)
    window, prints = min(window, detect_seq_len(base)), model_fingerprints(base)
    settings = HeadSettings(full_name(base), prints["weights"], window, size, dropout, rank, schemes, seed, base_prints=prints)
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


def load_model(
    folder: Path, device: str = "cpu", *, base: str | None = None, settings: HeadSettings | None = None
) -> CoreferenceModel:
    """Load a saved model for inference; an adapter is merged. `base` is where the adapter's encoder lies now, and is refused for
    any other model. `settings` are those of a folder that has none yet."""
    model, adapter = _read(folder, settings or read_settings(folder), base)
    if adapter:
        merge_lora(model.encoder, adapter)
    move(model, device).eval()
    return model


def load_for_training(folder: Path, base: str | None, *, dropout: float, seed: int) -> CoreferenceModel:
    """Load a saved model to train it further; an adapter is not merged, and the new settings name its encoder by `base`."""
    settings = read_settings(folder)
    with torch.random.fork_rng(devices=[]):
        model, adapter = _read(
            folder, settings, base, base=full_name(base) if base else settings.base, dropout=dropout, seed=seed
        )
        if adapter:
            add_lora(model.encoder, settings.rank)
            model.encoder.load_state_dict(adapter, strict=False)
    return model


def _read(folder: Path, settings: HeadSettings, base_path: str | None, **changes: Any) -> tuple[CoreferenceModel, dict[str, Any]]:
    """Return a saved model with a plain encoder and with `changes` of its settings, and its adapter, which is empty if the whole
    encoder was saved. A damaged head or adapter, and an encoder that the adapter was not trained on, are refused."""
    source = encoder_path(folder, settings, base_path)
    if settings.rank:
        _check_base(folder, settings, source)
    encoder, tokenizer = load_encoder(source)
    weights = read_head(folder / HEAD)
    adapter = {key.removeprefix(_ENCODER): value for key, value in weights.items() if key.startswith(_ENCODER)}
    head = {key.removeprefix(_HEAD): value.float() for key, value in weights.items() if key.startswith(_HEAD)}
    try:
        check_adapter(encoder, adapter, settings.rank)
        model = CoreferenceModel(encoder, tokenizer, replace(settings, **changes))  # an edited size may exceed memory
        model.head.load_state_dict(head)
        if model.capacity < 1 or settings.window > length_of(encoder.config):
            raise ValueError("window")
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{folder / HEAD} is damaged, or {SETTINGS} was edited; train it again.") from error
    return model, adapter


def head_identity(folder: Path, settings: HeadSettings, base: str | None = None) -> str:
    """Fingerprint everything that determines a saved model's answers: its files, and the encoder of an adapter."""
    source = encoder_path(folder, settings, base)
    return fingerprint(folder_fingerprint(folder), model_fingerprints(source) if settings.rank else {})


def _check_base(folder: Path, settings: HeadSettings, base: str) -> None:
    trained_on, current = settings.base_prints or {"weights": settings.weights}, model_fingerprints(base)
    if changed := [name for name, value in trained_on.items() if current.get(name) != value]:
        raise ModelError(
            f"{folder} is a head for {settings.base}, and {base} has different {changed[0]}; pass that encoder with "
            "--base, or train a head for this one."
        )
