"""A tokenizer as files. In: a folder. Out: a one-line error, before the library reads it.

Rules in tokenizer.json could hang or crash a command. Nearly all tokenizers have none that can; one with a regular expression
that repeats a group, or with replacements that multiply a text, is first tried on long runs of its own letters, in a process with
a limit of time and memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from coref_automl.base import guard
from coref_automl.base.errors import InputError, ModelError
from coref_automl.base.folders import Version, version_of
from coref_automl.base.store import read_json

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "tokenizer.model", "sentencepiece.bpe.model")
_WITH_RULES = ("tokenizer.json", "tokenizer_config.json")
_VOCABULARIES = (*_WITH_RULES, "vocab.json", "added_tokens.json")
_UNUSED_IDS = 1 << 20
"""Gaps in the ids up to this cost little memory; vocabularies that are plain lists, without ids to count, are far smaller."""
_REPEATED = re.compile(r"\)\s*[*+{]|\\[1-9]")
"""A repeated group or a back-reference, with which matching may take exponential time."""
_LONG_PATTERN = 2_000
_MOST_GROWTH = 64
_MOST_LETTERS = 24
_PROGRAM = """
import sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
for letter in sys.argv[2]:
    for end in ("", "!", "\\x00"):
        tokenizer.encode(letter * 4_000 + end)
"""


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def require_tokenizer(folder: Path) -> None:
    if not has_tokenizer(folder):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json or a vocabulary); copy it there from the base model.")


def check_tokenizer_files(name: str, folder: Path) -> None:
    """Refuse files with which the library would hang or crash; `name` is the model's."""
    require_tokenizer(folder)
    check_rules(name, folder)
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


def check_rules(name: str, folder: Path) -> None:
    """Refuse files that are too large, and rules that fail on a plain text."""
    for path in (folder / file for file in TOKENIZER_FILES if (folder / file).is_file()):
        guard.check_size(path)
    path = folder / "tokenizer.json"
    if path.is_file() and (why := _failure(path, version_of(path))):
        raise ModelError(f"The tokenizer of {name} fails on a plain text ({why}); copy it again from the base model.")


@lru_cache(maxsize=16)
def _failure(path: Path, _version: Version) -> str:
    try:
        rules = read_json(path)
    except InputError:
        return ""  # damaged: the library reports that
    stages = [rules.get(stage) for stage in ("normalizer", "pre_tokenizer")] if isinstance(rules, dict) else []
    patterns, growth = list[str](), 1
    for part in (part for stage in stages for part in _parts(stage)):
        pattern, content = part.get("pattern"), part.get("content")
        if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
            patterns.append(pattern["Regex"])
        growth *= max(1, len(content)) if isinstance(content, str) else 1  # characters that replace a match
    if growth <= _MOST_GROWTH and not any(_REPEATED.search(pattern) or len(pattern) > _LONG_PATTERN for pattern in patterns):
        return ""
    letters = "".join(dict.fromkeys([*(char for pattern in patterns for char in pattern if char.isalnum()), *"a가 1\n"]))
    return guard.failure_in_subprocess(_PROGRAM, str(path), letters[:_MOST_LETTERS])


def _parts(stage: Any) -> Iterator[dict[str, Any]]:
    """Yield a stage and the stages of a sequence."""
    if isinstance(stage, dict):
        yield stage
        for inner in ("normalizers", "pretokenizers"):
            for part in stage[inner] if isinstance(stage.get(inner), list) else ():
                yield from _parts(part)
