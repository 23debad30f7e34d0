"""Checks of a checkpoint. In: the library's loading report, a tokenizer, a config. Out: notes, or an error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from coref_automl.base.errors import ModelError
from coref_automl.base.say import say
from coref_automl.models.families import LONGEST, family, length_of
from coref_automl.models.vocabulary import ids_end

_LAYERS = ("num_hidden_layers", "n_layers")
_MOST_RATIO = 3
"""A model may have this many times the parameters of its files: a new head repeats the embeddings, tied weights count once."""

_TOLERANCE = 1 << 22
"""Additional parameters that are always allowed, such as the position ids of a tiny model."""


def check_loading_report(name: str, model: Any, info: dict[str, Any], *, new_head: bool | None) -> list[str]:
    """Refuse missing weights and weights of another shape, except a new mask head if it is allowed; return notes.

    `new_head` None: the caller has no option for it, so errors do not mention it.
    """
    mismatched = sorted((key, tuple(stored), tuple(needed)) for key, stored, needed in info["mismatched_keys"])
    if mismatched:
        key, stored, needed = mismatched[0]
        raise ModelError(
            f"{name} does not fit its config: {key} is {_size(stored)} in the file and {_size(needed)} in the model"
            f"{_more(len(mismatched) - 1)}; correct config.json or pass another checkpoint."
        )
    prefix = model.base_model_prefix + "."
    has_no_head = model.base_model is model
    missing = sorted(info["missing_keys"])
    lost = [key for key in missing if has_no_head or key.startswith(prefix)]
    if lost:
        raise ModelError(f"{name} lacks weights of the encoder: {lost[0]}{_more(len(lost) - 1)}; copy the checkpoint again.")
    if missing and not new_head:
        raise ModelError(f"{name} has no trained mask head ({missing[0]} is new). Pass a checkpoint with one{_or_new(new_head)}.")
    names = ", ".join(missing)
    note = say(
        f"마스크 헤드가 새로 초기화되었습니다({names}). 학습해야 쓸 수 있습니다.",
        f"The mask head is new ({names}) and untrained.",
    )
    notes = [note] if missing else []
    unexpected = sorted(info["unexpected_keys"])
    foreign = [key for key in unexpected if _of_encoder(key, prefix)]
    if foreign:
        raise ModelError(
            f"{name} holds weights of the encoder that its config has no place for: {foreign[0]}{_more(len(foreign) - 1)}; "
            f"correct config.json (layers, sizes) or pass another checkpoint."
        )
    if unexpected:
        unused = ", ".join(unexpected)
        notes.append(say(f"체크포인트에서 쓰지 않은 가중치: {unused}.", f"Not used from the checkpoint: {unused}."))
    return notes


def check_layers(folder: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse more layers than there are weights, before the library's config allocates a list of them."""
    for name in _LAYERS:
        layers = config.get(name)
        if isinstance(layers, int) and layers > len(shapes):
            raise ModelError(
                f"{folder / 'config.json'} says {name} {layers:,}, and the files hold {len(shapes):,} weights in all; "
                f"correct it or copy the checkpoint again."
            )


def check_size(folder: Path, kind: Any, config: Any, shapes: dict[str, tuple[int, ...]], **options: Any) -> None:
    """Refuse a config that describes far more parameters than its files have, before memory is allocated for them."""
    import torch
    from transformers.initialization import no_init_weights

    if (length := length_of(config)) > LONGEST:
        raise ModelError(
            f"{folder / 'config.json'} says that the model reads {length:,} tokens, and more than {LONGEST:,} are not "
            f"supported; correct max_position_embeddings."
        )
    with no_init_weights(), torch.device("meta"):  # shapes without memory
        model = kind.from_config(config, **options)
    described = {name: tuple(part.shape) for name, part in (*model.named_parameters(), *model.named_buffers())}
    needed, stored = (sum(map(math.prod, part.values())) for part in (described, shapes))
    if needed > _MOST_RATIO * stored + _TOLERANCE:
        largest = max(described, key=lambda name: math.prod(described[name]))
        raise ModelError(
            f"{folder / 'config.json'} describes {needed:,} numbers, and the weight files hold {stored:,} (the largest would be "
            f"{largest}, {_size(described[largest])}); correct its sizes or copy the checkpoint again."
        )


def _or_new(new_head: bool | None) -> str:
    """Name the option that allows a new mask head, if the command has it."""
    return "" if new_head is None else ", or --new-head"


def _of_encoder(key: str, prefix: str) -> bool:
    inner = key.removeprefix(prefix)
    if inner.startswith(("pooler.", "embeddings.position_ids")) or inner.endswith("embeddings._weight"):
        return False  # DeBERTa-v3's files hold a second, unused table of that name
    return key.startswith(prefix) or inner.startswith(("embeddings.", "encoder.", "layers.", "transformer."))


def check_tokenizer(name: str, tokenizer: Any, config: Any) -> None:
    entries = ids_end(tokenizer)
    spare = config.vocab_size - entries
    # vocabularies are padded to round numbers, so a few unused rows are common; many mean another model's tokenizer
    if spare < 0 or spare > max(1024, config.vocab_size // 20):
        raise ModelError(
            f"The tokenizer of {name} has {entries:,} entries and the model's embedding {config.vocab_size:,} rows; "
            f"copy the tokenizer of the model it was trained from into the folder."
        )
    if family(config.model_type).positions == "offset" and tokenizer.pad_token_id != config.pad_token_id:
        raise ModelError(
            f"{name} counts positions from its padding token {config.pad_token_id}, "
            f"and its tokenizer pads with {tokenizer.pad_token_id}; "
            f"copy the tokenizer of the model it was trained from into the folder."
        )


def check_head(name: str, tokenizer: Any, shapes: dict[str, tuple[int, ...]], *, new_head: bool | None) -> None:
    if tokenizer.mask_token_id is None:
        raise ModelError(f"The tokenizer of {name} has no mask token, so nothing can be hidden; pass an encoder that has one.")
    discriminates = any(key.startswith("discriminator_predictions.") for key in shapes)
    if discriminates and "generator_predictions.dense.weight" not in shapes and not new_head:
        raise ModelError(f"{name} is an ELECTRA discriminator, which has no mask head; pass its generator{_or_new(new_head)}.")


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
