"""The model: an encoder and a head of two layers. In: token ids and the places of both start marks. Out: 30 logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from coref_automl.errors import ModelError
from coref_automl.models.attention import move, packed_masks
from coref_automl.models.heads import encode
from coref_automl.models.load import load_encoder, quiet_library
from coref_automl.models.vocabulary import word_ids
from coref_automl.relation.markers import ROLE_WORDS, TYPE_WORDS, Marker, special_tokens
from coref_automl.relation.recipe import HeadKind
from coref_automl.relation.rows import LABELS
from coref_automl.relation.scoring import HEAD, SETTINGS, ModelSettings, settings_of
from coref_automl.store import obey_umask, write_json
from coref_automl.training.loss import with_dropout

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
            nn.Dropout(dropout),
            nn.Linear(read, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, len(LABELS)),
        )
        self.distance = nn.Embedding(2 * (len(_EDGES) + 1), read) if distance else None
        if self.distance is not None:
            nn.init.zeros_(self.distance.weight)
        self.register_buffer("edges", torch.tensor(_EDGES), persistent=False)

    def forward(self, ids: Any, mask: Any, starts: Any) -> Any:
        states = encode(self.encoder, ids, _masks(self.encoder, mask))
        places = torch.cat([torch.zeros_like(starts[:, :1]), starts], dim=1)[:, self.parts]
        read = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[-1])).flatten(1)
        if self.distance is not None:
            read = read + self.distance(self._bucket(starts[:, 1] - starts[:, 0]))
        return self.head(read).float()

    def _bucket(self, tokens: Any) -> Any:
        """Distances in powers of two; those to the left come after those to the right."""
        return torch.bucketize(tokens.abs(), self.edges, right=True) + (tokens < 0) * (len(_EDGES) + 1)


def _masks(encoder: Any, mask: Any) -> Any:
    """Ready-made masks of pairs: given a mask of tokens, the library looks whether it is all ones, and a GPU waits for that."""
    return mask if encoder.config.model_type == "deberta-v2" else packed_masks(encoder, mask)


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
    """What `save_model` wrote, ready to predict."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    settings = settings_of(folder)
    if settings.labels != LABELS:
        raise ModelError(f"{folder} was trained for other labels; train it again with this version.")
    encoder, tokenizer = load_encoder(str(folder))
    model = RelationModel(encoder, settings.head, settings.dropout, distance=settings.distance)
    try:
        own = load_file(folder / HEAD)
        if model.distance is not None:
            model.distance.weight.data.copy_(own.pop(_DISTANCE))
        model.head.load_state_dict(own)
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise ModelError(f"{folder / HEAD} is damaged, or {SETTINGS} was edited ({error}); train that seed again.") from error
    return move(model, device).eval(), Marker(tokenizer, settings.scheme, settings.max_length), settings
