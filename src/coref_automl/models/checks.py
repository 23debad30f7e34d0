"""What a checkpoint must hold. In: the library's loading report, a tokenizer, a config. Out: notes, or an error."""

from __future__ import annotations

from typing import Any

from coref_automl.errors import ModelError
from coref_automl.models.families import family


def judge(name: str, model: Any, info: dict[str, Any], *, new_head: bool | None) -> list[str]:
    """Nothing the model needs may be new or of another shape, except a mask head that was asked for.

    None: there is no such thing to ask for where the model is used, and the error does not speak of it.
    """
    wrong = sorted((key, tuple(was), tuple(should)) for key, was, should in info["mismatched_keys"])
    if wrong:
        key, was, should = wrong[0]
        raise ModelError(
            f"{name} does not fit its config: {key} is {_size(was)} in the file and {_size(should)} in the model"
            f"{_more(len(wrong) - 1)}; correct config.json or pass another checkpoint."
        )
    prefix = model.base_model_prefix + "."
    bare = model.base_model is model
    missing = sorted(info["missing_keys"])
    inside = [key for key in missing if bare or key.startswith(prefix)]
    if inside:
        raise ModelError(f"{name} lacks weights of the encoder: {inside[0]}{_more(len(inside) - 1)}; copy the checkpoint again.")
    if missing and not new_head:
        raise ModelError(f"{name} has no trained mask head ({missing[0]} is new). Pass a checkpoint with one{or_new(new_head)}.")
    notes = [f"The mask head is new ({', '.join(missing)}): it knows nothing until it is trained."] if missing else []
    surplus = sorted(info["unexpected_keys"])
    foreign = [key for key in surplus if _of_encoder(key, prefix)]
    if foreign:
        raise ModelError(
            f"{name} holds weights of the encoder that its config has no place for: {foreign[0]}{_more(len(foreign) - 1)}; "
            f"correct config.json (layers, sizes) or pass another checkpoint."
        )
    if surplus:
        notes.append(f"Not used from the checkpoint: {', '.join(surplus)}.")
    return notes


def or_new(new_head: bool | None) -> str:
    """The other way out of a missing mask head, where the command has it."""
    return "" if new_head is None else ", or --new-head"


def _of_encoder(key: str, prefix: str) -> bool:
    inner = key.removeprefix(prefix)
    if inner.startswith(("pooler.", "embeddings.position_ids")):
        return False
    return key.startswith(prefix) or inner.startswith(("embeddings.", "encoder.", "layers.", "transformer."))


def check_tokenizer(name: str, tokenizer: Any, config: Any) -> None:
    entries = max(tokenizer.get_vocab().values()) + 1
    spare = config.vocab_size - entries
    # vocabularies are padded to round numbers, so a few spare rows are usual; many mean another model's tokenizer
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


def is_discriminator(shapes: dict[str, tuple[int, ...]]) -> bool:
    return (
        any(key.startswith("discriminator_predictions.") for key in shapes) and "generator_predictions.dense.weight" not in shapes
    )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
