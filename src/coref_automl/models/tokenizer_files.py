"""A tokenizer as files. In: a folder. Out: a one-line error, before the library reads it."""

from __future__ import annotations

from pathlib import Path

from coref_automl.base import guard
from coref_automl.base.errors import InputError, ModelError
from coref_automl.base.store import read_json

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "tokenizer.model", "sentencepiece.bpe.model")
_WITH_RULES = ("tokenizer.json", "tokenizer_config.json")
_VOCABULARIES = (*_WITH_RULES, "vocab.json", "added_tokens.json")
_UNUSED_IDS = 1 << 20
"""Gaps in the ids up to this cost little memory; vocabularies that are plain lists, without ids to count, are far smaller."""


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def require_tokenizer(folder: Path) -> None:
    if not has_tokenizer(folder):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json or a vocabulary); copy it there from the base model.")


def check_tokenizer_files(name: str, folder: Path) -> None:
    """Refuse files that are missing or too large, and ids that are; `name` is the model's."""
    require_tokenizer(folder)
    for path in (folder / file for file in TOKENIZER_FILES if (folder / file).is_file()):
        guard.check_size(path)
    _check_ids(name, folder)


def _check_ids(name: str, folder: Path) -> None:
    """Refuse a huge id: tables have a row for every id up to it, and the library counts up to it."""
    ids = _ids(folder)
    entry = max(ids, key=ids.__getitem__, default="")
    if ids and ids[entry] >= 2 * len(ids) + _UNUSED_IDS:
        raise ModelError(
            f"The tokenizer of {name} has {len(ids):,} entries and gives {entry!r} the id {ids[entry]:,}; "
            f"copy it again from the base model."
        )


def _ids(folder: Path) -> dict[str, int]:
    """Read the ids of all entries from a tokenizer's JSON files; a vocabulary that is a plain list has none."""
    ids: dict[str, int] = {}
    for name in _VOCABULARIES:
        try:
            content = read_json(folder / name)
        except guard.TooLarge:
            raise
        except InputError:
            continue  # missing or damaged: the library reports that
        content = content if isinstance(content, dict) else {}
        model = content.get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None if name in _WITH_RULES else content
        ids |= {entry: id_ for entry, id_ in vocabulary.items() if isinstance(id_, int)} if isinstance(vocabulary, dict) else {}
        added = content.get("added_tokens")
        for entry in added if isinstance(added, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("id"), int):
                ids[str(entry.get("content"))] = entry["id"]
        decoder = content.get("added_tokens_decoder")
        ids |= {f"added {id_}": int(id_) for id_ in decoder if id_.isdecimal()} if isinstance(decoder, dict) else {}
    return ids
