"""The model: an encoder and a head of two layers. In: token ids and the places of both start marks. Out: 30 logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from coref_automl.errors import ModelError
from coref_automl.models.attention import packed_masks
from coref_automl.models.heads import encode
from coref_automl.models.load import load_encoder
from coref_automl.models.vocabulary import word_ids
from coref_automl.relation.labels import LABELS
from coref_automl.relation.markers import ROLE_WORDS, TYPE_WORDS, Marker, special_tokens
from coref_automl.store import read_json, write_json

HeadKind = Literal["cls", "starts", "both"]
_PARTS = {"cls": (0,), "starts": (1, 2), "both": (0, 1, 2)}
_NOISE = 0.1


class RelationModel(nn.Module):  # type: ignore[misc]
    """Reads [CLS], the start marks, or both; one hidden layer; 30 logits."""

    base_model_prefix = "encoder"

    def __init__(self, encoder: Any, head: HeadKind, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self.parts = _PARTS[head]
        hidden = encoder.config.hidden_size
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(len(self.parts) * hidden, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, len(LABELS)),
        )

    def forward(self, ids: Any, mask: Any, starts: Any) -> Any:
        states = encode(self.encoder, ids, _masks(self.encoder, mask))
        places = torch.cat([torch.zeros_like(starts[:, :1]), starts], dim=1)[:, self.parts]
        read = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[-1]))
        return self.head(read.flatten(1)).float()


def _masks(encoder: Any, mask: Any) -> Any:
    """Ready-made masks of pairs: given a mask of tokens, the library looks whether it is all ones, and a GPU waits for that."""
    return mask if encoder.config.model_type == "deberta-v2" else packed_masks(encoder, mask)


def build_model(
    model: str, scheme: str, head: HeadKind, *, dropout: float, max_length: int, seed: int
) -> tuple[RelationModel, Marker]:
    """A model to train, with its marker. New marks start as the mean of words that say what they mean, with a little noise."""
    encoder, tokenizer = load_encoder(model)  # on the CPU: at a sentence's length, DeBERTa's compiled attention does not pay
    marker = Marker(tokenizer, scheme, max_length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _add_marks(encoder, tokenizer, scheme)
        return RelationModel(encoder, head, dropout), marker


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


def save_model(folder: Path, model: RelationModel, marker: Marker, settings: dict[str, Any]) -> None:
    """The encoder and tokenizer in the library's own layout, the head and the settings beside them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    with _without_bars():
        model.encoder.save_pretrained(folder)
    marker.tokenizer.save_pretrained(folder)
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in model.head.state_dict().items()}, folder / "head.safetensors"
    )
    write_json(folder / "relation.json", {**settings, "max_length": marker.max_length, "labels": list(LABELS)})


@contextmanager
def _without_bars() -> Iterator[None]:
    """The library shows a bar for every file it writes; progress is ours to show."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_model(folder: Path, device: str = "cpu") -> tuple[RelationModel, Marker, dict[str, Any]]:
    """What `save_model` wrote, ready to predict."""
    from safetensors.torch import load_file

    if not (folder / "relation.json").is_file():
        raise ModelError(f"{folder} holds no trained relation model; pass the RUN folder of `coref-automl re train`.")
    settings = read_json(folder / "relation.json")
    if settings["labels"] != list(LABELS):
        raise ModelError(f"{folder} was trained for other labels; train it again with this version.")
    encoder, tokenizer = load_encoder(str(folder))
    model = RelationModel(encoder, settings["head"], settings["dropout"])
    model.head.load_state_dict(load_file(folder / "head.safetensors"))
    return model.to(device).eval(), Marker(tokenizer, settings["scheme"], settings["max_length"]), settings
